// Index arithmetic that several families share: reshaping an index, and predicates about where an index lies.
// A predicate that is certain to hold is no_value, so that whole views need no guard.
#pragma once

#include <cstdint>

#include "graph/op_def.h"

namespace topstitch::ops {

// True when the shape is certain to have no elements: bodies then give a constant, since their index has no meaning.
bool surely_empty(const Shape& shape);
// The index into `from` of the element that lies at `at` in `to`, both row-major views of the same elements, of which
// there is one at least.
Indices reshaped_index(const Shape& from, const Shape& to, const Indices& at);

// 0 <= index < extent.
loopir::ValueId within(loopir::Builder& b, const Index& index, const Dim& extent);
// index == value, for a value within the index's range.
loopir::ValueId equals(loopir::Builder& b, const Index& index, const Dim& value);
// Conjunction, where no_value holds always.
loopir::ValueId both(loopir::Builder& b, loopir::ValueId p, loopir::ValueId q);
// `inner` where the predicate holds, and zero of `dtype` elsewhere.
Value guarded_or_zero(ElementContext& c, loopir::ValueId predicate, DType dtype, const std::function<Value()>& inner);

// Input `k` holds positions: int32 or int64.
void require_indices(const OpView& view, int k);
// A position along an axis, as the user gave it: negative ones count from the end, once.
struct WrappedIndex {
    loopir::ValueId position = loopir::no_value;
    loopir::ValueId valid = loopir::no_value;  // it is on the axis
};
WrappedIndex wrapped_index(loopir::Builder& b, loopir::ValueId index, const Dim& extent);

// Which elements of an axis a slice takes: start, start + step, ... (length of them). Unknown for an unknown extent.
struct SliceRange {
    Dim start = 0;
    std::int64_t step = 1;
    Dim length = 0;
};
// As Python's slice(start, stop, step): negative positions count from the end, then both are clamped.
SliceRange slice_range(const Dim& extent, std::int64_t start, std::int64_t stop, std::int64_t step);
// The position in the slice of position `at` of the axis, and the predicate that it is taken at all.
struct SlicePosition {
    Index position;
    loopir::ValueId taken = loopir::no_value;
};
SlicePosition position_in_slice(loopir::Builder& b, const SliceRange& range, const Index& at);

// The operation axis_window: `length` elements from `offset` on, which may be symbolic.
Tensor axis_window(const Tensor& x, int axis, const Dim& offset, const Dim& length);

}  // namespace topstitch::ops
