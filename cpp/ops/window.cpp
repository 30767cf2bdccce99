// Primitives over windows along the last axes of a tensor, which pooling is made of, and their adjoints.
// An adjoint is a gather too: each position enumerates the windows that may contain it, always in the same order.
#include <limits>

#include "ops/families.h"
#include "ops/indexing_rules.h"
#include "ops/window_rules.h"

namespace topstitch::ops {

namespace {

using loopir::no_value;
using loopir::ScalarOp;
using loopir::ValueId;

// --- Geometry

std::size_t num_axes(const OpView& v) {
    return v.integers("kernel").size();
}

// The axes of windows over a tensor of shape `input`.
std::vector<WindowAxis> axes_of(const OpView& v, const Shape& input) {
    const std::size_t count = num_axes(v);
    std::vector<Dim> extents(count, Dim::unknown());
    for (std::size_t k = 0; input.has_rank() && k < count; ++k) {
        extents[k] = input[input.rank() - static_cast<int>(count - k)];
    }
    std::vector<Dim> kernel;
    for (const std::int64_t length : numbers_for_axes(v, "kernel", static_cast<int>(count), 1)) {
        kernel.emplace_back(length);
    }
    return window_axes(v, extents, kernel, v.flag("ceil_mode"));
}

Shape shape_of_windows(const OpView& v, const Shape& input) {
    if (!input.has_rank()) return input;
    const std::vector<WindowAxis> axes = axes_of(v, input);
    std::vector<Dim> dims = input.dims();
    if (dims.size() < axes.size()) {
        v.fail(concat("a tensor of shape ", input.str(), " has fewer axes than the window, which has ", axes.size()));
    }
    const std::size_t leading = dims.size() - axes.size();
    for (std::size_t k = 0; k < axes.size(); ++k) dims[leading + k] = axes[k].output;
    return Shape(std::move(dims));
}

// Fails unless input `k` has one element for each window over input `like`.
void require_windows(const OpView& v, int k, int like) {
    const Shape& given = v.in_shape(k);
    const Shape wanted = shape_of_windows(v, v.in_shape(like));
    if (!given.has_rank() || !wanted.has_rank()) return;
    bool fits = given.rank() == wanted.rank();
    for (int axis = 0; fits && axis < wanted.rank(); ++axis) fits = dims_agree(given[axis], wanted[axis]);
    if (!fits) {
        v.fail(concat(input_name(v, k), " has shape ", given.str(), ", but the windows over ", input_name(v, like),
                      " have ", wanted.str()));
    }
}

Dim taps_in(const std::vector<WindowAxis>& axes) {
    Dim count = 1;
    for (const WindowAxis& axis : axes) count = count * axis.kernel;
    return count;
}

// Row-major, as in the window.
Index flat_tap(const std::vector<WindowAxis>& axes, const Indices& taps) {
    Index flat = 0;
    for (std::size_t k = 0; k < axes.size(); ++k) flat = flat * axes[k].kernel + taps[k];
    return flat;
}

Indices split_tap(const std::vector<WindowAxis>& axes, Index flat) {
    Indices taps(axes.size());
    for (std::size_t k = axes.size(); k-- > 0;) {
        taps[k] = mod(flat, axes[k].kernel);
        flat = floor_div(flat, axes[k].kernel);
    }
    return taps;
}

// Where tap `taps` of the window at index `at` of the result lies in the input.
struct Place {
    Indices index;
    ValueId inside = no_value;
};

Place place_of(loopir::Builder& b, const std::vector<WindowAxis>& axes, const Indices& at, const Indices& taps) {
    Place place{at};
    const std::size_t leading = at.size() - axes.size();
    for (std::size_t k = 0; k < axes.size(); ++k) {
        Index& along = place.index[leading + k];
        along = axes[k].position(along, taps[k]);
        place.inside = both(b, place.inside, inside(b, axes[k], along));
    }
    return place;
}

// The positive part of an index.
Index above_zero(loopir::Builder& b, const Index& index) {
    if (provably_nonnegative(index.lower_bound())) return index;
    return Index::value(b.op(ScalarOp::max, b.index_value(index), b.constant_int(0, DType::int64)));
}

// How many taps of the window at `at` lie before position `end`, of all that would follow if the window had no end.
Index taps_before(loopir::Builder& b, const WindowAxis& axis, const Index& at, const Dim& end) {
    const Index distance = Index(end + axis.before) - at * Dim(axis.stride);
    return floor_div(above_zero(b, distance) + Index(axis.dilation - 1), axis.dilation);
}

// --- Declarations

OpDef window_op(std::string name, std::string doc) {
    OpDef def;
    def.name = std::move(name);
    def.internal = true;
    def.family = "pooling";
    def.doc = std::move(doc);
    def.attributes = {required_attr("kernel", AttributeKind::integers,
                                    "the extents of the window, one for each of the last axes of the tensor")};
    for (AttrDef& attribute : window_attributes(DefaultStride::kernel)) def.attributes.push_back(std::move(attribute));
    def.attributes.push_back(flag_attr("ceil_mode", false, "round the number of windows up"));
    def.results = {"y"};
    return def;
}

NamedAttributes same_windows(const OpView& v) {
    NamedAttributes attributes = same_window(v);
    attributes.emplace_back("kernel", v.attribute("kernel"));
    attributes.emplace_back("ceil_mode", v.attribute("ceil_mode"));
    return attributes;
}

// Of the dtype of input 0, with an element for each window over it.
std::vector<TensorType> window_type(const OpView& v) {
    return {TensorType{v.input(0).dtype, shape_of_windows(v, v.in_shape(0))}};
}

std::vector<Dim> kernel_dims(const OpView& v) {
    std::vector<Dim> dims;
    for (const std::int64_t length : v.integers("kernel")) dims.emplace_back(length);
    return dims;
}

Value lowest(ElementContext& c, DType dtype) {
    if (is_floating(dtype)) return c.constant(-std::numeric_limits<double>::infinity(), dtype);
    if (is_unsigned_integer(dtype)) return c.constant_int(0, dtype);
    return c.constant_int(std::int64_t{-1} << (8 * size_of(dtype) - 1), dtype);
}

// Tap `taps` of the window at `at`, or `neutral` outside of the input.
Value tap_of(ElementContext& c, const Indices& at, const Indices& taps, const Value& neutral) {
    if (surely_empty(c.op.in_shape(0))) return neutral;
    const Place place = place_of(c.b, axes_of(c.op, c.op.in_shape(0)), at, taps);
    if (place.inside == no_value) return c.operand(0, place.index);
    return c.guarded(place.inside, [&] { return c.operand(0, place.index); }, neutral);
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

// --- Taps: elements of the window, by number

OpDef window_argmax() {
    OpDef def = window_op(
        "window_argmax",
        "The number of the first largest element in each window, counted in row-major order; of the first NaN, if "
        "there is one. Where all elements are the lowest value it is 0, even if that is padding: who uses it takes the "
        "first element inside of the input instead.");
    def.args = {{"x", "integers or floats"}};
    def.results = {"taps"};
    def.infer = [](const OpView& v) {
        require(v, 0, reals);
        return std::vector{TensorType{DType::int32, shape_of_windows(v, v.in_shape(0))}};
    };
    ReduceBody body;
    body.combiner = [](const OpView&) { return Combiner::argmax; };
    body.domain = [](const OpView& v) { return std::vector<Dim>{taps_in(axes_of(v, v.in_shape(0)))}; };
    body.element = [](ElementContext& c, const Indices& at, const Indices& flat) {
        const Indices taps = split_tap(axes_of(c.op, c.op.in_shape(0)), flat[0]);
        return tap_of(c, at, taps, lowest(c, c.op.input(0).dtype));
    };
    def.body = std::move(body);
    def.gradient = NotDifferentiable{"its result is a position, which jumps from one integer to another"};
    return def;
}

// What window_argmax means: padding is never larger than what is inside, so that it wins only as tap 0, and then all
// elements are equal.
ValueId tap_inside(ElementContext& c, const std::vector<WindowAxis>& axes, const Indices& window, ValueId tap) {
    const std::size_t leading = window.size() - axes.size();
    Indices first;
    for (std::size_t k = 0; k < axes.size(); ++k) first.push_back(taps_before(c.b, axes[k], window[leading + k], 0));
    const ValueId lowest_tap = c.b.cast(c.b.index_value(flat_tap(axes, first)), c.b.type(tap));
    return c.b.op(ScalarOp::max, tap, lowest_tap);
}

// The place in the input that a saved tap of the window at `at` names; outside for windows that have nothing inside.
Place place_of_saved(ElementContext& c, const std::vector<WindowAxis>& axes, const Indices& at, ValueId saved) {
    const ValueId tap = c.b.cast(tap_inside(c, axes, at, saved), DType::int64);
    return place_of(c.b, axes, at, split_tap(axes, Index::value(tap)));
}

OpDef window_position() {
    OpDef def = window_op("window_position",
                          "Taps that were found by window_argmax as flat positions: among the last axes of the input "
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
            position.re = c.b.cast(tap_inside(c, axes, at, saved), DType::int64);
        } else {
            Index flat = 0;
            const std::size_t leading = at.size() - axes.size();
            for (std::size_t k = 0; k < axes.size(); ++k) flat = flat * axes[k].input + place.index[leading + k];
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

// --- Adjoints

// The windows that may contain a position of one axis. Where the taps are neighbours, that are few when the stride is
// large: window number `candidate`, counted backwards from the last one that begins at the position or before it.
// Else each tap is tried.
bool has_gaps(const WindowAxis& axis) {
    return axis.dilation > 1 && !(axis.kernel == Dim(1));
}

Dim num_candidates(const WindowAxis& axis) {
    return has_gaps(axis) ? axis.kernel : ceil_div(axis.kernel, axis.stride);
}

struct Candidate {
    Index window, tap;
    ValueId exists = no_value;
};

Candidate candidate_of(loopir::Builder& b, const WindowAxis& axis, const Index& at, const Index& number) {
    Candidate candidate;
    if (has_gaps(axis)) {
        candidate.tap = number;
        const Index start = at + Index(axis.before) - number * Dim(axis.dilation);
        // A whole number of strides is added, so that the dividend is never negative.
        const Dim more = ceil_div((axis.kernel - 1) * Dim(axis.dilation), axis.stride);
        const Index dividend = start + Index(more * Dim(axis.stride));
        candidate.window = floor_div(dividend, axis.stride) - Index(more);
        if (axis.stride != 1) candidate.exists = equals(b, mod(dividend, axis.stride), 0);
    } else {
        const Index padded = at + Index(axis.before);
        candidate.window = floor_div(padded, axis.stride) - number;
        candidate.tap = mod(padded, axis.stride) + number * Dim(axis.stride);
        candidate.exists = within(b, candidate.tap, axis.kernel);
    }
    candidate.exists = both(b, candidate.exists, within(b, candidate.window, axis.output));
    return candidate;
}

// A sum over candidates; `value` is what window `window` gives to its tap number `tap`.
using FromWindow = std::function<Value(ElementContext& c, const std::vector<WindowAxis>& axes, const Indices& window,
                                       const Index& tap)>;

ReduceBody gather_windows(FromWindow value) {
    ReduceBody body;
    body.combiner = [](const OpView&) { return Combiner::sum; };
    body.domain = [](const OpView& v) {
        std::vector<Dim> domain;
        for (const WindowAxis& axis : axes_of(v, v.out_shape())) domain.push_back(num_candidates(axis));
        return domain;
    };
    body.element = [value = std::move(value)](ElementContext& c, const Indices& at, const Indices& numbers) {
        const DType dtype = c.op.output().dtype;
        if (surely_empty(c.op.in_shape(0))) return c.constant_int(0, dtype);
        const std::vector<WindowAxis> axes = axes_of(c.op, c.op.out_shape());
        const std::size_t leading = at.size() - axes.size();
        Indices window = at;
        Indices taps;
        ValueId exists = no_value;
        for (std::size_t k = 0; k < axes.size(); ++k) {
            Candidate candidate = candidate_of(c.b, axes[k], at[leading + k], numbers[k]);
            window[leading + k] = std::move(candidate.window);
            taps.push_back(std::move(candidate.tap));
            exists = both(c.b, exists, candidate.exists);
        }
        return guarded_or_zero(c, exists, dtype, [&] { return value(c, axes, window, flat_tap(axes, taps)); });
    };
    return body;
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
    def.body = gather_windows([](ElementContext& c, const std::vector<WindowAxis>&, const Indices& window,
                                 const Index&) { return c.operand(0, window); });
    def.gradient = GradientRule{
        [](GradientContext& g) { return std::vector{apply("window_sum", {g.grad()}, same_windows(g.op)), Tensor()}; }};
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
    def.body = gather_windows(
        [](ElementContext& c, const std::vector<WindowAxis>& axes, const Indices& window, const Index& tap) {
            const ValueId saved = tap_inside(c, axes, window, c.operand(1, window).re);
            const ValueId here = c.b.op(ScalarOp::eq, saved, c.b.cast(c.b.index_value(tap), c.b.type(saved)));
            return c.select(here, c.operand(0, window), c.constant_int(0, c.op.output().dtype));
        });
    def.gradient = GradientRule{[](GradientContext& g) {
        return std::vector{apply("window_select", {g.grad(), g.input(1)}, same_windows(g.op)), Tensor(), Tensor()};
    }};
    return def;
}

// --- Averages

OpDef window_count() {
    OpDef def = window_op("window_count",
                          "The number of elements of each window that lie inside of the input, or of the padded "
                          "input, but 1 at least; leading dims are 1.");
    def.args = {{"like", "what the windows lie on; only its shape matters"}};
    def.attributes.push_back(flag_attr("include_padding", false, "count padding too, but nothing beyond it"));
    def.attributes.push_back(optional_attr("dtype", AttributeKind::dtype, DType::float32, "the dtype of the result"));
    def.results = {"count"};
    def.infer = [](const OpView& v) {
        Shape shape = shape_of_windows(v, v.in_shape(0));
        if (shape.has_rank()) {
            std::vector<Dim> dims = shape.dims();
            for (std::size_t axis = 0; axis + num_axes(v) < dims.size(); ++axis) dims[axis] = 1;
            shape = Shape(std::move(dims));
        }
        return std::vector{TensorType{v.dtype("dtype"), std::move(shape)}};
    };
    def.body = ElementBody{[](ElementContext& c, const Indices& at) {
        const std::vector<WindowAxis> axes = axes_of(c.op, c.op.in_shape(0));
        const std::size_t leading = at.size() - axes.size();
        const auto is_zero = [](const Dim& dim) { return dim.is_known() && dim.value() == 0; };
        const bool padded = c.op.flag("include_padding");
        ValueId count = c.b.constant_int(1, DType::int64);
        for (std::size_t k = 0; k < axes.size(); ++k) {
            const WindowAxis& axis = axes[k];
            const Index& window = at[leading + k];
            ValueId taps = c.b.index_value(axis.kernel);
            if (axis.beyond || !(padded || is_zero(axis.after))) {
                const Dim end = padded ? axis.input + axis.after : axis.input;
                taps = c.b.op(ScalarOp::min, taps, c.b.index_value(taps_before(c.b, axis, window, end)));
            }
            if (!padded && !is_zero(axis.before)) {
                taps = c.b.sub(taps, c.b.index_value(taps_before(c.b, axis, window, 0)));
            }
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
    return {window_sum(),    window_max(),    window_argmax(), window_position(),
            window_select(), window_spread(), window_place(),  window_count()};
}

}  // namespace topstitch::ops
