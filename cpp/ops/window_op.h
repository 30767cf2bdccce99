// What the primitives over windows share: their declaration, and where taps of a window lie in the input.
// The windows lie on the last axes of a tensor, or on those before the channels: one for each number of `kernel`.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ops/window_rules.h"

namespace topstitch::ops {

// --- Declarations

// An internal operation with the attributes of windows.
OpDef window_op(std::string name, std::string doc);
// An attribute list for another operation over the same windows.
NamedAttributes same_windows(const OpView& v);

// The axes of windows over a tensor of shape `input`; pooling says how many there are, since one number may stand for
// all, and how many axes follow.
std::vector<WindowAxis> axes_of(const OpView& v, const Shape& input);
std::vector<WindowAxis> axes_of(const OpView& v, const Shape& input, int count, int trailing);
// The shape with one element for each window.
Shape shape_of_windows(const OpView& v, const Shape& input);
Shape shape_of_windows(const Shape& input, const std::vector<WindowAxis>& axes);
// Of the dtype of input 0, with an element for each window over it.
std::vector<TensorType> window_type(const OpView& v);
// Fails unless input `k` has one element for each window over input `like`.
void require_windows(const OpView& v, int k, int like);

// --- Taps: elements of the window, numbered in row-major order

Dim taps_in(const std::vector<WindowAxis>& axes);
Index flat_tap(const std::vector<WindowAxis>& axes, const Indices& taps);
Indices split_tap(const std::vector<WindowAxis>& axes, Index flat);
// How many taps of the window at `at` lie before position `end`, of all that would follow if the window had no end.
loopir::ValueId taps_before(loopir::Builder& b, const WindowAxis& axis, const Index& at, const Dim& end);

// Where tap `taps` of the window at index `at` of the result lies in the input.
struct Place {
    Indices index;
    loopir::ValueId inside = loopir::no_value;
};
Place place_of(loopir::Builder& b, const std::vector<WindowAxis>& axes, const Indices& at, const Indices& taps);
// The element of input 0 there, or `neutral` outside of the input.
Value tap_of(ElementContext& c, const Indices& at, const Indices& taps, const Value& neutral);
// What padding counts as in a maximum.
Value lowest(ElementContext& c, DType dtype);

// --- Adjoints

// A sum over the windows that contain a position; `value` is what window `window` gives to its tap number `tap`. It is
// a gather, always in the same order.
using FromWindow = std::function<Value(ElementContext& c, const Indices& window, const Index& tap)>;
ReduceBody gather_windows(FromWindow value);

}  // namespace topstitch::ops
