// Sums, maxima and counts of windows, which pooling is made of, and their adjoints.
// An adjoint is a gather too: each position enumerates the windows that may contain it.
#include "ops/families.h"
#include "ops/window_op.h"

namespace topstitch::ops {

namespace {

using loopir::ScalarOp;
using loopir::ValueId;

std::vector<Dim> kernel_dims(const OpView& v) {
    std::vector<Dim> dims;
    for (const std::int64_t length : v.integers("kernel")) dims.emplace_back(length);
    return dims;
}

OpDef window_sum() {
    OpDef def = window_op("window_sum", "The sum of each window; padding counts as 0.");
    def.args = {{"x", "numbers"}};
    def.infer = [](const OpView& v) {
        require_numeric(v, 0);
        return window_type(v);
    };
    ReduceBody body;
    body.combiner = [](const OpView&) { return Combiner::sum; };
    body.domain = kernel_dims;
    body.element = [](ElementContext& c, const Indices& at, const Indices& taps) {
        return tap_of(c, at, taps, c.constant_int(0, c.op.output().dtype));
    };
    def.body = std::move(body);
    def.gradient = GradientRule{[](GradientContext& g) {
        return std::vector{apply("window_spread", {g.grad(), g.input()}, same_windows(g.op))};
    }};
    return def;
}

OpDef window_max() {
    OpDef def = window_op("window_max",
                          "The largest element of each window, NaN if there is one. Padding counts as the lowest "
                          "value. The gradient goes to the first of equal elements.");
    def.args = {{"x", "integers or floats"}};
    def.infer = [](const OpView& v) {
        require(v, 0, reals);
        return window_type(v);
    };
    ReduceBody body;
    body.combiner = [](const OpView&) { return Combiner::max; };
    body.domain = kernel_dims;
    body.element = [](ElementContext& c, const Indices& at, const Indices& taps) {
        return tap_of(c, at, taps, lowest(c, c.op.output().dtype));
    };
    def.body = std::move(body);
    def.gradient = GradientRule{[](GradientContext& g) {
        const Tensor taps = apply("window_argmax", {g.input()}, same_windows(g.op));
        return std::vector{apply("window_place", {g.grad(), taps, g.input()}, same_windows(g.op))};
    }};
    return def;
}

OpDef window_spread() {
    OpDef def = window_op("window_spread",
                          "The adjoint of window_sum: for each position the sum of the gradients of all windows that "
                          "contain it.");
    def.args = {{"gradient", "numbers, one for each window"},
                {"like", "what the windows lie on; only its shape matters"}};
    def.infer = [](const OpView& v) {
        require_numeric(v, 0);
        require_windows(v, 0, 1);
        return std::vector{TensorType{v.input(0).dtype, v.in_shape(1)}};
    };
    def.body =
        gather_windows([](ElementContext& c, const Indices& window, const Index&) { return c.operand(0, window); });
    def.gradient = GradientRule{
        [](GradientContext& g) { return std::vector{apply("window_sum", {g.grad()}, same_windows(g.op)), Tensor()}; }};
    return def;
}

OpDef window_count() {
    OpDef def = window_op("window_count",
                          "The number of elements of each window that lie inside of the input, or of the padded "
                          "input, but 1 at least; other dims are 1.");
    def.args = {{"like", "what the windows lie on; only its shape matters"}};
    def.attributes.push_back(flag_attr("include_padding", false, "count padding too, but nothing beyond it"));
    def.attributes.push_back(optional_attr("dtype", AttributeKind::dtype, DType::float32, "the dtype of the result"));
    def.results = {"count"};
    def.infer = [](const OpView& v) {
        const Shape& like = v.in_shape(0);
        const std::vector<WindowAxis> axes = axes_of(v, like);
        if (!like.has_rank()) return std::vector{TensorType{v.dtype("dtype"), like}};
        Shape shape = shape_of_windows(Shape(std::vector<Dim>(static_cast<std::size_t>(like.rank()), 1)), axes);
        return std::vector{TensorType{v.dtype("dtype"), std::move(shape)}};
    };
    def.body = ElementBody{[](ElementContext& c, const Indices& at) {
        const std::vector<WindowAxis> axes = axes_of(c.op, c.op.in_shape(0));
        const auto is_zero = [](const Dim& dim) { return dim.is_known() && dim.value() == 0; };
        const bool padded = c.op.flag("include_padding");
        ValueId count = c.b.constant_int(1, DType::int64);
        for (std::size_t k = 0; k < axes.size(); ++k) {
            const WindowAxis& axis = axes[k];
            const Index& window = at[axis.axis];
            ValueId taps = c.b.index_value(axis.kernel);
            if (axis.beyond || !(padded || is_zero(axis.after))) {
                const Dim end = padded ? axis.input + axis.after : axis.input;
                taps = c.b.op(ScalarOp::min, taps, taps_before(c.b, axis, window, end));
            }
            if (!padded && !is_zero(axis.before)) { taps = c.b.sub(taps, taps_before(c.b, axis, window, 0)); }
            count = c.b.mul(count, c.b.op(ScalarOp::max, taps, c.b.constant_int(0, DType::int64)));
        }
        count = c.b.op(ScalarOp::max, count, c.b.constant_int(1, DType::int64));
        return Value{c.b.cast(count, c.op.dtype("dtype"))};
    }};
    def.gradient = GradientRule{[](GradientContext&) { return std::vector<Tensor>(1); }};
    return def;
}

}  // namespace

std::vector<OpDef> window_ops() {
    return {window_sum(), window_max(), window_spread(), window_count()};
}

}  // namespace topstitch::ops
