// What a scalar instruction costs.
// In the unit of all decisions about computing again or reading back: one addition.
#pragma once

#include "loopir/kernel.h"

namespace topstitch::loopir {

double cost_of(const Instr& instr);

}  // namespace topstitch::loopir
