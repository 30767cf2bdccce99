// What the files of the linter share.
// See lint.h.
#pragma once

#include <string_view>

#include "msl/scan.h"
#include "msl/source.h"

namespace metal_sim::msl {

bool is_scalar_type(std::string_view word);

// The rules of declarations: address spaces, storage, kernels, calls.
void check_declarations(const Source &source, const Scan &scan);

}  // namespace metal_sim::msl
