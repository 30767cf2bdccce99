// rsqrt, cbrt and pow.
// pow is exp2(y log2(x)) with log2 in more precision than the result: float64 for float32, twice float64 for float64.
#include "loopir/math_functions.h"
#include "loopir/math_paired.h"
#include "loopir/math_support.h"

namespace topstitch::loopir::math {

V rsqrt(V x) {
    return 1.0 / sqrt(x);
}

V cbrt(V x) {
    // |x| = 8^q m with m in [1, 8), then one (float32) or two steps of Halley's method from a polynomial.
    const bool single = is_single(x);
    const V magnitude = abs(x);
    const V subnormal = magnitude < (single ? 0x1p-126 : 0x1p-1022);
    const V normal = select(subnormal, magnitude * (single ? 0x1p24 : 0x1p54), magnitude);
    const V bits = bits_of(normal);
    const V biased = bits >> mantissa_bits(x);
    // floor(biased / 3), exact for exponents; 3 divides the bias + 2 (127 = 3 * 42 + 1) and the bias 1023.
    const int lift = single ? 2 : 0;
    const V third = ((biased + lift) * 21846) >> 16;
    const V m = float_of(bits - ((third * 3 - ((single ? 127 : 1023) + lift)) << mantissa_bits(x)));
    V root = polynomial(m, {0.627299309, 0.449187636, -0.0837726817, 0.00958345924, -0.000432082597});
    for (int step = 0; step < (single ? 1 : 2); ++step) {
        const V square = root * root;
        const V excess = fma(-square, root, m);  // m - root^3
        root = fma(root, excess / fma(m, 3, excess * -2.0), root);
    }
    const V exponent = third - select(subnormal, third.like(single ? 8 : 18), 0);
    const int bias = single ? 127 - 43 : 1023 - 341;
    const V result = root * float_of((exponent + bias) << mantissa_bits(x));
    const V ordinary = (0 < magnitude) & (magnitude < infinity);
    return select(ordinary, with_sign_of(result, x), x);
}

namespace {

// log2(a) in twice the precision of float64, for 0 < a < inf.
Wide log2_wide(V a) {
    const V subnormal = a < 0x1p-1022;
    const auto [k, field, m] = split_exponent(select(subnormal, a * 0x1p52, a));
    const V f = m - 1.0;
    const auto wide = [&](double high, double low) { return Wide{f.like(high), f.like(low)}; };
    // log(m) = 2 atanh(s) = 2 s + s z (2/3 + z q(z)), with s = f / (2 + f) and z = s^2.
    const Wide divisor = fast_sum(f.like(2), f);
    const V quotient = f / divisor.high;
    const Wide back = exact_product(quotient, divisor.high);
    const V residue = ((f - back.high) - back.low) - quotient * divisor.low;
    const Wide s = fast_sum(quotient, residue / divisor.high);
    const Wide z = s * s;
    const V q = polynomial(z.high, {0.3999999999999998, 0.28571428571443869, 0.22222222217778595, 0.1818181884573784,
                                    0.15384558290456188, 0.13336270375327183, 0.1167565232824381, 0.11982884410058636});
    const Wide inner = wide(0x1.5555555555555p-1, 0x1.5555555555555p-55) + exact_product(z.high, q);
    const Wide log_m = Wide{2.0 * s.high, 2.0 * s.low} + (s * z) * inner;
    const Wide log2_m = log_m * wide(0x1.71547652b82fep+0, 0x1.777d0ffda0d24p-56);
    const Wide sum = fast_sum(k - select(subnormal, k.like(52), 0), log2_m.high);
    return fast_sum(sum.high, sum.low + log2_m.low);
}

// a^y for a >= 0.
V power_single(V a, V y) {
    if (is_paired(a)) return power_paired(a, y);
    const V exponent = cast(y, DType::float64) * log2_moderate(cast(a, DType::float64));
    return cast(exp2_moderate(at_most(at_least(exponent, -300), 300)), DType::float32);
}

V power_double(V a, V y) {
    const Wide log2_a = log2_wide(a);
    const V log2_high = select(equal(a, 0), -infinity, select(a < infinity, log2_a.high, a));
    const Wide product = exact_product(y, log2_high);
    const V low = fma(y, log2_a.low, product.low);
    // Where the result is 0, infinite or NaN, the low part may be NaN.
    return exp2_wide({product.high, select(abs(product.high) < 2000, low, 0)});
}

}  // namespace

V pow(V x, V y) {
    const V magnitude = is_single(x) ? power_single(abs(x), y) : power_double(abs(x), y);
    // Large numbers and infinity count as even integers.
    const V half = 0.5 * y;
    const V integer = equal(floor(y), y);
    const V odd = integer & not_equal(floor(half), half);
    const V result = select((bits_of(x) < 0) & odd, -magnitude, magnitude);
    const V undefined = (x < 0) & (-infinity < x) & not_equal(floor(y), y);
    const V one = equal(y, 0) | equal(x, 1) | (equal(x, -1) & equal(abs(y), infinity));
    return select(one, 1, select(undefined, nan, result));
}

}  // namespace topstitch::loopir::math
