// Reductions built from others: size, mean, variance, logsumexp, l2_norm, and the products that a product's gradient
// needs. 16-bit floats are computed in float32 and rounded once, at the end.
#include <limits>

#include "ops/expr.h"
#include "ops/families.h"
#include "ops/indexing_rules.h"
#include "ops/reduction_rules.h"

namespace topstitch::ops {

namespace {

using namespace topstitch::expr;
using Axes = std::vector<std::int64_t>;

Tensor reduce(std::string_view op, const OpView& view, const Tensor& x, bool keepdims) {
    return apply(op, {x}, same_axes(view, keepdims));
}

// The number of elements that a reduction of `x` combines, as a scalar of dtype `dtype`.
Tensor count_of(const OpView& view, const Tensor& x, DType dtype) {
    return apply("size", {x}, {{"axes", view.attribute("axes")}, {"dtype", dtype}});
}

OpDef size() {
    OpDef def;
    def.name = "size";
    def.internal = true;
    def.family = "reduction";
    def.doc =
        "The number of elements along axes (none: of all of them), as a scalar. It is taken from the shape, so that "
        "the elements are not read, and it is known at run time when the shape is not known before.";
    def.args = {{"x", "any tensor; only its shape matters"}};
    def.attributes = {axes_attr("the axes to count; negative ones count from the end, none means all"),
                      optional_attr("dtype", AttributeKind::dtype, DType::int32, "the dtype of the result")};
    def.results = {"count"};
    def.infer = [](const OpView& v) {
        if (v.dtype("dtype") == DType::boolean)
            v.fail_type("dtype is bool, which holds no count; use an integer dtype");
        if (v.in_shape(0).has_rank()) normalized_axes(v, "axes", v.in_shape(0).rank());
        return std::vector{TensorType{v.dtype("dtype"), Shape()}};
    };
    def.body = ElementBody{[](ElementContext& c, const Indices&) {
        const Shape& shape = c.op.in_shape(0);
        std::vector<Dim> dims;
        for (const int axis : normalized_axes(c.op, "axes", shape.rank())) dims.push_back(shape[axis]);
        const DType dtype = c.op.dtype("dtype");
        const auto count = c.b.index_value(Shape(std::move(dims)).num_elements());
        Value value{c.b.cast(count, compute_type(dtype))};
        if (is_complex(dtype)) value.im = c.b.constant(0.0, compute_type(dtype));
        return value;
    }};
    def.gradient = GradientRule{[](GradientContext&) { return std::vector<Tensor>(1); }};
    def.onnx = "Size";
    return def;
}

OpDef mean() {
    OpDef def = reduction_op("mean",
                             "The arithmetic mean over axes: the sum divided by the count. float16 and bfloat16 are "
                             "computed in float32. The "
                             "mean of no elements is NaN.");
    def.infer = [](const OpView& v) {
        require(v, 0, floats | complexes);
        return std::vector{TensorType{v.input(0).dtype, reduced_shape(v)}};
    };
    def.body = CompositeBody{[](CompositeContext& c) {
        const Tensor x = widened(c.input(0));
        const Tensor total = reduce("sum", c.op, x, c.op.flag("keepdims"));
        return std::vector{narrowed(total / count_of(c.op, x, x.dtype()), c.input(0).dtype())};
    }};
    def.gradient = GradientRule{[](GradientContext& g) {
        const Tensor& x = g.input();
        const Tensor gradient = widened(with_reduced_axes(g.op, g.grad()));
        const Tensor share = narrowed(gradient / count_of(g.op, x, gradient.dtype()), x.dtype());
        return std::vector{broadcast_like(share, x)};
    }};
    def.mpsgraph = {"mean"};
    def.onnx = "ReduceMean";
    return def;
}

// What a sum of squared deviations is divided by; NaN or infinity come out when it is not positive.
Tensor degrees_of_freedom(const OpView& view, const Tensor& x, DType dtype) {
    const Tensor count = count_of(view, x, dtype);
    const auto ddof = static_cast<double>(view.integer("ddof"));
    return ddof == 0 ? count : maximum(count - ddof, constant_like(0, count));
}

OpDef variance() {
    OpDef def = reduction_op(
        "variance",
        "The variance over axes: the mean of (x - mean)**2, with the mean computed first (two passes, so that nothing "
        "cancels), or given with its reduced axes kept. The divisor is the count minus ddof: 0 gives the population's "
        "variance, as NumPy and MPSGraph, 1 the sample's. float16 and bfloat16 are computed in float32. The variance "
        "of no "
        "elements is NaN.");
    ArgDef mean_arg;
    mean_arg.name = "mean";
    mean_arg.doc = "the mean, which broadcasts against x; computed when left out";
    mean_arg.optional = true;
    def.args.push_back(std::move(mean_arg));
    def.attributes.push_back(
        optional_attr("ddof", AttributeKind::integer, std::int64_t{0}, "subtracted from the count in the divisor"));
    def.infer = [](const OpView& v) {
        require_floating(v, 0);
        if (v.num_inputs() > 1) {
            require_same_dtype(v);
            const Shape& x = v.in_shape(0);
            const Shape& given = v.in_shape(1);
            if (x.has_rank() && given.has_rank() && given.rank() > x.rank()) {
                v.fail(concat("input `mean` has shape ", given.str(), ", more dims than input `x` of shape ", x.str(),
                              "; compute it with keepdims=true over the same axes"));
            }
            broadcast_shapes(v, x, given);
        }
        return std::vector{TensorType{v.input(0).dtype, reduced_shape(v)}};
    };
    def.body = CompositeBody{[](CompositeContext& c) {
        const Tensor x = widened(c.input(0));
        const Tensor center = c.has_input(1) ? widened(c.input(1)) : reduce("mean", c.op, x, true);
        const Tensor total = reduce("sum", c.op, square(x - center), c.op.flag("keepdims"));
        return std::vector{narrowed(total / degrees_of_freedom(c.op, x, x.dtype()), c.input(0).dtype())};
    }};
    def.gradient = GradientRule{[](GradientContext& g) {
        const Tensor x = widened(g.input(0));
        const bool mean_given = g.inputs().size() > 1;
        const Tensor center = mean_given ? widened(g.input(1)) : reduce("mean", g.op, x, true);
        const Tensor gradient = widened(with_reduced_axes(g.op, g.grad()));
        // The computed mean adds nothing: the deviations sum to zero.
        const Tensor slope = gradient * ((x - center) * 2.0 / degrees_of_freedom(g.op, x, x.dtype()));
        std::vector<Tensor> gradients = {if_needed(g, 0, [&] { return narrowed(slope, g.input(0).dtype()); })};
        if (mean_given) {
            gradients.push_back(
                if_needed(g, 1, [&] { return narrowed(-sum_like(slope, g.input(1)), g.input(1).dtype()); }));
        }
        return gradients;
    }};
    def.mpsgraph = {"variance"};
    return def;
}

// A reduction computed with keepdims, in the form that was asked for.
Tensor without_kept_axes(const OpView& view, const Tensor& kept) {
    return view.flag("keepdims") ? kept : apply("squeeze", {kept}, {{"axes", view.attribute("axes")}});
}

OpDef logsumexp() {
    OpDef def = reduction_op("logsumexp",
                             "log(sum(exp(x))) over axes, with the maximum taken out of the sum, so that nothing "
                             "overflows. Of -infinity only, "
                             "and of no elements, the result is -infinity; there the gradient is 0.");
    def.infer = [](const OpView& v) {
        require_floating(v, 0);
        return std::vector{TensorType{v.input(0).dtype, reduced_shape(v)}};
    };
    def.body = CompositeBody{[](CompositeContext& c) {
        const Tensor x = widened(c.input(0));
        Tensor result;
        if (surely_empty(Shape(reduced_dims(c.op)))) {
            result = log(reduce("sum", c.op, x, true));
        } else {
            const Tensor largest = stop_gradient(reduce("max", c.op, x, true));
            const Tensor shift = where(unary("is_finite", largest), largest, constant_like(0, x));
            result = log(reduce("sum", c.op, exp(x - shift), true)) + shift;
        }
        return std::vector{narrowed(without_kept_axes(c.op, result), c.input(0).dtype())};
    }};
    def.gradient = GradientRule{[](GradientContext& g) {
        const Tensor x = widened(g.input());
        const Tensor y = widened(with_reduced_axes(g.op, g.output()));
        const Tensor lowest = constant_like(-std::numeric_limits<double>::infinity(), y);
        const Tensor shift = where(equal(y, lowest), constant_like(0, y), y);
        const Tensor gradient = widened(with_reduced_axes(g.op, g.grad()));
        return std::vector{narrowed(gradient * exp(x - shift), g.input().dtype())};
    }};
    def.onnx = "ReduceLogSumExp";
    return def;
}

OpDef l2_norm() {
    OpDef def = reduction_op("l2_norm",
                             "The Euclidean norm over axes, sqrt(sum(x**2)). float16 and bfloat16 are computed in "
                             "float32. It overflows where the squares do. The gradient of a norm of 0 is 0.");
    def.infer = [](const OpView& v) {
        require_floating(v, 0);
        return std::vector{TensorType{v.input(0).dtype, reduced_shape(v)}};
    };
    def.body = CompositeBody{[](CompositeContext& c) {
        const Tensor total = reduce("sum", c.op, square(widened(c.input(0))), c.op.flag("keepdims"));
        return std::vector{narrowed(sqrt(total), c.input(0).dtype())};
    }};
    def.gradient = GradientRule{[](GradientContext& g) {
        const Tensor x = widened(g.input());
        const Tensor y = widened(with_reduced_axes(g.op, g.output()));
        const Tensor gradient = widened(with_reduced_axes(g.op, g.grad()));
        const Tensor zero = constant_like(0, y);
        const Tensor is_zero = equal(y, zero);
        const Tensor inverse = where(is_zero, zero, 1.0 / where(is_zero, constant_like(1, y), y));
        return std::vector{narrowed(x * (gradient * inverse), g.input().dtype())};
    }};
    def.onnx = "ReduceL2";
    return def;
}

// --- Products of all elements but one

Tensor slice_axis(const Tensor& x, std::int64_t axis, std::int64_t start, std::int64_t stop, std::int64_t step) {
    return apply("slice", {x},
                 {{"starts", Axes{start}}, {"stops", Axes{stop}}, {"steps", Axes{step}}, {"axes", Axes{axis}}});
}

// Pairs neighbours, recurses on their products, and multiplies what comes back by the partner: about 3 * n
// multiplications in 2 * log2(n) steps.
Tensor others_by_halves(const Tensor& x, std::int64_t axis, std::int64_t extent) {
    if (extent <= 1) return ones_like(x);
    const std::int64_t even_extent = extent + extent % 2;
    Tensor padded = x;
    if (even_extent != extent) {
        Axes left(static_cast<std::size_t>(x.rank()), 0);
        Axes right = left;
        right[static_cast<std::size_t>(axis)] = 1;
        padded = apply("pad", {x}, {{"left", left}, {"right", right}, {"value", 1.0}});
    }
    const Tensor even = slice_axis(padded, axis, 0, even_extent, 2);
    const Tensor odd = slice_axis(padded, axis, 1, even_extent, 2);
    std::vector<Tensor> crossed = {odd, even};
    if (even_extent > 2) {
        const Tensor others = others_by_halves(even * odd, axis, even_extent / 2);
        crossed = {others * odd, others * even};
    }
    const Tensor interleaved = reshape_like(apply("stack", crossed, {{"axis", axis + 1}}), padded);
    return even_extent == extent ? interleaved : slice_axis(interleaved, axis, 0, extent, 1);
}

// For an extent that is not known yet: a product over a copy of the axis, with a 1 in place of the element itself.
Tensor others_by_mask(const Tensor& x, std::int64_t axis) {
    const Tensor position = apply("coordinates", {x}, {{"axis", axis}});
    const Tensor is_itself = equal(expand_dims(position, {axis + 1}), expand_dims(position, {axis}));
    const Tensor masked = where(is_itself, constant_like(1, x), expand_dims(x, {axis}));
    return apply("product", {masked}, {{"axes", Axes{axis + 1}}});
}

OpDef product_of_others() {
    OpDef def;
    def.name = "product_of_others";
    def.internal = true;
    def.family = "reduction";
    def.doc =
        "For each element the product of all the others along an axis, without any division, so that zeros are exact: "
        "the gradient of product. The product of no others is 1.";
    def.args = {{"x", "integers or floats"}};
    def.attributes = {axis_attr(-1)};
    def.results = {"y"};
    def.infer = [](const OpView& v) {
        require(v, 0, reals);
        if (v.in_shape(0).has_rank()) normalized_axis(v, "axis", v.in_shape(0).rank());
        return same_type(v);
    };
    def.body = CompositeBody{[](CompositeContext& c) {
        const Tensor& x = c.input(0);
        if (!x.shape().has_rank()) {
            c.op.fail(
                "its gradient needs an input of known rank; give the placeholder a shape, with -1 for unknown dims");
        }
        const int axis = normalized_axis(c.op, "axis", x.rank());
        const Dim& extent = x.shape()[axis];
        return std::vector{extent.is_known() ? others_by_halves(x, axis, extent.value()) : others_by_mask(x, axis)};
    }};
    def.gradient = FromExpansion{};
    return def;
}

}  // namespace

std::vector<OpDef> composite_reduction_ops() {
    return {size(), mean(), variance(), logsumexp(), l2_norm(), product_of_others()};
}

}  // namespace topstitch::ops
