// See staging.h.
// A copy keeps the strides of the array, which kernels may have been compiled for.
#include "runtime/staging.h"

#include <cstddef>

#include "topstitch/error.h"

namespace topstitch {

namespace {

// Room for elements that lie as far apart as those of `array`.
NDArray room_like(DeviceBackend& device, const NDArray& array) {
    const auto item = static_cast<std::int64_t>(size_of(array.dtype()));
    std::int64_t low = 0;
    std::int64_t high = item;
    for (int axis = 0; axis < array.rank(); ++axis) {
        const auto k = static_cast<std::size_t>(axis);
        const std::int64_t reach = array.byte_strides()[k] * (array.shape()[k] - 1);
        (reach < 0 ? low : high) += reach;
    }
    if (array.size() == 0) low = high = 0;
    const auto buffer = device.allocate(static_cast<std::size_t>(high - low));
    return {buffer, static_cast<std::byte*>(buffer->data()) - low, array.dtype(), array.shape(), array.byte_strides()};
}

}  // namespace

NDArray device_array(DeviceBackend& device, DType dtype, const Sizes& shape) {
    const auto bytes = static_cast<std::size_t>(num_elements(shape)) * size_of(dtype);
    const auto buffer = device.allocate(bytes);
    return {buffer, buffer->data(), dtype, shape, contiguous_byte_strides(shape, size_of(dtype))};
}

void Staging::reach(const Buffer& buffer) const {
    internal_check(stream_.reaches(buffer), "run: the device does not reach its own memory");
}

NDArray Staging::input(const NDArray& array) const {
    if (stream_.reaches(*array.buffer())) return array;
    NDArray copy = room_like(device_, array);
    copy.copy_from(array);
    reach(*copy.buffer());
    return copy;
}

NDArray Staging::result(const NDArray& array) {
    if (stream_.reaches(*array.buffer())) return array;
    NDArray room = room_like(device_, array);
    reach(*room.buffer());
    results_.emplace_back(room, array);
    return room;
}

void Staging::variable(Variable& variable) const {
    if (stream_.reaches(*variable.value.buffer())) return;
    const NDArray moved = device_array(device_, variable.value.dtype(), variable.value.shape());
    moved.copy_from(variable.value);
    variable.value = moved;
    reach(*moved.buffer());
}

void Staging::bring_back() const {
    for (const auto& [from, to] : results_) to.copy_from(from);
}

}  // namespace topstitch
