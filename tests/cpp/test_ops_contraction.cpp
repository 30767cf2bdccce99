// Tests of matmul: vectors, batches, dtypes, empty contractions, messages and gradients.
// Values are worked by hand or by the triple loop written here.
#include "test_ops_support.h"

using namespace topstitch;
using namespace topstitch::ops_test;

namespace {

constexpr DType f32 = DType::float32;
constexpr DType f64 = DType::float64;

const Dim unknown = Dim::unknown();
const Dim batch = Dim::symbol("batch");

Shape product_shape(const Shape& a, const Shape& b) {
    return infer("matmul", {{f32, a}, {f32, b}}).shape;
}

NDArray wavy(const Sizes& shape, double phase) {
    Doubles values;
    for (std::int64_t k = 0; k < num_elements(shape); ++k)
        values.push_back(std::sin(phase + 1.7 * static_cast<double>(k)));
    return array(f64, shape, values);
}

}  // namespace

TEST_CASE("matrices and vectors") {
    const NDArray a = array(f32, {2, 3}, {1, 2, 3, 4, 5, 6});
    const NDArray b = array(f32, {3, 2}, {1, 0, 0, 1, 10, 100});
    check_same(run("matmul", {a, b}), {31, 302, 64, 605});
    check_same(run("matmul", {a, vector_of(f32, {1, 10, 100})}), {321, 654});
    check_same(run("matmul", {vector_of(f32, {1, 10}), a}), {41, 52, 63});
    const NDArray dot = run("matmul", {vector_of(f32, {1, 2}), vector_of(f32, {3, 4})});
    CHECK(dot.shape() == Sizes{});
    check_same(dot, {11});
    check_same(run("matmul", {a, a.transpose({1, 0})}), {14, 32, 32, 77});
}

TEST_CASE("batches broadcast") {
    const NDArray a = wavy({2, 1, 2, 3}, 0.1);
    const NDArray b = wavy({4, 3, 2}, 0.7);
    const NDArray y = run("matmul", {a, b});
    REQUIRE(y.shape() == Sizes{2, 4, 2, 2});
    Doubles expected;
    for (int p = 0; p < 2; ++p)
        for (int q = 0; q < 4; ++q)
            for (int m = 0; m < 2; ++m)
                for (int n = 0; n < 2; ++n) {
                    double total = 0;
                    for (int k = 0; k < 3; ++k) total += a.at((p * 2 + m) * 3 + k) * b.at((q * 3 + k) * 2 + n);
                    expected.push_back(total);
                }
    check_close(y, expected, 1e-14);
    CHECK(run("matmul", {vector_of(f64, {1, 2, 3}), b}).shape() == Sizes{4, 2});
    CHECK(run("matmul", {a, vector_of(f64, {1, 2, 3})}).shape() == Sizes{2, 1, 2});
}

TEST_CASE("dtypes") {
    check_same(run("matmul", {array(DType::int8, {1, 2}, {100, 1}), array(DType::int8, {2, 1}, {2, 1})}), {201 - 256});
    const NDArray wide = run("matmul", {exact<std::int64_t>(DType::int64, {(1LL << 31) + 1, 1}),
                                        exact<std::int64_t>(DType::int64, {1LL << 31, 5})});
    CHECK(*wide.data_as<std::int64_t>() == (1LL << 62) + (1LL << 31) + 5);
    // 2048 + 1 + 1: in float16 each 1 alone would be lost.
    check_same(run("matmul", {vector_of(DType::float16, {2048, 1, 1}), vector_of(DType::float16, {1, 1, 1})}), {2050});
    check_same(run("matmul", {vector_of(DType::bfloat16, {256, 1, 1}), vector_of(DType::bfloat16, {1, 1, 1})}), {258});
    const NDArray z = run("matmul", {complex_array({{1, 2}, {0, 1}}), complex_array({{3, -1}, {5, 0}})});
    CHECK(*z.data_as<std::complex<float>>() == std::complex<float>(5, 10));  // (1+2i)(3-i) + 5i
    CHECK(contains(message_of<TypeError>([] { infer("matmul", {{DType::boolean, {2}}, {DType::boolean, {2}}}); }),
                   "cast"));
    CHECK(contains(message_of<TypeError>([] { infer("matmul", {{f32, {2}}, {f64, {2}}}); }), "use cast"));
}

TEST_CASE("empty contractions give zeros") {
    check_same(run("matmul", {array(f32, {2, 0}, {}), array(f32, {0, 2}, {})}), {0, 0, 0, 0});
    CHECK(run("matmul", {array(f32, {0, 3}, {}), array(f32, {3, 2}, Doubles(6, 1.0))}).shape() == Sizes{0, 2});
    check_same(run("matmul", {array(f32, {0}, {}), array(f32, {0}, {})}), {0});
}

TEST_CASE("shapes and messages") {
    CHECK(product_shape({batch, 784}, {784, 10}) == Shape{batch, 10});
    CHECK(product_shape({batch, unknown}, {784, 10}) == Shape{batch, 10});
    CHECK(product_shape({unknown, 1, 2, 3}, {5, 3, 4}).str() == "(?, 5, 2, 4)");
    CHECK(product_shape({3}, {unknown, 3, 4}).str() == "(?, 4)");
    CHECK(!product_shape(Shape::unranked(), {3, 4}).has_rank());
    const auto message = [](const Shape& a, const Shape& b) { return message_of([&] { product_shape(a, b); }); };
    const std::string mismatch = message({2, 3}, {4, 5});
    CHECK(contains(mismatch, "[matmul] the shapes (2, 3) and (4, 5)"));
    CHECK(contains(mismatch, "last dim of `a`, 3"));
    CHECK(contains(mismatch, "dim of `b`, 4"));
    CHECK(contains(message({}, {4, 5}), "is a scalar"));
    CHECK(contains(message({2, 2, 3}, {3, 3, 4}), "do not broadcast"));
}

TEST_CASE("gradients against differences") {
    check_gradient("matmul", {wavy({2, 3}, 0.1), wavy({3, 2}, 0.2)});
    check_gradient("matmul", {wavy({3}, 0.1), wavy({3}, 0.2)});
    check_gradient("matmul", {wavy({3}, 0.1), wavy({3, 2}, 0.2)});
    check_gradient("matmul", {wavy({2, 3}, 0.1), wavy({3}, 0.2)});
    check_gradient("matmul", {wavy({2, 2, 3}, 0.1), wavy({3, 2}, 0.2)});  // one matrix for the whole batch
    check_gradient("matmul", {wavy({2, 3}, 0.1), wavy({2, 3, 2}, 0.2)});
    check_gradient("matmul", {wavy({2, 1, 1, 3}, 0.1), wavy({2, 3, 2}, 0.2)});
    check_gradient("matmul", {wavy({3}, 0.1), wavy({2, 3, 2}, 0.2)});
    check_gradient("matmul", {wavy({2, 2, 3}, 0.1), wavy({3}, 0.2)});
    check_gradient("matmul", {array(f64, {2, 0}, {}), array(f64, {0, 2}, {})});
}
