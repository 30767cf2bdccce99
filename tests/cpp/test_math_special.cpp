// Special values of the math functions, bit for bit, as Annex F of the C standard has them; exact results; and the
// arguments of sin, cos and tan that are hardest to reduce (expected values from mpmath with 2400 bits).
#include <doctest/doctest.h>

#include <array>
#include <string>
#include <vector>

#include "loopir/interpret.h"
#include "test_math_support.h"

using namespace topstitch;
using namespace topstitch::testing;
using loopir::ScalarOp;

namespace {

constexpr double inf = std::numeric_limits<double>::infinity();
constexpr double quiet_nan = std::numeric_limits<double>::quiet_NaN();

template <typename T>
T evaluate(ScalarOp op, T x, T y, bool fma) {
    constexpr DType type = std::is_same_v<T, float> ? DType::float32 : DType::float64;
    T result = T(-12345);
    std::vector<void*> buffers = {&x};
    if (loopir::info(op).arity == 2) buffers.push_back(&y);
    buffers.push_back(&result);
    loopir::interpret(loopir::expand_math(elementwise(op, type, 1), {fma}), buffers, {});
    return result;
}

template <typename T>
bool same(T a, T b) {
    return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
}

struct Row {
    ScalarOp op;
    double x;
    double expected;
};

struct Row2 {
    ScalarOp op;
    double x;
    double y;
    double expected;
};

template <typename T>
void check(ScalarOp op, double x, double y, double expected) {
    for (const bool fma : {true, false}) {
        const T result = evaluate<T>(op, static_cast<T>(x), static_cast<T>(y), fma);
        INFO(std::string(loopir::info(op).name), "(", x, ", ", y, ") gives ", result, ", not ", expected,
             std::string(fma ? "" : " without FMA"));
        CHECK(same(result, static_cast<T>(expected)));
    }
}

constexpr double pi = 3.14159265358979323846;

const std::vector<Row> rows = {
    {ScalarOp::exp, 0.0, 1},
    {ScalarOp::exp, -0.0, 1},
    {ScalarOp::exp, inf, inf},
    {ScalarOp::exp, -inf, 0},
    {ScalarOp::exp2, 10, 1024},
    {ScalarOp::exp2, -3, 0.125},
    {ScalarOp::exp2, inf, inf},
    {ScalarOp::exp2, -inf, 0},
    {ScalarOp::exp10, 0.0, 1},
    {ScalarOp::exp10, inf, inf},
    {ScalarOp::exp10, -inf, 0},
    {ScalarOp::expm1, 0.0, 0.0},
    {ScalarOp::expm1, -0.0, -0.0},
    {ScalarOp::expm1, inf, inf},
    {ScalarOp::expm1, -inf, -1},
    {ScalarOp::log, 1, 0.0},
    {ScalarOp::log, 0.0, -inf},
    {ScalarOp::log, -0.0, -inf},
    {ScalarOp::log, -1, quiet_nan},
    {ScalarOp::log, inf, inf},
    {ScalarOp::log, -inf, quiet_nan},
    {ScalarOp::log2, 1, 0.0},
    {ScalarOp::log2, 8, 3},
    {ScalarOp::log2, 0x1p-126, -126},
    {ScalarOp::log2, 0x1p-140, -140},
    {ScalarOp::log2, 0.0, -inf},
    {ScalarOp::log2, -1, quiet_nan},
    {ScalarOp::log2, inf, inf},
    {ScalarOp::log10, 1, 0.0},
    {ScalarOp::log10, 10, 1},
    {ScalarOp::log10, 1000, 3},
    {ScalarOp::log10, 0.0, -inf},
    {ScalarOp::log10, -1, quiet_nan},
    {ScalarOp::log10, inf, inf},
    {ScalarOp::log1p, 0.0, 0.0},
    {ScalarOp::log1p, -0.0, -0.0},
    {ScalarOp::log1p, -1, -inf},
    {ScalarOp::log1p, -2, quiet_nan},
    {ScalarOp::log1p, inf, inf},
    {ScalarOp::log1p, -inf, quiet_nan},
    {ScalarOp::sin, 0.0, 0.0},
    {ScalarOp::sin, -0.0, -0.0},
    {ScalarOp::sin, inf, quiet_nan},
    {ScalarOp::sin, -inf, quiet_nan},
    {ScalarOp::cos, 0.0, 1},
    {ScalarOp::cos, -0.0, 1},
    {ScalarOp::cos, inf, quiet_nan},
    {ScalarOp::tan, 0.0, 0.0},
    {ScalarOp::tan, -0.0, -0.0},
    {ScalarOp::tan, inf, quiet_nan},
    {ScalarOp::asin, 0.0, 0.0},
    {ScalarOp::asin, -0.0, -0.0},
    {ScalarOp::asin, 1, pi / 2},
    {ScalarOp::asin, -1, -pi / 2},
    {ScalarOp::asin, 1.5, quiet_nan},
    {ScalarOp::asin, -1.5, quiet_nan},
    {ScalarOp::asin, inf, quiet_nan},
    {ScalarOp::acos, 1, 0.0},
    {ScalarOp::acos, 0.0, pi / 2},
    {ScalarOp::acos, -1, pi},
    {ScalarOp::acos, 1.5, quiet_nan},
    {ScalarOp::acos, -1.5, quiet_nan},
    {ScalarOp::acos, -inf, quiet_nan},
    {ScalarOp::atan, 0.0, 0.0},
    {ScalarOp::atan, -0.0, -0.0},
    {ScalarOp::atan, 1, pi / 4},
    {ScalarOp::atan, inf, pi / 2},
    {ScalarOp::atan, -inf, -pi / 2},
    {ScalarOp::sinh, 0.0, 0.0},
    {ScalarOp::sinh, -0.0, -0.0},
    {ScalarOp::sinh, inf, inf},
    {ScalarOp::sinh, -inf, -inf},
    {ScalarOp::cosh, 0.0, 1},
    {ScalarOp::cosh, inf, inf},
    {ScalarOp::cosh, -inf, inf},
    {ScalarOp::tanh, 0.0, 0.0},
    {ScalarOp::tanh, -0.0, -0.0},
    {ScalarOp::tanh, inf, 1},
    {ScalarOp::tanh, -inf, -1},
    {ScalarOp::asinh, 0.0, 0.0},
    {ScalarOp::asinh, -0.0, -0.0},
    {ScalarOp::asinh, inf, inf},
    {ScalarOp::asinh, -inf, -inf},
    {ScalarOp::acosh, 1, 0.0},
    {ScalarOp::acosh, 0.5, quiet_nan},
    {ScalarOp::acosh, -2, quiet_nan},
    {ScalarOp::acosh, inf, inf},
    {ScalarOp::acosh, -inf, quiet_nan},
    {ScalarOp::atanh, 0.0, 0.0},
    {ScalarOp::atanh, -0.0, -0.0},
    {ScalarOp::atanh, 1, inf},
    {ScalarOp::atanh, -1, -inf},
    {ScalarOp::atanh, 2, quiet_nan},
    {ScalarOp::atanh, -inf, quiet_nan},
    {ScalarOp::erf, 0.0, 0.0},
    {ScalarOp::erf, -0.0, -0.0},
    {ScalarOp::erf, 6, 1},
    {ScalarOp::erf, -6, -1},
    {ScalarOp::erf, inf, 1},
    {ScalarOp::erf, -inf, -1},
    {ScalarOp::erfc, 0.0, 1},
    {ScalarOp::erfc, -0.0, 1},
    {ScalarOp::erfc, inf, 0.0},
    {ScalarOp::erfc, -inf, 2},
    {ScalarOp::erfc, -8, 2},
    {ScalarOp::rsqrt, 4, 0.5},
    {ScalarOp::rsqrt, 0.0, inf},
    {ScalarOp::rsqrt, -0.0, -inf},
    {ScalarOp::rsqrt, inf, 0.0},
    {ScalarOp::rsqrt, -1, quiet_nan},
    {ScalarOp::rsqrt, 0x1p-140, 0x1p70},
    {ScalarOp::cbrt, 27, 3},
    {ScalarOp::cbrt, -8, -2},
    {ScalarOp::cbrt, 0x1p-147, 0x1p-49},
    {ScalarOp::cbrt, 0.0, 0.0},
    {ScalarOp::cbrt, -0.0, -0.0},
    {ScalarOp::cbrt, inf, inf},
    {ScalarOp::cbrt, -inf, -inf},
};

const std::vector<Row2> rows2 = {
    {ScalarOp::pow, 0.0, -3, inf},
    {ScalarOp::pow, -0.0, -3, -inf},
    {ScalarOp::pow, -0.0, -2, inf},
    {ScalarOp::pow, -0.0, -2.5, inf},
    {ScalarOp::pow, 0.0, -inf, inf},
    {ScalarOp::pow, -0.0, -inf, inf},
    {ScalarOp::pow, 0.0, 3, 0.0},
    {ScalarOp::pow, -0.0, 3, -0.0},
    {ScalarOp::pow, -0.0, 2, 0.0},
    {ScalarOp::pow, -0.0, 0.5, 0.0},
    {ScalarOp::pow, -1, inf, 1},
    {ScalarOp::pow, -1, -inf, 1},
    {ScalarOp::pow, 1, quiet_nan, 1},
    {ScalarOp::pow, 1, inf, 1},
    {ScalarOp::pow, quiet_nan, 0.0, 1},
    {ScalarOp::pow, quiet_nan, -0.0, 1},
    {ScalarOp::pow, inf, 0.0, 1},
    {ScalarOp::pow, 0.0, 0.0, 1},
    {ScalarOp::pow, -2, 0.5, quiet_nan},
    {ScalarOp::pow, -2, 3, -8},
    {ScalarOp::pow, -2, 4, 16},
    {ScalarOp::pow, -2, -1, -0.5},
    {ScalarOp::pow, 0.5, -inf, inf},
    {ScalarOp::pow, -0.5, -inf, inf},
    {ScalarOp::pow, 2, -inf, 0.0},
    {ScalarOp::pow, -2, -inf, 0.0},
    {ScalarOp::pow, 0.5, inf, 0.0},
    {ScalarOp::pow, 2, inf, inf},
    {ScalarOp::pow, -inf, -3, -0.0},
    {ScalarOp::pow, -inf, -2, 0.0},
    {ScalarOp::pow, -inf, -0.5, 0.0},
    {ScalarOp::pow, -inf, 3, -inf},
    {ScalarOp::pow, -inf, 2, inf},
    {ScalarOp::pow, -inf, 0.5, inf},
    {ScalarOp::pow, inf, -1, 0.0},
    {ScalarOp::pow, inf, 0.5, inf},
    {ScalarOp::pow, quiet_nan, 1, quiet_nan},
    {ScalarOp::pow, 2, quiet_nan, quiet_nan},
    {ScalarOp::pow, 10, 2, 100},
    {ScalarOp::pow, 9, 0.5, 3},
    {ScalarOp::pow, 2, -149, 0x1p-149},
    {ScalarOp::pow, -1, 16777216, 1},
    {ScalarOp::pow, -1, 16777215, -1},
    {ScalarOp::atan2, 0.0, -0.0, pi},
    {ScalarOp::atan2, -0.0, -0.0, -pi},
    {ScalarOp::atan2, 0.0, 0.0, 0.0},
    {ScalarOp::atan2, -0.0, 0.0, -0.0},
    {ScalarOp::atan2, 0.0, -1, pi},
    {ScalarOp::atan2, -0.0, -1, -pi},
    {ScalarOp::atan2, 0.0, 1, 0.0},
    {ScalarOp::atan2, -0.0, 1, -0.0},
    {ScalarOp::atan2, 1, 0.0, pi / 2},
    {ScalarOp::atan2, 1, -0.0, pi / 2},
    {ScalarOp::atan2, -1, 0.0, -pi / 2},
    {ScalarOp::atan2, 1, -inf, pi},
    {ScalarOp::atan2, -1, -inf, -pi},
    {ScalarOp::atan2, 1, inf, 0.0},
    {ScalarOp::atan2, -1, inf, -0.0},
    {ScalarOp::atan2, inf, 1, pi / 2},
    {ScalarOp::atan2, -inf, 1, -pi / 2},
    {ScalarOp::atan2, inf, -inf, 3 * pi / 4},
    {ScalarOp::atan2, -inf, -inf, -3 * pi / 4},
    {ScalarOp::atan2, inf, inf, pi / 4},
    {ScalarOp::atan2, -inf, inf, -pi / 4},
    {ScalarOp::atan2, quiet_nan, 1, quiet_nan},
    {ScalarOp::atan2, 1, quiet_nan, quiet_nan},
    {ScalarOp::atan2, 1, 1, pi / 4},
    {ScalarOp::atan2, 1, -1, 3 * pi / 4},
};

}  // namespace

TEST_CASE("special values of one argument are exact") {
    for (const Row& row : rows) {
        check<float>(row.op, row.x, 0, row.expected);
        check<double>(row.op, row.x, 0, row.expected);
    }
}

TEST_CASE("special values of two arguments are exact") {
    for (const Row2& row : rows2) {
        check<float>(row.op, row.x, row.y, row.expected);
        check<double>(row.op, row.x, row.y, row.expected);
    }
}

TEST_CASE("NaN gives NaN") {
    for (const MathFunction& function : math_functions()) {
        check<float>(function.op, quiet_nan, 2, quiet_nan);
        check<double>(function.op, quiet_nan, 2, quiet_nan);
    }
}

TEST_CASE("sin, cos and tan reduce the hardest arguments") {
    struct Hard {
        double x;
        double sin;
        double cos;
        double tan;
    };
    const std::vector<Hard> doubles = {
        {6381956970095103 * 0x1p797, 1, -4.687165924254628e-19,
         -2.133485385753704e+18},  // nearest to a multiple of pi/2
        {1e22, -0.8522008497671888, 0.523214785395139, -1.6287782256068988},
        {1.7976931348623157e308, 0.004961954789184062, -0.9999876894265599, -0.004962015874444895},
    };
    const std::vector<Hard> singles = {
        {0x1.f37c8ap+95, 1, -1.6147697982476211e-09, -619283318.9506139},  // nearest to a multiple of pi/2
        {0x1.f37c8ap+96, -3.2295395964952422e-09, -1, 3.2295395964952422e-09},
        {0x1.47d0fep+34, 1, -2.0126460319185528e-09, -496858356.681205},
        {0x1.fffffep+127, -0.5218765233336585, 0.8530210398303042, -0.6117979498342481},
    };
    for (const bool fma : {true, false}) {
        for (const Hard& hard : doubles) {
            CAPTURE(hard.x);
            CHECK(ulp_error(evaluate<double>(ScalarOp::sin, hard.x, 0, fma), static_cast<long double>(hard.sin)) <= 2);
            CHECK(ulp_error(evaluate<double>(ScalarOp::cos, hard.x, 0, fma), static_cast<long double>(hard.cos)) <= 2);
            CHECK(ulp_error(evaluate<double>(ScalarOp::tan, hard.x, 0, fma), static_cast<long double>(hard.tan)) <= 3);
        }
        for (const Hard& hard : singles) {
            CAPTURE(hard.x);
            const auto x = static_cast<float>(hard.x);
            CHECK(ulp_error(evaluate<float>(ScalarOp::sin, x, 0, fma), hard.sin) <= 1.5);
            CHECK(ulp_error(evaluate<float>(ScalarOp::cos, x, 0, fma), hard.cos) <= 1.5);
            CHECK(ulp_error(evaluate<float>(ScalarOp::tan, x, 0, fma), hard.tan) <= 1.5);
        }
    }
}
