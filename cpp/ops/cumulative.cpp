// Cumulative operations: sum, product, minimum and maximum of all elements up to each one, along an axis.
// Each is a scan; exclusive ones walk over the elements shifted by one, behind a first value.
#include "loopir/evaluate.h"
#include "ops/expr.h"
#include "ops/families.h"
#include "ops/indexing_rules.h"
#include "ops/rules.h"

namespace topstitch::ops {

namespace {

using namespace expr;

int scan_axis(const OpView& v) {
    return normalized_axis(v, "axis", v.in_shape(0).rank());
}

bool reads_backwards(const OpView& v) {
    return v.flag("reverse");
}

// What a combiner starts from.
Value start_of(ElementContext& c, Combiner combiner, DType dtype) {
    const DType type = compute_type(dtype);
    if (is_complex(dtype)) return c.constant(0, dtype);
    const loopir::Scalar start = loopir::initial_scalar(combiner, type);
    if (is_floating(type)) return {c.b.constant(loopir::scalar_to_double(start, type), type), loopir::no_value};
    return {c.b.constant_int(static_cast<std::int64_t>(start.bits), type), loopir::no_value};
}

// The element that joins at `at`, in the dtype of the result.
Value joining(ElementContext& c, Combiner combiner, const Indices& at) {
    const DType dtype = c.op.output().dtype;
    const auto read = [&](const Indices& from) {
        const Value value = c.operand(0, from);
        return c.op.input(0).dtype == dtype ? value : Value{c.b.cast(value.re, compute_type(dtype))};
    };
    if (!c.op.flag("exclusive")) return read(at);
    const auto axis = static_cast<std::size_t>(scan_axis(c.op));
    Indices before = at;
    before[axis] = at[axis] + (c.op.flag("reverse") ? 1 : -1);
    const loopir::ValueId exists = within(c.b, before[axis], c.op.in_shape(0)[static_cast<int>(axis)]);
    if (exists == loopir::no_value) return read(before);
    return c.guarded(exists, [&] { return read(before); }, start_of(c, combiner, dtype));
}

OpDef scan_op(const std::string& name, std::string doc, const std::function<Combiner(const OpView&)>& combiner) {
    OpDef def;
    def.name = name;
    def.family = "cumulative";
    def.doc = std::move(doc);
    def.args = {{"x", "a tensor with one axis at least"}};
    def.attributes = {
        axis_attr(-1, "the axis to walk along; negative counts from the end"),
        flag_attr("exclusive", false, "leave out the element itself: the first result is the start value"),
        flag_attr("reverse", false, "walk from the end of the axis to its beginning")};
    def.results = {"y"};
    CumulativeBody body;
    body.combiner = combiner;
    body.axis = scan_axis;
    body.reverse = reads_backwards;
    body.element = [combiner](ElementContext& c, const Indices& at) { return joining(c, combiner(c.op), at); };
    def.body = std::move(body);
    return def;
}

// One output of the input's shape and, but for bools where they count as numbers, dtype.
std::function<std::vector<TensorType>(const OpView&)> infer_scan(DTypes allowed, bool counts_bools) {
    return [allowed, counts_bools](const OpView& v) {
        require(v, 0, allowed);
        if (v.in_shape(0).has_rank()) scan_axis(v);
        const DType dtype = v.input(0).dtype;
        return std::vector{TensorType{counts_bools && dtype == DType::boolean ? DType::int64 : dtype, v.in_shape(0)}};
    };
}

// The sum of what flows to a result and to all that come after it.
Tensor sum_of_later(const OpView& v, const Tensor& gradient) {
    return apply("cumulative_sum", {gradient},
                 {{"axis", v.attribute("axis")}, {"exclusive", v.flag("exclusive")}, {"reverse", !v.flag("reverse")}});
}

const std::string common_doc =
    " With reverse the axis is walked from its end; with exclusive each result leaves out its own element, so that the "
    "first one is ";

OpDef cumulative_sum() {
    OpDef def = scan_op(
        "cumulative_sum",
        "The sum of all elements up to and including each one along an axis: y[i] = x[0] + ... + x[i]. The dtype "
        "stays: "
        "integers wrap around in it (NumPy widens small ones: cast first for that); of bools the result is the int64 "
        "count, as in NumPy and PyTorch. float16 and bfloat16 are accumulated in float32. Long sums of floats are "
        "added "
        "up in blocks and the blocks in float64, so that the error of float32 does not grow with the length. From a "
        "NaN on all "
        "results are NaN." +
            common_doc + "0.",
        [](const OpView&) { return Combiner::sum; });
    def.infer = infer_scan(anything, true);
    def.gradient = GradientRule{[](GradientContext& g) { return std::vector{sum_of_later(g.op, g.grad())}; }};
    def.mpsgraph = {"cumulativeSum"};
    def.onnx = "CumSum";
    return def;
}

// With P[i] the product up to i, and G[i] what flows to it: the gradient of x[j] is the sum of G[i] P[i] / x[j] over
// all i that hold x[j]. Where x[j] is the first zero, P without it stands for P / x[j]; behind it, all are zero.
Tensor product_gradient(GradientContext& g) {
    const Tensor x = widened(g.input());
    const Tensor gradient = widened(g.grad());
    const NamedAttributes as_before = shared_attributes(g.op, g.op.def());
    const Tensor is_zero = equal(x, zeros_like(x));
    const Tensor zeros_before =
        apply("cumulative_sum", {cast(is_zero, DType::int32)},
              {{"axis", g.op.attribute("axis")}, {"exclusive", true}, {"reverse", g.op.flag("reverse")}});
    const Tensor is_first = logical_and(is_zero, equal(zeros_before, zeros_like(zeros_before)));
    const Tensor through = sum_of_later(g.op, gradient * apply("cumulative_product", {x}, as_before));
    const Tensor without = apply("cumulative_product", {where(is_first, ones_like(x), x)}, as_before);
    const Tensor through_first = sum_of_later(g.op, gradient * without);
    const Tensor at_zero = where(is_first, through_first, zeros_like(x));
    return narrowed(where(is_zero, at_zero, through / where(is_zero, ones_like(x), x)), g.input().dtype());
}

OpDef cumulative_product() {
    OpDef def = scan_op(
        "cumulative_product",
        "The product of all elements up to and including each one along an axis: y[i] = x[0] * ... * x[i]. The dtype "
        "stays: integers wrap around in it; bools count as the int64 numbers 0 and 1, as in NumPy and PyTorch. float16 "
        "and bfloat16 are accumulated in float32. Of floats, what overflows is what does when they are multiplied "
        "one after the other. From a NaN on all results are NaN. The gradient is exact where elements are 0; a second "
        "derivative is where a row has no more than one of them." +
            common_doc + "1.",
        [](const OpView&) { return Combiner::product; });
    def.infer = infer_scan(bools | reals, true);
    def.gradient = GradientRule{[](GradientContext& g) { return std::vector{product_gradient(g)}; }};
    def.mpsgraph = {"cumulativeProduct"};
    def.onnx = "CumProd";
    return def;
}

// --- Extremes.

// Where along the axis the extreme of all up to each element lies.
OpDef cumulative_position(bool largest) {
    OpDef def = scan_op(largest ? "cumulative_argmax" : "cumulative_argmin",
                        "The position of the extreme of all elements up to each one; of equals the smallest. Serves "
                        "gradients, and is never exclusive.",
                        [largest](const OpView&) { return largest ? Combiner::argmax : Combiner::argmin; });
    def.internal = true;
    std::get<CumulativeBody>(def.body).element = [](ElementContext& c, const Indices& at) { return c.operand(0, at); };
    def.infer = [](const OpView& v) {
        require(v, 0, reals);
        return std::vector{TensorType{DType::int64, v.in_shape(0)}};
    };
    def.gradient = NotDifferentiable{"its result is a position, which jumps from one integer to another"};
    return def;
}

// y[i] = x[i + offset] along an axis, and zero where there is no such element.
OpDef shift() {
    OpDef def;
    def.name = "shift";
    def.internal = true;
    def.family = "cumulative";
    def.doc = "Moves elements along an axis: y[i] = x[i + offset], and 0 where there is no such element.";
    def.args = {{"x", "any tensor"}};
    def.attributes = {axis_attr(-1, "the axis; negative counts from the end"),
                      required_attr("offset", AttributeKind::integer, "how far, in elements")};
    def.results = {"y"};
    def.infer = [](const OpView& v) {
        if (v.in_shape(0).has_rank()) scan_axis(v);
        return same_type(v);
    };
    def.body = ElementBody{[](ElementContext& c, const Indices& at) {
        const auto axis = static_cast<std::size_t>(scan_axis(c.op));
        Indices from = at;
        from[axis] = at[axis] + Dim(c.op.integer("offset"));
        return guarded_or_zero(c, within(c.b, from[axis], c.op.in_shape(0)[static_cast<int>(axis)]),
                               c.op.output().dtype, [&] { return c.operand(0, from); });
    }};
    def.gradient = GradientRule{[](GradientContext& g) {
        return std::vector{
            apply("shift", {g.grad()}, {{"axis", g.op.attribute("axis")}, {"offset", -g.op.integer("offset")}})};
    }};
    return def;
}

OpDef extreme(bool largest) {
    const std::string which = largest ? "maximum" : "minimum";
    OpDef def =
        scan_op("cumulative_" + which,
                concat("The ", which,
                       " of all elements up to and including each one along an axis. From a NaN on "
                       "all results are NaN, as in NumPy. Of bools it is ",
                       largest ? "true once one has been true" : "false once one has been false",
                       ". The gradient goes to the element that was taken, of equals to the one of the smallest "
                       "position.",
                       common_doc, "the ", largest ? "lowest" : "largest", " value of the dtype (of floats ",
                       largest ? "-infinity" : "infinity", ")."),
                [largest](const OpView& v) {
                    if (v.input(0).dtype == DType::boolean)
                        return largest ? Combiner::logical_or : Combiner::logical_and;
                    return largest ? Combiner::max : Combiner::min;
                });
    def.infer = infer_scan(bools | reals, false);
    def.gradient = GradientRule{[largest](GradientContext& g) {
        const bool reverse = g.op.flag("reverse");
        const NamedAttributes along = {{"axis", g.op.attribute("axis")}};
        const Tensor position = apply(largest ? "cumulative_argmax" : "cumulative_argmin", {g.input()},
                                      {{"axis", g.op.attribute("axis")}, {"reverse", reverse}});
        Tensor gradient = g.grad();
        if (g.op.flag("exclusive")) {
            gradient = apply("shift", {gradient},
                             {{"axis", g.op.attribute("axis")}, {"offset", std::int64_t{reverse ? -1 : 1}}});
        }
        return std::vector{apply("scatter_along_axis", {zeros_like(gradient), position, gradient},
                                 {{"axis", g.op.attribute("axis")}, {"mode", std::string("add")}})};
    }};
    def.mpsgraph = {largest ? "cumulativeMaximum" : "cumulativeMinimum"};
    return def;
}

}  // namespace

std::vector<OpDef> cumulative_ops() {
    return {cumulative_sum(),           cumulative_product(),      extreme(false), extreme(true),
            cumulative_position(false), cumulative_position(true), shift()};
}

}  // namespace topstitch::ops
