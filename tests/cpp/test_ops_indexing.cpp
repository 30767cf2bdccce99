// Tests of coordinates, one_hot, gather and scatter, band_part, tril and triu.
// Values by hand; gradients against central differences in float64.
#include "test_ops_support.h"

using namespace topstitch;
using namespace topstitch::ops_test;

namespace {

constexpr DType f32 = DType::float32;
constexpr DType f64 = DType::float64;
constexpr DType i32 = DType::int32;
constexpr DType i64 = DType::int64;

const Dim unknown = Dim::unknown();
const Dim batch = Dim::symbol("batch");

NamedAttributes axis(std::int64_t value) {
    return {{"axis", value}};
}

}  // namespace

TEST_CASE("coordinates") {
    const NDArray like = array(f32, {2, 3}, Doubles(6, qnan));
    check_same(run("coordinates", {like}), {0, 0, 0, 1, 1, 1});
    check_same(run("coordinates", {like}, axis(-1)), {0, 1, 2, 0, 1, 2});
    check_same(run("coordinates", {}, {{"axis", std::int64_t{0}}, {"shape", Shape{3}}, {"dtype", f32}}), {0, 1, 2});
    CHECK(run("coordinates", {like}).dtype() == i32);
    CHECK(infer("coordinates", {{f32, {batch, unknown}}}).shape.str() == "(batch, ?)");
    CHECK(contains(message_of([] { infer("coordinates", {}); }), "either a tensor"));
    CHECK(contains(message_of([] { infer("coordinates", {}, {{"shape", Shape{unknown}}}); }), "unknown dim"));
    CHECK(contains(message_of([] { infer("coordinates", {{f32, {2}}}, axis(1)); }), "out of range"));
}

TEST_CASE("one_hot") {
    const NDArray indices = vector_of(i32, {2, 0, -1, 3});
    const NDArray y = run("one_hot", {indices}, {{"depth", std::int64_t{3}}});
    CHECK(y.shape() == Sizes{4, 3});
    CHECK(y.dtype() == f32);
    check_same(y, {0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0});
    check_same(run("one_hot", {vector_of(DType::uint8, {1, 0})},
                   {{"depth", std::int64_t{2}},
                    {"axis", std::int64_t{0}},
                    {"dtype", DType::int8},
                    {"on_value", 5.0},
                    {"off_value", -3.0}}),
               {-3, 5, 5, -3});
    CHECK(run("one_hot", {array(i64, {}, {1})}, {{"depth", std::int64_t{0}}}).shape() == Sizes{0});
    CHECK(infer("one_hot", {{i32, {batch, unknown}}}, {{"depth", std::int64_t{9}}, {"axis", std::int64_t{1}}})
              .shape.str() == "(batch, 9, ?)");
    CHECK(contains(message_of<TypeError>([] { infer("one_hot", {{f32, {2}}}, {{"depth", std::int64_t{3}}}); }),
                   "integer"));
    CHECK(contains(message_of([] { infer("one_hot", {{i32, {2}}}, {{"depth", std::int64_t{-3}}}); }), "0 or more"));
}

TEST_CASE("gather_along_axis") {
    const NDArray x = array(f64, {2, 3}, {0, 1, 2, 10, 11, 12});
    check_same(run("gather_along_axis", {x, array(i32, {2, 2}, {2, 0, -1, 1})}), {2, 0, 12, 11});
    check_same(run("gather_along_axis", {x, array(i64, {1, 3}, {1, 0, 1})}, axis(0)), {10, 1, 12});
    check_same(run("gather_along_axis", {x, array(i32, {2, 3}, {3, -3, -4, 100, -100, 0})}), {0, 0, 0, 0, 0, 10});
    // The other dims broadcast.
    check_same(run("gather_along_axis", {x, array(i32, {1, 1}, {1})}), {1, 11});
    check_same(run("gather_along_axis", {array(f64, {1, 3}, {7, 8, 9}), array(i32, {2, 1}, {2, 0})}), {9, 7});
    check_same(run("gather_along_axis", {array(f64, {1, 0}, {}), array(i32, {1, 2}, {0, 1})}), {0, 0});
    CHECK(exact_values<std::complex<float>>(
              run("gather_along_axis", {complex_array({{1, 2}, {3, 4}}), vector_of(i32, {1, 5})})) ==
          Complexes{{3, 4}, {0, 0}});
    const auto gathered = [](const Shape& shape, const Shape& indices, DType dtype = i32) {
        return infer("gather_along_axis", {{f32, shape}, {dtype, indices}}, axis(1)).shape;
    };
    CHECK(gathered({batch, 3}, {batch, 7}) == Shape{batch, 7});
    CHECK(gathered({unknown, 3}, {5, unknown}).str() == "(5, ?)");
    CHECK(gathered(Shape::unranked(), {5, 2}).str() == "(?, 2)");
    CHECK(gathered({5, 2}, Shape::unranked()).str() == "(?, ?)");
    CHECK(contains(message_of([&] { gathered({2, 3}, {4, 3}); }), "broadcast together on every axis but axis 1"));
    CHECK(contains(message_of([&] { gathered({2, 3}, {4}); }), "same rank"));
    CHECK(contains(message_of<TypeError>([&] { gathered({2, 3}, {2, 3}, f32); }), "int32 or int64"));
}

TEST_CASE("the gradient of gather adds up") {
    const NDArray upstream = vector_of(f64, {1, 10, 100, 1000});
    check_same(
        run_gradient("gather_along_axis", {vector_of(f64, {5, 6, 7}), vector_of(i32, {2, 0, -1, 9})}, upstream)[0],
        {10, 0, 101});
    check_same(run("gather_along_axis_gradient",
                   {vector_of(DType::int32, {1, 2, 3}), vector_of(i64, {1, 1, -1}), array(f32, {4}, Doubles(4, 0.0))}),
               {0, 3, 0, 3});
    const NDArray x = array(f64, {2, 3}, {1.5, -0.4, 0.3, 0.9, -1.6, 2.5});
    check_gradient("gather_along_axis", {x, array(i32, {2, 4}, {2, 0, 2, -1, 5, 1, 1, 0})});
    check_gradient("gather_along_axis", {x, array(i32, {1, 2}, {2, 0})});
    check_gradient("gather_along_axis", {array(f64, {1, 2}, {1, 2}), array(i32, {3, 2}, {0, 1, 1, 1, 0, 0})});
    check_gradient("gather_along_axis_gradient",
                   {x, array(i32, {2, 3}, {0, 1, 1, 3, -1, 0}), array(f32, {2, 4}, Doubles(8, 0.0))});
}

TEST_CASE("gather and gather_nd") {
    const NDArray x = array(f64, {2, 3}, {0, 1, 2, 10, 11, 12});
    check_same(run("gather", {x, array(i32, {2, 2}, {1, 0, -1, 5})}), {10, 11, 12, 0, 1, 2, 10, 11, 12, 0, 0, 0});
    check_same(run("gather", {x, array(i64, {}, {2})}, axis(1)), {2, 12});
    const NamedAttributes batched{{"axis", std::int64_t{1}}, {"batch_dims", std::int64_t{1}}};
    check_same(run("gather", {x, array(i32, {2, 2}, {2, 0, 1, -1})}, batched), {2, 0, 11, 12});
    check_same(run("gather_nd", {x, array(i32, {3, 2}, {1, 2, 0, -1, 0, 3})}), {12, 2, 0});
    check_same(run("gather_nd", {x, array(i32, {1, 1}, {-1})}), {10, 11, 12});

    const auto gathered = [](const Shape& shape, const Shape& indices) {
        return infer("gather", {{f32, shape}, {i32, indices}}, axis(1)).shape.str();
    };
    CHECK(gathered({batch, 3, 4}, {unknown, 5}) == "(batch, ?, 5, 4)");
    CHECK(gathered(Shape::unranked(), {5}) == "(?...)");
    CHECK(infer("gather_nd", {{f32, {batch, 3, 4}}, {i32, {unknown, 2}}}, {}).shape.str() == "(?, 4)");
    CHECK(contains(message_of([] { infer("gather_nd", {{f32, {2, 3}}, {i32, {4, unknown}}}, {}); }), "must be known"));
}

TEST_CASE("scatter, scatter_nd and scatter_along_axis") {
    const auto mode = [](const char* name) { return NamedAttributes{{"mode", std::string(name)}}; };
    const NDArray data = vector_of(f64, {1, 2, 3});
    const NDArray where = vector_of(i32, {0, -1, 0, 3});
    const NDArray updates = vector_of(f64, {10, 20, 40, 80});
    check_same(run("scatter", {data, where, updates}), {40, 2, 20});
    check_same(run("scatter", {data, where, updates}, mode("add")), {51, 2, 23});
    check_same(run("scatter", {data, where, updates}, mode("divide")), {1.0 / 400, 2, 3.0 / 20});
    check_same(run("scatter", {data, where, vector_of(f64, {5})}, mode("max")), {5, 2, 5});  // which broadcasts
    check_same(
        run("scatter_nd", {array(f64, {2, 2}, {1, 2, 3, 4}), array(i64, {2, 2}, {1, 0, 1, 0}), vector_of(f64, {5, 6})},
            mode("multiply")),
        {1, 2, 90, 4});
    check_same(run("scatter_along_axis",
                   {array(i32, {2, 2}, {1, 2, 3, 4}), array(i32, {2, 1}, {1, -2}), array(i32, {2, 1}, {7, 8})}),
               {1, 7, 8, 4});
    CHECK(infer("scatter", {{f32, {batch, 4}}, {i32, {unknown}}, {f32, {unknown, 4}}}, {}).shape.str() == "(batch, 4)");
    CHECK(contains(message_of([] { infer("scatter", {{f32, {5, 4}}, {i32, {3}}, {f32, {3, 5}}}, {}); }), "(3, 4)"));
}

TEST_CASE("parts of matrices") {
    const NDArray x = array(f32, {3, 3}, {qnan, inf, 3, 4, 5, inf, 7, 8, qnan});
    check_same(run("tril", {x}), {qnan, 0, 0, 4, 5, 0, 7, 8, qnan});
    check_same(run("triu", {x}, {{"k", std::int64_t{1}}}), {0, inf, 3, 0, 0, inf, 0, 0, 0});
    check_same(run("tril", {x}, {{"k", std::int64_t{-2}}}), {0, 0, 0, 0, 0, 0, 7, 0, 0});
    const auto band = [&](std::int64_t lower, std::int64_t upper) {
        return run("band_part", {x}, {{"num_lower", lower}, {"num_upper", upper}});
    };
    check_same(band(-1, -1), values_of(x));
    check_same(band(0, 0), {qnan, 0, 0, 0, 5, 0, 0, 0, qnan});
    check_same(band(1, 0), {qnan, 0, 0, 4, 5, 0, 0, 8, qnan});
    check_same(band(-1, 1), {qnan, inf, 0, 4, 5, inf, 7, 8, qnan});
    check_same(run("triu", {array(DType::boolean, {2, 1, 2}, {1, 1, 1, 1})}, {{"k", std::int64_t{1}}}), {0, 1, 0, 1});
    CHECK(contains(message_of([] { infer("tril", {{f32, {3}}}); }), "two dims or more"));
    const NDArray y = array(f64, {2, 3}, {1, 2, 3, 4, 5, 6});
    check_gradient("tril", {y});
    check_gradient("triu", {y}, {{"k", std::int64_t{-1}}});
    check_gradient("band_part", {y}, {{"num_lower", std::int64_t{0}}, {"num_upper", std::int64_t{1}}});
}
