// Windows that slide along the spatial axes of a tensor: what convolution and pooling share.
// Their attributes with the checks, the geometry of each axis, and the layouts of data.
#pragma once

#include <string>
#include <vector>

#include "ops/rules.h"

namespace topstitch::ops {

// One spatial axis. Tap k of the window at output position t reads position t*stride + k*dilation - before of the
// input, and zero (or what is neutral) outside of it.
struct WindowAxis {
    Dim input, output;
    Dim kernel = 1;
    std::int64_t stride = 1;
    std::int64_t dilation = 1;
    Dim before = 0, after = 0;  // the padding
    bool beyond = false;        // the last windows may reach beyond the padding
    std::size_t axis = 0;       // which axis of the tensor it is; whoever knows the layout says so

    // From the first tap to the last, both included.
    Dim span() const { return (kernel - 1) * Dim(dilation) + 1; }
    Index position(const Index& at, const Index& tap) const {
        return at * Dim(stride) + tap * Dim(dilation) - Index(before);
    }
};

// The predicate that a position which a window reads lies inside of the input; no_value where all of them do.
loopir::ValueId inside(loopir::Builder& b, const WindowAxis& axis, const Index& position);

// The attributes `stride`, `dilation` and `padding`. Where windows lie side by side unless told otherwise, a stride of
// none means the kernel.
enum class DefaultStride { one, kernel };
std::vector<AttrDef> window_attributes(DefaultStride stride = DefaultStride::one);
// The values of an attribute that has one number for all `axes` spatial axes or one for each, none below `lowest`.
std::vector<std::int64_t> numbers_for_axes(const OpView& view, std::string_view attribute, int axes,
                                           std::int64_t lowest);
// From the attributes; `ceil` rounds the number of windows up instead of down, as long as a window begins inside the
// input or the padding before it. Fails when a window is larger than the padded axis.
std::vector<WindowAxis> window_axes(const OpView& view, const std::vector<Dim>& input, const std::vector<Dim>& kernel,
                                    bool ceil = false);
// How many windows there are along each axis.
std::vector<Dim> outputs_of(const std::vector<WindowAxis>& axes);
// Whether the padding follows from the input: "same" or "same_lower".
bool is_same_padding(const OpView& view);
// The smallest extents over which the window of the attributes gives so many windows, as for "same" the product with
// the stride.
std::vector<Dim> smallest_inputs(const OpView& view, const std::vector<Dim>& windows, const std::vector<Dim>& kernel);
// The attributes of window_attributes, for another operation with the same window.
NamedAttributes same_window(const OpView& view);

// Spatial axes are named D, H, W; data layouts are "NCHW" and "NHWC" or the like, for one to three spatial axes.
std::string channels_first(int axes);
std::string channels_last(int axes);
AttrDef data_layout_attr(int axes);
// The axes of `layout` in the order of `wanted`, for a transposition: axis k of the result is axis order[k].
std::vector<std::int64_t> axis_order(const std::string& layout, const std::string& wanted);
// A transposition, unless the layouts are equal.
Tensor arranged(const Tensor& x, const std::string& layout, const std::string& wanted);
Shape arranged(const Shape& shape, const std::string& layout, const std::string& wanted);
// Fails unless input `k` has one axis for each letter of the layout, as far as its rank is known.
void require_layout(const OpView& view, int k, const std::string& layout);

}  // namespace topstitch::ops
