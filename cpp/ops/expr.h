// Shorthand for composites and gradient rules: tensor operators and functions, each one apply() call.
// Users get the full, generated builders of topstitch/ops.h instead.
#pragma once

#include <vector>

#include "graph/apply.h"

namespace topstitch::expr {

Tensor constant_like(double value, const Tensor& like);  // a scalar of like's dtype, in like's graph
Tensor unary(std::string_view op, const Tensor& x);
Tensor binary(std::string_view op, const Tensor& a, const Tensor& b);

Tensor operator+(const Tensor& a, const Tensor& b);
Tensor operator-(const Tensor& a, const Tensor& b);
Tensor operator*(const Tensor& a, const Tensor& b);
Tensor operator/(const Tensor& a, const Tensor& b);
Tensor operator-(const Tensor& a);
Tensor operator+(const Tensor& a, double b);
Tensor operator+(double a, const Tensor& b);
Tensor operator-(const Tensor& a, double b);
Tensor operator-(double a, const Tensor& b);
Tensor operator*(const Tensor& a, double b);
Tensor operator*(double a, const Tensor& b);
Tensor operator/(const Tensor& a, double b);
Tensor operator/(double a, const Tensor& b);

Tensor exp(const Tensor& x);
Tensor log(const Tensor& x);
Tensor log1p(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor rsqrt(const Tensor& x);
Tensor square(const Tensor& x);
Tensor abs(const Tensor& x);
Tensor sign(const Tensor& x);
Tensor sin(const Tensor& x);
Tensor cos(const Tensor& x);
Tensor tanh(const Tensor& x);
Tensor erf(const Tensor& x);
Tensor sigmoid(const Tensor& x);
Tensor power(const Tensor& a, const Tensor& b);
Tensor maximum(const Tensor& a, const Tensor& b);
Tensor minimum(const Tensor& a, const Tensor& b);
Tensor less(const Tensor& a, const Tensor& b);
Tensor greater(const Tensor& a, const Tensor& b);
Tensor equal(const Tensor& a, const Tensor& b);
Tensor logical_and(const Tensor& a, const Tensor& b);
Tensor logical_not(const Tensor& a);
Tensor where(const Tensor& predicate, const Tensor& a, const Tensor& b);
Tensor zeros_like(const Tensor& x);
Tensor ones_like(const Tensor& x);
Tensor cast(const Tensor& x, DType dtype);
Tensor stop_gradient(const Tensor& x);

Tensor sum(const Tensor& x, const std::vector<std::int64_t>& axes, bool keepdims);
Tensor mean(const Tensor& x, const std::vector<std::int64_t>& axes, bool keepdims);
Tensor max(const Tensor& x, const std::vector<std::int64_t>& axes, bool keepdims);
Tensor reshape(const Tensor& x, const Shape& shape);
Tensor transpose(const Tensor& x, const std::vector<std::int64_t>& permutation);
Tensor expand_dims(const Tensor& x, const std::vector<std::int64_t>& axes);
Tensor matmul(const Tensor& a, const Tensor& b);

// Operations whose shape is that of another tensor; they resolve when the dims are known (at compile time), which
// lets gradient rules work with unknown dims. The second input gives its shape only.
Tensor broadcast_like(const Tensor& x, const Tensor& like);  // NumPy broadcasting of x to like's shape
Tensor sum_like(const Tensor& x, const Tensor& like);        // the adjoint: sums x down to like's shape
Tensor reshape_like(const Tensor& x, const Tensor& like);    // same elements in like's shape

}  // namespace topstitch::expr
