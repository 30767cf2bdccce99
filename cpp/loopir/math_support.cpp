// What several families of math functions share: powers of two, exponents and arithmetic in twice the precision.
// See math_support.h.
#include "loopir/math_support.h"

#include <cmath>

namespace topstitch::loopir::math {

Rounded round_scaled(V x, double inverse, int shift) {
    const int bias = (is_single(x) ? 127 : 1023) + shift;
    const double magic = (is_single(x) ? 0x1.8p23 : 0x1.8p52) + bias;
    const V sum = fma(x, inverse, magic);
    return {sum - magic, float_of(bits_of(sum) << mantissa_bits(x))};
}

namespace {

// exp(r) - 1 for |r| <= log(2) / 2.
V expm1_symmetric(V r) {
    const V tail = is_single(r) ? polynomial(r, {0.49999997, 0.166665465, 0.0416674353, 0.00836627185, 0.00138706923})
                                : polynomial(r, {0.5, 0.16666666666666677, 0.041666666666666685, 0.0083333333333217904,
                                                 0.0013888888888893699, 0.00019841269885374058, 2.4801587279011373e-05,
                                                 2.7557245102461629e-06, 2.7557329417789869e-07, 2.5108710177463269e-08,
                                                 2.0893987796049164e-09});
    return fma(r * r, tail, r);
}

// exp(r) - 1 for -0.1 log(2) <= r <= 0.9 log(2).
V expm1_mostly_positive(V r) {
    const V tail = is_single(r)
                       ? polynomial(r, {0.5, 0.166666642, 0.0416659862, 0.00834195409, 0.00135621056, 0.000248219847})
                       : polynomial(r, {0.5, 0.1666666666666666, 0.041666666666663028, 0.0083333333333897013,
                                        0.0013888888891765382, 0.00019841268900353695, 2.4801659199349222e-05,
                                        2.7554507428611585e-06, 2.7620966481837015e-07, 2.421260045579206e-08,
                                        2.6795686793172104e-09});
    return fma(r * r, tail, r);
}

// x - n log(2); log(2) is in two parts, of which the first is short enough for an exact product with n.
V subtract_logs(V x, V n) {
    return is_single(x) ? fma(n, -0x1.7f7d1cp-20, fma(n, -0x1.62e4p-1, x))
                        : fma(n, 0x1.8432a1b0e2634p-43, fma(n, -0x1.62e42fefa4p-1, x));
}

constexpr double log2_of_e = 1.4426950408889634;

}  // namespace

ScaledExp exp_scaled(V x, int shift) {
    const auto [n, scale] = round_scaled(x, log2_of_e, shift);
    return {scale, expm1_symmetric(subtract_logs(x, n))};
}

ScaledExp exp_scaled(V x, V tail, int shift) {
    const auto [n, scale] = round_scaled(x, log2_of_e, shift);
    return {scale, expm1_symmetric(subtract_logs(x, n) + tail)};
}

V expm1_positive(V x, int shift) {
    // n = round(log2(exp(x)) - 0.4), so that the sum below never cancels.
    const auto [n, scale] = round_scaled(x - 0.2772588722239781, log2_of_e, shift);
    return fma(scale, expm1_mostly_positive(subtract_logs(x, n)), scale - std::ldexp(1.0, shift));
}

Exponent split_exponent(V number) {
    if (is_single(number)) {
        const V bits = bits_of(number);
        const V field = (bits - 0x3f2aaaab) & -0x800000;  // the bits of 2/3
        return {cast(field, DType::float32) * 0x1p-23, field, float_of(bits - field)};
    }
    const V bits = bitcast(number, DType::uint64);
    const V biased = bits + (0x3ff0000000000000 - 0x3fe6a09e667f3bcd);  // the bits of sqrt(1/2)
    // The exponent becomes the low bits of 2^52 + exponent: many targets convert no 64-bit integers in lanes.
    const V k = bitcast((biased >> 52) | 0x4330000000000000, DType::float64) - (0x1p52 + 1023.0);
    const V field = bitcast(biased & 0x7ff0000000000000, DType::int64) - 0x3ff0000000000000;
    return {k, field, float_of(bits_of(number) - field)};
}

Wide fast_sum(V a, V b) {
    const V sum = a + b;
    return {sum, b - (sum - a)};
}

Wide exact_sum(V a, V b) {
    const V sum = a + b;
    const V b_part = sum - a;
    return {sum, (a - (sum - b_part)) + (b - b_part)};
}

Wide exact_product(V a, V b) {
    const V product = a * b;
    if (a.emit->has_fma()) return {product, fma(a, b, -product)};
    // Halves of 26 bits have exact products.
    const auto leading = [](V x) { return float_of(bits_of(x) & (std::int64_t{-1} << 27)); };
    const V a_high = leading(a);
    const V b_high = leading(b);
    const V a_low = a - a_high;
    const V b_low = b - b_high;
    return {product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low};
}

Wide operator+(const Wide& a, const Wide& b) {
    const Wide sum = exact_sum(a.high, b.high);
    return fast_sum(sum.high, sum.low + (a.low + b.low));
}

Wide operator*(const Wide& a, const Wide& b) {
    const Wide product = exact_product(a.high, b.high);
    return fast_sum(product.high, product.low + fma(a.high, b.low, a.low * b.high));
}

}  // namespace topstitch::loopir::math
