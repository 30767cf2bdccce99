// Rows whose elements threads share out, as Metal source on the simulated device in three orders of threads, with
// indices of 32 and of 64 bits: running sums, sorting, and a scatter whose elements look for their updates.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "test_codegen_products.h"

using namespace topstitch;
using namespace topstitch::testing;

namespace {

// Small integers with many ties; every 50th is NaN, infinite or a zero of either sign.
NDArray ties(std::int64_t rows, std::int64_t length) {
    NDArray array(f32, {rows, length});
    std::mt19937_64 random(test_seed());
    const float infinity = std::numeric_limits<float>::infinity();
    const float special[] = {std::numeric_limits<float>::quiet_NaN(), infinity, -infinity, 0.0F, -0.0F};
    for (std::int64_t k = 0; k < array.size(); ++k) {
        const auto number = static_cast<float>(static_cast<int>(random() % 41) - 20);
        array.data_as<float>()[k] = random() % 50 == 0 ? special[random() % 5] : number;
    }
    return array;
}

// Equal ones stay in their order, and NaN is the largest.
std::vector<std::int64_t> stable_order(const NDArray& array, std::int64_t row, bool descending) {
    const std::int64_t length = array.shape()[1];
    std::vector<std::int64_t> order(static_cast<std::size_t>(length));
    std::iota(order.begin(), order.end(), std::int64_t{0});
    const auto less = [](double a, double b) { return std::isnan(b) ? !std::isnan(a) : a < b; };
    std::stable_sort(order.begin(), order.end(), [&](std::int64_t i, std::int64_t j) {
        const double a = array.at(row * length + i), b = array.at(row * length + j);
        return descending ? less(b, a) : less(a, b);
    });
    return order;
}

// As dynamic dims, or as numbers.
Tensor fed(Graph& graph, const NDArray& array, bool dynamic) {
    return graph.placeholder(dynamic ? Shape({Dim::unknown(), Dim::unknown()}) : shape_of(array), array.dtype(), "x");
}

void check_running_sums(std::int64_t rows, std::int64_t length, bool dynamic = false) {
    INFO(rows, " rows of ", length);
    const NDArray array = numbers(f32, {rows, length}, 1);
    Graph graph;
    const Tensor x = fed(graph, array, dynamic);
    const Tensor sum = cumulative_sum(x * 0.5F);
    const std::vector<Tensor> targets = {sum, cumulative_sum(x, -1, true, true), cumulative_maximum(x),
                                         cumulative_sum(sum)};
    const std::vector<NDArray> found = run(graph, {{x, array}}, targets, {}, on_simulation());
    INFO(source_of(graph, {{x, array}}, targets));
    bool close = true;
    for (std::int64_t row = 0; row < rows; ++row) {
        double total = 0, magnitude = 0, backwards = 0, twice = 0, twice_magnitude = 0;
        double largest = -std::numeric_limits<double>::infinity();
        for (std::int64_t j = 0; j < length; ++j) backwards += array.at(row * length + j);
        for (std::int64_t j = 0; j < length; ++j) {
            const std::int64_t at = row * length + j;
            const double value = array.at(at);
            total += value / 2;
            magnitude += std::abs(value);
            backwards -= value;
            twice += total;
            twice_magnitude += magnitude;
            largest = std::max(largest, value);
            close = close && std::abs(found[0].at(at) - total) <= 1e-6 * magnitude;
            close = close && std::abs(found[1].at(at) - backwards) <= 1e-6 * static_cast<double>(length);
            close = close && found[2].at(at) == largest;
            close = close && std::abs(found[3].at(at) - twice) <= 1e-5 * twice_magnitude;
        }
    }
    CHECK(close);
}

void check_sorted(std::int64_t rows, std::int64_t length, bool dynamic = false) {
    INFO(rows, " rows of ", length);
    const NDArray array = ties(rows, length);
    Graph graph;
    const Tensor x = fed(graph, array, dynamic);
    const std::int64_t k = std::min<std::int64_t>(length, 9);
    const std::vector<Tensor> targets = {argsort(x), sort(x, -1, true), top_k(x, k)[1]};
    const std::vector<NDArray> found = run(graph, {{x, array}}, targets, {}, on_simulation());
    bool right = true;
    for (std::int64_t row = 0; row < rows; ++row) {
        const std::vector<std::int64_t> ascending = stable_order(array, row, false);
        const std::vector<std::int64_t> descending = stable_order(array, row, true);
        for (std::int64_t j = 0; j < length; ++j) {
            const auto place = static_cast<std::size_t>(j);
            right = right && found[0].at(row * length + j) == static_cast<double>(ascending[place]);
            const double value = found[1].at(row * length + j), wanted = array.at(row * length + descending[place]);
            right = right && (value == wanted || (std::isnan(value) && std::isnan(wanted)));
            right = right && std::signbit(value) == std::signbit(wanted);
            if (j < k) right = right && found[2].at(row * k + j) == static_cast<double>(descending[place]);
        }
    }
    CHECK(right);
}

}  // namespace

TEST_CASE("rows: running sums, of running sums too") {
    check_running_sums(1, 1);
    check_running_sums(3, 45);
    check_running_sums(2, 300);
    check_running_sums(2, 2100);
    check_running_sums(2, 1300, true);
}

TEST_CASE("rows: running sums of one row in chunks") {
    const NDArray array = numbers(DType::int32, {40000}, 1);
    Graph graph;
    const Tensor x = graph.placeholder(shape_of(array), array.dtype(), "x");
    const Tensor y = cumulative_sum(x);
    const NDArray found = run(graph, {{x, array}}, {y}, {}, on_simulation()).at(0);
    std::uint32_t total = 0;  // wraps
    bool right = true;
    for (std::int64_t k = 0; k < array.size(); ++k) {
        total += static_cast<std::uint32_t>(array.data_as<std::int32_t>()[k]);
        right = right && static_cast<std::uint32_t>(found.data_as<std::int32_t>()[k]) == total;
    }
    CHECK(right);
    CHECK(contains(source_of(graph, {{x, array}}, {y}), "prefix_sum_int"));
}

TEST_CASE("rows: running products, in order where their parts would leave the range") {
    // Powers of two, which are exact: the first row wanders beyond both ends, where it stays; the second does not.
    constexpr std::int64_t length = 2500;
    NDArray array(f32, {2, length});
    std::mt19937_64 random(test_seed());
    for (std::int64_t k = 0; k < array.size(); ++k) {
        const bool up = random() % 2 == 0;
        array.data_as<float>()[k] = k < length ? (up ? 4.0F : 0.25F) : k % 2 == 0 ? 2.0F : -0.5F;
    }
    array.data_as<float>()[length / 2] = 0x1p100F;
    array.data_as<float>()[length / 2 + 1] = 0x1p100F;
    Graph graph;
    const Tensor x = graph.placeholder(shape_of(array), f32, "x");
    const Tensor y = cumulative_product(x);
    const NDArray found = run(graph, {{x, array}}, {y}, {}, on_simulation()).at(0);
    bool right = true;
    float product = 1;
    for (std::int64_t k = 0; k < array.size(); ++k) {
        product = (k % length == 0 ? 1.0F : product) * array.data_as<float>()[k];
        right = right && found.data_as<float>()[k] == product;
    }
    CHECK(right);
    CHECK(contains(source_of(graph, {{x, array}}, {y}), "a0_safe"));
}

TEST_CASE("rows: sorted in the memory of a group, and by merges") {
    check_sorted(2, 1);
    check_sorted(5, 13);
    check_sorted(2, 600);
    check_sorted(2, 2500);
    check_sorted(1, 9000);
    check_sorted(2, 1500, true);
}

TEST_CASE("rows: elements of a scatter look for their updates") {
    // Integers, which may be added in any order.
    const std::int64_t elements = 50, updates = 700;
    const NDArray data = numbers(DType::int32, {elements}, 1), values = numbers(DType::int32, {updates}, 2);
    NDArray places(DType::int32, {updates});
    std::mt19937_64 random(test_seed());
    std::vector<std::uint32_t> expected;
    for (std::int64_t k = 0; k < elements; ++k)
        expected.push_back(static_cast<std::uint32_t>(data.data_as<std::int32_t>()[k]));
    for (std::int64_t k = 0; k < updates; ++k) {
        const auto place = static_cast<std::int32_t>(random() % elements);
        places.data_as<std::int32_t>()[k] = place;
        expected[static_cast<std::size_t>(place)] += static_cast<std::uint32_t>(values.data_as<std::int32_t>()[k]);
    }
    Graph graph;
    const auto feed = [&](const NDArray& array, const char* name) {
        return graph.placeholder(shape_of(array), array.dtype(), name);
    };
    const Tensor x = feed(data, "x"), at = feed(places, "places"), added = feed(values, "values");
    const Tensor y = scatter(x, at, added, 0, 0, "add");
    const NDArray found = run(graph, {{x, data}, {at, places}, {added, values}}, {y}, {}, on_simulation()).at(0);
    bool right = true;
    for (std::int64_t k = 0; k < elements; ++k) {
        const auto value = static_cast<std::uint32_t>(found.data_as<std::int32_t>()[k]);
        right = right && value == expected[static_cast<std::size_t>(k)];
    }
    CHECK(right);
}
