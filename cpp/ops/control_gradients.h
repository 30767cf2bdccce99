// The gradient rules of branches and loops.
// See control.h for the layout of their inputs and outputs.
#pragma once

#include <vector>

#include "graph/op_def.h"

namespace topstitch::ops {

std::vector<Tensor> if_else_gradient(GradientContext& g);
std::vector<Tensor> scan_gradient(GradientContext& g);

}  // namespace topstitch::ops
