// Sums over the iterations of a loop that are computed behind it: the sum of products of matrices is one product of the
// factors of all iterations, side by side, which needs neither a sum in memory nor a pass over it in each iteration.
#pragma once

#include <functional>
#include <vector>

#include "graph/op_def.h"

namespace topstitch::ops {

// Of a loop: how often it runs, and what is the same in all its iterations.
struct Iterations {
    Dim count;
    std::function<bool(const Tensor&)> is_invariant;
};

// Whether a sum of `term`, a tensor of the loop's body, over all iterations is better computed behind the loop.
// `factors` is appended the matrices of the body that it needs of all iterations.
bool can_defer_sum(const Tensor& term, const Iterations& iterations, std::vector<Tensor>& factors);

// That sum outside of the loop. `stack_of` gives for each of the factors [a, b] the stack [iterations, a, b].
Tensor deferred_sum(const Tensor& term, const std::function<Tensor(const Tensor&)>& stack_of);

}  // namespace topstitch::ops
