// Functions of float32 for targets without float64: what needs more than 24 bits is computed in pairs of float32.
// They want fused multiply-add.
#pragma once

#include "loopir/math_emit.h"

namespace topstitch::loopir::math {

// Does x need them?
inline bool is_paired(V x) {
    return x.type() == DType::float32 && !x.emit->has_float64();
}

V sin_paired(V x);
V cos_paired(V x);
V tan_paired(V x);
V atan2_paired(V y, V x);
V asinh_paired(V x);
V acosh_paired(V x);
V atanh_paired(V x);
V erfc_paired(V x);
V power_paired(V a, V y);  // a^y for a >= 0

}  // namespace topstitch::loopir::math
