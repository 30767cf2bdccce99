// erf and erfc.
// erf is one polynomial below 1 and another one up to where it rounds to 1; erfc is exp(-x^2) times a smooth function.
#include "loopir/math_functions.h"
#include "loopir/math_support.h"

namespace topstitch::loopir::math {

namespace {

// erf(a) = a + a p(a^2) for 0 <= a < 1.
V erf_small(V a) {
    const V square = a * a;
    const V p = is_single(a)
                    ? polynomial(square, {0.128379166, -0.37612626, 0.112835787, -0.0268533472, 0.0051871622,
                                          -0.000799785252, 7.80689807e-05})
                    : polynomial(square, {0.12837916709551256, -0.37612638903183343, 0.11283791670936945,
                                          -0.02686617064195709, 0.0052239775967063262, -0.00085483254827660243,
                                          0.00012055280397643243, -1.4924462944241525e-05, 1.6444105038127336e-06,
                                          -1.6183528321529461e-07, 1.3614115308880676e-08, -7.6017442752942715e-10});
    return fma(a, p, a);
}

// erf(a) for 1 <= a: small absolute errors are enough there. At the upper bounds it is exactly 1.
V erf_large(V a) {
    if (is_single(a)) {
        const V v = at_most(a, 3.91) - 0x1.201f9ap+1;
        return polynomial(
            v, {0.998544157, 0.00711166626, -0.0160074495, 0.0216464885, -0.0190315116, 0.0106617762, -0.00291447085,
                -0.000704063044, 0.00101332995, -0.000330323412, -3.30819748e-05, 4.83248914e-05, -9.13053282e-06});
    }
    const V v = at_most(a, 5.9275) - 3.25;
    return polynomial(
        v, {0.99999569722053638,     2.9189025383583674e-05,  -9.4864332502766889e-05, 0.00019580971194835809,
            -0.0002865693376439784,  0.00031379722548375097,  -0.00026352850494574734, 0.00016999141458858528,
            -8.1647627882440769e-05, 2.5913846626009276e-05,  -2.3288720674482382e-06, -2.8642984067866778e-06,
            1.904362540086049e-06,   -5.4823921323711517e-07, 3.4065849091859052e-09,  6.6399300468786693e-08,
            -2.7366013586086375e-08, 3.1408067297957453e-09,  1.7242734081669458e-09,  -9.0232238070335146e-10,
            1.3127532167469748e-10,  4.1004792164764724e-11,  -2.3904654777113329e-11, 3.374019937890429e-12,
            1.0899898561413126e-12,  -5.5152112313512858e-13, 4.0423802776070419e-14,  3.1842664206632111e-14,
            -8.0454817885392272e-15, -6.7574472362726493e-16, 4.779908259736604e-16,   -2.0520675841712127e-17,
            -1.4117720257570561e-17, 1.5246249035124949e-18,  1.696092149787201e-19,   -2.5746426138337823e-20});
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

V erf(V x) {
    const V a = abs(x);
    return with_sign_of(select(a < 1, erf_small(a), erf_large(a)), x);
}

V erfc(V x) {
    return is_single(x) ? erfc_single(x) : erfc_double(x);
}

}  // namespace topstitch::loopir::math
