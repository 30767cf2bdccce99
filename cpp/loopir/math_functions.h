// The math functions as arithmetic, for float32 and float64, by families; each documents its method where it is
// defined. Branch-free throughout: every lane computes every case and selects.
#pragma once

#include "loopir/math_emit.h"

namespace topstitch::loopir::math {

// math_exp.cpp
V exp(V x);
V exp2(V x);
V exp10(V x);
V expm1(V x);

// math_log.cpp
V log(V x);
V log2(V x);
V log10(V x);
V log1p(V x);

// math_trig.cpp
V sin(V x);
V cos(V x);
V tan(V x);

// math_inverse_trig.cpp
V asin(V x);
V acos(V x);
V atan(V x);
V atan2(V y, V x);

// math_hyperbolic.cpp
V sinh(V x);
V cosh(V x);
V tanh(V x);
V asinh(V x);
V acosh(V x);
V atanh(V x);

// math_erf.cpp
V erf(V x);
V erfc(V x);

// math_power.cpp
V rsqrt(V x);
V cbrt(V x);
V pow(V x, V y);

}  // namespace topstitch::loopir::math
