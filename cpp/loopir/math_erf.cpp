// erf and erfc.
// erf(x) = x p(x^2) up to where it rounds to 1, with one polynomial p: no exponential, no case distinction.
#include "loopir/math_functions.h"
#include "topstitch/error.h"

namespace topstitch::loopir::math {

V erf(V x) {
    if (x.type() == DType::float64) throw InternalError("erf: no expansion for float64 yet");
    // p(s) = p(3) + (s - 3) q(s - c), with c the middle of the interval. Horner's rule about c keeps all digits, and
    // the step at 3 forgives the rounding of s - c, to which p is sensitive near 0.
    const V y = at_most(at_least(x, -3.92), 3.92);
    const V q = polynomial(fma(y, y, -7.6875), {-0.0444703437, 0.00449023815, -0.000474010507, 4.98630943e-05,
                                                -5.10463042e-06, 5.00909664e-07, -4.63780907e-08, 4.03483069e-09,
                                                -3.46604523e-10, 2.90578481e-11, -1.79963889e-12, 7.17202515e-14,
                                                -8.89112866e-15, 1.18915601e-15, -4.62180054e-17, -4.81452411e-19});
    return y * fma(fma(y, y, -3), q, 0.569090784);
}

}  // namespace topstitch::loopir::math
