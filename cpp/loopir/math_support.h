// What several families of math functions share: signs, exponents, powers of two and arithmetic in twice the precision.
// `single` stands for float32 throughout; the integer type beside it is int32, beside float64 int64.
#pragma once

#include <cstdint>
#include <limits>

#include "loopir/math_emit.h"

namespace topstitch::loopir::math {

inline constexpr double infinity = std::numeric_limits<double>::infinity();
inline constexpr double nan = std::numeric_limits<double>::quiet_NaN();
inline constexpr double half_pi = 0x1.921fb54442d18p+0;
inline constexpr double half_pi_tail = 0x1.1a62633145c07p-54;
// The same in float32.
inline constexpr double half_pi_single = 0x1.921fb6p+0;
inline constexpr double half_pi_single_tail = -0x1.777a5cp-25;

inline bool is_single(V x) {
    return x.type() == DType::float32;
}
inline DType bits_type(V x) {
    return is_single(x) ? DType::int32 : DType::int64;
}
inline int mantissa_bits(V x) {
    return is_single(x) ? 23 : 52;
}

// The bits of x as a signed integer, and back.
inline V bits_of(V x) {
    return bitcast(x, bits_type(x));
}
inline V float_of(V bits) {
    return bitcast(bits, bits.type() == DType::int32 ? DType::float32 : DType::float64);
}
inline std::int64_t sign_bit(V x) {
    return is_single(x) ? INT32_MIN : INT64_MIN;
}

// `magnitude` >= 0 with the sign of x.
inline V with_sign_of(V magnitude, V x) {
    return float_of(bits_of(magnitude) | (bits_of(x) & sign_bit(x)));
}

// round(x * inverse) found by adding 1.5 * 2^(mantissa bits): the integer then is in the low bits of the sum.
struct Rounded {
    V number;  // as a float
    V scale;   // 2^(number + shift), where that is a normal number
};
Rounded round_scaled(V x, double inverse, int shift = 0);

// exp(x) = 2^-shift scale (1 + excess). For 2^-126 <= 2^shift exp(x) < 2^127 (float64: 2^-1022, 2^1023).
struct ScaledExp {
    V scale;   // a power of two
    V excess;  // between sqrt(1/2) - 1 and sqrt(2) - 1
};
ScaledExp exp_scaled(V x, int shift);
// The same of x + tail.
ScaledExp exp_scaled(V x, V tail, int shift);

// 2^shift (exp(x) - 1) for x >= 0, as long as 2^shift exp(x) < 2^127 (2^1023).
V expm1_positive(V x, int shift);

// number = 2^k m with m in [2/3, 4/3) (float32) or [sqrt(1/2), sqrt(2)) (float64), for a normal number.
struct Exponent {
    V k;      // as a float
    V field;  // k << mantissa bits
    V m;
};
Exponent split_exponent(V number);

// --- Twice the precision: high + low, with |low| at most half a unit in the last place of high.

struct Wide {
    V high;
    V low;
};

// a + b, exactly; fast_sum wants |a| >= |b| or a = 0.
Wide fast_sum(V a, V b);
Wide exact_sum(V a, V b);
// a * b, exactly (except where the error is subnormal); float64.
Wide exact_product(V a, V b);
// With an error of a few units of low.
Wide operator+(const Wide& a, const Wide& b);
Wide operator*(const Wide& a, const Wide& b);

// --- float64, on behalf of float32: relative errors below 2^-28 and 2^-36.

V exp2_moderate(V x);  // |x| <= 1000
V log2_moderate(V x);  // no subnormals

// 2^x in float64, and in float32.
V exp2_wide(const Wide& x);
V exp2_paired(const Wide& x);

}  // namespace topstitch::loopir::math
