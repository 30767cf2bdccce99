// Where the elements of arrays lie that are not packed: what the operation `strided_view` and the stitcher agree on.
// See memory.cpp.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/op_def.h"

namespace topstitch::ops {

// The number of elements of memory that a view of this shape spans, with these distances in elements along its axes.
Dim spanned(const Shape& shape, const Shape& strides);

// Where element `at` lies in that memory, when the axes `reversed` run towards lower addresses.
Index strided_offset(const Shape& shape, const Shape& strides, const std::vector<std::int64_t>& reversed,
                     const Indices& at);

}  // namespace topstitch::ops
