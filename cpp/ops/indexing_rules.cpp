// Index arithmetic that several families share; see indexing_rules.h.
// Everything is computed with Dims, so that extents may be symbolic, and dividends are never negative.
#include "ops/indexing_rules.h"

#include <algorithm>
#include <cstdlib>

#include "ops/rules.h"

namespace topstitch::ops {

namespace {

using loopir::no_value;
using loopir::ScalarOp;
using loopir::ValueId;

std::vector<Dim> prefix_products(const Shape& shape) {
    std::vector<Dim> products = {1};
    for (const Dim& dim : shape.dims()) products.push_back(products.back() * dim);
    return products;
}

// A range of axes of the two shapes that holds the same number of elements in both.
struct AxisGroup {
    int from_begin = 0, from_end = 0;
    int to_begin = 0, to_end = 0;
};

// Cut wherever the products of the leading dims are equal, so that what is not merged or split stays apart.
std::vector<AxisGroup> axis_groups(const Shape& from, const Shape& to) {
    const std::vector<Dim> from_products = prefix_products(from);
    const std::vector<Dim> to_products = prefix_products(to);
    std::vector<AxisGroup> groups;
    AxisGroup open;
    for (int i = 1; i <= from.rank(); ++i) {
        for (int j = open.to_begin; j <= to.rank(); ++j) {
            if (!(from_products[static_cast<std::size_t>(i)] == to_products[static_cast<std::size_t>(j)])) continue;
            open.from_end = i;
            open.to_end = j;
            groups.push_back(open);
            open = {i, i, j, j};
            break;
        }
    }
    if (open.from_begin < from.rank()) {
        open.from_end = from.rank();
        open.to_end = to.rank();
        groups.push_back(open);
    }
    return groups;
}

bool provably_true_below(const Index& index, const Dim& extent) {
    return provably_nonnegative(extent - 1 - index.upper_bound());
}

// No extent reaches this far: positions beyond it mean "the end" and "the beginning".
constexpr std::int64_t far = std::int64_t{1} << 62;

// The boundary between elements that Python's slice position stands for, in [0, extent].
Dim clamped(const Dim& extent, std::int64_t position) {
    if (position >= far) return extent;
    if (position <= -far) return 0;
    if (position >= 0) return min(Dim(position), extent);
    // extent - min(-position, extent) rather than max(extent + position, 0): differences then come out clean.
    return extent - min(Dim(-position), extent);
}

}  // namespace

bool surely_empty(const Shape& shape) {
    const Dim count = shape.num_elements();
    return count.is_known() && count.value() == 0;
}

Indices reshaped_index(const Shape& from, const Shape& to, const Indices& at) {
    Indices index(static_cast<std::size_t>(from.rank()), Index(0));
    for (const AxisGroup& group : axis_groups(from, to)) {
        Index flat = 0;
        for (int axis = group.to_begin; axis < group.to_end; ++axis) {
            if (!(to[axis] == Dim(1))) flat = flat * to[axis] + at[static_cast<std::size_t>(axis)];
        }
        for (int axis = group.from_end - 1; axis > group.from_begin; --axis) {
            index[static_cast<std::size_t>(axis)] = mod(flat, from[axis]);
            flat = floor_div(flat, from[axis]);
        }
        index[static_cast<std::size_t>(group.from_begin)] = flat;
    }
    return index;
}

ValueId both(loopir::Builder& b, ValueId p, ValueId q) {
    if (p == no_value) return q;
    if (q == no_value) return p;
    return b.op(ScalarOp::bit_and, p, q);
}

ValueId within(loopir::Builder& b, const Index& index, const Dim& extent) {
    ValueId predicate = no_value;
    if (!provably_nonnegative(index.lower_bound())) {
        predicate = b.op(ScalarOp::le, b.constant_int(0, DType::int64), b.index_value(index));
    }
    if (!provably_true_below(index, extent)) {
        predicate = both(b, predicate, b.op(ScalarOp::lt, b.index_value(index), b.index_value(extent)));
    }
    return predicate;
}

ValueId equals(loopir::Builder& b, const Index& index, const Dim& value) {
    const Index difference = index - Index(value);
    if (difference.is_constant() && difference.constant().is_known() && difference.constant().value() == 0) {
        return no_value;
    }
    return b.op(ScalarOp::eq, b.index_value(index), b.index_value(value));
}

Value guarded_or_zero(ElementContext& c, ValueId predicate, DType dtype, const std::function<Value()>& inner) {
    if (predicate == no_value) return inner();
    return c.guarded(predicate, inner, c.constant_int(0, dtype));
}

void require_indices(const OpView& view, int k) {
    const DType dtype = view.input(k).dtype;
    if (dtype == DType::int32 || dtype == DType::int64) return;
    view.fail_type(concat(input_name(view, k), " has dtype ", name_of(dtype),
                          ", but indices are int32 or int64; use cast to convert it"));
}

WrappedIndex wrapped_index(loopir::Builder& b, ValueId index, const Dim& extent) {
    const ValueId zero = b.constant_int(0, DType::int64);
    const ValueId wide = b.cast(index, DType::int64);
    const ValueId length = b.index_value(extent);
    WrappedIndex result;
    result.position = b.select(b.op(ScalarOp::lt, wide, zero), b.add(wide, length), wide);
    result.valid =
        b.op(ScalarOp::bit_and, b.op(ScalarOp::le, zero, result.position), b.op(ScalarOp::lt, result.position, length));
    return result;
}

SliceRange slice_range(const Dim& extent, std::int64_t start, std::int64_t stop, std::int64_t step) {
    SliceRange range;
    range.step = std::clamp(step, -far, far);
    if (extent.is_unknown()) {
        range.start = Dim::unknown();
        range.length = Dim::unknown();
        return range;
    }
    if (range.step > 0) {
        range.start = clamped(extent, start);
        range.length = max(ceil_div(clamped(extent, stop) - range.start, range.step), 0);
    } else {
        // Positions one higher than those of the elements, so that "before the first" is 0.
        const auto one_higher = [&extent](std::int64_t position) {
            return position == -1 || position >= far ? extent : clamped(extent, position + 1);
        };
        const Dim first = one_higher(start);
        range.start = first - 1;
        range.length = max(ceil_div(first - one_higher(stop), -range.step), 0);
    }
    return range;
}

SlicePosition position_in_slice(loopir::Builder& b, const SliceRange& range, const Index& at) {
    const std::int64_t stride = std::abs(range.step);
    // at == start + k * step, so that both leave the same remainder, and the quotients differ by k.
    const Index ahead = floor_div(at, stride) - Index(floor_div(range.start, stride));
    SlicePosition result;
    result.position = range.step > 0 ? ahead : ahead * -1;
    result.taken = within(b, result.position, range.length);
    if (stride > 1) result.taken = both(b, equals(b, mod(at, stride), mod(range.start, stride)), result.taken);
    return result;
}

}  // namespace topstitch::ops
