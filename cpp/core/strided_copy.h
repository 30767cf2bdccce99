// Copies elements between two strided layouts.
// Strides are in bytes and may be negative or, in the source, 0; the two must not overlap.
#pragma once

#include <cstddef>

#include "topstitch/shape.h"

namespace topstitch {

void strided_copy(void* target, const Sizes& target_strides, const void* source, const Sizes& source_strides,
                  const Sizes& shape, std::size_t element_size);

}  // namespace topstitch
