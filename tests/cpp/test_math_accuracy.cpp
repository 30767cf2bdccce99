// Every expansion, run by the interpreter, against the C++ library in a wider type: float32 within 2 ULP, float64
// within 4. The inputs cover every exponent; bench/accuracy.cpp measures far more of them, see docs/accuracy.md.
#include <doctest/doctest.h>

#include <array>
#include <bit>
#include <cstdint>
#include <random>
#include <string>
#include <type_traits>

#include "loopir/interpret.h"
#include "test_math_support.h"

using namespace topstitch;
using namespace topstitch::testing;
using loopir::ScalarOp;

namespace {

template <typename T>
using BitsOf = std::conditional_t<std::is_same_v<T, float>, std::uint32_t, std::uint64_t>;

template <typename T>
struct Inputs {
    std::vector<T> x;
    std::vector<T> y;

    void add(T first, T second) {
        x.push_back(first);
        y.push_back(second);
    }
};

template <typename T>
std::vector<T> special_values() {
    using Limits = std::numeric_limits<T>;
    std::vector<T> values = {0,   1,   2,   3,   8,   T(0.5), T(0.25), T(1) / 3, 10,
                             100, 127, 128, 149, 150, 1023,   1024,    1074,     1075};
    for (const T value :
         {Limits::infinity(), Limits::max(), Limits::min(), Limits::denorm_min(), T(3) * Limits::denorm_min(),
          T(1) / Limits::epsilon(), T(2) / Limits::epsilon(), T(1) / Limits::epsilon() - 1}) {
        values.push_back(value);
    }
    for (const T value : {T(1), T(0.5), Limits::min()}) {
        values.push_back(std::nextafter(value, T(0)));
        values.push_back(std::nextafter(value, T(2)));
    }
    for (std::size_t i = 0, count = values.size(); i < count; ++i) values.push_back(-values[i]);
    values.push_back(Limits::quiet_NaN());
    return values;
}

// Specials, then for each exponent the smallest, the largest and some random mantissas, of both signs.
template <typename T>
Inputs<T> unary_inputs() {
    Inputs<T> inputs;
    for (const T x : special_values<T>()) inputs.add(x, 0);
    std::mt19937_64 random(1);
    constexpr int fraction_bits = std::numeric_limits<T>::digits - 1;
    constexpr int exponents = std::is_same_v<T, float> ? 255 : 2047;
    constexpr int per_exponent = std::is_same_v<T, float> ? 8 : 1;
    constexpr auto fraction_mask = (BitsOf<T>{1} << fraction_bits) - 1;
    for (int exponent = 0; exponent < exponents; ++exponent) {
        const auto base = static_cast<BitsOf<T>>(exponent) << fraction_bits;
        inputs.add(std::bit_cast<T>(base), 0);
        inputs.add(std::bit_cast<T>(base | fraction_mask), 0);
        for (int i = 0; i < per_exponent; ++i) {
            const T value = std::bit_cast<T>(base | (static_cast<BitsOf<T>>(random()) & fraction_mask));
            inputs.add(value, 0);
            inputs.add(-value, 0);
        }
    }
    // Where the functions bend.
    for (const double reach : {1.0, 4.0, 30.0, 800.0}) {
        std::uniform_real_distribution<double> uniform(-reach, reach);
        for (int i = 0; i < 500; ++i) inputs.add(static_cast<T>(uniform(random)), 0);
    }
    return inputs;
}

template <typename T>
Inputs<T> binary_inputs(ScalarOp op) {
    Inputs<T> inputs;
    for (const T x : special_values<T>()) {
        for (const T y : special_values<T>()) inputs.add(x, y);
    }
    std::mt19937_64 random(2);
    std::uniform_real_distribution<double> uniform(-1, 1);
    constexpr double range = std::numeric_limits<T>::max_exponent + std::numeric_limits<T>::digits;
    for (int i = 0; i < 4000; ++i) {
        inputs.add(std::bit_cast<T>(static_cast<BitsOf<T>>(random())),
                   std::bit_cast<T>(static_cast<BitsOf<T>>(random())));
        if (op == ScalarOp::pow) {
            // Results of all sizes, from bases of all sizes and from bases near 1.
            const double base =
                i % 2 == 0 ? std::exp2(uniform(random) * range) : 1 + 0.1 * std::pow(uniform(random), 3);
            inputs.add(static_cast<T>(base), static_cast<T>(uniform(random) * range / std::log2(base)));
        } else {
            const double y = std::exp2(20 * uniform(random));
            inputs.add(static_cast<T>(uniform(random) < 0 ? y : -y), static_cast<T>(y * 8 * uniform(random)));
        }
    }
    return inputs;
}

template <typename T>
void check_accuracy(const MathFunction& function, const loopir::MathTarget& target, double limit) {
    constexpr DType type = std::is_same_v<T, float> ? DType::float32 : DType::float64;
    Inputs<T> inputs = function.binary() ? binary_inputs<T>(function.op) : unary_inputs<T>();
    std::vector<T> results(inputs.x.size(), T(-12345));
    std::vector<void*> buffers = {inputs.x.data()};
    if (function.binary()) buffers.push_back(inputs.y.data());
    buffers.push_back(results.data());
    const auto count = static_cast<std::int64_t>(results.size());
    loopir::interpret(loopir::expand_math(elementwise(function.op, type, count), target), buffers, {});

    double worst = 0;
    std::size_t where = 0;
    for (std::size_t i = 0; i < results.size(); ++i) {
        const double error = ulp_error(results[i], function.reference(inputs.x[i], inputs.y[i]));
        if (!(error <= worst)) {
            worst = error;
            where = i;
        }
    }
    INFO(std::string(function.name()), "(", inputs.x[where], ", ", inputs.y[where], ") gives ", results[where],
         std::string(target.fma ? "" : " without FMA"), std::string(target.float64 ? "" : " without float64"));
    CHECK(worst <= limit);
}

}  // namespace

TEST_CASE("float32 functions are within 2 ULP") {
    for (const MathFunction& function : math_functions()) {
        for (const bool fma : {true, false}) check_accuracy<float>(function, {.fma = fma}, 2);
    }
}

TEST_CASE("float32 functions are within 2 ULP on targets without float64, and use none") {
    const loopir::MathTarget target{.float64 = false};
    for (const MathFunction& function : math_functions()) {
        check_accuracy<float>(function, target, 2);
        const loopir::Kernel expanded = loopir::expand_math(elementwise(function.op, DType::float32, 1), target);
        CAPTURE(std::string(function.name()));
        for (const loopir::Instr& instr : expanded.instrs) CHECK(instr.type != DType::float64);
    }
}

TEST_CASE("float64 functions are within 4 ULP") {
    // Where long double is no wider than double, the reference itself has an error.
    const double limit = std::numeric_limits<long double>::digits > 53 ? 4 : 5;
    for (const MathFunction& function : math_functions()) {
        for (const bool fma : {true, false}) check_accuracy<double>(function, {.fma = fma}, limit);
    }
}

TEST_CASE("ulp_error counts units of the exact value's last place") {
    CHECK(ulp_error(1.0f, 1.0) == 0);
    CHECK(ulp_error(1.0f + 0x1p-23f, 1.0) == 1);
    CHECK(ulp_error(1.0f, 1 + 0x1p-24) == 0.5);
    CHECK(ulp_error(1.0f, 1 - 0x1p-25) == 0.5);
    CHECK(ulp_error(0x1p-149f, 0x1p-148) == 1);
    CHECK(ulp_error(0.0f, 0x1p-150) == 0.5);
    CHECK(ulp_error(std::numeric_limits<float>::infinity(), 1e300) == 0);
    CHECK(ulp_error(std::numeric_limits<float>::max(), 1e300) == 1);
    CHECK(ulp_error(-0.0f, 0.0) == std::numeric_limits<double>::infinity());
    CHECK(ulp_error(std::nanf(""), 1.0) == std::numeric_limits<double>::infinity());
    CHECK(ulp_error(std::nanf(""), std::nan("")) == 0);
    CHECK(ulp_error(1.0, 1.0L) == 0);
}
