// asin, acos, atan and atan2.
// One odd polynomial each, on [0, 1/2] (asin) and [0, 1] (atan); other arguments are brought there by an identity.
#include "loopir/math_functions.h"
#include "loopir/math_paired.h"
#include "loopir/math_support.h"

namespace topstitch::loopir::math {

namespace {

// pi/2 in two parts, in the type of x.
struct HalfPi {
    double high;
    double low;
};
HalfPi half_pi_of(V x) {
    return is_single(x) ? HalfPi{half_pi_single, half_pi_single_tail} : HalfPi{half_pi, half_pi_tail};
}

// asin(t) = t + rest, for 0 <= t <= 1/2 and square = t^2.
V asin_rest(V t, V square) {
    const V p =
        is_single(t)
            ? polynomial(square, {0.166667521, 0.0749530643, 0.0454697721, 0.0241809301, 0.0421658084})
            : polynomial(square, {0.1666666666666676, 0.074999999999708133, 0.044642857174641164, 0.030381942705003533,
                                  0.022372215095079327, 0.017351609664664307, 0.013980852921515793,
                                  0.011398617431650679, 0.010782054173238066, 0.0036990940607453506,
                                  0.021726386468372362, -0.021027368409048012, 0.032647208593453943});
    return t * square * p;
}

// asin(|x|) = t + rest for |x| <= 1/2, else pi/2 - 2 (t + rest) with t = sqrt((1 - |x|) / 2).
struct ReducedSine {
    V small;  // |x| <= 1/2
    V t;
    V rest;
};

ReducedSine reduce_sine(V x) {
    const V magnitude = abs(x);
    const V small = magnitude <= 0.5;
    const V square = select(small, x * x, fma(magnitude, -0.5, 0.5));
    const V t = select(small, magnitude, sqrt(square));
    return {small, t, asin_rest(t, square)};
}

// atan(t) for 0 <= t <= 1.
V atan_reduced(V t) {
    const V square = t * t;
    const V p = is_single(t)
                    ? polynomial(square, {-0.333331525, 0.199937671, -0.142110035, 0.10665787, -0.075517334,
                                          0.0432060547, -0.0163642969, 0.00291977008})
                    : polynomial(square, {-0.33333333333333287,    0.19999999999990611,    -0.14285714285044429,
                                          0.11111111086648667,     -0.090909085505074802,  0.07692299747453693,
                                          -0.066665840028450801,   0.058817177839772167,   -0.052594410007322505,
                                          0.047449508016810041,    -0.042864570366241271,  0.038211459274540331,
                                          -0.032787754629244568,   0.026154724061376394,   -0.018617346935477376,
                                          0.011320156619393243,    -0.0056138966346950753, 0.0021522517893369461,
                                          -0.00059309402845471857, 0.00010390917812817574, -8.6574041004319177e-06});
    return fma(t * square, p, t);
}

// The same in float64 with the accuracy of float32.
V atan_reduced_moderate(V t) {
    const V square = t * t;
    const V p = polynomial(square, {-0.3333332689554907, 0.19999670942904246, -0.14279830295166085, 0.1105820324785636,
                                    -0.088110065448807395, 0.067413860864641476, -0.044686726401575436,
                                    0.022536929912493165, -0.0073164800923385259, 0.0011134748705922386});
    return fma(t * square, p, t);
}

}  // namespace

V asin(V x) {
    const auto [small, t, rest] = reduce_sine(x);
    const auto [high, low] = half_pi_of(x);
    // The low part of pi/2 joins the small term, so that only two roundings are as large as the result's.
    const V large = fma(t + (rest - 0.5 * low), -2, high);
    return with_sign_of(select(small, t + rest, large), x);
}

V acos(V x) {
    // pi/2 - asin(x) for |x| <= 1/2, else 2 asin(t), and pi minus that for negative x.
    const auto [small, t, rest] = reduce_sine(x);
    const auto [high, low] = half_pi_of(x);
    const V negative = x < 0;
    const V near_one = 2.0 * (t + rest);
    const V near_minus_one = fma(t, -2, 2 * high) + fma(rest, -2, 2 * low);
    const V sine_rest = with_sign_of(rest, x);
    const V middle = (high - x) + (low - sine_rest);
    return select(small, middle, select(negative, near_minus_one, near_one));
}

V atan(V x) {
    // atan(a) = pi/2 - atan(1 / a) for a > 1.
    const V magnitude = abs(x);
    const V large = 1 < magnitude;
    const V t = select(large, 1.0 / magnitude, magnitude);
    const V angle = atan_reduced(t);
    const auto [high, low] = half_pi_of(x);
    return with_sign_of(select(large, high - (angle - low), angle), x);
}

V atan2(V y, V x) {
    if (is_paired(x)) return atan2_paired(y, x);
    // float32 is computed in float64: the rounding of y / x alone would spoil the result.
    const bool single = is_single(x);
    const V run = cast(abs(x), DType::float64);
    const V rise = cast(abs(y), DType::float64);
    const V steep = run < rise;
    const V shorter = select(steep, run, rise);
    const V longer = select(steep, rise, run);
    // 0 / 0 counts as 0, inf / inf as 1.
    const V quotient = select(equal(shorter, longer), select(equal(longer, 0), longer, 1), shorter / longer);
    const V angle = single ? atan_reduced_moderate(quotient) : atan_reduced(quotient);
    // The sign of x counts, also that of -0.
    const V left = bits_of(x) < 0;
    const auto base = [&](double half, double whole) {
        return select(steep, half, select(left, angle.like(whole), 0));
    };
    const V signed_angle = select(steep ^ left, -angle, angle);
    const V result = base(half_pi, 2 * half_pi) + (signed_angle + base(half_pi_tail, 2 * half_pi_tail));
    const V unordered = not_equal(x, x) | not_equal(y, y);
    return with_sign_of(cast(select(unordered, nan, result), x.type()), y);
}

}  // namespace topstitch::loopir::math
