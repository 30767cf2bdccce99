// Operations on three tensors that broadcast together: where, clamp, fma.
// Their gradients are summed down to the shapes of the inputs.
#include "ops/elementwise.h"
#include "ops/expr.h"
#include "ops/families.h"

namespace topstitch::ops {

using namespace expr;
using loopir::ScalarOp;

namespace {

OpDef where_op() {
    OpDef def;
    def.name = "where";
    def.family = "elementwise";
    def.doc =
        "a where the predicate is true, b elsewhere; all three broadcast together. The element that is not chosen has "
        "no influence, not even as NaN or inf, and its gradient is 0. What computed it multiplies that 0 by its own "
        "derivative, though: where(x > 0, sqrt(x), 0) has the gradient 0 * inf = NaN at 0, so choose x first.";
    def.args = {{"predicate", "bool tensor"}, {"a", "tensor of any dtype"}, {"b", "tensor of the dtype of a"}};
    def.results = {"y"};
    def.infer = [](const OpView& view) {
        require_bool(view, 0);
        require_same_dtype(view, 1, 2);
        return std::vector<TensorType>{broadcast_type(view, view.input(1).dtype)};
    };
    def.body = ElementBody{[](ElementContext& c, const Indices& at) {
        return c.select(c.broadcast_operand(0, at).re, c.broadcast_operand(1, at), c.broadcast_operand(2, at));
    }};
    def.gradient = GradientRule{[](GradientContext& g) {
        const Tensor& predicate = g.input(0);
        const Tensor zero = constant_like(0.0, g.grad());
        return std::vector<Tensor>{
            Tensor(), if_needed(g, 1, [&] { return sum_like(where(predicate, g.grad(), zero), g.input(1)); }),
            if_needed(g, 2, [&] { return sum_like(where(predicate, zero, g.grad()), g.input(2)); })};
    }};
    def.mpsgraph = {"select"};
    def.onnx = "Where";
    return def;
}

OpDef clamp_op() {
    OpDef def;
    def.name = "clamp";
    def.family = "elementwise";
    def.doc =
        "minimum(maximum(x, min), max): x limited to [min, max]; all three broadcast together. Where min is above max "
        "the "
        "result is max. A NaN in any of the three gives NaN. The gradient goes to x where min <= x <= max, limits "
        "included, otherwise to the limit that is in force.";
    def.args = {{"x", "integer or floating-point tensor"},
                {"min", "tensor of the same dtype"},
                {"max", "tensor of the same dtype"}};
    def.results = {"y"};
    def.infer = [](const OpView& view) {
        require(view, 0, reals);
        require_same_dtype(view);
        return std::vector<TensorType>{broadcast_type(view, view.input(0).dtype)};
    };
    def.body = ElementBody{[](ElementContext& c, const Indices& at) {
        const auto raised = c.b.op(ScalarOp::max, c.broadcast_operand(0, at).re, c.broadcast_operand(1, at).re);
        return Value{c.b.op(ScalarOp::min, raised, c.broadcast_operand(2, at).re)};
    }};
    def.gradient = GradientRule{[](GradientContext& g) {
        const Tensor &x = g.input(0), &low = g.input(1), &high = g.input(2);
        const Tensor zero = constant_like(0.0, g.grad());
        const auto part = [&](int k, const Tensor& in_force) {
            return sum_like(where(in_force, g.grad(), zero), g.input(k));
        };
        return std::vector<Tensor>{
            if_needed(
                g, 0,
                [&] { return part(0, logical_and(binary("less_equal", low, x), binary("less_equal", x, high))); }),
            if_needed(g, 1, [&] { return part(1, logical_and(less(x, low), binary("less_equal", low, high))); }),
            if_needed(g, 2, [&] { return part(2, binary("logical_or", less(high, x), less(high, low))); })};
    }};
    def.mpsgraph = {"clamp"};
    def.onnx = "Clip";
    return def;
}

OpDef fma_op() {
    OpDef def;
    def.name = "fma";
    def.family = "elementwise";
    def.doc =
        "a * b + c with one rounding at the end; all three broadcast together. 16-bit floats are computed in float32.";
    def.args = {{"a", "floating-point tensor"}, {"b", "tensor of the same dtype"}, {"c", "tensor of the same dtype"}};
    def.results = {"y"};
    def.infer = [](const OpView& view) {
        require_floating(view, 0);
        require_same_dtype(view);
        return std::vector<TensorType>{broadcast_type(view, view.input(0).dtype)};
    };
    def.body = ElementBody{[](ElementContext& c, const Indices& at) {
        return Value{c.b.op(ScalarOp::fma, c.broadcast_operand(0, at).re, c.broadcast_operand(1, at).re,
                            c.broadcast_operand(2, at).re)};
    }};
    def.gradient = GradientRule{[](GradientContext& g) {
        return std::vector<Tensor>{if_needed(g, 0, [&] { return sum_like(g.grad() * g.input(1), g.input(0)); }),
                                   if_needed(g, 1, [&] { return sum_like(g.grad() * g.input(0), g.input(1)); }),
                                   if_needed(g, 2, [&] { return sum_like(g.grad(), g.input(2)); })};
    }};
    return def;
}

}  // namespace

std::vector<OpDef> ternary_ops() {
    return {where_op(), clamp_op(), fma_op()};
}

}  // namespace topstitch::ops
