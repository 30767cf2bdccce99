// Every scalar instruction on every type that it takes, against plain C++ on wider types and hand values.
// 8-bit integers are tried exhaustively, the wider ones at their edges.
#include <doctest/doctest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "loopir/builder.h"
#include "loopir/evaluate.h"
#include "loopir/scalar_op.h"
#include "topstitch/error.h"

using namespace topstitch;
using namespace topstitch::loopir;

namespace {

template <typename T>
constexpr DType dtype_of() {
    if constexpr (std::is_same_v<T, bool>) return DType::boolean;
    if constexpr (std::is_same_v<T, std::int8_t>) return DType::int8;
    if constexpr (std::is_same_v<T, std::int16_t>) return DType::int16;
    if constexpr (std::is_same_v<T, std::int32_t>) return DType::int32;
    if constexpr (std::is_same_v<T, std::int64_t>) return DType::int64;
    if constexpr (std::is_same_v<T, std::uint8_t>) return DType::uint8;
    if constexpr (std::is_same_v<T, std::uint16_t>) return DType::uint16;
    if constexpr (std::is_same_v<T, std::uint32_t>) return DType::uint32;
    if constexpr (std::is_same_v<T, std::uint64_t>) return DType::uint64;
    if constexpr (std::is_same_v<T, float>) return DType::float32;
    return DType::float64;
}

template <typename Result, typename T>
Result run(ScalarOp op, T a, T b = T{}, T c = T{}) {
    Instr instr;
    instr.op = op;
    instr.type = dtype_of<Result>();
    return evaluate_scalar(instr, dtype_of<T>(), {Scalar::of(a), Scalar::of(b), Scalar::of(c)}).template as<Result>();
}

template <typename To, typename From>
To convert(ScalarOp op, From value, DType memory = DType::float32) {
    Instr instr;
    instr.op = op;
    instr.type = dtype_of<To>();
    instr.memory = memory;
    return evaluate_scalar(instr, dtype_of<From>(), {Scalar::of(value), Scalar{}, Scalar{}}).template as<To>();
}

template <typename To, typename From>
To cast(From value) {
    return convert<To>(ScalarOp::cast, value);
}

__extension__ typedef __int128 Wide;
__extension__ typedef unsigned __int128 UnsignedWide;

// The value of the low bits of `exact` in T.
template <typename T>
T wrapped(Wide exact) {
    const Wide modulus = Wide{1} << (8 * sizeof(T));
    Wide low = ((exact % modulus) + modulus) % modulus;
    if (std::is_signed_v<T> && low >= modulus / 2) low -= modulus;
    return static_cast<T>(low);
}

template <typename T>
int ones_of(T value) {
    int ones = 0;
    for (std::size_t k = 0; k < 8 * sizeof(T); ++k) {
        // The k-th binary digit, by division.
        Wide rest =
            static_cast<Wide>(value) < 0 ? static_cast<Wide>(value) + (Wide{1} << (8 * sizeof(T))) : Wide(value);
        for (std::size_t j = 0; j < k; ++j) rest /= 2;
        ones += static_cast<int>(rest % 2);
    }
    return ones;
}

Wide power_of_two(int exponent) {
    return Wide{1} << exponent;
}

Wide floor_quotient(Wide a, Wide b) {
    return a >= 0 ? a / b : -((-a + b - 1) / b);
}

template <typename T>
void check_integers(T a, T b) {
    const Wide x = a;
    const Wide y = b;
    const int bits = 8 * sizeof(T);
    CAPTURE(name_of(dtype_of<T>()));
    CAPTURE(static_cast<std::int64_t>(a));
    CAPTURE(static_cast<std::int64_t>(b));
    REQUIRE(run<T>(ScalarOp::add, a, b) == wrapped<T>(x + y));
    REQUIRE(run<T>(ScalarOp::sub, a, b) == wrapped<T>(x - y));
    REQUIRE(run<T>(ScalarOp::mul, a, b) == static_cast<T>(static_cast<UnsignedWide>(x) * static_cast<UnsignedWide>(y)));
    REQUIRE(run<T>(ScalarOp::div, a, b) == (y == 0 ? T{0} : wrapped<T>(x / y)));
    REQUIRE(run<T>(ScalarOp::rem, a, b) == (y == 0 ? T{0} : wrapped<T>(x % y)));
    REQUIRE(run<T>(ScalarOp::neg, a) == wrapped<T>(-x));
    REQUIRE(run<T>(ScalarOp::abs, a) == wrapped<T>(x < 0 ? -x : x));
    for (ScalarOp op : {ScalarOp::min, ScalarOp::fmin}) REQUIRE(run<T>(op, a, b) == wrapped<T>(x < y ? x : y));
    for (ScalarOp op : {ScalarOp::max, ScalarOp::fmax}) REQUIRE(run<T>(op, a, b) == wrapped<T>(x < y ? y : x));
    REQUIRE(run<T>(ScalarOp::bit_not, a) == wrapped<T>(-x - 1));
    // a + b = (a xor b) + 2 (a and b) = (a or b) + (a and b); a and b has no digit that a has not.
    const Wide both = run<T>(ScalarOp::bit_and, a, b);
    const Wide any = run<T>(ScalarOp::bit_or, a, b);
    const Wide one = run<T>(ScalarOp::bit_xor, a, b);
    REQUIRE(both == static_cast<Wide>(static_cast<T>(a & b)));
    REQUIRE(any + both == x + y);
    REQUIRE(one + 2 * both == x + y);
    REQUIRE(run<T>(ScalarOp::popcount, a) == ones_of(a));

    const bool outside = y < 0 || y >= bits;
    const Wide shifted_left = outside ? 0 : x * power_of_two(static_cast<int>(y));
    const Wide shifted_right = outside ? (x < 0 ? -1 : 0) : floor_quotient(x, power_of_two(static_cast<int>(y)));
    REQUIRE(run<T>(ScalarOp::shl, a, b) == wrapped<T>(shifted_left));
    REQUIRE(run<T>(ScalarOp::shr, a, b) == wrapped<T>(shifted_right));

    REQUIRE(run<bool>(ScalarOp::eq, a, b) == (x == y));
    REQUIRE(run<bool>(ScalarOp::ne, a, b) == (x != y));
    REQUIRE(run<bool>(ScalarOp::lt, a, b) == (x < y));
    REQUIRE(run<bool>(ScalarOp::le, a, b) == (x <= y));
}

template <typename T>
std::vector<T> edges() {
    using Limits = std::numeric_limits<T>;
    std::vector<T> values;
    for (int k = 0; k < 4; ++k) {
        values.push_back(static_cast<T>(Limits::min() + k));
        values.push_back(static_cast<T>(Limits::max() - k));
        values.push_back(static_cast<T>(k));
        values.push_back(static_cast<T>(-k));  // of an unsigned type: near the highest
        values.push_back(static_cast<T>(8 * sizeof(T) - 2 + static_cast<std::size_t>(k)));  // shift counts
        values.push_back(static_cast<T>(Limits::max() / 2 + k));
    }
    values.push_back(static_cast<T>(0x5a5a5a5a5a5a5a5aULL));
    values.push_back(static_cast<T>(0xc3a51e7796b4d2f0ULL));
    return values;
}

template <typename T>
void check_edges() {
    for (T a : edges<T>()) {
        for (T b : edges<T>()) check_integers(a, b);
    }
}

template <typename T>
bool same_float(T a, T b) {
    if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
    return a == b && std::signbit(a) == std::signbit(b);
}

template <typename T>
constexpr T inf = std::numeric_limits<T>::infinity();
template <typename T>
constexpr T nan_of = std::numeric_limits<T>::quiet_NaN();
template <typename T>
constexpr T tiny = std::numeric_limits<T>::denorm_min();

}  // namespace

TEST_CASE("scalar: 8-bit integers, all pairs") {
    for (int a = -128; a < 128; ++a) {
        for (int b = -128; b < 128; ++b) {
            check_integers(static_cast<std::int8_t>(a), static_cast<std::int8_t>(b));
            check_integers(static_cast<std::uint8_t>(a + 128), static_cast<std::uint8_t>(b + 128));
        }
    }
}

TEST_CASE("scalar: wider integers at their edges") {
    check_edges<std::int16_t>();
    check_edges<std::int32_t>();
    check_edges<std::int64_t>();
    check_edges<std::uint16_t>();
    check_edges<std::uint32_t>();
    check_edges<std::uint64_t>();
}

TEST_CASE("scalar: the decided cases of integer division") {
    CHECK(run<std::int32_t>(ScalarOp::div, 7, 0) == 0);
    CHECK(run<std::int32_t>(ScalarOp::rem, 7, 0) == 0);
    CHECK(run<std::int32_t>(ScalarOp::div, -7, 2) == -3);
    CHECK(run<std::int32_t>(ScalarOp::rem, -7, 2) == -1);
    const auto lowest = std::numeric_limits<std::int64_t>::min();
    CHECK(run<std::int64_t>(ScalarOp::div, lowest, std::int64_t{-1}) == lowest);
    CHECK(run<std::int64_t>(ScalarOp::rem, lowest, std::int64_t{-1}) == 0);
}

TEST_CASE("scalar: bool") {
    for (bool a : {false, true}) {
        CHECK(run<bool>(ScalarOp::bit_not, a) == !a);
        for (bool b : {false, true}) {
            CHECK(run<bool>(ScalarOp::bit_and, a, b) == (a && b));
            CHECK(run<bool>(ScalarOp::bit_or, a, b) == (a || b));
            CHECK(run<bool>(ScalarOp::bit_xor, a, b) == (a != b));
            CHECK(run<bool>(ScalarOp::eq, a, b) == (a == b));
            CHECK(run<bool>(ScalarOp::ne, a, b) == (a != b));
            CHECK(run<bool>(ScalarOp::lt, a, b) == (!a && b));
            CHECK(run<bool>(ScalarOp::le, a, b) == (!a || b));
            CHECK(run<bool>(ScalarOp::select, true, a, b) == a);
            CHECK(run<bool>(ScalarOp::select, false, a, b) == b);
        }
    }
}

TEST_CASE_TEMPLATE("scalar: float arithmetic", T, float, double) {
    const T zero = 0;
    // Exact in both types.
    CHECK(run<T>(ScalarOp::add, T(1.5), T(2.25)) == T(3.75));
    CHECK(run<T>(ScalarOp::sub, T(1.5), T(2.25)) == T(-0.75));
    CHECK(run<T>(ScalarOp::mul, T(1.5), T(2.25)) == T(3.375));
    CHECK(run<T>(ScalarOp::div, T(3.375), T(1.5)) == T(2.25));
    CHECK(run<T>(ScalarOp::rem, T(7.5), T(2)) == T(1.5));
    CHECK(run<T>(ScalarOp::rem, T(-7.5), T(2)) == T(-1.5));
    CHECK(run<T>(ScalarOp::rem, T(7.5), T(-2)) == T(1.5));
    CHECK(std::isnan(run<T>(ScalarOp::rem, T(7.5), zero)));
    CHECK(run<T>(ScalarOp::div, T(1), zero) == inf<T>);
    CHECK(run<T>(ScalarOp::div, T(1), -zero) == -inf<T>);
    CHECK(std::isnan(run<T>(ScalarOp::div, zero, zero)));
    CHECK(same_float(run<T>(ScalarOp::add, -zero, -zero), -zero));
    CHECK(same_float(run<T>(ScalarOp::add, -zero, zero), zero));
    CHECK(same_float(run<T>(ScalarOp::neg, zero), -zero));
    CHECK(same_float(run<T>(ScalarOp::abs, -zero), zero));
    CHECK(run<T>(ScalarOp::abs, -inf<T>) == inf<T>);
    // Subnormals are kept.
    CHECK(run<T>(ScalarOp::mul, tiny<T>, T(3)) == 3 * tiny<T>);
    CHECK(run<T>(ScalarOp::div, std::numeric_limits<T>::min(), T(2)) > 0);
    // (1 + u)^2 - (1 + 2u) = u^2 with one rounding, and 0 with two.
    const T u = std::numeric_limits<T>::epsilon();
    CHECK(run<T>(ScalarOp::fma, T(1) + u, T(1) + u, -(T(1) + 2 * u)) == u * u);
    CHECK(same_float(run<T>(ScalarOp::copysign, T(3), -zero), T(-3)));
    CHECK(run<T>(ScalarOp::copysign, T(-3), T(1)) == T(3));
    CHECK(run<T>(ScalarOp::sqrt, T(6.25)) == T(2.5));
    CHECK(std::isnan(run<T>(ScalarOp::sqrt, T(-1))));
    CHECK(same_float(run<T>(ScalarOp::sqrt, -zero), -zero));
}

TEST_CASE_TEMPLATE("scalar: minimum and maximum", T, float, double) {
    const T zero = 0;
    for (ScalarOp op : {ScalarOp::min, ScalarOp::fmin}) {
        CHECK(run<T>(op, T(1), T(2)) == T(1));
        CHECK(run<T>(op, T(2), T(1)) == T(1));
        CHECK(run<T>(op, T(2), -inf<T>) == -inf<T>);
        CHECK(same_float(run<T>(op, zero, -zero), -zero));
        CHECK(same_float(run<T>(op, -zero, zero), -zero));
    }
    for (ScalarOp op : {ScalarOp::max, ScalarOp::fmax}) {
        CHECK(run<T>(op, T(1), T(2)) == T(2));
        CHECK(run<T>(op, T(2), T(1)) == T(2));
        CHECK(run<T>(op, T(2), inf<T>) == inf<T>);
        CHECK(same_float(run<T>(op, zero, -zero), zero));
        CHECK(same_float(run<T>(op, -zero, zero), zero));
    }
    for (ScalarOp op : {ScalarOp::min, ScalarOp::max}) {
        CHECK(std::isnan(run<T>(op, T(1), nan_of<T>)));
        CHECK(std::isnan(run<T>(op, nan_of<T>, T(1))));
    }
    for (ScalarOp op : {ScalarOp::fmin, ScalarOp::fmax}) {
        CHECK(run<T>(op, T(1), nan_of<T>) == T(1));
        CHECK(run<T>(op, nan_of<T>, T(1)) == T(1));
        CHECK(std::isnan(run<T>(op, nan_of<T>, nan_of<T>)));
    }
}

TEST_CASE_TEMPLATE("scalar: rounding", T, float, double) {
    struct Row {
        double x, floor, ceil, trunc, even;
    };
    for (const Row& row :
         {Row{2.5, 2, 3, 2, 2}, Row{3.5, 3, 4, 3, 4}, Row{-2.5, -3, -2, -2, -2}, Row{-3.5, -4, -3, -3, -4},
          Row{0.5, 0, 1, 0, 0}, Row{-0.5, -1, -0.0, -0.0, -0.0}, Row{1.25, 1, 2, 1, 1}, Row{-1.75, -2, -1, -1, -2},
          Row{7, 7, 7, 7, 7}, Row{-0.0, -0.0, -0.0, -0.0, -0.0}, Row{8388609, 8388609, 8388609, 8388609, 8388609}}) {
        CAPTURE(row.x);
        CHECK(same_float(run<T>(ScalarOp::floor, T(row.x)), T(row.floor)));
        CHECK(same_float(run<T>(ScalarOp::ceil, T(row.x)), T(row.ceil)));
        CHECK(same_float(run<T>(ScalarOp::trunc, T(row.x)), T(row.trunc)));
        CHECK(same_float(run<T>(ScalarOp::round_even, T(row.x)), T(row.even)));
    }
    for (ScalarOp op : {ScalarOp::floor, ScalarOp::ceil, ScalarOp::trunc, ScalarOp::round_even}) {
        CHECK(run<T>(op, inf<T>) == inf<T>);
        CHECK(std::isnan(run<T>(op, nan_of<T>)));
    }
}

TEST_CASE_TEMPLATE("scalar: comparisons of floats", T, float, double) {
    const std::vector<T> ordered = {-inf<T>, -1, -tiny<T>, 0, tiny<T>, 1, inf<T>};
    for (std::size_t i = 0; i < ordered.size(); ++i) {
        for (std::size_t j = 0; j < ordered.size(); ++j) {
            CHECK(run<bool>(ScalarOp::eq, ordered[i], ordered[j]) == (i == j));
            CHECK(run<bool>(ScalarOp::ne, ordered[i], ordered[j]) == (i != j));
            CHECK(run<bool>(ScalarOp::lt, ordered[i], ordered[j]) == (i < j));
            CHECK(run<bool>(ScalarOp::le, ordered[i], ordered[j]) == (i <= j));
        }
        for (ScalarOp op : {ScalarOp::eq, ScalarOp::lt, ScalarOp::le}) {
            CHECK_FALSE(run<bool>(op, ordered[i], nan_of<T>));
            CHECK_FALSE(run<bool>(op, nan_of<T>, ordered[i]));
        }
        CHECK(run<bool>(ScalarOp::ne, ordered[i], nan_of<T>));
    }
    CHECK(run<bool>(ScalarOp::ne, nan_of<T>, nan_of<T>));
    CHECK_FALSE(run<bool>(ScalarOp::eq, nan_of<T>, nan_of<T>));
    CHECK(run<bool>(ScalarOp::eq, T(0), -T(0)));
}

TEST_CASE("scalar: math functions, float32 within half an ULP of double") {
    struct Row {
        ScalarOp op;
        double x, y, expected;
    };
    // Values from tables, to 17 digits.
    for (const Row& row : {Row{ScalarOp::exp, 1, 0, 2.7182818284590452},
                           Row{ScalarOp::exp2, 0.5, 0, 1.4142135623730950},
                           Row{ScalarOp::exp10, -3, 0, 1e-3},
                           Row{ScalarOp::expm1, 1e-9, 0, 1.0000000005e-9},
                           Row{ScalarOp::log, 10, 0, 2.3025850929940457},
                           Row{ScalarOp::log2, 10, 0, 3.3219280948873623},
                           Row{ScalarOp::log10, 2, 0, 0.30102999566398120},
                           Row{ScalarOp::log1p, 1, 0, 0.69314718055994531},
                           Row{ScalarOp::sin, 1, 0, 0.84147098480789651},
                           Row{ScalarOp::cos, 1, 0, 0.54030230586813972},
                           Row{ScalarOp::tan, 1, 0, 1.5574077246549022},
                           Row{ScalarOp::asin, 0.5, 0, 0.52359877559829887},
                           Row{ScalarOp::acos, 0.5, 0, 1.0471975511965977},
                           Row{ScalarOp::atan, 1, 0, 0.78539816339744831},
                           Row{ScalarOp::sinh, 1, 0, 1.1752011936438015},
                           Row{ScalarOp::cosh, 1, 0, 1.5430806348152438},
                           Row{ScalarOp::tanh, 1, 0, 0.76159415595576489},
                           Row{ScalarOp::asinh, 1, 0, 0.88137358701954303},
                           Row{ScalarOp::acosh, 2, 0, 1.3169578969248167},
                           Row{ScalarOp::atanh, 0.5, 0, 0.54930614433405485},
                           Row{ScalarOp::erf, 1, 0, 0.84270079294971487},
                           Row{ScalarOp::erfc, 1, 0, 0.15729920705028513},
                           Row{ScalarOp::rsqrt, 2, 0, 0.70710678118654752},
                           Row{ScalarOp::cbrt, 2, 0, 1.2599210498948732},
                           Row{ScalarOp::pow, 2, 0.5, 1.4142135623730950},
                           Row{ScalarOp::atan2, 1, -1, 2.3561944901923449}}) {
        CAPTURE(info(row.op).name);
        CHECK(info(row.op).is_math);
        CHECK(run<double>(row.op, row.x, row.y) == doctest::Approx(row.expected).epsilon(1e-15));
        const auto x = static_cast<float>(row.x);
        if (static_cast<double>(x) == row.x) {
            CHECK(run<float>(row.op, x, static_cast<float>(row.y)) == static_cast<float>(row.expected));
        }
    }
    CHECK(run<float>(ScalarOp::rsqrt, 0.0f) == inf<float>);
    CHECK(run<float>(ScalarOp::rsqrt, inf<float>) == 0.0f);
    CHECK(std::isnan(run<float>(ScalarOp::log, -1.0f)));
    CHECK(run<float>(ScalarOp::exp, 100.0f) == inf<float>);
}

TEST_CASE("scalar: casts between integers wrap") {
    CHECK(cast<std::int8_t>(std::int32_t{300}) == 44);
    CHECK(cast<std::int8_t>(std::int32_t{200}) == -56);
    CHECK(cast<std::uint8_t>(std::int32_t{-1}) == 255);
    CHECK(cast<std::int64_t>(std::int8_t{-1}) == -1);
    CHECK(cast<std::uint64_t>(std::int8_t{-1}) == 0xffffffffffffffffULL);
    CHECK(cast<std::int64_t>(std::uint32_t{0xffffffff}) == 4294967295);
    CHECK(cast<std::int32_t>(std::uint64_t{0x180000000}) == std::numeric_limits<std::int32_t>::min());
    CHECK(cast<std::int16_t>(true) == 1);
    CHECK(cast<bool>(std::int32_t{256}));
    CHECK_FALSE(cast<bool>(std::int32_t{0}));
}

template <typename To>
void check_saturation() {
    CAPTURE(name_of(dtype_of<To>()));
    using Limits = std::numeric_limits<To>;
    const double past = std::ldexp(1.0, Limits::digits);  // the first number too high
    CHECK(cast<To>(past) == Limits::max());
    CHECK(cast<To>(1e300) == Limits::max());
    CHECK(cast<To>(inf<double>) == Limits::max());
    CHECK(cast<To>(-1e300) == Limits::min());
    CHECK(cast<To>(-inf<double>) == Limits::min());
    CHECK(cast<To>(nan_of<double>) == 0);
    CHECK(cast<To>(inf<float>) == Limits::max());
    CHECK(cast<To>(nan_of<float>) == 0);
    CHECK(cast<To>(std::nextafter(past, 0.0)) ==
          (Limits::digits > 53 ? static_cast<To>(std::nextafter(past, 0.0)) : Limits::max()));
    CHECK(cast<To>(2.99) == 2);
    CHECK(cast<To>(-0.99) == 0);
    if (Limits::is_signed) {
        CHECK(cast<To>(-2.99) == static_cast<To>(-2));
        CHECK(cast<To>(-past) == Limits::min());
        CHECK(cast<To>(-past - 0.5) == Limits::min());
    } else {
        CHECK(cast<To>(-2.99) == 0);
    }
}

TEST_CASE("scalar: casts from floats truncate and saturate") {
    check_saturation<std::int8_t>();
    check_saturation<std::int16_t>();
    check_saturation<std::int32_t>();
    check_saturation<std::int64_t>();
    check_saturation<std::uint8_t>();
    check_saturation<std::uint16_t>();
    check_saturation<std::uint32_t>();
    check_saturation<std::uint64_t>();
    CHECK(cast<bool>(0.25f));
    CHECK(cast<bool>(nan_of<double>));
    CHECK_FALSE(cast<bool>(-0.0f));
}

TEST_CASE("scalar: casts to floats round to nearest even") {
    CHECK(cast<float>(std::int32_t{16777217}) == 16777216.0f);
    CHECK(cast<float>(std::int32_t{16777219}) == 16777220.0f);
    CHECK(cast<float>(std::uint64_t{0xffffffffffffffff}) == 18446744073709551616.0f);
    CHECK(cast<double>(std::int64_t{9007199254740993}) == 9007199254740992.0);
    // One rounding, not two: by way of double this would become 2^60 instead of 2^60 + 2^37.
    CHECK(cast<float>(std::int64_t{(1LL << 60) + (1LL << 36) + 1}) == 1152921642045800448.0f);
    CHECK(cast<float>(1e300) == inf<float>);
    CHECK(cast<float>(1.0 + std::ldexp(1.0, -24)) == 1.0f);
    CHECK(cast<double>(0.1f) == 0.100000001490116119384765625);
    CHECK(cast<float>(true) == 1.0f);
    CHECK(same_float(cast<float>(-0.0), -0.0f));
}

TEST_CASE("scalar: sums of the products of pairs") {
    const auto dot = [](std::uint32_t a, std::uint32_t b, DType memory) {
        Instr instr;
        instr.op = ScalarOp::dot_pairs;
        instr.memory = memory;
        return evaluate_scalar(instr, DType::uint32, {Scalar::of(a), Scalar::of(b), Scalar{}});
    };
    // 3 * -2 + -1 * 5, and the one sum that wraps: twice (-32768)^2.
    CHECK(dot(0xffff0003, 0x0005fffe, DType::int16).as<std::int32_t>() == -11);
    CHECK(dot(0x80008000, 0x80008000, DType::int16).as<std::int32_t>() == std::numeric_limits<std::int32_t>::min());
    // 1 * -2 + 1.5 * 4, and infinity times 1.
    CHECK(dot(0x3fc03f80, 0x4080c000, DType::bfloat16).as<float>() == 4.0f);
    CHECK(dot(0x00007f80, 0x3f803f80, DType::bfloat16).as<float>() == inf<float>);
}

TEST_CASE("scalar: 16-bit floats and bit patterns") {
    // 65504 is the highest float16; 65520 is half way to the next, which does not exist.
    CHECK(convert<float>(ScalarOp::round_to, 65519.0f, DType::float16) == 65504.0f);
    CHECK(convert<float>(ScalarOp::round_to, 65520.0f, DType::float16) == inf<float>);
    CHECK(convert<float>(ScalarOp::round_to, 1.0f + 0x1p-11f, DType::float16) == 1.0f);
    CHECK(convert<float>(ScalarOp::round_to, 1.0f + 0x1p-9f, DType::bfloat16) == 1.0f);
    CHECK(convert<float>(ScalarOp::round_to, 1.0f + 0x1.8p-8f, DType::bfloat16) == 1.0f + 0x1p-7f);
    CHECK(std::isnan(convert<float>(ScalarOp::round_to, nan_of<float>, DType::bfloat16)));
    CHECK(convert<std::uint16_t>(ScalarOp::to_bits16, 1.0f, DType::float16) == 0x3c00);
    CHECK(convert<std::uint16_t>(ScalarOp::to_bits16, -2.0f, DType::bfloat16) == 0xc000);
    CHECK(convert<float>(ScalarOp::from_bits16, std::uint16_t{0x3c00}, DType::float16) == 1.0f);
    CHECK(convert<float>(ScalarOp::from_bits16, std::uint16_t{0x0001}, DType::float16) == 0x1p-24f);
    CHECK(convert<float>(ScalarOp::from_bits16, std::uint16_t{0xc000}, DType::bfloat16) == -2.0f);

    CHECK(convert<std::uint32_t>(ScalarOp::bitcast, 1.0f) == 0x3f800000u);
    CHECK(convert<std::int32_t>(ScalarOp::bitcast, -0.0f) == std::numeric_limits<std::int32_t>::min());
    CHECK(convert<float>(ScalarOp::bitcast, std::int32_t{0x40490fdb}) == 3.14159274f);
    CHECK(convert<std::int64_t>(ScalarOp::bitcast, -1.0) == static_cast<std::int64_t>(0xbff0000000000000ULL));
    CHECK(convert<double>(ScalarOp::bitcast, std::uint64_t{0x3fe0000000000000ULL}) == 0.5);
    CHECK(convert<std::int8_t>(ScalarOp::bitcast, std::uint8_t{0xff}) == -1);
    CHECK(convert<std::uint16_t>(ScalarOp::bitcast, std::int16_t{-2}) == 65534);
    // Also of a signaling NaN, which no arithmetic may touch.
    CHECK(convert<std::uint32_t>(ScalarOp::bitcast, std::bit_cast<float>(0x7fa00001u)) == 0x7fa00001u);
}

TEST_CASE("scalar: select takes any type") {
    Instr instr;
    instr.op = ScalarOp::select;
    for (DType type : all_dtypes()) {
        if (!is_value_type(type)) continue;
        instr.type = type;
        const Scalar a = scalar_from_int(1, type);
        const Scalar b = scalar_from_int(0, type);
        CHECK(evaluate_scalar(instr, DType::boolean, {Scalar::of(true), a, b}) == a);
        CHECK(evaluate_scalar(instr, DType::boolean, {Scalar::of(false), a, b}) == b);
    }
}

TEST_CASE("scalar: reductions") {
    const auto start = [](Combiner combiner) { return initial_scalar(combiner, DType::float32).as<float>(); };
    CHECK(start(Combiner::sum) == 0.0f);
    CHECK(start(Combiner::product) == 1.0f);
    CHECK(start(Combiner::min) == inf<float>);
    CHECK(start(Combiner::max) == -inf<float>);
    CHECK(std::isnan(start(Combiner::fmin)));
    CHECK(std::isnan(start(Combiner::fmax)));
    CHECK(initial_scalar(Combiner::max, DType::int8).as<std::int8_t>() == -128);
    CHECK(initial_scalar(Combiner::min, DType::uint16).as<std::uint16_t>() == 65535);
    CHECK(initial_scalar(Combiner::fmax, DType::int32).as<std::int32_t>() == std::numeric_limits<std::int32_t>::min());
    CHECK(initial_scalar(Combiner::logical_and, DType::boolean).as<bool>());
    CHECK_FALSE(initial_scalar(Combiner::logical_or, DType::boolean).as<bool>());

    const auto step = [](Combiner combiner, float a, float b) {
        return combine(combiner, DType::float32, Scalar::of(a), Scalar::of(b)).as<float>();
    };
    CHECK(step(Combiner::sum, 16777216.0f, 1.0f) == 16777216.0f);  // accumulates in float32
    CHECK(step(Combiner::product, 3.0f, 4.0f) == 12.0f);
    CHECK(std::isnan(step(Combiner::max, nan_of<float>, 4.0f)));
    CHECK(step(Combiner::fmax, nan_of<float>, 4.0f) == 4.0f);
    CHECK(std::isnan(step(Combiner::min, 4.0f, nan_of<float>)));
    CHECK(step(Combiner::fmin, 4.0f, nan_of<float>) == 4.0f);
    CHECK(combine(Combiner::sum, DType::int8, Scalar::of(std::int8_t{100}), Scalar::of(std::int8_t{100}))
              .as<std::int8_t>() == -56);
    CHECK_THROWS_AS(combine(Combiner::argmax, DType::float32, {}, {}), InternalError);

    const auto wins = [](Combiner combiner, float value, float best) {
        return replaces(combiner, DType::float32, Scalar::of(value), Scalar::of(best));
    };
    CHECK(wins(Combiner::argmax, 2.0f, 1.0f));
    CHECK_FALSE(wins(Combiner::argmax, 1.0f, 1.0f));
    CHECK_FALSE(wins(Combiner::argmin, 2.0f, 1.0f));
    CHECK(wins(Combiner::argmin, 1.0f, 2.0f));
    CHECK(wins(Combiner::argmin, nan_of<float>, -inf<float>));
    CHECK_FALSE(wins(Combiner::argmin, -inf<float>, nan_of<float>));
    CHECK_FALSE(wins(Combiner::argmax, nan_of<float>, nan_of<float>));
    CHECK(replaces(Combiner::argmax, DType::uint8, Scalar::of(std::uint8_t{200}), Scalar::of(std::uint8_t{100})));
}

TEST_CASE("scalar: every instruction has a row, and sources are not evaluated") {
    for (int k = 0; k <= static_cast<int>(ScalarOp::atan2); ++k) {
        const auto op = static_cast<ScalarOp>(k);
        CHECK(std::string(info(op).name) != "");
        CHECK(info(op).arity >= 0);
        CHECK(info(op).arity <= 3);
    }
    CHECK(std::string(info(ScalarOp::round_even).name) == "round_even");
    CHECK(std::string(info(ScalarOp::bit_xor).name) == "xor");
    CHECK(std::string(info(ScalarOp::from_bits16).name) == "from_bits16");
    CHECK(std::string(info(ScalarOp::exp).name) == "exp");
    CHECK(std::string(info(ScalarOp::atan2).name) == "atan2");
    CHECK_FALSE(info(ScalarOp::from_bits16).is_math);
    Instr source;
    source.op = ScalarOp::load;
    CHECK_THROWS_AS(evaluate_scalar(source, DType::float32, {}), InternalError);
}

TEST_CASE("scalar: result types") {
    CHECK(result_type(ScalarOp::add, DType::int8) == DType::int8);
    CHECK(result_type(ScalarOp::lt, DType::float64) == DType::boolean);
    CHECK(result_type(ScalarOp::select, DType::uint16) == DType::uint16);
    CHECK(result_type(ScalarOp::index_value, DType::int64) == DType::int64);
    CHECK(result_type(ScalarOp::to_bits16, DType::float32) == DType::uint16);
    CHECK(result_type(ScalarOp::from_bits16, DType::uint16) == DType::float32);
    CHECK_THROWS_AS(result_type(ScalarOp::cast, DType::int8), InternalError);
}
