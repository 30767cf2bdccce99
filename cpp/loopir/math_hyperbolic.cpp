// sinh, cosh, tanh and their inverses.
// tanh and sinh come from expm1, which keeps the digits near 0.
#include "loopir/math_functions.h"

namespace topstitch::loopir::math {

namespace {

V with_sign_of(V magnitude, V x) {
    const bool single = x.type() == DType::float32;
    const DType bits = single ? DType::int32 : DType::int64;
    const V sign = bitcast(x, bits) & (single ? std::int64_t{INT32_MIN} : INT64_MIN);
    return bitcast(bitcast(magnitude, bits) | sign, x.type());
}

}  // namespace

V tanh(V x) {
    // With e = exp(2 |x|) - 1, tanh(|x|) = e / (e + 2).
    const bool single = x.type() == DType::float32;
    const V half = at_most(abs(x), single ? 10 : 20);
    const V e = expm1_moderate(half + half);
    return with_sign_of(e / (e + 2.0), x);
}

}  // namespace topstitch::loopir::math
