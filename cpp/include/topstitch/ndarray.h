// NDArray: a strided view of up to 16 dims over a shared buffer, owned or borrowed.
// Views by slice, transpose and broadcast share the buffer; nothing here computes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "topstitch/dtype.h"
#include "topstitch/export.h"
#include "topstitch/shape.h"

namespace topstitch {

// A run of bytes with an owner. Allocations are aligned to 64 bytes and come from a pool, so that
// a large result does not fault fresh pages at every run.
class TOPSTITCH_API Buffer {
public:
    // Uninitialised memory; MemoryError when it cannot be had.
    static std::shared_ptr<Buffer> allocate(std::size_t bytes);
    // Somebody else's memory: `release` runs when the last view is gone.
    static std::shared_ptr<Buffer> borrow(void* data, std::size_t bytes, bool readonly, std::function<void()> release);
    ~Buffer();
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;

    void* data() const { return data_; }
    std::size_t bytes() const { return bytes_; }
    bool readonly() const { return readonly_; }
    bool owned() const { return owned_; }  // from our pool

private:
    Buffer() = default;
    void* data_ = nullptr;
    std::size_t bytes_ = 0;
    bool readonly_ = false;
    bool owned_ = false;
    std::function<void()> release_;
};

class TOPSTITCH_API NDArray {
public:
    NDArray() : NDArray(DType::float32, Sizes{0}) {}
    // Uninitialised, C-contiguous. UserError for a negative size, more than 16 dims or a size past
    // 63 bits; MemoryError when the memory cannot be had.
    NDArray(DType dtype, Sizes shape);
    // A view over `buffer`: `data` lies inside it, strides are in bytes and may be 0 or negative.
    NDArray(std::shared_ptr<Buffer> buffer, void* data, DType dtype, Sizes shape, Sizes byte_strides);

    static NDArray zeros(DType dtype, Sizes shape);
    // A scalar (rank 0) holding `value` converted to `dtype`.
    static NDArray scalar(double value, DType dtype = DType::float32);
    static NDArray scalar(std::int64_t value, DType dtype);
    static NDArray scalar(int value, DType dtype) { return scalar(static_cast<std::int64_t>(value), dtype); }
    // Copies `count` elements from C-ordered memory.
    static NDArray copy_of(const void* data, DType dtype, Sizes shape);

    DType dtype() const { return dtype_; }
    const Sizes& shape() const { return shape_; }
    const Sizes& byte_strides() const { return strides_; }
    int rank() const { return static_cast<int>(shape_.size()); }
    std::int64_t size() const { return size_; }  // elements
    std::size_t bytes() const { return static_cast<std::size_t>(size_) * size_of(dtype_); }
    void* data() const { return data_; }  // the first element
    template <typename T>
    T* data_as() const {
        return static_cast<T*>(data_);
    }
    void* lowest_address() const;  // differs from data() when a stride is negative
    bool readonly() const { return buffer_->readonly(); }
    bool is_contiguous() const { return contiguous_; }  // C order
    const std::shared_ptr<Buffer>& buffer() const { return buffer_; }
    // True when the two may touch the same byte (compares the ranges of addresses that they span).
    bool may_overlap(const NDArray& other) const;

    // Views; UserError when out of range.
    // As Python's: counted from the end when negative, clipped to the dim. With a negative step, a stop of
    // min_index (or anything below -size) means "up to and with element 0".
    static constexpr std::int64_t min_index = INT64_MIN;
    static constexpr std::int64_t max_index = INT64_MAX;
    NDArray slice(int axis, std::int64_t start, std::int64_t stop, std::int64_t step = 1) const;
    NDArray transpose(const std::vector<int>& permutation) const;
    NDArray broadcast_to(const Sizes& shape) const;
    NDArray reshape(const Sizes& shape) const;  // a view when contiguous, else a copy; one size may be -1

    NDArray contiguous() const;                   // itself when contiguous, else a packed copy
    NDArray copy() const;                         // always a fresh packed array
    void copy_from(const NDArray& source) const;  // same dtype and shape, any strides, may overlap

    // Element by row-major position, converted; for tests, printing and small constants.
    double at(std::int64_t flat_index) const;
    // Like NumPy's repr: "NDArray([[1. 2.]], dtype=float32)", long ones abbreviated.
    std::string str() const;

private:
    std::shared_ptr<Buffer> buffer_;
    void* data_ = nullptr;
    DType dtype_ = DType::float32;
    Sizes shape_;
    Sizes strides_;
    std::int64_t size_ = 0;
    bool contiguous_ = true;
};

// Strides in bytes of a C-contiguous array.
TOPSTITCH_API Sizes contiguous_byte_strides(const Sizes& shape, std::size_t element_size);

}  // namespace topstitch
