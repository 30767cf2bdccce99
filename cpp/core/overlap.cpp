// Overlap of strided arrays by the sizes of their strides, or by looking at all addresses.
// See overlap.h.
#include "core/overlap.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <utility>
#include <vector>

namespace topstitch {

namespace {

std::int64_t element_bytes(const NDArray& array) {
    return static_cast<std::int64_t>(size_of(array.dtype()));
}

// A stretch of addresses.
struct Stretch {
    std::int64_t first = 0;
    std::int64_t bytes = 0;
};

// What the elements cover when addresses are taken modulo `modulus`.
Stretch modulo(const NDArray& array, std::int64_t modulus) {
    Stretch covered{static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(array.data())), element_bytes(array)};
    for (std::size_t axis = 0; axis < array.shape().size(); ++axis) {
        const std::int64_t stride = array.byte_strides()[axis];
        if (stride % modulus == 0) continue;
        const std::int64_t reach = stride * (array.shape()[axis] - 1);
        covered.first += std::min<std::int64_t>(reach, 0);
        covered.bytes += std::abs(reach);
    }
    return covered;
}

// Whether the two are apart modulo `modulus`, and therefore at all.
bool apart(const NDArray& a, const NDArray& b, std::int64_t modulus) {
    const Stretch x = modulo(a, modulus);
    const Stretch y = modulo(b, modulus);
    const std::int64_t distance = ((y.first - x.first) % modulus + modulus) % modulus;
    return distance >= x.bytes && distance + y.bytes <= modulus;
}

}  // namespace

bool overlaps_itself(const NDArray& array) {
    if (array.is_contiguous() || array.size() == 0) return false;
    std::vector<std::pair<std::int64_t, std::int64_t>> axes;  // stride and size
    for (std::size_t axis = 0; axis < array.shape().size(); ++axis) {
        if (array.shape()[axis] > 1) axes.emplace_back(std::abs(array.byte_strides()[axis]), array.shape()[axis]);
    }
    std::sort(axes.begin(), axes.end());
    const std::int64_t element = element_bytes(array);
    std::int64_t span = element;
    bool nested = true;  // along each axis, positions are farther apart than what one of them spans
    for (const auto& [stride, size] : axes) {
        nested = nested && stride >= span;
        span += stride * (size - 1);
    }
    if (nested) return false;
    // More elements than there is room for; so there are no more than fit into memory below.
    if (array.size() > span / element) return true;
    std::vector<std::int64_t> addresses{0};
    addresses.reserve(static_cast<std::size_t>(array.size()));
    for (const auto& [stride, size] : axes) {
        const std::size_t known = addresses.size();
        for (std::int64_t position = 1; position < size; ++position) {
            for (std::size_t k = 0; k < known; ++k) addresses.push_back(addresses[k] + position * stride);
        }
    }
    std::sort(addresses.begin(), addresses.end());
    return std::adjacent_find(addresses.begin(), addresses.end(), [element](std::int64_t low, std::int64_t high) {
               return high - low < element;
           }) != addresses.end();
}

bool overlap(const NDArray& a, const NDArray& b) {
    if (!a.may_overlap(b)) return false;
    for (const NDArray* array : {&a, &b}) {
        for (std::size_t axis = 0; axis < array->shape().size(); ++axis) {
            const std::int64_t stride = std::abs(array->byte_strides()[axis]);
            if (array->shape()[axis] > 1 && stride > 0 && apart(a, b, stride)) return false;
        }
    }
    return true;
}

}  // namespace topstitch
