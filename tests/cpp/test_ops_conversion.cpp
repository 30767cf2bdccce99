// Tests of cast, bitcast, planes of complex numbers and full_like.
// The rounding of 16-bit floats is checked against halfway cases worked out by hand.
#include "test_ops_support.h"

using namespace topstitch;
using namespace topstitch::ops_test;

namespace {

NDArray cast(const NDArray& x, DType to) {
    return run("cast", {x}, {{"dtype", to}});
}
NDArray reinterpret(const NDArray& x, DType to) {
    return run("bitcast", {x}, {{"dtype", to}});
}

}  // namespace

TEST_CASE("float to integer: toward zero, saturating, NaN gives 0") {
    for (const DType from : {DType::float32, DType::float64}) {
        const NDArray x = vector_of(from, {2.9, -2.9, 300, -300, qnan, inf, -inf, -0.5});
        check_same(cast(x, DType::int8), {2, -2, 127, -128, 0, 127, -128, 0});
        check_same(cast(x, DType::uint8), {2, 0, 255, 0, 0, 255, 0, 0});
    }
    const NDArray large = vector_of(DType::float64, {1e30, -1e30, 9007199254740993.0});
    CHECK(exact_values<std::int64_t>(cast(large, DType::int64)) ==
          std::vector<std::int64_t>{INT64_MAX, INT64_MIN, 9007199254740992});
    CHECK(exact_values<std::uint64_t>(cast(large, DType::uint64)) ==
          std::vector<std::uint64_t>{UINT64_MAX, 0, 9007199254740992});
    check_same(cast(vector_of(DType::float16, {65504, -1.5}), DType::int32), {65504, -1});
}

TEST_CASE("integers wrap; bools are 0 and 1") {
    const NDArray x = exact(DType::int64, std::vector<std::int64_t>{300, -1, (std::int64_t{1} << 40) + 7, INT64_MIN});
    check_same(cast(x, DType::uint8), {44, 255, 7, 0});
    check_same(cast(x, DType::int8), {44, -1, 7, 0});
    check_same(cast(x, DType::uint32), {300, 4294967295.0, 7, 0});
    check_same(cast(x, DType::boolean), {1, 1, 1, 1});
    check_same(cast(vector_of(DType::int8, {-1}), DType::uint64), {18446744073709551616.0});
    check_same(cast(vector_of(DType::float32, {0, -0.0, qnan, 0.1}), DType::boolean), {0, 0, 1, 1});
    check_same(cast(vector_of(DType::float16, {0, 6e-8}), DType::boolean), {0, 1});
    for (const DType to : {DType::int8, DType::uint64, DType::float16, DType::float64, DType::boolean}) {
        check_same(cast(vector_of(DType::boolean, {0, 1}), to), {0, 1});
    }
}

TEST_CASE("16-bit floats are rounded once, to nearest even") {
    // float16 steps by 2^-10 above 1: halfway is 1 + 2^-11.
    const Doubles x = {1 + 0x1p-11, 1 + 3 * 0x1p-11, 65519, 65520, 0x1p-25, 0x1.8p-24, -0x1p-26, qnan};
    for (const DType from : {DType::float32, DType::float64}) {
        check_same(cast(vector_of(from, x), DType::float16), {1, 1 + 0x1p-9, 65504, inf, 0, 0x1p-23, -0.0, qnan});
    }
    // A hair above halfway, which float32 cannot see: rounding by way of float32 would go down.
    const NDArray above =
        vector_of(DType::float64, {1 + 0x1p-11 + 0x1p-40, -(1 + 0x1p-11 + 0x1p-40), 0x1p-25 + 0x1p-70});
    check_same(cast(above, DType::float16), {1 + 0x1p-10, -(1 + 0x1p-10), 0x1p-24});
    // A hair below halfway between 1 + 2^-10 and 1 + 2^-9, an odd and an even neighbour.
    check_same(cast(vector_of(DType::float64, {1 + 3 * 0x1p-11 - 0x1p-40}), DType::float16), {1 + 0x1p-10});
    check_same(cast(vector_of(DType::float64, {1 + 0x1p-8 + 0x1p-40, 1e300, -1e-300}), DType::bfloat16),
               {1 + 0x1p-7, inf, -0.0});
    // bfloat16 has 8 bits: 2^30 + 2^22 is halfway, and one more is above it, though not in float32.
    const std::int64_t half = (std::int64_t{1} << 30) + (1 << 22);
    const double up = 0x1p30 + 0x1p23;
    check_same(
        cast(exact(DType::int64, std::vector<std::int64_t>{half, half + 1, half - 1, -half - 1}), DType::bfloat16),
        {0x1p30, up, 0x1p30, -up});
    check_same(cast(exact(DType::int32, std::vector<std::int32_t>{1077936129, 2147483647}), DType::bfloat16),
               {up, 0x1p31});
    check_same(cast(exact(DType::uint64, std::vector<std::uint64_t>{UINT64_MAX, 0}), DType::bfloat16), {0x1p64, 0});
    check_same(cast(exact(DType::int64, std::vector<std::int64_t>{INT64_MIN, INT64_MAX, 2049}), DType::float16),
               {-inf, inf, 2048});
    check_same(cast(vector_of(DType::bfloat16, {3.140625, 1e30}), DType::float16), {3.140625, inf});
}

TEST_CASE("integers to floats round to nearest even") {
    const NDArray x = exact(DType::int64, std::vector<std::int64_t>{16777217, 16777219, INT64_MAX, 9007199254740993});
    check_same(cast(x, DType::float32), {16777216, 16777220, 0x1p63, 9007199254740992.0});
    check_same(cast(x, DType::float64), {16777217, 16777219, 0x1p63, 9007199254740992.0});
}

TEST_CASE("complex and real") {
    const NDArray z = complex_array({{1.5F, 2}, {0, 3}, {0, 0}});
    check_same(cast(z, DType::float32), {1.5, 0, 0});
    check_same(cast(z, DType::int32), {1, 0, 0});
    check_same(cast(z, DType::boolean), {1, 1, 0});
    CHECK(exact_values<std::complex<float>>(cast(vector_of(DType::int32, {7}), DType::complex64)) == Complexes{{7, 0}});
    CHECK(exact_values<std::complex<float>>(cast(vector_of(DType::float16, {0.5}), DType::complex64)) ==
          Complexes{{0.5F, 0}});
    CHECK(exact_values<std::complex<float>>(cast(z, DType::complex64)) == exact_values<std::complex<float>>(z));
    check_same(run("real", {vector_of(DType::int8, {-3})}), {-3});
    check_same(run("imag", {vector_of(DType::float16, {-3})}), {0});
    check_same(run("conj", {vector_of(DType::float64, {-3})}), {-3});
    check_same(run("absolute_square", {vector_of(DType::int8, {16})}), {0});
}

TEST_CASE("bitcast keeps the bytes, little-endian") {
    const NDArray words = exact(DType::uint32, std::vector<std::uint32_t>{0x3f800000, 0x04030201});
    CHECK(reinterpret(words, DType::float32).at(0) == 1.0);
    CHECK(exact_values<std::uint8_t>(reinterpret(words, DType::uint8)) ==
          std::vector<std::uint8_t>{0, 0, 0x80, 0x3f, 1, 2, 3, 4});
    CHECK(exact_values<std::int16_t>(reinterpret(words, DType::int16)) ==
          std::vector<std::int16_t>{0, 0x3f80, 0x0201, 0x0403});
    CHECK(exact_values<std::uint64_t>(reinterpret(words, DType::uint64)) ==
          std::vector<std::uint64_t>{0x040302013f800000});
    const NDArray bytes = array_of<std::int8_t>(DType::int8, {2, 4}, {0, 0, -128, 63, -1, -1, -1, -1});
    const NDArray joined = reinterpret(bytes, DType::int32);
    CHECK(joined.shape() == Sizes{2, 1});
    CHECK(exact_values<std::int32_t>(joined) == std::vector<std::int32_t>{0x3f800000, -1});
    // Two float32 are one complex64, and the other way round.
    const NDArray z = complex_array({{1, -2}, {3, 4}});
    check_same(reinterpret(z, DType::float32), {1, -2, 3, 4});
    CHECK(exact_values<std::complex<float>>(reinterpret(array(DType::float32, {4}, {1, -2, 3, 4}), DType::complex64)) ==
          exact_values<std::complex<float>>(z));
    CHECK(exact_values<std::uint64_t>(reinterpret(z, DType::uint64)) ==
          std::vector<std::uint64_t>{0xc00000003f800000, 0x4080000040400000});
    CHECK(exact_values<std::uint16_t>(reinterpret(vector_of(DType::float16, {1, -2}), DType::uint16)) ==
          std::vector<std::uint16_t>{0x3c00, 0xc000});
    check_same(reinterpret(exact(DType::uint16, std::vector<std::uint16_t>{0x3f80, 0xff80}), DType::bfloat16),
               {1, -inf});
    check_same(reinterpret(vector_of(DType::boolean, {1, 0}), DType::int8), {1, 0});
    CHECK(exact_values<double>(reinterpret(exact(DType::int64, std::vector<std::int64_t>{0x3ff0000000000000}),
                                           DType::float64)) == std::vector<double>{1.0});
    // A NaN with a payload passes unchanged.
    const NDArray payload = exact(DType::uint32, std::vector<std::uint32_t>{0x7fc12345});
    CHECK(exact_values<std::uint32_t>(reinterpret(reinterpret(payload, DType::float32), DType::uint32)) ==
          std::vector<std::uint32_t>{0x7fc12345});

    const auto shape = [](const Shape& from, DType dtype, DType to) {
        return infer("bitcast", {{dtype, from}}, {{"dtype", to}}).shape.str();
    };
    CHECK(shape(Shape({Dim::unknown(), 4}), DType::float32, DType::uint8) == "(?, 16)");
    CHECK(shape(Shape({Dim::symbol("n")}), DType::float32, DType::uint8) == "(4*n,)");
    CHECK(shape(Shape({Dim::symbol("n") * Dim(8)}), DType::uint8, DType::float32) == "(2*n,)");
    CHECK(shape(Shape({Dim::unknown()}), DType::uint8, DType::float32) == "(?,)");
    CHECK(shape(Shape::unranked(), DType::uint8, DType::float32) == "(?...)");
    CHECK(shape(Shape(), DType::int32, DType::float32) == "()");
    CHECK(contains(message_of([&] { shape(Shape({6}), DType::uint8, DType::float32); }),
                   "the last dim of the input, of shape (6,), must be a multiple of 4"));
    CHECK(contains(message_of([&] { shape(Shape(), DType::uint8, DType::float32); }), "the input is a scalar"));
    CHECK(contains(message_of<TypeError>([&] { shape(Shape({6}), DType::uint8, DType::boolean); }), "dtype is bool"));
}

TEST_CASE("complex numbers as planes") {
    const NDArray z = array_of<std::complex<float>>(DType::complex64, {2, 2}, {{1, 2}, {3, 4}, {5, 6}, {7, 8}});
    const NDArray planes = run("planar_from_complex", {z});
    CHECK(planes.shape() == Sizes{2, 4});
    check_same(planes, {1, 3, 2, 4, 5, 7, 6, 8});
    const NDArray back = run("complex_from_planar", {planes});
    CHECK(back.shape() == Sizes{2, 2});
    CHECK(exact_values<std::complex<float>>(back) == exact_values<std::complex<float>>(z));
    check_same(run("planar_from_complex", {vector_of(DType::float64, {1, 2})}), {1, 2});
    CHECK(run("planar_from_complex", {array_of<std::complex<float>>(DType::complex64, {3, 0}, {})}).shape() ==
          Sizes{3, 0});
    CHECK(contains(message_of([] { infer("complex_from_planar", {{DType::float32, Shape({3})}}); }), "must be even"));
    CHECK(contains(message_of([] { infer("planar_from_complex", {{DType::complex64, Shape()}}); }),
                   "the input is a scalar"));
}

TEST_CASE("full_like") {
    const NDArray x = array(DType::float32, {2, 2}, {1, 2, 3, 4});
    check_same(run("full_like", {x}, {{"value", 0.1}}), Doubles(4, static_cast<double>(0.1F)));
    const NDArray bytes = run("full_like", {x}, {{"value", 300.7}, {"dtype", DType::uint8}});
    CHECK(bytes.dtype() == DType::uint8);
    check_same(bytes, Doubles(4, 255));
    check_same(run("full_like", {x}, {{"value", -1.0}, {"dtype", DType::boolean}}), Doubles(4, 1));
    check_same(run("full_like", {x}, {{"value", 1 + 0x1p-11 + 0x1p-40}, {"dtype", DType::float16}}),
               Doubles(4, 1 + 0x1p-10));
    CHECK(exact_values<std::complex<float>>(run("full_like", {complex_array({{1, 2}})}, {{"value", 3.0}})) ==
          Complexes{{3, 0}});
    CHECK(infer("full_like", {{DType::int8, Shape::unranked()}}, {{"value", 3.0}}).str() == "int8(?...)");
}
