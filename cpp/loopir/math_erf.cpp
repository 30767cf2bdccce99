// erf and erfc.
// erf is one polynomial for small arguments and 1 - the fourth power of another one for the others; erfc is exp(-x^2)
// times a smooth function.
#include "loopir/math_functions.h"
#include "loopir/math_paired.h"
#include "loopir/math_support.h"

namespace topstitch::loopir::math {

namespace {

// erf(a) = a + a p(a^2) for 0 <= a < 1.
V erf_small(V a) {
    const V square = a * a;
    const V p =
        is_single(a)
            ? polynomial(square, {0.128379121, -0.37612319, 0.112801127, -0.026709171, 0.00491482578, -0.000561942172})
            : polynomial(square, {0.12837916709551256, -0.37612638903183343, 0.11283791670936945, -0.02686617064195709,
                                  0.0052239775967063262, -0.00085483254827660243, 0.00012055280397643243,
                                  -1.4924462944241525e-05, 1.6444105038127336e-06, -1.6183528321529461e-07,
                                  1.3614115308880676e-08, -7.6017442752942715e-10});
    return fma(a, p, a);
}

// erf(1 + v) = 1 - p(v)^4 for 0 <= v: the fourth root of erfc takes half the terms of erf itself, and a polynomial
// about 1 is best where its errors count most. At the upper bounds, 4.1 and 6, erf is exactly 1.
V erf_large(V v) {
    const V p = is_single(v) ? polynomial(v, {0.629769504, -0.415485024, 0.00432924926, 0.0507299379, -0.00341528421,
                                              -0.00602272758, 0.0017645054, -0.00014836184})
                             : polynomial(v, {0.62976951390340985,     -0.41548532216164685,    0.0043157217276940819,
                                              0.050890549405486603,    -0.0040309792638539678,  -0.0049308312918828921,
                                              0.00077680159951335566,  0.00029609598981769251,  -7.3362105238865643e-05,
                                              -9.5655858946566964e-06, 3.7000260285323552e-06,  1.9771206683903896e-07,
                                              -9.3378606568840334e-08, -3.1642421025884617e-08, 1.2089976616361158e-08,
                                              -6.9347815026582276e-10, -2.8882295883241672e-10, 6.6345708980550328e-11,
                                              -5.8747145645100936e-12, 2.0176711094413537e-13});
    const V square = p * p;
    return fma(-square, square, 1);
}

// (1 + 2 a) exp(a^2) erfc(a) is smooth in q = (a - K) / (a + K).
V erfc_single(V x) {
    // In float64, to round once.
    const V a = at_most(cast(abs(x), DType::float64), 10.2);
    const V q = (a - 2.0) / (a + 2.0);
    const V p = polynomial(
        q, {1.2769783826870362, -0.092763820646622502, -0.16603052224607029, 0.1640510408497641, -0.054217816797275262,
            -0.0080308781242143367, 0.008709028865958035, 0.0012527238525665858, -0.0014206296960879933,
            -0.00040072476252520832, 0.00016924778753370348, 7.9350376160602982e-05});
    const V gauss = exp2_moderate(a * a * -1.4426950408889634);
    const V result = p * gauss / fma(a, 2, 1);
    return cast(select(bits_of(x) < 0, 2.0 - result, result), DType::float32);
}

V erfc_double(V x) {
    const V magnitude = abs(x);
    const V a = at_most(magnitude, 27.4);
    const V q = (a - 4.0) / (a + 4.0);
    const V p = polynomial(
        q, {1.2329951186255526,      -0.13962111684056297,    0.015379652102607187,    0.068097054254754749,
            -0.10103906603561617,    0.093732834996313893,    -0.066330365827237905,   0.037167515565624781,
            -0.016197733888176073,   0.0050319697807079504,   -0.00075777440985658466, -0.00019925596220213791,
            0.00015062628394548253,  -2.4400458823042297e-05, -1.1234061871016309e-05, 5.7094302888063479e-06,
            3.1354543719757188e-07,  -8.2038134912936746e-07, 5.5345705252104269e-08,  1.0163386611415889e-07,
            -8.0610941690832598e-09, -8.3992232958171839e-09});
    // 1 / (1 + 2 a) = inverse (1 + correction), and exp(-a^2) from both halves of a^2. The factor of 2^100 keeps out of
    // the subnormals until the end.
    const V divisor = fma(a, 2, 1);
    const V inverse = 1.0 / divisor;
    const Wide back = exact_product(inverse, divisor);
    const V correction = ((1.0 - back.high) - back.low) - fma(a, 2, 1.0 - divisor) * inverse;
    const Wide square = exact_product(a, a);
    const auto [scale, excess] = exp_scaled(-square.high, correction - square.low, 100);
    const V result = p * inverse * fma(scale, excess, scale) * 0x1p-100;
    const V tail = select(x < 0, 2.0 - result, result);
    return select(magnitude < 0.65, 1.0 - with_sign_of(erf_small(magnitude), x), tail);
}

}  // namespace

// As erfc_single, with the products in pairs, which are exact with FMA only.
V erfc_paired(V x) {
    const V a = at_most(abs(x), 10.2);
    const V q = (a - 2.0) / (a + 2.0);
    const Wide first = {a.like(0x1.46e80e0000000p+0), a.like(9.1595093731910993e-09)};  // 1.2769783826870362
    const V rest =
        polynomial(q, {-0.092763820646622502, -0.16603052224607029, 0.1640510408497641, -0.054217816797275262,
                       -0.0080308781242143367, 0.008709028865958035, 0.0012527238525665858, -0.0014206296960879933,
                       -0.00040072476252520832, 0.00016924778753370348, 7.9350376160602982e-05});
    const Wide p = fast_sum(first.high, fma(q, rest, first.low));
    // 1 / (1 + 2 a) = inverse (1 + correction), and exp(-a^2) from both halves of a^2. The factor of 2^100 keeps out of
    // the subnormals until the end.
    const V divisor = fma(a, 2, 1);
    const V inverse = 1.0 / divisor;
    const V correction = fma(-inverse, divisor, 1) - fma(a, 2, 1.0 - divisor) * inverse;
    const Wide square = exact_product(a, a);
    const auto [scale, excess] = exp_scaled(-square.high, correction - square.low, 100);
    const Wide factor = exact_product(p.high, inverse);
    const V low = fma(p.low, inverse, factor.low);
    // From 10.0542 on the result rounds to 0: without subnormal numbers on the way, which take many times as long.
    const V power = select(a < 10.0542, scale, a.like(0));
    const V result = (factor.high + fma(factor.high, excess, low)) * power * 0x1p-100;
    const V tail = select(bits_of(x) < 0, 2.0 - result, result);
    // Near 0 the rounding of q would count.
    const V near = 1.0 - with_sign_of(erf_small(a), x);
    return select(not_equal(x, x), x, select(a < 0.25, near, tail));
}

V erf(V x) {
    const V a = abs(x);
    const V v = at_most(a, is_single(a) ? 4.1 : 6.0) - 1;
    // The sign of v selects by itself, without a comparison.
    return with_sign_of(select(bits_of(v) < 0, erf_small(a), erf_large(v)), x);
}

V erfc(V x) {
    if (!is_single(x)) return erfc_double(x);
    // With FMA, pairs of float32 take half the time of float64, which makes more instructions of half as many numbers.
    return x.emit->has_fma() || is_paired(x) ? erfc_paired(x) : erfc_single(x);
}

}  // namespace topstitch::loopir::math
