// References for the math functions in a wider type, and the error of a result in units in the last place.
// Used by the tests of the expansions and by bench/accuracy.cpp.
#pragma once

#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "loopir/kernel.h"
#include "loopir/math_expand.h"

namespace topstitch::testing {

// One math instruction and the C++ library's function in twice the precision or nearly so: double for float32, long
// double (80 bits on x86) for float64. Two arguments: pow and atan2.
struct MathFunction {
    loopir::ScalarOp op;
    double (*wide)(double) = nullptr;
    long double (*wider)(long double) = nullptr;
    double (*wide2)(double, double) = nullptr;
    long double (*wider2)(long double, long double) = nullptr;

    bool binary() const { return wide2 != nullptr; }
    const char* name() const { return loopir::info(op).name; }
    double reference(float x, float y) const { return binary() ? wide2(x, y) : wide(x); }
    long double reference(double x, double y) const { return binary() ? wider2(x, y) : wider(x); }
};

std::span<const MathFunction> math_functions();

// |result - exact| in units of the last place of `exact`, with subnormals' spacing at the small end. Infinity counts as
// the number after the largest. A NaN or a zero of the wrong sign, or one where the other is not, gives infinity.
template <typename T, typename Wide>
double ulp_error(T result, Wide exact) {
    constexpr double wrong = std::numeric_limits<double>::infinity();
    if (std::isnan(exact) || std::isnan(result)) return std::isnan(exact) && std::isnan(result) ? 0 : wrong;
    const Wide limit = std::ldexp(Wide(1), std::numeric_limits<T>::max_exponent);
    const auto bounded = [&](Wide value) { return std::abs(value) < limit ? value : std::copysign(limit, value); };
    const Wide reference = bounded(exact);
    const Wide received = bounded(static_cast<Wide>(result));
    if ((received == 0 || reference == 0) && std::signbit(received) != std::signbit(reference)) return wrong;
    constexpr int digits = std::numeric_limits<T>::digits;
    constexpr int lowest = std::numeric_limits<T>::min_exponent - digits;
    int exponent = 0;
    std::frexp(reference, &exponent);
    if (std::abs(reference) == limit) exponent = std::numeric_limits<T>::max_exponent;
    const int unit = reference == 0 ? lowest : std::max(exponent - digits, lowest);
    return static_cast<double>(std::ldexp(std::abs(received - reference), -unit));
}

// y[i] = op(x0[i], ...) for i in [0, count): inputs first, then the output.
loopir::Kernel elementwise(loopir::ScalarOp op, DType type, std::int64_t count, bool vector = false);

// The instructions of the expansion that do something: without constants, loads and bit casts.
int instruction_count(const loopir::Kernel& expanded);

}  // namespace topstitch::testing
