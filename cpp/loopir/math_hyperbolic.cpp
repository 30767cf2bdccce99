// sinh, cosh, tanh and their inverses.
// The former come from expm1, which keeps the digits near 0; the inverses from a logarithm in float64 or from log1p.
#include "loopir/math_functions.h"
#include "loopir/math_paired.h"
#include "loopir/math_support.h"

namespace topstitch::loopir::math {

namespace {

constexpr double log_2 = 0x1.62e42fefa39efp-1;

// |x|, bounded to where a quarter of exp(|x|) does not overflow, but sinh(x) and cosh(x) do.
V bounded_magnitude(V x) {
    return at_most(abs(x), is_single(x) ? 89.5 : 710.6);
}

}  // namespace

V sinh(V x) {
    // With q = (exp(|x|) - 1) / 4 and w = q / (q + 1/4), sinh(|x|) = 2 q + w / 2 = 4 q - 2 q w. The latter forgives
    // the rounding of q + 1/4 for small q. Where q would lose bits to the subnormals, sinh(x) = x.
    const V magnitude = bounded_magnitude(x);
    const V q = expm1_positive(magnitude, -2);
    const V w = q / (q + 0.25);
    const V half = fma(-q, w, q + q);
    const V result = select(q < 0.25, half + half, fma(w, 0.5, q + q));
    return select(magnitude < (is_single(x) ? 0x1p-13 : 0x1p-28), x, with_sign_of(result, x));
}

V cosh(V x) {
    // With h = exp(|x|) / 2, cosh(x) = h + 1 / (4 h).
    const auto [scale, excess] = exp_scaled(bounded_magnitude(x), -2);
    const V quarter = fma(scale, excess, scale);
    const V half = quarter + quarter;
    return half + 0.25 / half;
}

V tanh(V x) {
    // With e = exp(2 |x|) - 1, tanh(|x|) = e / (e + 2) = e / 2 - e / 2 tanh(|x|). The second form forgives the rounding
    // of e + 2 for small e.
    const V bounded = at_most(abs(x), is_single(x) ? 10 : 20);
    const V e = expm1_positive(bounded + bounded, 0);
    const V quotient = e / (e + 2.0);
    const V half = 0.5 * e;
    return with_sign_of(select(e < 1, fma(-half, quotient, half), quotient), x);
}

V asinh(V x) {
    if (is_paired(x)) return asinh_paired(x);
    const V magnitude = cast(abs(x), DType::float64);
    if (is_single(x)) {
        const V sum = magnitude + sqrt(fma(magnitude, magnitude, 1));
        const V tiny = fma(magnitude * magnitude, magnitude * (-1.0 / 6), magnitude);
        const V result = select(magnitude < 0x1p-10, tiny, log2_moderate(sum) * log_2);
        return with_sign_of(cast(result, DType::float32), x);
    }
    // log(a + sqrt(a^2 + 1)) = log1p(a + a^2 / (1 + sqrt(a^2 + 1))); for large a, log(2 a).
    const V large = 0x1p500 < magnitude;
    const V square = magnitude * magnitude;
    const V argument = magnitude + square / (sqrt(square + 1.0) + 1.0);
    const V result = log1p(select(large, magnitude, argument)) + select(large, x.like(log_2), 0);
    return with_sign_of(result, x);
}

V acosh(V x) {
    if (is_paired(x)) return acosh_paired(x);
    if (is_single(x)) {
        const V wide = cast(x, DType::float64);
        const V sum = wide + sqrt(fma(wide, wide, -1));
        return select(1 <= x, cast(log2_moderate(sum) * log_2, DType::float32), nan);
    }
    // With t = x - 1, log(x + sqrt(x^2 - 1)) = log1p(t + sqrt(2 t + t^2)); for large x, log(2 x).
    const V large = 0x1p500 < x;
    const V t = x - 1.0;
    const V argument = t + sqrt(fma(t, t, t + t));
    const V result = log1p(select(large, x, argument)) + select(large, x.like(log_2), 0);
    return select(1 <= x, result, nan);
}

V atanh(V x) {
    if (is_paired(x)) return atanh_paired(x);
    // log((1 + a) / (1 - a)) / 2
    const V magnitude = cast(abs(x), DType::float64);
    if (is_single(x)) {
        const V ratio = (magnitude + 1.0) / (1.0 - magnitude);
        const V tiny = fma(magnitude * magnitude, magnitude * (1.0 / 3), magnitude);
        const V result = select(magnitude < 0x1p-10, tiny, log2_moderate(ratio) * (0.5 * log_2));
        return with_sign_of(cast(result, DType::float32), x);
    }
    const V twice = magnitude + magnitude;
    return with_sign_of(0.5 * log1p(twice / (1.0 - magnitude)), x);
}

}  // namespace topstitch::loopir::math
