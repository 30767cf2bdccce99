// Shorthand for composites and gradient rules: each function appends one operation.
// Scalars written as numbers become constants of the other operand's dtype.
#include "ops/expr.h"

namespace topstitch::expr {

namespace {

Tensor reduce(std::string_view op, const Tensor& x, const std::vector<std::int64_t>& axes, bool keepdims) {
    return apply(op, {x}, {{"axes", axes}, {"keepdims", keepdims}});
}

// Unknown dims equal nothing, and unknown ranks count as different.
bool surely_same_shape(const Tensor& a, const Tensor& b) {
    return a.shape().has_rank() && b.shape().has_rank() && a.shape() == b.shape();
}

}  // namespace

Tensor constant_like(double value, const Tensor& like) {
    return Graph(like.graph_data()).constant(value, like.dtype());
}

Tensor unary(std::string_view op, const Tensor& x) {
    return apply(op, {x});
}
Tensor binary(std::string_view op, const Tensor& a, const Tensor& b) {
    return apply(op, {a, b});
}

Tensor operator+(const Tensor& a, const Tensor& b) {
    return binary("add", a, b);
}
Tensor operator-(const Tensor& a, const Tensor& b) {
    return binary("subtract", a, b);
}
Tensor operator*(const Tensor& a, const Tensor& b) {
    return binary("multiply", a, b);
}
Tensor operator/(const Tensor& a, const Tensor& b) {
    return binary("divide", a, b);
}
Tensor operator-(const Tensor& a) {
    return unary("negative", a);
}
Tensor operator+(const Tensor& a, double b) {
    return a + constant_like(b, a);
}
Tensor operator+(double a, const Tensor& b) {
    return constant_like(a, b) + b;
}
Tensor operator-(const Tensor& a, double b) {
    return a - constant_like(b, a);
}
Tensor operator-(double a, const Tensor& b) {
    return constant_like(a, b) - b;
}
Tensor operator*(const Tensor& a, double b) {
    return a * constant_like(b, a);
}
Tensor operator*(double a, const Tensor& b) {
    return constant_like(a, b) * b;
}
Tensor operator/(const Tensor& a, double b) {
    return a / constant_like(b, a);
}
Tensor operator/(double a, const Tensor& b) {
    return constant_like(a, b) / b;
}

Tensor exp(const Tensor& x) {
    return unary("exp", x);
}
Tensor log(const Tensor& x) {
    return unary("log", x);
}
Tensor log1p(const Tensor& x) {
    return unary("log1p", x);
}
Tensor sqrt(const Tensor& x) {
    return unary("sqrt", x);
}
Tensor rsqrt(const Tensor& x) {
    return unary("rsqrt", x);
}
Tensor square(const Tensor& x) {
    return unary("square", x);
}
Tensor abs(const Tensor& x) {
    return unary("absolute", x);
}
Tensor sign(const Tensor& x) {
    return unary("sign", x);
}
Tensor sin(const Tensor& x) {
    return unary("sin", x);
}
Tensor cos(const Tensor& x) {
    return unary("cos", x);
}
Tensor tanh(const Tensor& x) {
    return unary("tanh", x);
}
Tensor erf(const Tensor& x) {
    return unary("erf", x);
}
Tensor sigmoid(const Tensor& x) {
    return unary("sigmoid", x);
}
Tensor power(const Tensor& a, const Tensor& b) {
    return binary("power", a, b);
}
Tensor maximum(const Tensor& a, const Tensor& b) {
    return binary("maximum", a, b);
}
Tensor minimum(const Tensor& a, const Tensor& b) {
    return binary("minimum", a, b);
}
Tensor less(const Tensor& a, const Tensor& b) {
    return binary("less", a, b);
}
Tensor greater(const Tensor& a, const Tensor& b) {
    return binary("greater", a, b);
}
Tensor equal(const Tensor& a, const Tensor& b) {
    return binary("equal", a, b);
}
Tensor logical_and(const Tensor& a, const Tensor& b) {
    return binary("logical_and", a, b);
}
Tensor logical_not(const Tensor& a) {
    return unary("logical_not", a);
}
Tensor where(const Tensor& predicate, const Tensor& a, const Tensor& b) {
    return apply("where", {predicate, a, b});
}
Tensor zeros_like(const Tensor& x) {
    return apply("full_like", {x}, {{"value", 0.0}});
}
Tensor ones_like(const Tensor& x) {
    return apply("full_like", {x}, {{"value", 1.0}});
}
Tensor cast(const Tensor& x, DType dtype) {
    return apply("cast", {x}, {{"dtype", dtype}});
}
Tensor stop_gradient(const Tensor& x) {
    return unary("stop_gradient", x);
}

Tensor sum(const Tensor& x, const std::vector<std::int64_t>& axes, bool keepdims) {
    return reduce("sum", x, axes, keepdims);
}
Tensor mean(const Tensor& x, const std::vector<std::int64_t>& axes, bool keepdims) {
    return reduce("mean", x, axes, keepdims);
}
Tensor max(const Tensor& x, const std::vector<std::int64_t>& axes, bool keepdims) {
    return reduce("max", x, axes, keepdims);
}
Tensor reshape(const Tensor& x, const Shape& shape) {
    return apply("reshape", {x}, {{"shape", shape}});
}
Tensor transpose(const Tensor& x, const std::vector<std::int64_t>& permutation) {
    return apply("transpose", {x}, {{"permutation", permutation}});
}
Tensor expand_dims(const Tensor& x, const std::vector<std::int64_t>& axes) {
    return apply("expand_dims", {x}, {{"axes", axes}});
}
Tensor matmul(const Tensor& a, const Tensor& b) {
    return binary("matmul", a, b);
}

Tensor broadcast_like(const Tensor& x, const Tensor& like) {
    return surely_same_shape(x, like) ? x : binary("broadcast_like", x, like);
}
Tensor sum_like(const Tensor& x, const Tensor& like) {
    return surely_same_shape(x, like) ? x : binary("sum_like", x, like);
}
Tensor reshape_like(const Tensor& x, const Tensor& like) {
    return surely_same_shape(x, like) ? x : binary("reshape_like", x, like);
}

}  // namespace topstitch::expr
