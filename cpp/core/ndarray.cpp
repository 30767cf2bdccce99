// NDArray: construction with checks, element access and copies.
// Views are in ndarray_views.cpp, text in ndarray_print.cpp.
#include "topstitch/ndarray.h"

#include <cstring>

#include "core/checked.h"
#include "core/scalar_convert.h"
#include "core/strided_copy.h"
#include "topstitch/error.h"

namespace topstitch {

namespace {

// The addresses [low, high) that a view touches, relative to its first element.
struct Span {
    std::int64_t low = 0;
    std::int64_t high = 0;
};

Span span_of(const Sizes& shape, const Sizes& strides, std::size_t element_size) {
    Span span{0, static_cast<std::int64_t>(element_size)};
    for (std::size_t i = 0; i < shape.size(); ++i) {
        if (shape[i] == 0) return {0, 0};
        const auto reach = checked_mul(strides[i], shape[i] - 1);
        const auto end = reach ? checked_add(*reach < 0 ? span.low : span.high, *reach) : std::nullopt;
        if (!end)
            throw UserError(
                concat("array: the strides of shape ", sizes_str(shape), " are too large: they reach beyond 63 bits"));
        (*reach < 0 ? span.low : span.high) = *end;
    }
    return span;
}

bool is_c_ordered(const Sizes& shape, const Sizes& strides, std::size_t element_size) {
    auto expected = static_cast<std::int64_t>(element_size);
    bool ordered = true;
    for (std::size_t i = shape.size(); i-- > 0;) {
        if (shape[i] == 0) return true;
        if (shape[i] != 1 && strides[i] != expected) ordered = false;
        if (ordered) expected *= shape[i];  // fits: the caller has checked the number of bytes
    }
    return ordered;
}

// The number of elements, after all checks of a concrete shape.
std::int64_t checked_size(const Sizes& shape, DType dtype) {
    if (shape.size() > static_cast<std::size_t>(max_rank)) {
        throw UserError(concat("array: ", shape.size(), " dims were given; at most ", max_rank,
                               " are supported, so merge some with reshape"));
    }
    for (std::size_t i = 0; i < shape.size(); ++i) {
        if (shape[i] < 0)
            throw UserError(
                concat("array: dim ", i, " of shape ", sizes_str(shape), " is negative; sizes must be 0 or more"));
    }
    const std::int64_t size = num_elements(shape);
    if (!checked_mul(size, static_cast<std::int64_t>(size_of(dtype)))) {
        throw UserError(concat("array: shape ", sizes_str(shape), " of ", name_of(dtype),
                               " is too large: its bytes do not fit in 63 bits"));
    }
    return size;
}

}  // namespace

Sizes contiguous_byte_strides(const Sizes& shape, std::size_t element_size) {
    Sizes strides(shape.size());
    auto stride = static_cast<std::int64_t>(element_size);
    for (std::size_t i = shape.size(); i-- > 0;) {
        strides[i] = stride;
        // An array with a dim of 0 has no elements, so its other strides are arbitrary.
        stride = checked_mul(stride, shape[i] > 0 ? shape[i] : 1).value_or(stride);
    }
    return strides;
}

NDArray::NDArray(DType dtype, Sizes shape) : dtype_(dtype), shape_(std::move(shape)) {
    size_ = checked_size(shape_, dtype_);
    strides_ = contiguous_byte_strides(shape_, size_of(dtype_));
    buffer_ = Buffer::allocate(bytes());
    data_ = buffer_->data();
}

NDArray::NDArray(std::shared_ptr<Buffer> buffer, void* data, DType dtype, Sizes shape, Sizes byte_strides)
    : buffer_(std::move(buffer)),
      data_(data),
      dtype_(dtype),
      shape_(std::move(shape)),
      strides_(std::move(byte_strides)) {
    if (strides_.size() != shape_.size()) {
        throw UserError(concat("array: ", shape_.size(), " sizes but ", strides_.size(),
                               " strides were given; there must be one stride for each dim"));
    }
    size_ = checked_size(shape_, dtype_);
    contiguous_ = is_c_ordered(shape_, strides_, size_of(dtype_));
    const Span span = span_of(shape_, strides_, size_of(dtype_));
    const auto offset = reinterpret_cast<std::intptr_t>(data_) - reinterpret_cast<std::intptr_t>(buffer_->data());
    if (size_ > 0 && (offset + span.low < 0 || offset + span.high > static_cast<std::int64_t>(buffer_->bytes()))) {
        throw UserError(concat("array: shape ", sizes_str(shape_), " with byte strides ", sizes_str(strides_),
                               " reaches outside its buffer of ", buffer_->bytes(), " bytes"));
    }
}

NDArray NDArray::zeros(DType dtype, Sizes shape) {
    NDArray array(dtype, std::move(shape));
    if (array.size_ > 0) std::memset(array.data_, 0, array.bytes());
    return array;
}

NDArray NDArray::scalar(double value, DType dtype) {
    NDArray array(dtype, {});
    store_scalar(value, dtype, array.data_);
    return array;
}

NDArray NDArray::scalar(std::int64_t value, DType dtype) {
    NDArray array(dtype, {});
    store_scalar(value, dtype, array.data_);
    return array;
}

NDArray NDArray::copy_of(const void* data, DType dtype, Sizes shape) {
    NDArray array(dtype, std::move(shape));
    if (array.size_ > 0) std::memcpy(array.data_, data, array.bytes());
    return array;
}

bool NDArray::may_overlap(const NDArray& other) const {
    if (size_ == 0 || other.size_ == 0) return false;
    const Span a = span_of(shape_, strides_, size_of(dtype_));
    const Span b = span_of(other.shape_, other.strides_, size_of(other.dtype_));
    const auto x = reinterpret_cast<std::intptr_t>(data_);
    const auto y = reinterpret_cast<std::intptr_t>(other.data_);
    return x + a.low < y + b.high && y + b.low < x + a.high;
}

void* NDArray::lowest_address() const {
    if (size_ == 0 || contiguous_) return data_;
    return static_cast<std::byte*>(data_) + span_of(shape_, strides_, size_of(dtype_)).low;
}

NDArray NDArray::contiguous() const {
    return contiguous_ ? *this : copy();
}

NDArray NDArray::copy() const {
    NDArray packed(dtype_, shape_);
    strided_copy(packed.data_, packed.strides_, data_, strides_, shape_, size_of(dtype_));
    return packed;
}

void NDArray::copy_from(const NDArray& source) const {
    if (source.dtype_ != dtype_) {
        throw TypeError(concat("copy_from: the source is ", name_of(source.dtype_), " but the target is ",
                               name_of(dtype_), "; convert the source first"));
    }
    if (source.shape_ != shape_) {
        throw UserError(concat("copy_from: the source has shape ", sizes_str(source.shape_), " but the target ",
                               sizes_str(shape_), "; the shapes must be equal, so use broadcast_to or reshape first"));
    }
    if (readonly()) throw UserError("copy_from: the target is read-only; copy it first and write to the copy");
    if (data_ == source.data_ && strides_ == source.strides_) return;
    const NDArray apart = may_overlap(source) ? source.copy() : source;
    strided_copy(data_, strides_, apart.data_, apart.strides_, shape_, size_of(dtype_));
}

double NDArray::at(std::int64_t flat_index) const {
    if (flat_index < 0 || flat_index >= size_) {
        throw UserError(concat("at: position ", flat_index, " is out of range for an array of ", size_, " elements"));
    }
    const char* element = static_cast<const char*>(data_);
    for (std::size_t i = shape_.size(); i-- > 0;) {
        element += flat_index % shape_[i] * strides_[i];
        flat_index /= shape_[i];
    }
    return load_scalar(element, dtype_);
}

}  // namespace topstitch
