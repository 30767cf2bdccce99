// The layout of the inputs, parameters and outputs of loops and branches, which describing, differentiating and
// planning them share.
#pragma once

#include <vector>

#include "graph/function.h"
#include "graph/op_def.h"

namespace topstitch::ops {

// if_else(predicate, captures...): the parameters of both functions are the captures.
// while_loop(initial..., captures...): the parameters of both functions are the carried tensors and the captures.
// scan(initial..., sequences..., captures...): the parameters are the index, the carried tensors, the parts, and the
// captures; the results are the new carried tensors and what is stacked. Its outputs are the carried tensors at the
// end, what is stacked, and the *history*: each carried tensor from before each iteration, for gradients; it is kept
// only where something reads it.
struct ScanLayout {
    explicit ScanLayout(const OpView& view);
    int carried = 0;
    int sequences = 0;
    int captures = 0;
    int stacked = 0;
    Dim length;

    int parameter_of_carried(int k) const { return 1 + k; }
    int parameter_of_sequence(int k) const { return 1 + carried + k; }
    int parameter_of_capture(int k) const { return 1 + carried + sequences + k; }
    int output_of_stacked(int k) const { return carried + k; }
    int output_of_history(int k) const { return carried + stacked + k; }
};

// What is left of the shape of a sequence at one index of its first axis.
Shape shape_of_part(const Shape& sequence);

// The types of the parameters of the functions of `view`, by the types of its inputs.
std::vector<TensorType> parameter_types(const OpView& view);

// From `parameter` on, the parameters of the functions of a loop or branch are its inputs from `input` on: captures,
// the same whenever the functions are performed.
struct Captures {
    std::size_t parameter = 0;
    std::size_t input = 0;
};
Captures captures_of(const OpView& view);

}  // namespace topstitch::ops
