// Arithmetic and functions of complex numbers as scalar loop IR on pairs of float32 values.
// Careful about overflow on the way; special values follow C99 Annex G where the comments say so.
#pragma once

#include "graph/op_def.h"

namespace topstitch::ops {

Value complex_mul(loopir::Builder& b, const Value& x, const Value& y);
Value complex_square(loopir::Builder& b, const Value& z);
Value complex_div(loopir::Builder& b, const Value& x, const Value& y);
Value complex_exp(loopir::Builder& b, const Value& z);
Value complex_log(loopir::Builder& b, const Value& z);
Value complex_sqrt(loopir::Builder& b, const Value& z);
Value complex_sin(loopir::Builder& b, const Value& z);
Value complex_cos(loopir::Builder& b, const Value& z);

// sqrt(x*x + y*y) without overflow or underflow on the way; infinite when either is, even if the other is NaN.
loopir::ValueId scalar_hypot(loopir::Builder& b, loopir::ValueId x, loopir::ValueId y);

}  // namespace topstitch::ops
