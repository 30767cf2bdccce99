// The inverse hyperbolic functions and pow of float32 in pairs; see math_paired_trig.cpp for the trigonometric ones.
// The methods are those of float64 elsewhere, with the precision that 2 ULP of float32 need.
#include "loopir/math_paired.h"

#include "loopir/math_functions.h"
#include "loopir/math_support.h"

namespace topstitch::loopir::math {

namespace {

constexpr double log_2 = 0x1.62e42fefa39efp-1;
constexpr double log2_of_e = 0x1.71547652b82fep+0;

// A number as the sum of two of float32.
Wide constant(V beside, double number) {
    const auto high = static_cast<float>(number);
    return {beside.like(high), beside.like(number - static_cast<double>(high))};
}

// a / b.
Wide quotient(const Wide& a, const Wide& b) {
    const V high = a.high / b.high;
    const V rest = fma(-high, b.high, a.high) + fma(-high, b.low, a.low);
    return fast_sum(high, rest / b.high);
}

Wide square_root(const Wide& a) {
    const V high = sqrt(a.high);
    return {high, (fma(-high, high, a.high) + a.low) / (high + high)};
}

// log(2^k m), with the parts of it that are as large as the result.
struct Logarithm {
    V k;
    Wide log_m;
};

// Of a normal number, with a relative error of log_m below 2^-35.
Logarithm logarithm(const Wide& number) {
    const auto [k, field, m] = split_exponent(number.high);
    // The low part is scaled like the high one, in two steps: the scale itself may leave the range.
    const V inverse_bits = field.like(0x3f800000) - field;
    const V f = m - 1.0;
    const V low = number.low * float_of(binary(ScalarOp::max, inverse_bits, 0));
    // log(m) = 2 atanh(s) = 2 s + s z (2/3 + z q(z)), with s = f / (2 + f) and z = s^2.
    const Wide dividend = fast_sum(f, low);
    const Wide sum = exact_sum(f.like(2), f);
    const Wide s = quotient(dividend, {sum.high, sum.low + low});
    const Wide z = s * s;
    const V q = polynomial(z.high, {0.4, 0.2857142857142857, 0.2222222222222222, 0.18181818181818182,
                                    0.15384615384615385, 0.13333333333333333});
    const Wide inner = constant(f, 2.0 / 3) + exact_product(z.high, q);
    return {k, Wide{2.0 * s.high, 2.0 * s.low} + (s * z) * inner};
}

// log(2^extra number), to float32.
V log_paired(const Wide& number, V extra) {
    const auto [k, log_m] = logarithm(number);
    const V exponent = k + extra;
    const Wide two = constant(number.high, log_2);
    const Wide whole = exact_product(exponent, two.high);
    const Wide sum = Wide{whole.high, fma(exponent, two.low, whole.low)} + log_m;
    return sum.high + sum.low;
}

}  // namespace

V asinh_paired(V x) {
    // log(a + sqrt(a^2 + 1)); of large numbers log(2 a), of small ones a - a^3 / 6.
    const V a = abs(x);
    const V large = 0x1p40 < a;
    const V bounded = select(large, 1, a);
    const Wide root = square_root(exact_product(bounded, bounded) + Wide{a.like(1), a.like(0)});
    const Wide sum = root + Wide{bounded, a.like(0)};
    const V finite = select(a < infinity, a, 1);
    const V result =
        log_paired({select(large, finite, sum.high), select(large, 0, sum.low)}, select(large, a.like(1), 0));
    const V tiny = fma(a * a, a * (-1.0 / 6), a);
    return with_sign_of(select(a < 0x1p-10, tiny, select(a < infinity, result, a)), x);
}

V acosh_paired(V x) {
    // log(x + sqrt(x^2 - 1)); of large numbers log(2 x).
    const V large = 0x1p40 < x;
    const V bounded = select(large, 1, x);
    const Wide square = exact_product(bounded, bounded);
    const Wide below = fast_sum(square.high - 1.0, square.low);
    const Wide root = square_root(below);
    // The root of 0 divides by it.
    const Wide sum = Wide{root.high, select(0 < root.high, root.low, 0)} + Wide{bounded, x.like(0)};
    const V finite = select(x < infinity, x, 1);
    const V result =
        log_paired({select(large, finite, sum.high), select(large, 0, sum.low)}, select(large, x.like(1), 0));
    return select(1 <= x, select(x < infinity, result, x), nan);
}

V atanh_paired(V x) {
    // log((1 + a) / (1 - a)) / 2; of small numbers a + a^3 / 3.
    const V a = abs(x);
    const V bounded = select(a < 1, a, 0);
    const Wide ratio = quotient(fast_sum(a.like(1), bounded), fast_sum(a.like(1), -bounded));
    const V inside = 0.5 * log_paired(ratio, a.like(0));
    const V tiny = fma(a * a, a * (1.0 / 3), a);
    const V outside = select(equal(a, 1), a.like(infinity), nan);
    return with_sign_of(select(a < 0x1p-10, tiny, select(a < 1, inside, outside)), x);
}

V power_paired(V a, V y) {
    // 2^(y log2(a)).
    const V subnormal = a < 0x1p-126;
    const auto [k, log_m] = logarithm({select(subnormal, a * 0x1p24, a), a.like(0)});
    const Wide log2_m = log_m * constant(a, log2_of_e);
    const Wide sum = fast_sum(k - select(subnormal, a.like(24), 0), log2_m.high);
    const Wide log2_a = fast_sum(sum.high, sum.low + log2_m.low);
    const V log2_high = select(equal(a, 0), -infinity, select(a < infinity, log2_a.high, a));
    const Wide product = exact_product(y, log2_high);
    const V low = fma(y, log2_a.low, product.low);
    // Where the result is 0, infinite or NaN, the low part may be NaN.
    return exp2_paired({product.high, select(abs(product.high) < 300, low, 0)});
}

}  // namespace topstitch::loopir::math
