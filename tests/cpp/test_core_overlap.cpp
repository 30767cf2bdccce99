// Tests of the overlap of strided arrays, against the sets of bytes that they touch.
#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <set>

#include "core/overlap.h"

using namespace topstitch;

namespace {

constexpr std::int64_t room = 256;

// The offsets of the bytes of each element, element after element.
std::vector<std::int64_t> bytes_of(const NDArray& array, const void* base) {
    std::vector<std::int64_t> offsets{static_cast<const char*>(array.data()) - static_cast<const char*>(base)};
    for (std::size_t axis = 0; axis < array.shape().size(); ++axis) {
        std::vector<std::int64_t> more;
        for (const std::int64_t offset : offsets) {
            for (std::int64_t k = 0; k < array.shape()[axis]; ++k)
                more.push_back(offset + k * array.byte_strides()[axis]);
        }
        offsets = std::move(more);
    }
    std::vector<std::int64_t> bytes;
    for (const std::int64_t offset : offsets) {
        for (std::size_t k = 0; k < size_of(array.dtype()); ++k) bytes.push_back(offset + static_cast<std::int64_t>(k));
    }
    return bytes;
}

class Arrays {
public:
    // Any that fits.
    NDArray next() {
        const DType dtype = number(0, 1) == 0 ? DType::float32 : DType::int8;
        const auto element = static_cast<std::int64_t>(size_of(dtype));
        for (;;) {
            Sizes shape, strides;
            std::int64_t low = 0, high = element;
            for (std::int64_t rank = number(0, 3); rank > 0; --rank) {
                shape.push_back(number(0, 5));
                strides.push_back(number(-9, 9) * element);
                const std::int64_t reach = strides.back() * std::max<std::int64_t>(shape.back() - 1, 0);
                (reach < 0 ? low : high) += reach;
            }
            if (high - low > room) continue;
            const std::int64_t first = number(-low, room - high);
            return NDArray(buffer, static_cast<char*>(buffer->data()) + first, dtype, shape, strides);
        }
    }

    std::shared_ptr<Buffer> buffer = Buffer::allocate(room);

private:
    std::int64_t number(std::int64_t low, std::int64_t high) {
        return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
    }
    std::mt19937 random_{7};
};

}  // namespace

TEST_CASE("an array overlaps itself when two of its elements share a byte") {
    Arrays arrays;
    int overlapping = 0, apart = 0;
    for (int k = 0; k < 20000; ++k) {
        const NDArray array = arrays.next();
        const std::vector<std::int64_t> bytes = bytes_of(array, arrays.buffer->data());
        const bool expected = std::set<std::int64_t>(bytes.begin(), bytes.end()).size() < bytes.size();
        CHECK(overlaps_itself(array) == expected);
        ++(expected ? overlapping : apart);
    }
    CHECK(overlapping > 1000);
    CHECK(apart > 1000);
}

TEST_CASE("arrays that are said to be apart share no byte") {
    Arrays arrays;
    int found = 0;
    for (int k = 0; k < 20000; ++k) {
        const NDArray a = arrays.next();
        const NDArray b = arrays.next();
        const std::vector<std::int64_t> x = bytes_of(a, arrays.buffer->data());
        const std::vector<std::int64_t> y = bytes_of(b, arrays.buffer->data());
        const std::set<std::int64_t> touched(x.begin(), x.end());
        const bool shared = std::any_of(y.begin(), y.end(), [&](std::int64_t byte) { return touched.contains(byte); });
        if (shared) CHECK(overlap(a, b));
        found += a.may_overlap(b) && !overlap(a, b) ? 1 : 0;
    }
    CHECK(found > 200);  // between each other
}

TEST_CASE("slices of one array are apart") {
    const NDArray whole = NDArray::zeros(DType::float32, {6, 10});
    const auto columns = [&](std::int64_t first, std::int64_t last) { return whole.slice(1, first, last); };
    CHECK(!overlap(columns(0, 4), columns(4, 10)));
    CHECK(overlap(columns(0, 5), columns(4, 10)));
    CHECK(!overlap(whole.slice(0, 0, 6, 2), whole.slice(0, 1, 6, 2)));
    CHECK(!overlap(whole.slice(1, 0, 10, 2), whole.slice(1, 9, NDArray::min_index, -2)));
    CHECK(overlap(whole.slice(0, 0, 6, 2), whole.slice(0, 0, 6, 3)));
    CHECK(!overlap(columns(0, 4).transpose({1, 0}), columns(4, 8)));
    CHECK(!overlap(whole, NDArray::zeros(DType::float32, {6, 10})));
}
