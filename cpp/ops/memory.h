// What the operation `strided_view` and whoever makes it agree on.
// See memory.cpp.
#pragma once

#include "topstitch/shape.h"

namespace topstitch::ops {

// The number of elements of memory that a view of this shape spans, with these distances in elements along its axes.
Dim spanned(const Shape& shape, const Shape& strides);

}  // namespace topstitch::ops
