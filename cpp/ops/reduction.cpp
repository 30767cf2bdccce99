// Reductions that the loop IR combines directly: sum, product, max, min, all, any, argmax, argmin.
// Those built from them are in reduction_composite.cpp.
#include <algorithm>
#include <cmath>

#include "ops/expr.h"
#include "ops/families.h"
#include "ops/indexing_rules.h"
#include "ops/reduction_rules.h"

namespace topstitch::ops {

using expr::operator*;
using expr::operator/;
using loopir::ScalarOp;

std::vector<AttrDef> reduction_attributes() {
    return {axes_attr("the axes to reduce; negative ones count from the end, none means all"),
            flag_attr("keepdims", false, "keep the reduced axes with length 1")};
}

std::vector<bool> reduced_axes(const OpView& view) {
    const int rank = view.in_shape(0).rank();
    std::vector<bool> reduced(static_cast<std::size_t>(rank), false);
    for (const int axis : normalized_axes(view, "axes", rank)) reduced[static_cast<std::size_t>(axis)] = true;
    return reduced;
}

Shape reduced_shape(const OpView& view) {
    const Shape& shape = view.in_shape(0);
    const bool keepdims = view.flag("keepdims");
    if (!shape.has_rank()) return view.has("axes") || keepdims ? Shape::unranked() : Shape();
    const std::vector<bool> reduced = reduced_axes(view);
    std::vector<Dim> dims;
    for (int axis = 0; axis < shape.rank(); ++axis) {
        if (!reduced[static_cast<std::size_t>(axis)]) {
            dims.push_back(shape[axis]);
        } else if (keepdims) {
            dims.emplace_back(1);
        }
    }
    return Shape(std::move(dims));
}

std::vector<Dim> reduced_dims(const OpView& view) {
    const std::vector<bool> reduced = reduced_axes(view);
    std::vector<Dim> dims;
    for (std::size_t axis = 0; axis < reduced.size(); ++axis) {
        if (reduced[axis]) dims.push_back(view.in_shape(0)[static_cast<int>(axis)]);
    }
    return dims;
}

Indices unreduced_index(const OpView& view, const Indices& at, const Indices& reduce) {
    const std::vector<bool> reduced = reduced_axes(view);
    const bool keepdims = view.flag("keepdims");
    Indices index;
    std::size_t next_kept = 0;
    std::size_t next_reduced = 0;
    for (const bool is_reduced : reduced) {
        index.push_back(is_reduced ? reduce[next_reduced++] : at[next_kept]);
        if (!is_reduced || keepdims) ++next_kept;
    }
    return index;
}

NamedAttributes same_axes(const OpView& view, bool keepdims) {
    return {{"axes", view.attribute("axes")}, {"keepdims", keepdims}};
}

Tensor with_reduced_axes(const OpView& view, const Tensor& x) {
    // A scalar, or axes that are already there; negative axes count from the end of the input's rank in both.
    if (view.flag("keepdims") || !view.has("axes") || view.integers("axes").empty()) return x;
    return expr::expand_dims(x, view.integers("axes"));
}

OpDef reduction_op(std::string name, std::string doc) {
    OpDef def;
    def.name = std::move(name);
    def.family = "reduction";
    def.doc = std::move(doc);
    def.args = {{"x", "the tensor to reduce"}};
    def.attributes = reduction_attributes();
    def.results = {"y"};
    return def;
}

namespace {

ReduceBody combine_elements(Combiner combiner) {
    ReduceBody body;
    body.combiner = [combiner](const OpView&) { return combiner; };
    body.domain = reduced_dims;
    body.element = [](ElementContext& c, const Indices& at, const Indices& reduce) {
        return c.operand(0, unreduced_index(c.op, at, reduce));
    };
    return body;
}

OpDef sum() {
    OpDef def = reduction_op(
        "sum",
        "The sum over axes, in the input's dtype. Integers wrap around in that dtype (NumPy widens small ones: cast "
        "first for that); float16 and bfloat16 are accumulated in float32 and rounded once. The sum of no elements is "
        "0. Bools are refused: cast them to an integer dtype to count.");
    def.infer = [](const OpView& v) {
        require(v, 0, numbers, "use cast to an integer dtype to count, or any and all to combine");
        return std::vector{TensorType{v.input(0).dtype, reduced_shape(v)}};
    };
    def.body = combine_elements(Combiner::sum);
    def.gradient = GradientRule{[](GradientContext& g) {
        return std::vector{expr::broadcast_like(with_reduced_axes(g.op, g.grad()), g.input())};
    }};
    def.mpsgraph = {"reductionSum"};
    def.onnx = "ReduceSum";
    return def;
}

// d(product) / d(x[i]) is the product of all the others: along one axis after the other, without any division, so
// that zeros among the elements are no special case.
Tensor product_gradient(GradientContext& g) {
    const Tensor& x = g.input();
    if (!x.shape().has_rank()) {
        g.op.fail("its gradient needs an input of known rank; give the placeholder a shape, with -1 for unknown dims");
    }
    std::vector<int> axes = normalized_axes(g.op, "axes", x.rank());
    Tensor gradient = with_reduced_axes(g.op, g.grad());
    Tensor partial = x;
    for (const std::int64_t axis : axes) {
        gradient = gradient * apply("product_of_others", {partial}, {{"axis", axis}});
        partial = apply("product", {partial}, {{"axes", std::vector{axis}}, {"keepdims", true}});
    }
    return axes.empty() ? gradient : expr::broadcast_like(gradient, x);
}

OpDef product() {
    OpDef def = reduction_op(
        "product",
        "The product over axes, in the input's dtype. Integers wrap around (NumPy widens small ones: cast first for "
        "that); float16 and bfloat16 are accumulated in float32. The product of no elements is 1. The gradient is "
        "exact "
        "where elements are 0, to any order.");
    def.infer = [](const OpView& v) {
        require(v, 0, reals);
        return std::vector{TensorType{v.input(0).dtype, reduced_shape(v)}};
    };
    def.body = combine_elements(Combiner::product);
    def.gradient = GradientRule{[](GradientContext& g) { return std::vector{product_gradient(g)}; }};
    def.mpsgraph = {"reductionProduct"};
    def.onnx = "ReduceProd";
    return def;
}

// --- Extrema

void require_elements(const OpView& v, const std::vector<Dim>& reduced, const Shape& result) {
    const auto is_zero = [](const Dim& dim) { return dim.is_known() && dim.value() == 0; };
    if (std::none_of(reduced.begin(), reduced.end(), is_zero)) return;
    if (is_zero(result.num_elements())) return;  // nothing is asked for
    v.fail(concat("input `x` of shape ", v.in_shape(0).str(), " has no elements along the reduced axes, and ",
                  v.def().name, " of nothing has no value; pad or concat a first element, or reduce other axes"));
}

// Where an element attains the extremum, which already broadcasts against `x`. A NaN result is attained by the NaNs.
Tensor attains(const Tensor& x, const Tensor& extremum) {
    const Tensor equal = expr::equal(x, extremum);
    const Tensor both_nan =
        expr::logical_and(expr::binary("not_equal", x, x), expr::binary("not_equal", extremum, extremum));
    return expr::binary("logical_or", equal, both_nan);
}

OpDef extremum(const std::string& name, Combiner propagating, Combiner ignoring) {
    OpDef def = reduction_op(
        name,
        concat("The ", name,
               "imum over axes. With nan=\"propagate\" a NaN among the elements is the result, as in NumPy; with "
               "nan=\"ignore\" NaNs count only where there is nothing else. No elements at all are an error; when "
               "that turns out at run time only, the result is ",
               (name == "max" ? "-infinity or the lowest" : "infinity or the highest"),
               " value. The gradient is split evenly among elements that tie."));
    def.attributes.push_back(choice_attr("nan", "propagate", {"propagate", "ignore"}, "what a NaN does"));
    def.infer = [](const OpView& v) {
        require(v, 0, reals, v.input(0).dtype == DType::boolean ? "use any or all" : "");
        Shape shape = reduced_shape(v);
        if (v.in_shape(0).has_rank()) require_elements(v, reduced_dims(v), shape);
        return std::vector{TensorType{v.input(0).dtype, std::move(shape)}};
    };
    ReduceBody body = combine_elements(propagating);
    body.combiner = [propagating, ignoring](const OpView& v) {
        return v.string("nan") == "ignore" && is_floating(v.input(0).dtype) ? ignoring : propagating;
    };
    def.body = std::move(body);
    def.gradient = GradientRule{[](GradientContext& g) {
        const Tensor& x = g.input();
        const Tensor winners = attains(x, with_reduced_axes(g.op, g.output()));
        // Counted in float32 at least: float16 cannot count above 2048.
        const DType wide = compute_type(x.dtype());
        const Tensor count = apply("sum", {expr::cast(winners, wide)}, same_axes(g.op, true));
        const Tensor share = narrowed(expr::cast(winners, wide) / count, x.dtype());
        return std::vector{with_reduced_axes(g.op, g.grad()) * share};
    }};
    const std::string root = name == "max" ? "reductionMaximum" : "reductionMinimum";
    def.mpsgraph = {root, root + "PropagateNaN"};
    def.onnx = name == "max" ? "ReduceMax" : "ReduceMin";
    return def;
}

// --- all, any

OpDef logical(const std::string& name, Combiner combiner) {
    const bool is_all = combiner == Combiner::logical_and;
    OpDef def = reduction_op(
        name, concat("Whether ", (is_all ? "all elements are" : "any element is"),
                     " true, over axes. Numbers count as true when they differ from 0, so NaN is true. Of no elements "
                     "the result is ",
                     (is_all ? "true" : "false"), "."));
    def.infer = [](const OpView& v) { return std::vector{TensorType{DType::boolean, reduced_shape(v)}}; };
    ReduceBody body = combine_elements(combiner);
    body.element = [](ElementContext& c, const Indices& at, const Indices& reduce) {
        const Value x = c.operand(0, unreduced_index(c.op, at, reduce));
        if (c.op.input(0).dtype == DType::boolean) return x;
        const Value zero = c.constant_int(0, c.op.input(0).dtype);
        Value truth{c.b.op(ScalarOp::ne, x.re, zero.re)};
        if (x.is_complex()) truth.re = c.b.op(ScalarOp::bit_or, truth.re, c.b.op(ScalarOp::ne, x.im, zero.im));
        return truth;
    };
    def.body = std::move(body);
    def.gradient = NotDifferentiable{"its result is a bool, which does not change gradually"};
    def.mpsgraph = {is_all ? "reductionAnd" : "reductionOr"};
    return def;
}

// --- argmax, argmin

OpDef position(const std::string& name, Combiner combiner) {
    OpDef def;
    def.name = name;
    def.family = "reduction";
    def.doc =
        concat("The position of the ", name.substr(3),
               "imum along an axis, or in the flattened tensor when the axis is none. Of equal elements the first "
               "counts, and the first NaN counts before any number. Over no elements it is 0.");
    def.args = {{"x", "integers or floats"}};
    def.attributes = {optional_attr("axis", AttributeKind::integer, Attribute(),
                                    "the axis; negative counts from the end, none flattens"),
                      flag_attr("keepdims", false, "keep the reduced axes with length 1"),
                      optional_attr("dtype", AttributeKind::dtype, DType::int32, "int32 or int64")};
    def.results = {"position"};
    const auto axis_of = [](const OpView& v) { return normalized_axis(v, "axis", v.in_shape(0).rank()); };
    def.infer = [axis_of](const OpView& v) {
        require(v, 0, reals);
        const DType dtype = v.dtype("dtype");
        if (dtype != DType::int32 && dtype != DType::int64) {
            v.fail_type(concat("dtype is ", name_of(dtype), ", but positions are int32 or int64; use cast afterwards"));
        }
        const Shape& shape = v.in_shape(0);
        const bool keepdims = v.flag("keepdims");
        if (!shape.has_rank()) {
            return std::vector{TensorType{dtype, v.has("axis") || keepdims ? Shape::unranked() : Shape()}};
        }
        std::vector<Dim> dims = shape.dims();
        std::vector<Dim> reduced = dims;
        if (v.has("axis")) {
            const int axis = axis_of(v);
            reduced = {shape[axis]};
            dims[static_cast<std::size_t>(axis)] = 1;
            if (!keepdims) dims.erase(dims.begin() + axis);
        } else {
            dims.assign(keepdims ? dims.size() : 0, 1);
        }
        Shape result(std::move(dims));
        require_elements(v, reduced, result);
        return std::vector{TensorType{dtype, std::move(result)}};
    };
    ReduceBody body;
    body.combiner = [combiner](const OpView&) { return combiner; };
    body.domain = [axis_of](const OpView& v) {
        const Shape& shape = v.in_shape(0);
        return std::vector<Dim>{v.has("axis") ? shape[axis_of(v)] : shape.num_elements()};
    };
    body.element = [axis_of](ElementContext& c, const Indices& at, const Indices& reduce) {
        const Shape& shape = c.op.in_shape(0);
        if (surely_empty(shape)) return c.constant_int(0, c.op.input(0).dtype);
        if (!c.op.has("axis")) return c.operand(0, reshaped_index(shape, Shape({shape.num_elements()}), reduce));
        const int axis = axis_of(c.op);
        Indices index = at;
        if (c.op.flag("keepdims")) index.erase(index.begin() + axis);
        index.insert(index.begin() + axis, reduce[0]);
        return c.operand(0, index);
    };
    def.body = std::move(body);
    def.gradient = NotDifferentiable{"its result is a position, which jumps from one integer to another"};
    def.mpsgraph = {name == "argmax" ? "reductionArgMaximum" : "reductionArgMinimum"};
    def.onnx = name == "argmax" ? "ArgMax" : "ArgMin";
    return def;
}

}  // namespace

std::vector<OpDef> reduction_ops() {
    return {sum(),
            product(),
            extremum("max", Combiner::max, Combiner::fmax),
            extremum("min", Combiner::min, Combiner::fmin),
            logical("all", Combiner::logical_and),
            logical("any", Combiner::logical_or),
            position("argmax", Combiner::argmax),
            position("argmin", Combiner::argmin)};
}

}  // namespace topstitch::ops
