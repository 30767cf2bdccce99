// Tests of unary and binary operations: edge values, integer extremes, complex arithmetic, shapes and errors.
// Expected values are worked by hand or come from the C++ library in a wider type.
#include "test_ops_support.h"

using namespace topstitch;
using namespace topstitch::ops_test;

namespace {

constexpr DType f32 = DType::float32;
constexpr DType f64 = DType::float64;
constexpr DType f16 = DType::float16;

using I8 = std::vector<std::int8_t>;
using U8 = std::vector<std::uint8_t>;
using I32 = std::vector<std::int32_t>;
using I64 = std::vector<std::int64_t>;
using U64 = std::vector<std::uint64_t>;

constexpr std::int64_t i64_min = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t i64_max = std::numeric_limits<std::int64_t>::max();

void check_unary(const char* op, DType dtype, const Doubles& x, const Doubles& y) {
    INFO(op, " of ", name_of(dtype));
    check_same(run(op, {vector_of(dtype, x)}), y);
}

void check_binary(const char* op, DType dtype, const Doubles& a, const Doubles& b, const Doubles& y) {
    INFO(op, " of ", name_of(dtype));
    check_same(run(op, {vector_of(dtype, a), vector_of(dtype, b)}), y);
}

// Bool results as 0 and 1.
void check_test(const char* op, const NDArray& x, const Doubles& y) {
    INFO(op);
    const NDArray result = run(op, {x});
    CHECK(result.dtype() == DType::boolean);
    check_same(result, y);
}

void check_complex(const NDArray& actual, const std::vector<std::complex<double>>& expected, double relative = 3e-7) {
    const auto values = exact_values<std::complex<float>>(actual);
    REQUIRE(values.size() == expected.size());
    for (std::size_t k = 0; k < values.size(); ++k) {
        // Relative to the modulus, or to the part itself when the other one is infinite.
        const bool finite = std::isfinite(std::abs(expected[k]));
        const auto part = [&](double a, double b, double size) {
            return same(a, b) || std::abs(a - b) <= relative * (finite ? size : std::abs(b));
        };
        const double size = std::abs(expected[k]);
        const bool close =
            part(values[k].real(), expected[k].real(), size) && part(values[k].imag(), expected[k].imag(), size);
        CHECK_MESSAGE(close, "element ", k, ": ", values[k].real(), " + ", values[k].imag(), "i, expected ",
                      expected[k].real(), " + ", expected[k].imag(), "i");
    }
}

}  // namespace

TEST_CASE("rounding keeps signed zeros, infinities and NaN, and decides ties") {
    for (const DType dtype : {f16, DType::bfloat16, f32, f64}) {
        const Doubles x = {-2.5, -1.5, -0.5, -0.25, -0.0, 0.0, 0.5, 1.5, 2.5, inf, -inf, qnan};
        check_unary("round", dtype, x, {-3, -2, -1, -0.0, -0.0, 0, 1, 2, 3, inf, -inf, qnan});
        check_unary("rint", dtype, x, {-2, -2, -0.0, -0.0, -0.0, 0, 0, 2, 2, inf, -inf, qnan});
        check_unary("floor", dtype, x, {-3, -2, -1, -1, -0.0, 0, 0, 1, 2, inf, -inf, qnan});
        check_unary("ceil", dtype, x, {-2, -1, -0.0, -0.0, -0.0, 0, 1, 2, 3, inf, -inf, qnan});
        check_unary("trunc", dtype, x, {-2, -1, -0.0, -0.0, -0.0, 0, 0, 1, 2, inf, -inf, qnan});
    }
    // The largest number below 0.5, whose sum with 0.5 rounds to 1; and odd numbers without room for a fraction.
    check_unary("round", f32, {0.49999997, -0.49999997, 8388609, 4503599.5}, {0, -0.0, 8388609, 4503600});
    check_unary("round", f64, {0.49999999999999994, 4503599627370497}, {0, 4503599627370497});
    check_unary("floor", DType::int32, {-7, 7}, {-7, 7});
    check_unary("round", DType::uint8, {200}, {200});
}

TEST_CASE("signs") {
    check_unary("sign", f32, {-2, -0.0, 0, 3, inf, -inf, qnan}, {-1, -0.0, 0, 1, 1, -1, qnan});
    check_unary("sign", f16, {-0.0, 6e-8, qnan}, {-0.0, 1, qnan});
    check_unary("sign", DType::int8, {-128, 0, 127}, {-1, 0, 1});
    check_unary("sign", DType::uint8, {0, 200}, {0, 1});
    check_test("signbit", vector_of(f32, {-0.0, 0, -1, 1, -inf}), {1, 0, 1, 0, 1});
    check_test("signbit", vector_of(f64, {std::copysign(qnan, -1.0), std::copysign(qnan, 1.0)}), {1, 0});
    check_test("signbit", vector_of(DType::int16, {-1, 0, 5}), {1, 0, 0});
    check_test("signbit", vector_of(DType::uint8, {255}), {0});
    check_unary("absolute", f32, {-0.0, -2.5, -inf, qnan}, {0, 2.5, inf, qnan});
    check_unary("negative", f32, {0.0, -0.0, inf}, {-0.0, 0.0, -inf});
    check_binary("copysign", f32, {1, -2, 0, inf}, {-0.0, 0, -1, -3}, {-1, 2, -0.0, -inf});
}

TEST_CASE("tests of floats; NaN counts as true") {
    const NDArray x = vector_of(f32, {0, -1, inf, -inf, qnan});
    check_test("is_nan", x, {0, 0, 0, 0, 1});
    check_test("is_inf", x, {0, 0, 1, 1, 0});
    check_test("is_finite", x, {1, 1, 0, 0, 0});
    check_test("logical_not", x, {1, 0, 0, 0, 0});
    check_test("is_finite", vector_of(DType::int64, {7}), {1});
    check_test("is_nan", vector_of(DType::uint8, {7}), {0});
    // float16 has 65504 as its largest number, and bfloat16 the range of float32.
    check_test("is_inf", array_of<std::uint16_t>(f16, {2}, {0x7bff, 0x7c00}), {0, 1});
    const float fnan = std::nanf("");
    const float finf = static_cast<float>(inf);
    const NDArray z = complex_array({{1, 2}, {fnan, 0}, {0, finf}, {0, 0}, {0, fnan}});
    check_test("is_nan", z, {0, 1, 0, 0, 1});
    check_test("is_inf", z, {0, 0, 1, 0, 0});
    check_test("is_finite", z, {1, 0, 0, 1, 0});
    check_test("logical_not", z, {0, 0, 0, 1, 0});
}

TEST_CASE("integer arithmetic wraps and has no float detours") {
    CHECK(exact_values<std::int64_t>(run("negative", {exact(DType::int64, I64{i64_min, i64_max})})) ==
          I64{i64_min, -i64_max});
    CHECK(exact_values<std::int64_t>(run("absolute", {exact(DType::int64, I64{i64_min, -5})})) == I64{i64_min, 5});
    CHECK(exact_values<std::uint64_t>(run("negative", {exact(DType::uint64, U64{1, 0})})) == U64{~0ULL, 0});
    CHECK(exact_values<std::uint64_t>(run("absolute", {exact(DType::uint64, U64{~0ULL})})) == U64{~0ULL});
    const NDArray big = exact(DType::int64, I64{9007199254740993, i64_max});
    CHECK(exact_values<std::int64_t>(run("add", {big, exact(DType::int64, I64{2, 1})})) ==
          I64{9007199254740995, i64_min});
    CHECK(exact_values<std::int64_t>(run("multiply", {big, exact(DType::int64, I64{3, 2})})) ==
          I64{27021597764222979, -2});
    CHECK(exact_values<std::int8_t>(run("square", {exact(DType::int8, I8{16, -128, 11})})) == I8{0, 0, 121});
    CHECK(exact_values<std::int8_t>(
              run("subtract", {exact(DType::int8, I8{-128, 127}), exact(DType::int8, I8{1, -1})})) == I8{127, -128});
    CHECK(exact_values<std::uint64_t>(
              run("maximum", {exact(DType::uint64, U64{1}), exact(DType::uint64, U64{~0ULL})})) == U64{~0ULL});
    CHECK(exact_values<std::int64_t>(run("minimum", {big, exact(DType::int64, I64{9007199254740992, i64_min})})) ==
          I64{9007199254740992, i64_min});
    check_test("logical_not", exact(DType::int64, I64{0, i64_min}), {1, 0});
}

TEST_CASE("whole quotients and remainders of integers") {
    const NDArray a = exact(DType::int8, I8{7, -7, 7, -7, -128, 5, -128, 0});
    const NDArray b = exact(DType::int8, I8{3, 3, -3, -3, -1, 0, 3, -4});
    CHECK(exact_values<std::int8_t>(run("floor_divide", {a, b})) == I8{2, -3, -3, 2, -128, 0, -43, 0});
    CHECK(exact_values<std::int8_t>(run("truncate_divide", {a, b})) == I8{2, -2, -2, 2, -128, 0, -42, 0});
    CHECK(exact_values<std::int8_t>(run("remainder", {a, b})) == I8{1, 2, -2, -1, 0, 0, 1, 0});
    CHECK(exact_values<std::int8_t>(run("fmod", {a, b})) == I8{1, -1, 1, -1, 0, 0, -2, 0});
    const NDArray large = exact(DType::uint64, U64{~0ULL, 10, 3});
    const NDArray by = exact(DType::uint64, U64{10, 0, 7});
    CHECK(exact_values<std::uint64_t>(run("floor_divide", {large, by})) == U64{1844674407370955161ULL, 0, 0});
    CHECK(exact_values<std::uint64_t>(run("remainder", {large, by})) == U64{5, 0, 3});
    CHECK(exact_values<std::int64_t>(run("floor_divide", {exact(DType::int64, I64{i64_min, i64_min, i64_max}),
                                                          exact(DType::int64, I64{-1, 2, -2})})) ==
          I64{i64_min, i64_min / 2, -4611686018427387904});
}

TEST_CASE("whole quotients and remainders of floats") {
    // As Python gives them for a // b and a % b.
    const Doubles a = {7, -7, 7, -7, 1, -1, 0.0, -0.0, 1, -1, 5, inf, 6, 1};
    const Doubles b = {3, 3, -3, -3, 0.1, 0.1, -3, 3, inf, inf, 0, 2, 0.75, -1};
    check_binary("floor_divide", f64, a, b, {2, -3, -3, 2, 9, -10, -0.0, -0.0, 0, -1, inf, qnan, 8, -1});
    check_binary("remainder", f64, a, b,
                 {1, 2, -2, -1, 0.09999999999999995, 5.551115123125783e-17, -0.0, 0, 1, inf, qnan, qnan, 0, -0.0});
    check_binary("fmod", f64, a, b,
                 {1, -1, 1, -1, 0.09999999999999995, -0.09999999999999995, 0, -0.0, 1, -1, qnan, qnan, 0, 0});
    check_binary("truncate_divide", f32, {7, -7, 5, -0.5}, {3, 3, 0, 1}, {2, -2, inf, -0.0});
}

TEST_CASE("division") {
    check_binary("divide", f32, {1, -1, 0, 3, 1}, {0, 0, 0, 2, -0.0}, {inf, -inf, qnan, 1.5, -inf});
    check_binary("divide_no_nan", f32, {1, qnan, 0, 3, inf}, {0, 0, 0, 2, -0.0}, {0, 0, 0, 1.5, 0});
    check_unary("reciprocal", f32, {4, -0.0, 0, -inf}, {0.25, -inf, inf, -0.0});
    const std::string message =
        message_of<TypeError>([] { run("divide", {vector_of(DType::int32, {1}), vector_of(DType::int32, {2})}); });
    CHECK(message ==
          "[divide] input `a` has dtype int32, but floating-point or complex64 is needed; use floor_divide or "
          "truncate_divide for a whole quotient, or cast both to a floating-point dtype");
}

TEST_CASE("extremes with NaN") {
    const Doubles a = {1, qnan, 2, qnan, -0.0};
    const Doubles b = {qnan, 1, 3, qnan, -1};
    check_binary("minimum", f32, a, b, {qnan, qnan, 2, qnan, -1});
    check_binary("maximum", f64, a, b, {qnan, qnan, 3, qnan, -0.0});
    check_binary("fmin", f64, a, b, {1, 1, 2, qnan, -1});
    check_binary("fmax", f32, a, b, {1, 1, 3, qnan, -0.0});
    check_binary("minimum", DType::boolean, {0, 0, 1, 1}, {0, 1, 0, 1}, {0, 0, 0, 1});
    check_binary("maximum", DType::boolean, {0, 0, 1, 1}, {0, 1, 0, 1}, {0, 1, 1, 1});
}

TEST_CASE("powers") {
    check_binary("power", f64, {2, -2, 0, 0, -8, qnan, 4, 0}, {10, 3, 0, -1, 1.0 / 3.0, 0, 0.5, 2},
                 {1024, -8, 1, inf, qnan, 1, 2, 0});
    CHECK(exact_values<std::int64_t>(run("power", {exact(DType::int64, I64{3, -3, 2, 10, 7, 0, 3037000500}),
                                                   exact(DType::int64, I64{39, 39, 63, 18, 0, 0, 2})})) ==
          I64{4052555153018976267, -4052555153018976267, i64_min, 1000000000000000000, 1, 1, -9223372036709301616});
    // 3^41 mod 2^64 and 2^64 mod 2^64 by integer arithmetic elsewhere.
    CHECK(exact_values<std::uint64_t>(
              run("power", {exact(DType::uint64, U64{3, 2, 5}), exact(DType::uint64, U64{41, 64, ~0ULL})})) ==
          U64{18026252303461234787ULL, 0, 14757395258967641293ULL});
    CHECK(exact_values<std::int8_t>(run("power", {exact(DType::int8, I8{1, -1, -1, 0, 2, -128}),
                                                  exact(DType::int8, I8{-5, -5, -128, -1, -1, -2})})) ==
          I8{1, -1, 1, 0, 0, 0});
    CHECK(exact_values<std::int32_t>(run("power", {exact(DType::int32, I32{-1, 46341}),
                                                   exact(DType::int32, I32{2147483647, 2})})) == I32{-1, -2147479015});
}

TEST_CASE("directions and lengths") {
    check_binary("atan2", f64, {0.0, -0.0, 0.0, -0.0, 1}, {1, 1, -1, -1, 0},
                 {0, -0.0, 3.141592653589793, -3.141592653589793, 1.5707963267948966});
    check_binary("hypot", f32, {3, 3e38, 0, inf, qnan, -5}, {4, 0, -0.0, qnan, 1, 12},
                 {5, double(3e38f), 0, inf, qnan, 13});
    check_close(run("hypot", {vector_of(f32, {2e38, 1e-42}), vector_of(f32, {2e38, 1e-42})}),
                {2.8284271247461903e38, 1.4142135623730951e-42}, 1e-6, 1.5e-45);
}

TEST_CASE("comparisons") {
    const Doubles a = {1, 2, qnan, -0.0, inf};
    const Doubles b = {2, 2, qnan, 0.0, inf};
    check_binary("equal", f32, a, b, {0, 1, 0, 1, 1});
    check_binary("not_equal", f32, a, b, {1, 0, 1, 0, 0});
    check_binary("less", f32, a, b, {1, 0, 0, 0, 0});
    check_binary("less_equal", f32, a, b, {1, 1, 0, 1, 1});
    check_binary("greater", f32, a, b, {0, 0, 0, 0, 0});
    check_binary("greater_equal", f32, a, b, {0, 1, 0, 1, 1});
    check_binary("greater", f16, {2, -1}, {1, 1}, {1, 0});
    check_binary("less", DType::boolean, {0, 0, 1, 1}, {0, 1, 0, 1}, {0, 1, 0, 0});
    check_binary("greater_equal", DType::boolean, {0, 0, 1, 1}, {0, 1, 0, 1}, {1, 0, 1, 1});
    const NDArray near = exact(DType::int64, I64{i64_max, i64_min});
    check_same(run("less", {near, exact(DType::int64, I64{i64_max - 1, i64_min + 1})}), {0, 1});
    check_same(run("less", {exact(DType::uint64, U64{1}), exact(DType::uint64, U64{~0ULL})}), {1});
    const NDArray z = complex_array({{1, 2}, {1, 2}});
    const NDArray w = complex_array({{1, 2}, {1, 3}});
    check_same(run("equal", {z, w}), {1, 0});
    check_same(run("not_equal", {z, w}), {0, 1});
    CHECK_THROWS_AS(run("less", {z, w}), TypeError);
}

TEST_CASE("logic") {
    const NDArray a = vector_of(DType::boolean, {0, 0, 1, 1});
    const NDArray b = vector_of(DType::boolean, {0, 1, 0, 1});
    check_same(run("logical_and", {a, b}), {0, 0, 0, 1});
    check_same(run("logical_or", {a, b}), {0, 1, 1, 1});
    check_same(run("logical_xor", {a, b}), {0, 1, 1, 0});
    check_same(run("logical_nand", {a, b}), {1, 1, 1, 0});
    check_same(run("logical_nor", {a, b}), {1, 0, 0, 0});
    check_same(run("logical_xnor", {a, b}), {1, 0, 0, 1});
    check_same(run("logical_and", {vector_of(f32, {0.5, qnan, -0.0}), vector_of(f32, {2, 1, 1})}), {1, 1, 0});
    check_same(run("logical_xor", {vector_of(DType::int8, {2, 2}), vector_of(DType::int8, {4, 0})}), {0, 1});
}

TEST_CASE("bits and shifts") {
    CHECK(exact_values<std::int8_t>(run("bitwise_not", {exact(DType::int8, I8{0, -1, 5})})) == I8{-1, 0, -6});
    check_same(run("bitwise_not", {vector_of(DType::boolean, {0, 1})}), {1, 0});
    check_same(run("bitwise_xor", {vector_of(DType::boolean, {0, 1}), vector_of(DType::boolean, {1, 1})}), {1, 0});
    CHECK(exact_values<std::uint8_t>(
              run("bitwise_and", {exact(DType::uint8, U8{0xf0}), exact(DType::uint8, U8{0x3c})})) == U8{0x30});
    CHECK(exact_values<std::uint8_t>(
              run("bitwise_or", {exact(DType::uint8, U8{0xf0}), exact(DType::uint8, U8{0x3c})})) == U8{0xfc});
    CHECK(exact_values<std::int64_t>(run("popcount", {exact(DType::int64, I64{-1, 0, i64_min, 255})})) ==
          I64{64, 0, 1, 8});
    CHECK(exact_values<std::int8_t>(run("popcount", {exact(DType::int8, I8{-1, -128})})) == I8{8, 1});
    const NDArray bytes = exact(DType::uint8, U8{0xf1, 0xf1, 0xf1, 0xf1, 1});
    const NDArray counts = exact(DType::uint8, U8{4, 8, 0, 255, 7});
    CHECK(exact_values<std::uint8_t>(run("right_shift", {bytes, counts})) == U8{0x0f, 0, 0xf1, 0, 0});
    CHECK(exact_values<std::uint8_t>(run("left_shift", {bytes, counts})) == U8{0x10, 0, 0xf1, 0, 128});
    const NDArray words = exact(DType::int64, I64{-8, -8, -8, 8, 1, 1});
    const NDArray by = exact(DType::int64, I64{1, 64, -1, -1, 62, 63});
    CHECK(exact_values<std::int64_t>(run("right_shift", {words, by})) == I64{-4, -1, -1, 0, 0, 0});
    CHECK(exact_values<std::int64_t>(run("left_shift", {words, by})) ==
          I64{-16, 0, 0, 0, std::int64_t{1} << 62, i64_min});
    CHECK_THROWS_AS(run("left_shift", {vector_of(f32, {1}), vector_of(f32, {1})}), TypeError);
}

TEST_CASE("16-bit floats are computed in float32 and rounded once") {
    // 1 + 2^-11 is a tie between 1 and 1 + 2^-10 in float16: it goes to the even 1; three times 2^-11 goes up.
    check_binary("add", f16, {1, 1}, {0x1p-11, 3 * 0x1p-11}, {1, 1 + 2 * 0x1p-10});
    check_binary("multiply", f16, {300}, {300}, {inf});
    check_binary("add", DType::bfloat16, {256}, {1}, {256});
    check_close(run("exp", {vector_of(f16, {1})}), {2.71875}, 0.0);  // the neighbours are 2.716796875 and 2.720703125
}

TEST_CASE("functions in float64 and float32 against the C++ library") {
    struct Case {
        const char* name;
        double (*function)(double);
        Doubles at;
    };
    const Case cases[] = {
        {"exp", std::exp, {-1, 0, 2}},        {"exp2", std::exp2, {-1, 0.5, 3}},  {"expm1", std::expm1, {-1, 1e-9, 2}},
        {"log", std::log, {0, 1, 7, -1}},     {"log2", std::log2, {0, 8, 7}},     {"log10", std::log10, {0, 1000, 7}},
        {"log1p", std::log1p, {-1, 1e-9, 7}}, {"sqrt", std::sqrt, {0, 2, -1}},    {"cbrt", std::cbrt, {-8, 0, 2}},
        {"sin", std::sin, {-1, 0, 2}},        {"cos", std::cos, {-1, 0, 2}},      {"tan", std::tan, {-1, 0, 2}},
        {"asin", std::asin, {-1, 0.3, 2}},    {"acos", std::acos, {-1, 0.3, 2}},  {"atan", std::atan, {-1, 0.3, inf}},
        {"sinh", std::sinh, {-1, 0.3, 2}},    {"cosh", std::cosh, {-1, 0.3, 2}},  {"tanh", std::tanh, {-1, 0.3, 20}},
        {"asinh", std::asinh, {-1, 0.3, 2}},  {"acosh", std::acosh, {0.5, 1, 2}}, {"atanh", std::atanh, {-1, 0.3, 2}},
        {"erf", std::erf, {-1, 0.3, 6}},      {"erfc", std::erfc, {-1, 0.3, 6}},
    };
    for (const Case& c : cases) {
        INFO(c.name);
        Doubles expected;
        for (const double x : c.at) expected.push_back(c.function(x));
        check_close(run(c.name, {vector_of(f64, c.at)}), expected, 1e-15);
        const NDArray rounded = vector_of(f32, c.at);
        for (std::size_t k = 0; k < c.at.size(); ++k) {
            expected[k] = static_cast<double>(static_cast<float>(c.function(rounded.at(static_cast<std::int64_t>(k)))));
        }
        check_close(run(c.name, {rounded}), expected, 2e-7);
        CHECK_THROWS_AS(run(c.name, {vector_of(DType::int32, {1})}), TypeError);
    }
    check_close(run("rsqrt", {vector_of(f64, {4, 0, inf, -1})}), {0.5, inf, 0, qnan}, 1e-15);
    check_close(run("exp10", {vector_of(f64, {-2, 3})}), {0.01, 1000}, 1e-15);
}

TEST_CASE("complex arithmetic") {
    using C = std::complex<double>;
    const Complexes z = {{1, 2}, {-3, 0.5F}, {0, -1}};
    const Complexes w = {{3, -1}, {0.25F, 4}, {2, 0}};
    const auto expected = [&](auto&& function) {
        std::vector<C> result;
        for (std::size_t k = 0; k < z.size(); ++k) result.push_back(function(C(z[k]), C(w[k])));
        return result;
    };
    const NDArray a = complex_array(z);
    const NDArray b = complex_array(w);
    check_complex(run("add", {a, b}), expected([](C x, C y) { return x + y; }));
    check_complex(run("subtract", {a, b}), expected([](C x, C y) { return x - y; }));
    check_complex(run("multiply", {a, b}), expected([](C x, C y) { return x * y; }));
    check_complex(run("divide", {a, b}), expected([](C x, C y) { return x / y; }));
    check_complex(run("negative", {a}), expected([](C x, C) { return -x; }));
    check_complex(run("square", {a}), expected([](C x, C) { return x * x; }));
    check_complex(run("reciprocal", {a}), expected([](C x, C) { return 1.0 / x; }));
    check_complex(run("exp", {a}), expected([](C x, C) { return std::exp(x); }));
    check_complex(run("log", {a}), expected([](C x, C) { return std::log(x); }));
    check_complex(run("sqrt", {a}), expected([](C x, C) { return std::sqrt(x); }));
    check_complex(run("sin", {a}), expected([](C x, C) { return std::sin(x); }));
    check_complex(run("cos", {a}), expected([](C x, C) { return std::cos(x); }));
    check_complex(run("conj", {a}), expected([](C x, C) { return std::conj(x); }));
    check_close(run("absolute", {a}), {std::sqrt(5.0), std::sqrt(9.25), 1}, 2e-7);
    CHECK(run("absolute", {a}).dtype() == f32);
    check_close(run("absolute_square", {a}), {5, 9.25, 1}, 1e-7);
    check_same(run("real", {a}), {1, -3, 0});
    check_same(run("imag", {a}), {2, 0.5, -1});
    check_complex(run("complex", {vector_of(f32, {1, 2}), vector_of(f32, {3, qnan})}), {{1, 3}, {2, qnan}});
    CHECK_THROWS_AS(run("tan", {a}), TypeError);
    CHECK_THROWS_AS(run("power", {a, b}), TypeError);
}

TEST_CASE("complex edge values: no overflow on the way") {
    const float big = 2e38F;
    const float tiny = 1e-40F;
    const float finf = static_cast<float>(inf);
    check_close(run("absolute", {complex_array({{big, big}, {tiny, tiny}, {finf, std::nanf("")}, {0, 0}})}),
                {2.8284271247461903e38, 1.4142135623730951e-40, inf, 0}, 1e-5);
    // big / big, and a divisor whose squared modulus under- or overflows.
    check_complex(run("divide", {complex_array({{big, big}, {1, 0}, {tiny, 0}, {big, big}, {1, 1}}),
                                 complex_array({{big, big}, {0, 0}, {tiny, tiny}, {1, 1}, {big, big}})}),
                  {{1, 0}, {inf, qnan}, {0.5, -0.5}, {big, 0}, {1 / big, 0}}, 1e-4);
    check_complex(run("sqrt", {complex_array({{-4, 0.0F}, {-4, -0.0F}, {0, 0}, {1, finf}, {big, big}, {tiny, -tiny}})}),
                  {{0, 2},
                   {0, -2},
                   {0, 0},
                   {inf, inf},
                   std::sqrt(std::complex<double>(big, big)),
                   std::sqrt(std::complex<double>(tiny, -tiny))});
    // exp(89) overflows, exp(89) * cos(pi/2 - 0.001) does not.
    const std::complex<float> hot(89.0F, 1.5697963F);
    check_complex(run("exp", {complex_array({hot, {1, 0.0F}, {-finf, finf}})}),
                  {{std::exp(89.0) * std::cos(double(1.5697963F)), inf}, {std::exp(1.0), 0}, {0, 0}}, 1e-6);
    // |z| is nearly 1: log |z| must not cancel. The reference is exact to double.
    const std::complex<float> near_one(0.8F, 0.6000001F);
    const double excess = double(near_one.real()) * near_one.real() + double(near_one.imag()) * near_one.imag() - 1.0;
    const auto value = exact_values<std::complex<float>>(run("log", {complex_array({near_one})}))[0];
    CHECK(std::abs(value.real() - 0.5 * std::log1p(excess)) <= 3e-8);
    check_complex(run("log", {complex_array({{0, 0}, {-1, -0.0F}, {big, big}, {finf, 1}})}),
                  {{-inf, 0}, {0, -3.141592653589793}, std::log(std::complex<double>(big, big)), {inf, 0}});
}

TEST_CASE("where and clamp") {
    const NDArray p = array(DType::boolean, {2, 1}, {1, 0});
    const NDArray chosen = run("where", {p, array(f32, {3}, {1, qnan, 3}), array(f32, {}, {9})});
    CHECK(chosen.shape() == Sizes{2, 3});
    check_same(chosen, {1, qnan, 3, 9, 9, 9});
    check_complex(run("where", {vector_of(DType::boolean, {1, 0}), complex_array({{1, 2}, {3, 4}}),
                                complex_array({{5, 6}, {7, 8}})}),
                  {{1, 2}, {7, 8}});
    check_same(run("where", {vector_of(DType::boolean, {1, 0}), vector_of(DType::boolean, {1, 1}),
                             vector_of(DType::boolean, {0, 0})}),
               {1, 0});
    CHECK(message_of<TypeError>([&] { run("where", {vector_of(f32, {1}), p, p}); }) ==
          "[where] input `predicate` has dtype float32, but bool is needed; compare it, for example with not_equal(x, "
          "0), "
          "or use cast to convert it to bool");
    CHECK_THROWS_AS(run("where", {p, vector_of(f32, {1}), vector_of(f64, {1})}), TypeError);

    const NDArray x = vector_of(f32, {-5, 0.5, 7, qnan, -0.0});
    check_same(run("clamp", {x, array(f32, {}, {-1}), array(f32, {}, {2})}), {-1, 0.5, 2, qnan, -0.0});
    check_same(run("clamp", {x, array(f32, {}, {3}), array(f32, {}, {1})}), {1, 1, 1, qnan, 1});
    check_same(run("clamp", {vector_of(DType::int8, {-128, 127}), vector_of(DType::int8, {-3, -3}),
                             vector_of(DType::int8, {4, 4})}),
               {-3, 4});
    check_same(run("fma", {array(f32, {}, {1 + 0x1p-12}), array(f32, {}, {1 - 0x1p-12}), array(f32, {}, {-1})}),
               {-0x1p-24});
}

TEST_CASE("shapes: unknown dims and ranks, broadcasting, errors") {
    const TensorType unknown{f32, Shape({Dim::unknown(), 3})};
    const TensorType unranked{f32, Shape::unranked()};
    const TensorType row{f32, Shape({1, 3})};
    CHECK(infer("exp", {unknown}).shape.str() == "(?, 3)");
    CHECK_FALSE(infer("exp", {unranked}).shape.has_rank());
    CHECK(infer("add", {unknown, row}).shape.str() == "(?, 3)");
    CHECK_FALSE(infer("add", {unknown, unranked}).shape.has_rank());
    CHECK(infer("less", {unknown, {f32, Shape({4, 1})}}).str() == "bool(4, 3)");
    const Dim batch = Dim::symbol("batch");
    CHECK(infer("multiply", {{f32, Shape({batch, 1})}, {f32, Shape({batch, 5})}}).shape.str() == "(batch, 5)");
    CHECK(infer("where", {{DType::boolean, Shape({batch, 1})}, {f32, Shape({5})}, {f32, Shape()}}).shape.str() ==
          "(batch, 5)");
    CHECK(infer("absolute", {{DType::complex64, Shape({2})}}).str() == "float32(2,)");
    const std::string shapes = message_of([] { infer("add", {{f32, Shape({2, 3})}, {f32, Shape({4})}}); });
    CHECK(contains(shapes, "[add] the shapes (2, 3) and (4,) do not broadcast together"));
    CHECK(message_of<TypeError>([] { infer("add", {{f32, Shape()}, {f16, Shape()}}); }) ==
          "[add] input `a` has dtype float32, but input `b` has float16; the dtypes must be equal, so use cast to "
          "convert "
          "one of them");
    CHECK(message_of<TypeError>([] { infer("sqrt", {{DType::int64, Shape()}}); }) ==
          "[sqrt] input `x` has dtype int64, but floating-point or complex64 is needed; use cast to convert it, for "
          "example "
          "to float32");
    CHECK(
        message_of<TypeError>([] { infer("floor", {{DType::complex64, Shape()}}); }) ==
        "[floor] input `x` has dtype complex64, but integer or floating-point is needed; use real, imag or absolute to "
        "get a real tensor");
    // Sizes of 0.
    CHECK(run("add", {array(f32, {0, 3}, {}), array(f32, {1}, {1})}).shape() == Sizes{0, 3});
}

TEST_CASE("every operation states its doc, arguments, results and body") {
    std::size_t count = 0;
    for (const OpDef& def : all_ops()) {
        INFO(def.name);
        CHECK(def.doc.size() > 5);
        CHECK(def.doc.back() == '.');
        CHECK_FALSE(def.family.empty());
        CHECK(static_cast<bool>(def.infer));
        if (std::holds_alternative<NotDifferentiable>(def.gradient)) {
            CHECK_FALSE(std::get<NotDifferentiable>(def.gradient).reason.empty());
        }
        ++count;
    }
    CHECK(count > 90);
}
