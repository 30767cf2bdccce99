// Replaces math functions (exp, erf, sin, ...) by arithmetic, with measured accuracy: at most 2 ULP in float32.
// The accuracy table is in docs/accuracy.md; no vendor vector-math library is used.
#pragma once

#include "loopir/kernel.h"

namespace topstitch::loopir {

// What a target computes natively, so that it is not expanded.
struct MathTarget {
    bool fma = true;      // a fused multiply-add instruction; without it expansions use other splittings
    bool float64 = true;  // without it functions of float32 are computed in pairs of float32 where they need more
};

// `kernel` with every math instruction (info(op).is_math) expanded; the rest is unchanged.
Kernel expand_math(const Kernel& kernel, const MathTarget& target);

}  // namespace topstitch::loopir
