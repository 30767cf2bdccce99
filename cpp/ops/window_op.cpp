// What the primitives over windows share; see window_op.h.
// Which windows contain a position is computed with indices that are never negative, so that they divide like naturals.
#include "ops/window_op.h"

#include <limits>

#include "graph/dims.h"
#include "ops/indexing_rules.h"

namespace topstitch::ops {

using loopir::no_value;
using loopir::ScalarOp;
using loopir::ValueId;

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
    def.attributes.push_back(
        optional_attr("trailing", AttributeKind::integer, std::int64_t{0}, "how many axes follow those of the window"));
    def.results = {"y"};
    return def;
}

NamedAttributes same_windows(const OpView& v) {
    NamedAttributes attributes = same_window(v);
    attributes.emplace_back("kernel", v.attribute("kernel"));
    attributes.emplace_back("ceil_mode", v.attribute("ceil_mode"));
    attributes.emplace_back("trailing", v.attribute("trailing"));
    return attributes;
}

std::vector<WindowAxis> axes_of(const OpView& v, const Shape& input, int count, int trailing) {
    std::vector<Dim> extents(static_cast<std::size_t>(count), Dim::unknown());
    if (input.has_rank()) {
        if (input.rank() < count + trailing) {
            v.fail(concat("a tensor of shape ", input.str(), " has ", input.rank(), " axes, but the window needs ",
                          count, "; use expand_dims or reshape"));
        }
        const auto end = input.dims().end() - trailing;
        extents.assign(end - count, end);
    }
    std::vector<Dim> kernel;
    for (const std::int64_t length : numbers_for_axes(v, "kernel", count, 1)) kernel.emplace_back(length);
    std::vector<WindowAxis> axes = window_axes(v, extents, kernel, v.flag("ceil_mode"));
    for (std::size_t k = 0; input.has_rank() && k < axes.size(); ++k) {
        axes[k].axis = static_cast<std::size_t>(input.rank() - trailing - count) + k;
    }
    return axes;
}

std::vector<WindowAxis> axes_of(const OpView& v, const Shape& input) {
    return axes_of(v, input, static_cast<int>(v.integers("kernel").size()), static_cast<int>(v.integer("trailing")));
}

Shape shape_of_windows(const Shape& input, const std::vector<WindowAxis>& axes) {
    if (!input.has_rank()) return input;
    std::vector<Dim> dims = input.dims();
    for (const WindowAxis& axis : axes) dims[axis.axis] = axis.output;
    return Shape(std::move(dims));
}

Shape shape_of_windows(const OpView& v, const Shape& input) {
    return shape_of_windows(input, axes_of(v, input));
}

void require_windows(const OpView& v, int k, int like) {
    const Shape& given = v.in_shape(k);
    const Shape wanted = shape_of_windows(v, v.in_shape(like));
    if (!shapes_agree(given, wanted)) {
        v.fail(concat(input_name(v, k), " has shape ", given.str(), ", but the windows over ", input_name(v, like),
                      " have ", wanted.str()));
    }
}

std::vector<TensorType> window_type(const OpView& v) {
    return {TensorType{v.input(0).dtype, shape_of_windows(v, v.in_shape(0))}};
}

Dim taps_in(const std::vector<WindowAxis>& axes) {
    Dim count = 1;
    for (const WindowAxis& axis : axes) count = count * axis.kernel;
    return count;
}

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

Place place_of(loopir::Builder& b, const std::vector<WindowAxis>& axes, const Indices& at, const Indices& taps) {
    Place place{at};
    for (std::size_t k = 0; k < axes.size(); ++k) {
        Index& along = place.index[axes[k].axis];
        along = axes[k].position(along, taps[k]);
        place.inside = both(b, place.inside, inside(b, axes[k], along));
    }
    return place;
}

ValueId taps_before(loopir::Builder& b, const WindowAxis& axis, const Index& at, const Dim& end) {
    const Index distance = Index(end + axis.before) - at * Dim(axis.stride);
    const ValueId positions = b.op(ScalarOp::max, b.index_value(distance), b.constant_int(0, DType::int64));
    if (axis.dilation == 1) return positions;
    // On values, since the dividend of an index must have no negative part.
    return b.div(b.add(positions, b.constant_int(axis.dilation - 1, DType::int64)),
                 b.constant_int(axis.dilation, DType::int64));
}

Value tap_of(ElementContext& c, const Indices& at, const Indices& taps, const Value& neutral) {
    if (surely_empty(c.op.in_shape(0))) return neutral;
    const Place place = place_of(c.b, axes_of(c.op, c.op.in_shape(0)), at, taps);
    if (place.inside == no_value) return c.operand(0, place.index);
    return c.guarded(place.inside, [&] { return c.operand(0, place.index); }, neutral);
}

Value lowest(ElementContext& c, DType dtype) {
    if (is_floating(dtype)) return c.constant(-std::numeric_limits<double>::infinity(), dtype);
    if (is_unsigned_integer(dtype)) return c.constant_int(0, dtype);
    return c.constant_int(std::int64_t{-1} << (8 * size_of(dtype) - 1), dtype);
}

namespace {

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
        // From the last tap to the first, so that the dividend has no negative part, and a whole number of strides is
        // added, so that it is never negative.
        candidate.tap = Index(axis.kernel - 1) - number;
        const Dim reach = (axis.kernel - 1) * Dim(axis.dilation);
        const Dim more = ceil_div(reach, axis.stride);
        const Index dividend = at + number * Dim(axis.dilation) + Index(axis.before - reach + more * Dim(axis.stride));
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

}  // namespace

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
        Indices window = at;
        Indices taps;
        ValueId exists = no_value;
        for (std::size_t k = 0; k < axes.size(); ++k) {
            Candidate candidate = candidate_of(c.b, axes[k], at[axes[k].axis], numbers[k]);
            window[axes[k].axis] = std::move(candidate.window);
            taps.push_back(std::move(candidate.tap));
            exists = both(c.b, exists, candidate.exists);
        }
        return guarded_or_zero(c, exists, dtype, [&] { return value(c, window, flat_tap(axes, taps)); });
    };
    return body;
}

}  // namespace topstitch::ops
