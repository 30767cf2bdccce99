// Optional inputs that are left out before others that are given: the operation `absent` stands for each of them.
// A tensor of bools without elements, which no operation that knows of `absent` takes for anything else.
#pragma once

#include "graph/op_def.h"

namespace topstitch::ops {

// Whether input `k` is there and stands for something.
bool is_given(const OpView& view, int k);
// The input, or an empty tensor when it is not given.
Tensor given_input(const CompositeContext& context, int k);

}  // namespace topstitch::ops
