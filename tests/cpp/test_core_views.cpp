// Tests of views against values worked by hand: slice, transpose, broadcast, reshape.
#include <doctest/doctest.h>

#include <numeric>

#include "topstitch/error.h"
#include "topstitch/ndarray.h"

using namespace topstitch;

namespace {

NDArray iota(const Sizes& shape) {
    NDArray array(DType::int32, shape);
    std::iota(array.data_as<std::int32_t>(), array.data_as<std::int32_t>() + array.size(), 0);
    return array;
}

std::vector<int> values(const NDArray& array) {
    std::vector<int> result;
    for (std::int64_t i = 0; i < array.size(); ++i) result.push_back(static_cast<int>(array.at(i)));
    return result;
}

using Ints = std::vector<int>;

}  // namespace

TEST_CASE("slices are Python's") {
    const NDArray a = iota({7});
    CHECK(values(a.slice(0, 1, 4)) == Ints{1, 2, 3});
    CHECK(values(a.slice(0, 0, 7, 3)) == Ints{0, 3, 6});
    CHECK(values(a.slice(0, -3, 100)) == Ints{4, 5, 6});
    CHECK(values(a.slice(0, -100, 2)) == Ints{0, 1});
    CHECK(values(a.slice(0, 5, 1, -2)) == Ints{5, 3});
    CHECK(values(a.slice(0, NDArray::max_index, NDArray::min_index, -1)) == Ints{6, 5, 4, 3, 2, 1, 0});
    CHECK(values(a.slice(0, -1, -4, -1)) == Ints{6, 5, 4});
    CHECK(values(a.slice(0, 4, 1)) == Ints{});
    CHECK(values(a.slice(0, 1, 4, -1)) == Ints{});
    CHECK(values(a.slice(0, 2, NDArray::max_index, NDArray::max_index)) == Ints{2});
    CHECK(values(a.slice(0, 2, NDArray::min_index, NDArray::min_index)) == Ints{2});
    CHECK(values(iota({0}).slice(0, 0, 5)) == Ints{});
    CHECK(values(iota({0}).slice(0, 5, NDArray::min_index, -1)) == Ints{});
    CHECK(values(iota({2, 3}).slice(1, 0, 3, 2)) == Ints{0, 2, 3, 5});
    CHECK(values(iota({2, 3}).slice(-2, 1, 2)) == Ints{3, 4, 5});
    CHECK_THROWS_AS(a.slice(0, 0, 7, 0), UserError);
    CHECK_THROWS_AS(a.slice(1, 0, 7), UserError);
    CHECK_THROWS_AS(NDArray::scalar(1.0).slice(0, 0, 1), UserError);
}

TEST_CASE("views share memory") {
    const NDArray a = iota({2, 3});
    const NDArray column = a.slice(1, 1, 2).slice(0, -1, NDArray::min_index, -1);
    *column.data_as<std::int32_t>() = 42;
    CHECK(values(a) == Ints{0, 1, 2, 3, 42, 5});
    CHECK(column.buffer() == a.buffer());
    CHECK(column.byte_strides()[0] == -12);
}

TEST_CASE("transposes") {
    const NDArray a = iota({2, 3, 4});
    const NDArray t = a.transpose({2, 0, 1});
    CHECK(t.shape() == Sizes{4, 2, 3});
    CHECK(values(t.slice(0, 1, 2)) == Ints{1, 5, 9, 13, 17, 21});
    CHECK(values(a.transpose({-1, 0, 1}).slice(0, 1, 2)) == Ints{1, 5, 9, 13, 17, 21});
    CHECK(NDArray::scalar(1.0).transpose({}).rank() == 0);
    CHECK_THROWS_WITH_AS(a.transpose({0, 1}), doctest::Contains("has 2 axes"), UserError);
    CHECK_THROWS_WITH_AS(a.transpose({0, 1, 1}), doctest::Contains("occurs twice"), UserError);
    CHECK_THROWS_AS(a.transpose({0, 1, 3}), UserError);
}

TEST_CASE("broadcasts") {
    CHECK(values(iota({3}).broadcast_to({2, 3})) == Ints{0, 1, 2, 0, 1, 2});
    CHECK(values(iota({2, 1}).broadcast_to({2, 2})) == Ints{0, 0, 1, 1});
    CHECK(values(NDArray::scalar(5, DType::int32).broadcast_to({2})) == Ints{5, 5});
    CHECK(iota({1}).broadcast_to({0}).size() == 0);
    CHECK(iota({1, 3}).broadcast_to({1000000, 1000000, 3}).size() == 3000000000000);
    CHECK_THROWS_WITH_AS(iota({3}).broadcast_to({2}), doctest::Contains("does not broadcast"), UserError);
    CHECK_THROWS_AS(iota({2, 3}).broadcast_to({3}), UserError);
    CHECK_THROWS_AS(iota({0}).broadcast_to({1}), UserError);
    CHECK_THROWS_AS(iota({1}).broadcast_to(Sizes(17, 1)), UserError);
    CHECK_THROWS_AS(iota({1}).broadcast_to({INT64_MAX, 2}), UserError);
    CHECK_THROWS_AS(iota({1}).broadcast_to({-1}), UserError);
}

TEST_CASE("reshapes") {
    const NDArray a = iota({2, 6});
    CHECK(a.reshape({3, 4}).buffer() == a.buffer());
    CHECK(values(a.reshape({3, 4}).slice(0, 1, 2)) == Ints{4, 5, 6, 7});
    CHECK(a.reshape({-1}).shape() == Sizes{12});
    CHECK(a.reshape({3, -1, 2}).shape() == Sizes{3, 2, 2});
    CHECK(values(a.transpose({1, 0}).reshape({12})) == Ints{0, 6, 1, 7, 2, 8, 3, 9, 4, 10, 5, 11});
    CHECK(iota({1}).reshape({}).rank() == 0);
    CHECK(iota({0, 3}).reshape({5, 0}).shape() == Sizes{5, 0});
    CHECK(iota({0, 3}).reshape({-1, 3}).shape() == Sizes{0, 3});
    CHECK_THROWS_AS(a.reshape({5}), UserError);
    CHECK_THROWS_AS(a.reshape({5, -1}), UserError);
    CHECK_THROWS_AS(a.reshape({-1, -1}), UserError);
    CHECK_THROWS_AS(a.reshape({-2, -6}), UserError);
    CHECK_THROWS_AS(iota({0}).reshape({-1, 0}), UserError);
    CHECK_THROWS_AS(a.reshape({INT64_MAX, INT64_MAX}), UserError);
}

TEST_CASE("16 dims") {
    const NDArray a = iota({2, 1, 2, 1, 1, 2, 1, 1, 1, 1, 2, 1, 1, 1, 1, 2});
    std::vector<int> reversed(16);
    std::iota(reversed.rbegin(), reversed.rend(), 0);
    const NDArray t = a.transpose(reversed).copy();
    // Reversing the axes of a 2x2x2x2x2 array reverses the bits of the position.
    for (int i = 0; i < 32; ++i) {
        const int mirrored = (i & 1) << 4 | (i & 2) << 2 | (i & 4) | (i & 8) >> 2 | (i & 16) >> 4;
        CHECK(t.at(i) == mirrored);
    }
}
