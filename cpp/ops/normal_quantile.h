// The inverse of the normal distribution's cumulative function, as loop IR.
// By M. J. Wichura, Algorithm AS 241: the percentage points of the normal distribution (Applied Statistics 37, 1988).
#pragma once

#include "loopir/builder.h"

namespace topstitch::ops {

// How far below the mean, in standard deviations, a value lies that is exceeded with probability 1 - p, for
// 0 < p <= 0.5: -quantile(p), which is not negative. `above` is 0.5 - p, which near 0 the caller knows more precisely.
// float32 by PPND7 (relative error about 1e-7, for p >= 2^-36), float64 by PPND16 (about 1e-16).
loopir::ValueId normal_quantile(loopir::Builder& b, loopir::ValueId p, loopir::ValueId above);

}  // namespace topstitch::ops
