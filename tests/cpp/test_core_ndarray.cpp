// Tests of NDArray: construction, checks, element access and copies, against index arithmetic on plain vectors.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

#include "topstitch/error.h"
#include "topstitch/ndarray.h"

using namespace topstitch;

namespace {

NDArray iota(const Sizes& shape, DType dtype = DType::int32) {
    NDArray array(DType::int64, shape);
    std::iota(array.data_as<std::int64_t>(), array.data_as<std::int64_t>() + array.size(), 0);
    NDArray result(dtype, shape);
    for (std::int64_t i = 0; i < result.size(); ++i) {
        std::memcpy(static_cast<char*>(result.data()) + i * static_cast<std::int64_t>(size_of(dtype)),
                    array.data_as<std::int64_t>() + i,
                    size_of(dtype));  // little-endian integers
    }
    return result;
}

}  // namespace

TEST_CASE("construction") {
    const NDArray array(DType::float64, {2, 3, 4});
    CHECK(array.rank() == 3);
    CHECK(array.size() == 24);
    CHECK(array.bytes() == 192);
    CHECK(array.byte_strides() == Sizes{96, 32, 8});
    CHECK(array.is_contiguous());
    CHECK(NDArray().size() == 0);
    CHECK(NDArray(DType::float32, {}).size() == 1);
    CHECK(NDArray(DType::float32, {3, 0, 5}).size() == 0);
    CHECK(NDArray(DType::float32, {std::int64_t{1} << 62, 0, std::int64_t{1} << 62}).size() == 0);
    CHECK(NDArray::zeros(DType::complex64, {3}).at(2) == 0);
    CHECK(NDArray::scalar(2.5).dtype() == DType::float32);
    CHECK(NDArray::scalar(2.5).at(0) == 2.5);
    CHECK(NDArray::scalar(7, DType::int8).at(0) == 7);
    CHECK(NDArray::scalar(0.1, DType::float16).at(0) == 0.0999755859375);
    const std::int16_t values[] = {1, -2, 3, -4};
    const NDArray copied = NDArray::copy_of(values, DType::int16, {2, 2});
    CHECK(copied.at(1) == -2);
    CHECK(copied.at(3) == -4);
    CHECK_NOTHROW(NDArray(DType::int8, Sizes(16, 1)));
}

TEST_CASE("bad shapes, strides and positions are errors") {
    CHECK_THROWS_WITH_AS(NDArray(DType::int8, Sizes(17, 1)), doctest::Contains("at most 16"), UserError);
    CHECK_THROWS_AS(NDArray(DType::int8, {2, -1}), UserError);
    CHECK_THROWS_WITH_AS(NDArray(DType::int8, {std::int64_t{1} << 40, std::int64_t{1} << 40}),
                         doctest::Contains("too large"), UserError);
    CHECK_THROWS_WITH_AS(NDArray(DType::float64, {std::int64_t{1} << 61}), doctest::Contains("too large"), UserError);
    const auto buffer = Buffer::allocate(64);
    CHECK_NOTHROW(NDArray(buffer, buffer->data(), DType::float32, {4, 4}, {16, 4}));
    CHECK_THROWS_AS(NDArray(buffer, buffer->data(), DType::float32, {4, 5}, {20, 4}), UserError);
    CHECK_THROWS_AS(NDArray(buffer, buffer->data(), DType::float32, {4}, {-4}), UserError);
    CHECK_THROWS_AS(NDArray(buffer, buffer->data(), DType::float32, {4, 4}, {4}), UserError);
    CHECK_THROWS_AS(NDArray(buffer, buffer->data(), DType::float32, {3}, {INT64_MAX}), UserError);
    CHECK_THROWS_AS(iota({3}).at(3), UserError);
    CHECK_THROWS_AS(iota({3}).at(-1), UserError);
}

TEST_CASE("contiguity ignores dims of size 1 and empty arrays") {
    const auto buffer = Buffer::allocate(1024);
    const auto contiguous = [&](const Sizes& shape, const Sizes& strides) {
        return NDArray(buffer, buffer->data(), DType::float32, shape, strides).is_contiguous();
    };
    CHECK(contiguous({2, 1, 3}, {12, 999, 4}));
    CHECK(contiguous({1, 1}, {0, 0}));
    CHECK(contiguous({}, {}));
    CHECK(contiguous({0, 3}, {0, 0}));
    CHECK(contiguous({3, 0}, {7, 9}));
    CHECK(!contiguous({2, 3}, {4, 8}));
    CHECK(!contiguous({3}, {8}));
    CHECK(!contiguous({3}, {0}));
    CHECK(!contiguous({2, 3}, {16, 4}));
}

TEST_CASE("copies of every layout agree with index arithmetic") {
    for (unsigned seed = 0; seed < 1500; ++seed) {
        CAPTURE(seed);
        std::mt19937 random(seed);
        const auto pick = [&](int low, int high) {
            return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
        };
        const DType dtype = std::array{DType::uint8, DType::uint16, DType::uint32, DType::uint64}[random() % 4];
        Sizes base;
        for (int i = pick(0, 4); i > 0; --i) base.push_back(pick(1, seed % 10 == 0 ? 40 : 6));
        NDArray view = iota(base, dtype);
        // The value of each element of the view, kept beside it: slices, permutation, broadcast.
        std::vector<int> permutation(base.size());
        std::iota(permutation.begin(), permutation.end(), 0);
        std::shuffle(permutation.begin(), permutation.end(), random);
        view = view.transpose(permutation);
        Sizes steps(base.size(), 1);
        for (int axis = 0; axis < view.rank(); ++axis) {
            steps[static_cast<std::size_t>(axis)] = std::array<int, 4>{1, 1, -1, 2}[random() % 4];
            const std::int64_t step = steps[static_cast<std::size_t>(axis)];
            view = step > 0 ? view.slice(axis, 0, NDArray::max_index, step)
                            : view.slice(axis, -1, NDArray::min_index, step);
        }
        Sizes shape = view.shape();
        shape.insert(shape.begin(), pick(1, 3));
        view = view.broadcast_to(shape);

        const NDArray packed = view.copy();
        REQUIRE(packed.is_contiguous());
        REQUIRE(packed.shape() == shape);
        const std::int64_t modulus = std::int64_t{1} << std::min<std::size_t>(8 * size_of(dtype), 40);
        Sizes base_strides(base.size(), 1);  // in elements
        for (std::size_t i = base.size(); i-- > 1;) base_strides[i - 1] = base_strides[i] * base[i];
        int wrong = 0;
        for (std::int64_t flat = 0; flat < packed.size(); ++flat) {
            std::int64_t rest = flat;
            std::int64_t value = 0;
            for (std::size_t axis = base.size(); axis-- > 0;) {
                const std::int64_t index = rest % shape[axis + 1];
                rest /= shape[axis + 1];
                const auto from = static_cast<std::size_t>(permutation[axis]);
                value += (steps[axis] < 0 ? base[from] - 1 - index : index * steps[axis]) * base_strides[from];
            }
            if (packed.at(flat) != static_cast<double>(value % modulus)) ++wrong;
            if (view.at(flat) != static_cast<double>(value % modulus)) ++wrong;
        }
        CHECK(wrong == 0);

        // And into a strided target.
        if (packed.rank() > 0) {
            Sizes reversed(packed.shape().rbegin(), packed.shape().rend());
            std::vector<int> flip(reversed.size());
            std::iota(flip.rbegin(), flip.rend(), 0);
            const NDArray target = NDArray::zeros(dtype, reversed).transpose(flip).slice(0, -1, NDArray::min_index, -1);
            target.copy_from(view);
            for (std::int64_t flat = 0; flat < packed.size(); ++flat) {
                if (target.at(flat) != packed.at(flat)) ++wrong;
            }
            CHECK(wrong == 0);
        }
    }
}

TEST_CASE("overlapping copies behave as if the source were copied first") {
    const NDArray array = iota({6});
    array.slice(0, 1, 6).copy_from(array.slice(0, 0, 5));
    CHECK(array.str() == "NDArray([0, 0, 1, 2, 3, 4], dtype=int32)");
    const NDArray reversed = iota({5});
    reversed.copy_from(reversed.slice(0, -1, NDArray::min_index, -1));
    CHECK(reversed.str() == "NDArray([4, 3, 2, 1, 0], dtype=int32)");
    const NDArray square = iota({3, 3});
    square.copy_from(square.transpose({1, 0}));
    CHECK(square.at(1) == 3);
    CHECK(square.at(3) == 1);
    square.copy_from(square);
    CHECK(square.at(1) == 3);
    CHECK(array.slice(0, 0, 3).may_overlap(array.slice(0, 2, 6)));
    CHECK(!array.slice(0, 0, 3).may_overlap(array.slice(0, 3, 6)));
    CHECK(!array.slice(0, 0, 0).may_overlap(array));
    CHECK(!array.may_overlap(iota({6})));
}

TEST_CASE("copy_from checks its arguments") {
    const NDArray array = iota({2, 3});
    CHECK_THROWS_AS(array.copy_from(NDArray(DType::float32, {2, 3})), TypeError);
    CHECK_THROWS_AS(array.copy_from(iota({3, 2})), UserError);
    float value = 0;
    const NDArray readonly(Buffer::borrow(&value, sizeof(value), true, nullptr), &value, DType::float32, {}, {});
    CHECK_THROWS_WITH_AS(readonly.copy_from(NDArray::scalar(1.0)), doctest::Contains("read-only"), UserError);
    NDArray(DType::int32, {0, 3}).copy_from(NDArray(DType::int32, {0, 3}));
}
