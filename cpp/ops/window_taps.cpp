// Which element of a window is the largest: its number in the window, called a tap, and what is done with taps.
// Selecting elements by taps, and placing gradients where they name, are adjoint to each other.
#include <algorithm>

#include "ops/families.h"
#include "ops/indexing_rules.h"
#include "ops/window_op.h"

namespace topstitch::ops {

namespace {

using loopir::no_value;
using loopir::ScalarOp;
using loopir::ValueId;

// The first tap of the window at `at` that lies inside of the input (of the axes that have one), or `tap` when that is
// later. Padding is never larger than what is inside, so that it can win only as tap 0, when all elements are equal.
ValueId tap_inside(ElementContext& c, const std::vector<WindowAxis>& axes, const Indices& at, ValueId tap) {
    const auto has_padding = [](const WindowAxis& axis) { return !(axis.before == Dim(0)); };
    if (std::none_of(axes.begin(), axes.end(), has_padding)) return tap;
    Indices first;
    for (std::size_t k = 0; k < axes.size(); ++k) {
        const bool padded = has_padding(axes[k]);
        first.push_back(padded ? Index::value(taps_before(c.b, axes[k], at[axes[k].axis], 0)) : Index(0));
    }
    const ValueId lowest_tap = c.b.cast(c.b.index_value(flat_tap(axes, first)), c.b.type(tap));
    return c.b.op(ScalarOp::max, tap, lowest_tap);
}

OpDef argmax_op(std::string name, std::string doc) {
    OpDef def = window_op(std::move(name), std::move(doc));
    def.args = {{"x", "integers or floats"}};
    def.results = {"taps"};
    def.infer = [](const OpView& v) {
        require(v, 0, reals);
        return std::vector{TensorType{DType::int32, shape_of_windows(v, v.in_shape(0))}};
    };
    def.gradient = NotDifferentiable{"its result is a position, which jumps from one integer to another"};
    return def;
}

// Windows of at most so many elements are compared one by one, in registers.
constexpr std::int64_t max_unrolled_taps = 16;

OpDef window_argmax() {
    OpDef def = argmax_op(
        "window_argmax",
        "The number of the first largest element in each window, counted in row-major order; of the first NaN, if "
        "there is one. Padding does not take part; of windows without an element inside, the result has no meaning.");
    def.body = CompositeBody{[](CompositeContext& c) {
        const Tensor& x = c.input(0);
        const Dim taps = taps_in(axes_of(c.op, x.shape()));
        const NamedAttributes windows = same_windows(c.op);
        if (taps.value() <= max_unrolled_taps) return std::vector{apply("window_argmax_unrolled", {x}, windows)};
        return std::vector{apply("window_inside", {apply("window_argmax_looped", {x}, windows), x}, windows)};
    }};
    return def;
}

OpDef window_argmax_unrolled() {
    OpDef def = argmax_op("window_argmax_unrolled", "window_argmax for windows of few elements.");
    // A reduction of nothing but this one value: what reads a whole window is not to be computed again by each reader.
    ReduceBody body;
    body.combiner = [](const OpView&) { return Combiner::max; };
    body.domain = [](const OpView&) { return std::vector<Dim>(); };
    body.element = [](ElementContext& c, const Indices& at, const Indices&) {
        const std::vector<WindowAxis> axes = axes_of(c.op, c.op.in_shape(0));
        const DType dtype = c.op.input(0).dtype;
        const Value padding = lowest(c, dtype);
        const auto element = [&](std::int64_t tap) { return tap_of(c, at, split_tap(axes, tap), padding).re; };
        ValueId best = element(0);
        ValueId found = c.b.constant_int(0, DType::int32);
        for (std::int64_t tap = 1; tap < taps_in(axes).value(); ++tap) {
            const ValueId x = element(tap);
            // Larger, or NaN where the best is not.
            ValueId better = c.b.op(ScalarOp::bit_not, c.b.op(ScalarOp::le, x, best));
            if (is_floating(dtype)) { better = c.b.op(ScalarOp::bit_and, better, c.b.op(ScalarOp::eq, best, best)); }
            best = c.b.select(better, x, best);
            found = c.b.select(better, c.b.constant_int(tap, DType::int32), found);
        }
        return Value{tap_inside(c, axes, at, found)};
    };
    def.body = std::move(body);
    return def;
}

OpDef window_argmax_looped() {
    OpDef def = argmax_op("window_argmax_looped",
                          "window_argmax for windows of any size, except that where all elements are the lowest value "
                          "the result is 0, even if that is padding.");
    ReduceBody body;
    body.combiner = [](const OpView&) { return Combiner::argmax; };
    body.domain = [](const OpView& v) { return std::vector<Dim>{taps_in(axes_of(v, v.in_shape(0)))}; };
    body.element = [](ElementContext& c, const Indices& at, const Indices& flat) {
        const Indices taps = split_tap(axes_of(c.op, c.op.in_shape(0)), flat[0]);
        return tap_of(c, at, taps, lowest(c, c.op.input(0).dtype));
    };
    def.body = std::move(body);
    return def;
}

OpDef window_inside() {
    OpDef def = window_op(
        "window_inside", "Taps, with those that lie in the padding before the input replaced by the first one inside.");
    def.args = {{"taps", "one for each window"}, {"like", "what the windows lie on; only its shape matters"}};
    def.results = {"taps"};
    def.infer = [](const OpView& v) {
        require_integer(v, 0);
        require_windows(v, 0, 1);
        return std::vector{v.input(0)};
    };
    def.body = ElementBody{[](ElementContext& c, const Indices& at) {
        return Value{tap_inside(c, axes_of(c.op, c.op.in_shape(1)), at, c.operand(0, at).re)};
    }};
    def.gradient = GradientRule{[](GradientContext&) { return std::vector<Tensor>(2); }};
    return def;
}

// The place in the input that a saved tap of the window at `at` names; outside for windows that have nothing inside.
Place place_of_saved(ElementContext& c, const std::vector<WindowAxis>& axes, const Indices& at, ValueId saved) {
    const Index tap = Index::value(c.b.cast(saved, DType::int64));
    return place_of(c.b, axes, at, split_tap(axes, tap));
}

OpDef window_position() {
    OpDef def =
        window_op("window_position",
                  "Taps that were found by window_argmax as flat positions: among the spatial axes of the input "
                  "(\"global\"), or in the window (\"local\"); -1 for windows without an element inside.");
    def.args = {{"taps", "one for each window"}, {"like", "what the windows lie on; only its shape matters"}};
    def.attributes.push_back(choice_attr("index_mode", "global", {"global", "local"}, "what is counted"));
    def.attributes.push_back(optional_attr("dtype", AttributeKind::dtype, DType::int32, "the dtype of the result"));
    def.results = {"position"};
    def.infer = [](const OpView& v) {
        require_integer(v, 0);
        require_windows(v, 0, 1);
        return std::vector{TensorType{v.dtype("dtype"), v.in_shape(0)}};
    };
    def.body = ElementBody{[](ElementContext& c, const Indices& at) {
        const std::vector<WindowAxis> axes = axes_of(c.op, c.op.in_shape(1));
        const ValueId saved = c.operand(0, at).re;
        const Place place = place_of_saved(c, axes, at, saved);
        Value position;
        if (c.op.string("index_mode") == "local") {
            position.re = c.b.cast(saved, DType::int64);
        } else {
            Index flat = 0;
            for (std::size_t k = 0; k < axes.size(); ++k) flat = flat * axes[k].input + place.index[axes[k].axis];
            position.re = c.b.index_value(flat);
        }
        if (place.inside != no_value) {
            position = c.select(place.inside, position, Value{c.b.constant_int(-1, DType::int64)});
        }
        return Value{c.b.cast(position.re, c.op.dtype("dtype"))};
    }};
    def.gradient = GradientRule{[](GradientContext&) { return std::vector<Tensor>(2); }};
    return def;
}

OpDef window_select() {
    OpDef def = window_op("window_select", "The element of each window that a tap of window_argmax names.");
    def.args = {{"x", "numbers"}, {"taps", "one for each window"}};
    def.infer = [](const OpView& v) {
        require_numeric(v, 0);
        require_windows(v, 1, 0);
        return window_type(v);
    };
    def.body = ElementBody{[](ElementContext& c, const Indices& at) {
        if (surely_empty(c.op.in_shape(0))) return c.constant_int(0, c.op.output().dtype);
        const Place place = place_of_saved(c, axes_of(c.op, c.op.in_shape(0)), at, c.operand(1, at).re);
        return guarded_or_zero(c, place.inside, c.op.output().dtype, [&] { return c.operand(0, place.index); });
    }};
    def.gradient = GradientRule{[](GradientContext& g) {
        return std::vector{apply("window_place", {g.grad(), g.input(1), g.input(0)}, same_windows(g.op)), Tensor()};
    }};
    return def;
}

OpDef window_place() {
    OpDef def = window_op("window_place",
                          "The adjoint of window_select: for each position the sum of the gradients of those windows "
                          "whose tap it is.");
    def.args = {{"gradient", "numbers, one for each window"},
                {"taps", "found by window_argmax"},
                {"like", "what the windows lie on; only its shape matters"}};
    def.infer = [](const OpView& v) {
        require_numeric(v, 0);
        require_integer(v, 1);
        require_windows(v, 0, 2);
        require_windows(v, 1, 2);
        return std::vector{TensorType{v.input(0).dtype, v.in_shape(2)}};
    };
    def.body = gather_windows([](ElementContext& c, const Indices& window, const Index& tap) {
        const ValueId saved = c.operand(1, window).re;
        const ValueId here = c.b.op(ScalarOp::eq, saved, c.b.cast(c.b.index_value(tap), c.b.type(saved)));
        return c.select(here, c.operand(0, window), c.constant_int(0, c.op.output().dtype));
    });
    def.gradient = GradientRule{[](GradientContext& g) {
        return std::vector{apply("window_select", {g.grad(), g.input(1)}, same_windows(g.op)), Tensor(), Tensor()};
    }};
    return def;
}

}  // namespace

std::vector<OpDef> window_tap_ops() {
    return {window_argmax(),   window_argmax_unrolled(), window_argmax_looped(), window_inside(),
            window_position(), window_select(),          window_place()};
}

}  // namespace topstitch::ops
