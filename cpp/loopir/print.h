// Text of single statements, for messages that name one.
// The text of whole kernels is print() in kernel.h.
#pragma once

#include <string>

#include "loopir/kernel.h"

namespace topstitch::loopir {

// The statement on one line as print() shows it; of a loop, its head. Statements that refer to nothing are tolerated.
std::string print_statement(const Kernel& kernel, const Stmt& stmt);

}  // namespace topstitch::loopir
