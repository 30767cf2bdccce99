// The passes over a Program, each in the file of its name, and their order (pipeline.cpp).
// They run under the DimAssumptions of the specialisation.
#pragma once

#include "passes/program.h"

namespace topstitch {

Program expand(const Program& program);    // composites into their expansions, until none is left
Program simplify(const Program& program);  // algebra that is exact, and operations that do nothing
Program fold(const Program& program);      // operations on small constants
Program cse(const Program& program);       // equal operations on equal inputs, once
Program dce(const Program& program);       // what no result and no assignment needs, dropped
Program anchor(const Program& program);    // every result computed by an operation of its own

// All of them in order.
Program canonicalize(const Program& program);

}  // namespace topstitch
