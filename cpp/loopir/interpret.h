// Runs a kernel one scalar at a time: the slow reference for every back end, and the constant folder.
// Math functions are taken from the C++ library in the type of the value.
#pragma once

#include <span>

#include "loopir/kernel.h"

namespace topstitch::loopir {

// `buffers`: one pointer for each parameter that is not local. `sizes`: one number for each of size_params.
void interpret(const Kernel& kernel, std::span<void* const> buffers, std::span<const std::int64_t> sizes);

}  // namespace topstitch::loopir
