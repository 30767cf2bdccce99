// Converts single scalars to and from the bytes of an element type.
// For constants, printing and tests; kernels convert in generated code.
#pragma once

#include <cstdint>

#include "topstitch/dtype.h"

namespace topstitch {

// Real numbers round once, to nearest even; integers take them toward zero, saturating, NaN as 0; bool is != 0.
void store_scalar(double value, DType dtype, void* target);
// Integers wrap; floats round once.
void store_scalar(std::int64_t value, DType dtype, void* target);
// complex64 gives its real part.
double load_scalar(const void* source, DType dtype);

}  // namespace topstitch
