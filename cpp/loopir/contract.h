// Forms fused multiply-adds in a kernel: a sum or difference with a product that nothing else uses.
// Done on the loop IR, so that the scalar and the vector form of a loop round alike.
#pragma once

#include <vector>

#include "loopir/kernel.h"

namespace topstitch::loopir {

// `kernel` with add(mul(a, b), c), sub(mul(a, b), c) and sub(c, mul(a, b)) of floats as fma.
Kernel contract(Kernel kernel);

// How often each value is used, by instructions that are evaluated, indices and statements.
std::vector<int> count_uses(const Kernel& kernel);

}  // namespace topstitch::loopir
