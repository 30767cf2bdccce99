// Tests of slice, slice_update, concat, stack, split and tile.
// Slices are compared with Python's rules, which are spelled out here once more.
#include <numeric>

#include "test_ops_support.h"

using namespace topstitch;
using namespace topstitch::ops_test;

namespace {

constexpr DType f32 = DType::float32;
constexpr DType f64 = DType::float64;
constexpr std::int64_t lowest = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();
using Ints = std::vector<std::int64_t>;

const Dim unknown = Dim::unknown();
const Dim batch = Dim::symbol("batch");

NDArray counted(const Sizes& shape, DType dtype = f64) {
    Doubles values(static_cast<std::size_t>(num_elements(shape)));
    std::iota(values.begin(), values.end(), 0.0);
    return array(dtype, shape, values);
}

NamedAttributes slicing(const Ints& starts, const Ints& stops, const Ints& steps) {
    return {{"starts", starts}, {"stops", stops}, {"steps", steps}};
}

// The positions of Python's range(*slice(start, stop, step).indices(n)).
Ints python_slice(std::int64_t n, std::int64_t start, std::int64_t stop, std::int64_t step) {
    const auto adjusted = [&](std::int64_t position) {
        if (position < 0) {
            position += n;
            if (position < 0) return step < 0 ? std::int64_t{-1} : std::int64_t{0};
        } else if (position >= n) {
            return step < 0 ? n - 1 : n;
        }
        return position;
    };
    const std::int64_t first = adjusted(start);
    const std::int64_t end = adjusted(stop);
    Ints positions;
    for (std::int64_t at = first; step < 0 ? at > end : at < end; at += step) positions.push_back(at);
    return positions;
}

Dim sliced(const Dim& extent, std::int64_t start, std::int64_t stop, std::int64_t step = 1) {
    return infer("slice", {{f32, {extent}}}, slicing({start}, {stop}, {step})).shape[0];
}

}  // namespace

TEST_CASE("slices follow Python's rules") {
    for (const std::int64_t n : {0, 1, 2, 5}) {
        const NDArray x = counted({n});
        for (std::int64_t start = -7; start <= 7; ++start) {
            for (std::int64_t stop = -7; stop <= 7; ++stop) {
                for (const std::int64_t step : {1, 2, 3, 9, -1, -2, -3, -9}) {
                    INFO("[", start, ":", stop, ":", step, "] of ", n);
                    const Ints expected = python_slice(n, start, stop, step);
                    const NamedAttributes attributes = slicing({start}, {stop}, {step});
                    check_same(run("slice", {x}, attributes), Doubles(expected.begin(), expected.end()));

                    Doubles updated = values_of(x);
                    Doubles update;
                    for (const std::int64_t position : expected) {
                        update.push_back(100.0 + static_cast<double>(update.size()));
                        updated[static_cast<std::size_t>(position)] = update.back();
                    }
                    check_same(run("slice_update", {x, vector_of(f64, update)}, attributes), updated);
                }
            }
        }
    }
}

TEST_CASE("bounds that stand for the ends") {
    const NDArray x = counted({10});
    const auto slice = [&](std::int64_t start, std::int64_t stop, std::int64_t step) {
        return run("slice", {x}, slicing({start}, {stop}, {step}));
    };
    check_same(slice(1, largest, 1), {1, 2, 3, 4, 5, 6, 7, 8, 9});
    check_same(slice(largest, lowest, -1), {9, 8, 7, 6, 5, 4, 3, 2, 1, 0});
    check_same(slice(-3, largest, 1), {7, 8, 9});
    check_same(slice(largest, lowest, -4), {9, 5, 1});
    check_same(slice(lowest, largest, 4), {0, 4, 8});
    check_same(slice(2, largest, largest), {2});
    check_same(slice(2, lowest, lowest), {2});
}

TEST_CASE("slices of several axes") {
    const NDArray x = counted({3, 4});
    check_same(run("slice", {x}, slicing({1, 3}, {3, 0}, {1, -2})), {7, 5, 11, 9});
    check_same(run("slice", {x}, slicing({2}, {3}, {1})), {8, 9, 10, 11});
    check_same(run("slice", {x}, {{"starts", Ints{1}}, {"stops", Ints{2}}, {"axes", Ints{-1}}}), {1, 5, 9});
    check_same(run("slice", {x}, {{"starts", Ints{}}, {"stops", Ints{}}}), values_of(x));
    check_same(run("slice_update", {x, vector_of(f64, {-1, -2})},
                   slicing({0, 0}, {largest, largest}, {2, 2})),  // the update broadcasts along the first axis
               {-1, 1, -2, 3, 4, 5, 6, 7, -1, 9, -2, 11});
    check_same(run("slice_update", {x, array(f64, {}, {5})}, slicing({1}, {2}, {1})),
               {0, 1, 2, 3, 5, 5, 5, 5, 8, 9, 10, 11});
}

TEST_CASE("slices of symbolic dims have clean shapes") {
    CHECK(sliced(batch, 1, largest) == batch - 1);
    CHECK(sliced(batch, 0, largest) == batch);
    CHECK(sliced(batch, largest, lowest, -1) == batch);
    CHECK(sliced(batch, 0, 1) == Dim(1));
    CHECK(sliced(batch, -1, largest) == Dim(1));
    CHECK(sliced(batch, 0, -1) == batch - 1);
    CHECK(sliced(batch, 0, largest, 2).str() == "(batch + 1) // 2");
    CHECK(sliced(batch, 0, 5).str() == "min(batch, 5)");
    CHECK(sliced(batch, -3, largest).str() == "min(batch, 3)");
    CHECK(sliced(batch + 3, 1, -2) == batch);
    CHECK(sliced(unknown, 1, 2).is_unknown());
    CHECK(!infer("slice", {{f32, Shape::unranked()}}, slicing({0}, {1}, {1})).shape.has_rank());
}

TEST_CASE("messages of slices") {
    const auto message = [](const NamedAttributes& attributes) {
        return message_of([&] { infer("slice", {{f32, {3}}}, attributes); });
    };
    CHECK(contains(message(slicing({0}, {1}, {0})), "[slice] a step is 0"));
    CHECK(contains(message(slicing({0, 1}, {1}, {1})), "stops has 1"));
    CHECK(contains(message(slicing({0, 0}, {1, 1}, {1, 1})), "2 axes are sliced"));
    CHECK(contains(message_of([] { infer("slice_update", {{f32, {5}}, {f32, {2}}}, slicing({0}, {3}, {1})); }),
                   "the update must broadcast"));
    CHECK(
        contains(message_of<TypeError>([] { infer("slice_update", {{f32, {5}}, {f64, {3}}}, slicing({0}, {3}, {1})); }),
                 "use cast"));
}

TEST_CASE("concat and stack") {
    const NDArray a = counted({2, 2});
    const NDArray b = array(f64, {2, 1}, {10, 11});
    check_same(run("concat", {a, b, a}, {{"axis", std::int64_t{1}}}), {0, 1, 10, 0, 1, 2, 3, 11, 2, 3});
    check_same(run("concat", {a, array(f64, {0, 2}, {}), a}), {0, 1, 2, 3, 0, 1, 2, 3});
    check_same(run("concat", {a}, {{"axis", std::int64_t{-1}}}), {0, 1, 2, 3});
    CHECK(run("concat", {array(f64, {0, 2}, {}), array(f64, {0, 2}, {})}).shape() == Sizes{0, 2});
    check_same(run("stack", {a, a}, {{"axis", std::int64_t{-1}}}), {0, 0, 1, 1, 2, 2, 3, 3});
    CHECK(run("stack", {array(f64, {}, {1}), array(f64, {}, {2})}).shape() == Sizes{2});
    std::vector<NDArray> many(100, vector_of(f64, {1, 2}));
    CHECK(run("concat", many).shape() == Sizes{200});

    const auto joined = [](const char* op, const std::vector<Shape>& shapes, std::int64_t axis) {
        std::vector<TensorType> types;
        for (const Shape& shape : shapes) types.push_back({f32, shape});
        return infer(op, types, {{"axis", axis}}).shape;
    };
    CHECK(joined("concat", {{batch, 3}, {batch, 4}}, 1) == Shape{batch, 7});
    CHECK(joined("concat", {{batch, 3}, {5, 3}}, 0) == Shape{batch + 5, 3});
    CHECK(joined("concat", {{unknown, 3}, {5, unknown}}, 0).str() == "(?, 3)");
    CHECK(joined("concat", {Shape::unranked(), {5, 2}}, 0).str() == "(?, 2)");
    CHECK(joined("stack", {{unknown, 3}, {batch, unknown}}, 1) == Shape{batch, 2, 3});
    const std::string message = message_of([&] { joined("concat", {{2, 3}, {2, 4}}, 0); });
    CHECK(contains(message, "`parts[0]` has shape (2, 3)"));
    CHECK(contains(message, "all dims but the one of axis 0"));
    CHECK(contains(message_of([&] { joined("concat", {{2}, {2, 4}}, 0); }), "has shape (2,)"));
    CHECK(contains(message_of<TypeError>([] { infer("concat", {{f32, {2}}, {f64, {2}}}); }), "use cast"));
}

TEST_CASE("interleave takes elements in turn") {
    const NDArray a = counted({2, 2});
    const NDArray b = array(f64, {2, 2}, {10, 11, 12, 13});
    check_same(run("interleave", {a, b}), {0, 1, 10, 11, 2, 3, 12, 13});
    check_same(run("interleave", {a, b, a}, {{"axis", std::int64_t{-1}}}), {0, 10, 0, 1, 11, 1, 2, 12, 2, 3, 13, 3});
    CHECK(infer("interleave", {{f32, {batch, 3}}, {f32, {unknown, 3}}}).shape == Shape{batch * 2, 3});
    CHECK(contains(message_of([&] { run("interleave", {a, counted({2, 1})}); }), "must be equal"));
    check_gradient("interleave", {a, b, b}, {{"axis", std::int64_t{1}}});
}

TEST_CASE("concat_part finds its part again") {
    const NDArray joined = counted({2, 5});
    const std::vector<NDArray> inputs = {joined, counted({2, 2}), counted({2, 0}), counted({2, 3})};
    const auto part = [&](std::int64_t k) {
        return run("concat_part", inputs, {{"axis", std::int64_t{1}}, {"part", k}});
    };
    check_same(part(0), {0, 1, 5, 6});
    CHECK(part(1).shape() == Sizes{2, 0});
    check_same(part(2), {2, 3, 4, 7, 8, 9});
    CHECK(contains(message_of([&] { part(3); }), "there are 3 parts"));
}

TEST_CASE("split") {
    const auto parts =
        run_all("split", {counted({2, 6})}, {{"num_splits", std::int64_t{3}}, {"axis", std::int64_t{1}}});
    REQUIRE(parts.size() == 3);
    check_same(parts[0], {0, 1, 6, 7});
    check_same(parts[2], {4, 5, 10, 11});
    const auto sized = run_all("split", {counted({5})}, {{"sizes", Ints{1, 0, 4}}});
    REQUIRE(sized.size() == 3);
    CHECK(sized[1].shape() == Sizes{0});
    check_same(sized[2], {1, 2, 3, 4});

    const auto length = [](const Dim& extent) {
        return infer("split", {{f32, {extent}}}, {{"num_splits", std::int64_t{2}}}).shape[0];
    };
    CHECK(length(batch * 4) == batch * 2);
    CHECK(length(batch).str() == "batch // 2");  // that it is even is checked when it is known
    CHECK(length(unknown).is_unknown());
    const auto message = [](const NamedAttributes& attributes) {
        return message_of([&] { infer("split", {{f32, {5}}}, attributes); });
    };
    CHECK(contains(message({{"num_splits", std::int64_t{2}}}), "cannot be split into 2 equal parts"));
    CHECK(contains(message({{"sizes", Ints{2, 2}}}), "add up to 4"));
    CHECK(contains(message({{"sizes", Ints{6, -1}}}), "0 or more"));
    CHECK(contains(message({}), "either num_splits or sizes"));
    CHECK(contains(message({{"num_splits", std::int64_t{0}}}), "1 or more"));
}

TEST_CASE("tile") {
    const NDArray x = counted({2, 2});
    check_same(run("tile", {x}, {{"multiples", Ints{2, 3}}}),
               {0, 1, 0, 1, 0, 1, 2, 3, 2, 3, 2, 3, 0, 1, 0, 1, 0, 1, 2, 3, 2, 3, 2, 3});
    CHECK(run("tile", {x}, {{"multiples", Ints{0, 3}}}).shape() == Sizes{0, 6});
    CHECK(run("tile", {counted({0})}, {{"multiples", Ints{3}}}).shape() == Sizes{0});
    CHECK(infer("tile", {{f32, {batch, unknown}}}, {{"multiples", Ints{2, 3}}}).shape.str() == "(2*batch, ?)");
    CHECK(infer("tile", {{f32, Shape::unranked()}}, {{"multiples", Ints{2, 3}}}).shape.str() == "(?, ?)");
    CHECK(contains(message_of([&] { run("tile", {x}, {{"multiples", Ints{2}}}); }), "one for each axis"));
    CHECK(contains(message_of([&] { run("tile", {x}, {{"multiples", Ints{2, -1}}}); }), "0 or more"));
    CHECK(contains(message_of([&] { run("tile_gradient", {x}, {{"multiples", Ints{1, 3}}}); }), "not a multiple of 3"));
}

TEST_CASE("gradients against differences") {
    const NDArray x = array(f64, {2, 3}, {1.5, -0.4, 0.3, 0.9, -1.6, 2.5});
    const NDArray y = array(f64, {2, 2}, {0.1, 0.2, 0.3, 0.4});
    check_gradient("slice", {x}, slicing({1, 2}, {2, lowest}, {1, -2}));
    check_gradient("slice", {x}, slicing({5}, {6}, {1}));  // empty
    check_gradient("slice_update", {x, vector_of(f64, {0.5})}, slicing({0, 0}, {2, 3}, {1, 2}));
    check_gradient("concat", {x, y, x}, {{"axis", std::int64_t{1}}});
    check_gradient("concat_part", {x, array(f32, {2, 2}, {0, 0, 0, 0}), array(f32, {2, 1}, {0, 0})},
                   {{"axis", std::int64_t{1}}, {"part", std::int64_t{1}}});
    check_gradient("axis_window", {x}, {{"axis", std::int64_t{1}}, {"window", Shape{1, 2}}});
    check_gradient("tile", {x}, {{"multiples", Ints{2, 3}}});
    check_gradient("tile", {x}, {{"multiples", Ints{0, 3}}});
    check_gradient("tile_gradient", {x}, {{"multiples", Ints{2, 3}}});
}
