// The passes over a Program, each in the file of its name, and their order (pipeline.cpp).
// They run under the DimAssumptions of the specialisation.
#pragma once

#include "passes/program.h"

namespace topstitch {

// Composites into their expansions, until none is left but, with `keep_library`, those with kernels of their own.
Program expand(const Program& program, bool keep_library);
Program simplify(const Program& program);  // algebra that is exact, and operations that do nothing
Program turn(const Program& program);      // transposes of products
Program fold(const Program& program);      // operations on small constants
Program cse(const Program& program);       // equal operations on equal inputs, once
Program dce(const Program& program);       // what no result and no assignment needs, dropped
Program anchor(const Program& program);    // every result computed by an operation of its own

// Of loops and branches:
Program bodies(const Program& program, bool keep_library);  // their functions, specialised and tidy
Program hoist(const Program& program);   // what is the same in all iterations of a loop, in front of it
Program recall(const Program& program);  // what a loop computes again, kept by the loop that has computed it

// Those before the loops', in order.
Program tidy(const Program& program, bool keep_library);
// All of them in order. Without `keep_library` loops are left as they are described.
Program canonicalize(const Program& program, bool keep_library);
// The function of a loop or branch, when its program has been through the passes.
Program canonicalize_body(const Program& program, bool keep_library);

}  // namespace topstitch
