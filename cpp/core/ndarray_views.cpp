// Views of an NDArray: slice, transpose, broadcast and reshape.
// They share the buffer; only reshape of a scattered array copies.
#include <algorithm>

#include "core/checked.h"
#include "topstitch/error.h"
#include "topstitch/ndarray.h"

namespace topstitch {

NDArray NDArray::slice(int axis, std::int64_t start, std::int64_t stop, std::int64_t step) const {
    const auto dim = static_cast<std::size_t>(normalize_axis(axis, rank(), "slice"));
    if (step == 0) throw UserError("slice: the step is 0; it must be positive or negative");
    const std::int64_t size = shape_[dim];
    // As Python: from the end when negative, then clipped to [0, size], or to [-1, size - 1] going backward.
    const std::int64_t low = step > 0 ? 0 : -1;
    const std::int64_t high = step > 0 ? size : size - 1;
    const auto place = [&](std::int64_t index) { return std::clamp(index < 0 ? index + size : index, low, high); };
    const std::int64_t first = place(start);
    const std::int64_t last = place(stop);
    std::int64_t count = 0;
    if (step > 0 && first < last) count = (last - first - 1) / step + 1;
    if (step < 0 && first > last) count = (first - last - 1) / (step == min_index ? max_index : -step) + 1;

    Sizes shape = shape_;
    Sizes strides = strides_;
    shape[dim] = count;
    // One element needs no stride, and the product of a large step might not fit.
    if (count > 1) strides[dim] = strides_[dim] * step;
    char* data = static_cast<char*>(data_) + (count > 0 ? first * strides_[dim] : 0);
    return NDArray(buffer_, data, dtype_, std::move(shape), std::move(strides));
}

NDArray NDArray::transpose(const std::vector<int>& permutation) const {
    const auto show = [&] { return sizes_str(Sizes(permutation.begin(), permutation.end())); };
    if (permutation.size() != shape_.size()) {
        throw UserError(concat("transpose: the permutation ", show(), " has ", permutation.size(),
                               " axes, but the array has ", rank(), " dims; name each axis once"));
    }
    std::vector<bool> seen(shape_.size(), false);
    Sizes shape;
    Sizes strides;
    for (const int axis : permutation) {
        const auto dim = static_cast<std::size_t>(normalize_axis(axis, rank(), "transpose"));
        if (seen[dim])
            throw UserError(concat("transpose: axis ", axis, " occurs twice in ", show(), "; name each axis once"));
        seen[dim] = true;
        shape.push_back(shape_[dim]);
        strides.push_back(strides_[dim]);
    }
    return NDArray(buffer_, data_, dtype_, std::move(shape), std::move(strides));
}

NDArray NDArray::broadcast_to(const Sizes& shape) const {
    const auto fail = [&](const std::string& why) {
        return UserError(
            concat("broadcast_to: shape ", sizes_str(shape_), " does not broadcast to ", sizes_str(shape), ": ", why));
    };
    if (shape.size() < shape_.size()) throw fail("the target has fewer dims");
    const std::size_t added = shape.size() - shape_.size();
    Sizes strides(shape.size(), 0);
    for (std::size_t i = 0; i < shape_.size(); ++i) {
        if (shape_[i] == shape[added + i]) {
            strides[added + i] = strides_[i];
        } else if (shape_[i] != 1) {
            throw fail(concat("dim ", i, " is ", shape_[i], " and would have to be 1 or ", shape[added + i]));
        }
    }
    return NDArray(buffer_, data_, dtype_, shape, std::move(strides));
}

NDArray NDArray::reshape(const Sizes& shape) const {
    Sizes sizes = shape;
    const auto inferred = std::find(sizes.begin(), sizes.end(), -1);
    if (inferred != sizes.end()) {
        *inferred = 1;
        const std::int64_t others = num_elements(sizes);
        if (others <= 0 || size_ % others != 0) {
            throw UserError(concat("reshape: the -1 in ", sizes_str(shape), " cannot be inferred from ", size_,
                                   " elements; the other sizes must divide that number"));
        }
        *inferred = size_ / others;
    }
    for (const std::int64_t size : sizes) {
        if (size < 0)
            throw UserError(
                concat("reshape: ", sizes_str(shape), " has a negative size; only one size may be -1, to be inferred"));
    }
    if (num_elements(sizes) != size_) {
        throw UserError(concat("reshape: an array of shape ", sizes_str(shape_), " has ", size_,
                               " elements and cannot become ", sizes_str(shape), ", which has ", num_elements(sizes)));
    }
    const NDArray packed = contiguous();
    Sizes strides = contiguous_byte_strides(sizes, size_of(dtype_));
    return NDArray(packed.buffer_, packed.data_, dtype_, std::move(sizes), std::move(strides));
}

}  // namespace topstitch
