// Reverse-mode differentiation of a graph: appends the operations that compute gradients.
// What it appends is an ordinary part of the graph, and can be differentiated again.
#pragma once

#include <unordered_map>
#include <vector>

#include "topstitch/graph.h"

namespace topstitch {

// The gradient of `primary` with respect to each of `tensors`, which may be placeholders, variables or
// intermediate results. `seed` weighs the elements of `primary`, and has its dtype and shape; without one all weigh 1,
// so that the gradient is that of the sum. A tensor that `primary` does not depend on gets zeros.
//
// TypeError when `primary` or one of `tensors` is not floating-point; UserError, with the path of operations, when
// an operation on the way has no gradient; UnsupportedError for complex tensors.
TOPSTITCH_API std::unordered_map<Tensor, Tensor> gradients(const Tensor& primary, const std::vector<Tensor>& tensors,
                                                           const Tensor& seed = {});

}  // namespace topstitch
