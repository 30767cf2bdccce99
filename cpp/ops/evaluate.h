// Runs one operation on arrays through the loop IR interpreter: the constant folder and the reference for tests.
// Slow by design; composites are expanded and evaluated step by step.
#pragma once

#include <span>
#include <vector>

#include "graph/op_def.h"

namespace topstitch {

// Outputs of `def` on `inputs` (any strides). `attributes` in schema order. UserError as apply() would throw.
std::vector<NDArray> evaluate(const OpDef& def, std::span<const NDArray> inputs, std::span<const Attribute> attributes);

}  // namespace topstitch
