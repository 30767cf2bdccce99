// exp, exp2, exp10 and expm1.
// b^x = 2^(2 m) b^r with m = round(x log2(b) / 2): two multiplications by 2^m round once, also into the subnormals.
#include "loopir/math_functions.h"
#include "loopir/math_support.h"

namespace topstitch::loopir::math {

namespace {

// How b^x is reduced in one type.
struct Reduction {
    double low;      // below this the result is 0
    double high;     // above this it is infinite
    double inverse;  // m = round(x * inverse)
    double step;     // r = x - m * (step + step_low), where m * step is exact
    double step_low;
};

constexpr Reduction binary_single{-151, 129, 0.5, 2, 0};
constexpr Reduction binary_double{-1080, 1025, 0.5, 2, 0};

// 2^r in float32 for |r| <= 1.
constexpr std::initializer_list<double> exp2_single = {
    1, 0.693147242, 0.240226686, 0.055503659, 0.00961684436, 0.00133417163, 0.00015645301, 1.49173366e-05};

// b^x = b^r first second.
struct Reduced {
    V r;
    V first;
    V second;
};

Reduced reduce(V x, const Reduction& reduction) {
    const V bounded = at_most(at_least(x, reduction.low), reduction.high);
    const auto subtract = [&](V m, double share) {
        const V r = fma(m, -reduction.step * share, bounded);
        return reduction.step_low == 0 ? r : fma(m, -reduction.step_low * share, r);
    };
    if (x.emit->has_fma()) {
        const auto [m, scale] = round_scaled(bounded, reduction.inverse);
        return {subtract(m, 1), scale, scale};
    }
    // Without FMA Horner's rule rounds twice as often, which a smaller r makes up for: the step is halved, and 2^n is
    // the product of two powers of two. Adding twice the bias leaves n + twice the bias in the low bits.
    const bool single = is_single(x);
    const double magic = single ? 0x1.8p23 + 2 * 127 : 0x1.8p52 + 2 * 1023;
    const V sum = fma(bounded, 2 * reduction.inverse, magic);
    const V bits = bits_of(sum);
    const V half = bits >> 1;
    const auto power_of_two = [&](V exponent) { return float_of(exponent << mantissa_bits(x)); };
    return {subtract(sum - magic, 0.5), power_of_two(half), power_of_two(bits - half)};
}

V power(V x, const Reduction& reduction, std::initializer_list<double> coefficients) {
    const auto [r, first, second] = reduce(x, reduction);
    return polynomial(r, coefficients) * first * second;
}

// 2^r in float64 for |r| <= 1.
V exp2_reduced(V r) {
    return polynomial(r, {1, 0.69314718055994529, 0.24022650695910031, 0.055504108664822818, 0.0096181291076373864,
                          0.0013333558146310369, 0.00015403530387185651, 1.5252733847362612e-05, 1.3215488727257319e-06,
                          1.0178078741641533e-07, 7.0546094162151385e-09, 4.4460783680209434e-10, 2.590829809876344e-11,
                          1.358235759085593e-12});
}

}  // namespace

V exp(V x) {
    if (is_single(x)) {
        return power(x, {-104, 89, 0.7213475204444817, 0x1.62e4p+0, 0x1.7f7d1cp-19},
                     {1, 1, 0.500000358, 0.16666618, 0.041661229, 0.0083359303, 0.00141047733, 0.000196309047});
    }
    return power(
        x, {-746, 710, 0.7213475204444817, 0x1.62e42fefa38p+0, 0x1.ef35793c7673p-44},
        {1, 0.99999999999999989, 0.49999999999999922, 0.16666666666667274, 0.041666666666703649, 0.0083333333332341313,
         0.001388888888343087, 0.00019841269910822256, 2.4801590890335693e-05, 2.7557295952332428e-06,
         2.7556146674469632e-07, 2.5055644315471325e-08, 2.1063128667341388e-09, 1.5904196321973156e-10});
}

V exp2_moderate(V x) {
    const auto [n, scale] = round_scaled(x, 1);
    return polynomial(x - n, {1, 0.69314720305963162, 0.24022647851239373, 0.055503319090087148, 0.0096184428695849245,
                              0.0013399120148270037, 0.00015352412118169821}) *
           scale;
}

V exp2_wide(const Wide& x) {
    const auto [r, first, second] = reduce(x.high, binary_double);
    const V power = exp2_reduced(r);
    return fma(power * 0x1.62e42fefa39efp-1, x.low, power) * first * second;
}

V exp2_paired(const Wide& x) {
    const auto [r, first, second] = reduce(x.high, binary_single);
    return polynomial(r + x.low, exp2_single) * first * second;
}

V exp2(V x) {
    if (is_single(x)) return power(x, binary_single, exp2_single);
    const auto [r, first, second] = reduce(x, binary_double);
    return exp2_reduced(r) * first * second;
}

V exp10(V x) {
    if (is_single(x)) {
        return power(
            x, {-46, 39, 1.660964047443681, 0x1.3442p-1, -0x1.95ec1p-18},
            {1, 2.30258512, 2.65094924, 2.03467631, 1.171242, 0.53940326, 0.207253247, 0.0685451031, 0.0181942955});
    }
    return power(
        x, {-325, 309, 1.660964047443681, 0x1.34413509f78p-1, 0x1.fef311f12b358p-45},
        {1, 2.3025850929940455, 2.6509490552391943, 2.0346785922935475, 1.1712551489133696, 0.53938292918927444,
         0.20699584861289461, 0.068089365310459851, 0.019597697513311568, 0.0050139246363125256, 0.0011544501873352454,
         0.00024170056029019631, 4.6787122989066669e-05, 8.1350623884225913e-06});
}

V expm1(V x) {
    const V bounded = is_single(x) ? at_most(at_least(x, -18), 89) : at_most(at_least(x, -38), 710);
    // Half of it first, because 2^n may overflow where the result does not.
    const auto [scale, excess] = exp_scaled(bounded, -1);
    const V half = fma(scale, excess, scale - 0.5);
    // Tiny numbers are their own result; a half of them might be subnormal.
    return select(abs(x) < (is_single(x) ? 0x1p-26 : 0x1p-55), x, half + half);
}

}  // namespace topstitch::loopir::math
