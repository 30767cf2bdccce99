// Recurrent cells: how many gates they have, and what one step makes of their state.
// recurrent.cpp declares the operations over sequences and single steps with them.
#pragma once

#include <string>
#include <vector>

#include "graph/op_def.h"

namespace topstitch::ops {

// An axis cut into equal parts, and tensors one after the other in the last axis.
std::vector<Tensor> equal_parts(const Tensor& x, int count, int axis);
Tensor side_by_side(const std::vector<Tensor>& parts);

// Of one direction. What is not given is an empty tensor.
struct CellWeights {
    Tensor recurrent;       // [G*H, H]
    Tensor mask;            // [N, H] or broadcast to it
    Tensor peephole;        // [4*H]
    Tensor secondary_bias;  // [H]
};

struct CellStep {
    std::vector<Tensor> state;  // the new ones, as the old ones: h, and c of an LSTM
    Tensor gates;               // before their activations: [N, G*H]
};

struct CellKind {
    const char* name;  // "lstm"
    int gates;
    int states;
    // One step from the states, with the inputs' part of the gates: x W^T + b.
    CellStep (*step)(const OpView& view, const Tensor& projected, const std::vector<Tensor>& state,
                     const CellWeights& weights);
    std::vector<AttrDef> attributes;
};

CellKind rnn_cell();
CellKind lstm_cell();
CellKind gru_cell();

}  // namespace topstitch::ops
