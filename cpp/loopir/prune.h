// Takes out of a kernel what has no effect: values that nothing uses and loops that do nothing.
// Values are renumbered in the order of their evaluation.
#pragma once

#include "loopir/kernel.h"

namespace topstitch::loopir {

void drop_unused(Kernel& kernel);

}  // namespace topstitch::loopir
