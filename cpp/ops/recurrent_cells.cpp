// The formulas of recurrent cells: the single-gate RNN, LSTM and GRU.
// See recurrent.h; the names of the gates are those of MPSGraph's descriptors.
#include "ops/expr.h"
#include "ops/recurrent.h"
#include "ops/rules.h"

namespace topstitch::ops {

using namespace expr;

namespace {

AttrDef activation_attr(const char* name, const char* fallback, const char* doc) {
    return choice_attr(name, fallback, {"none", "relu", "tanh", "sigmoid", "hard_sigmoid"}, doc);
}

Tensor activated(const OpView& view, const char* attribute, const Tensor& x) {
    const std::string& name = view.string(attribute);
    return name == "none" ? x : unary(name, x);
}

Tensor transposed(const Tensor& matrix) {
    return transpose(matrix, {1, 0});
}

Tensor masked(const Tensor& state, const CellWeights& weights) {
    return weights.mask ? state * weights.mask : state;
}

CellStep rnn_step(const OpView& view, const Tensor& projected, const std::vector<Tensor>& state,
                  const CellWeights& weights) {
    const Tensor gate = projected + matmul(masked(state[0], weights), transposed(weights.recurrent));
    return {{activated(view, "activation", gate)}, gate};
}

CellStep lstm_step(const OpView& view, const Tensor& projected, const std::vector<Tensor>& state,
                   const CellWeights& weights) {
    Tensor gates = projected + matmul(masked(state[0], weights), transposed(weights.recurrent));
    if (weights.peephole) {
        // The same cell beside each of its four gates.
        const std::vector<Tensor> four(4, state[1]);
        gates = gates + weights.peephole * side_by_side(four);
    }
    const std::vector<Tensor> parts = equal_parts(gates, 4, -1);
    const bool last = view.flag("forget_gate_last");
    const Tensor input = activated(view, "input_gate_activation", parts[0]);
    const Tensor forget = activated(view, "forget_gate_activation", parts[last ? 2 : 1]);
    const Tensor candidate = activated(view, "cell_gate_activation", parts[last ? 1 : 2]);
    const Tensor output = activated(view, "output_gate_activation", parts[3]);
    const Tensor cell = forget * state[1] + input * candidate;
    return {{output * activated(view, "activation", cell), cell}, gates};
}

// The rows of the update, reset and output gates in the weights, with the reset gate before or after the update gate.
CellStep gru_step(const OpView& view, const Tensor& projected, const std::vector<Tensor>& state,
                  const CellWeights& weights) {
    const bool reset_first = view.flag("reset_gate_first");
    const Tensor previous = masked(state[0], weights);
    const std::vector<Tensor> inputs = equal_parts(projected, 3, -1);
    const std::vector<Tensor> rows = equal_parts(weights.recurrent, 3, 0);
    const int update_row = reset_first ? 1 : 0;
    const auto gate = [&](int row) {
        const auto k = static_cast<std::size_t>(row);
        return inputs[k] + matmul(previous, transposed(rows[k]));
    };
    const Tensor update_gate = gate(update_row);
    const Tensor reset_gate = gate(1 - update_row);
    const Tensor update = activated(view, "update_gate_activation", update_gate);
    const Tensor reset = activated(view, "reset_gate_activation", reset_gate);
    Tensor output_gate;
    if (view.flag("reset_after")) {
        Tensor recurrent = matmul(previous, transposed(rows[2]));
        if (weights.secondary_bias) recurrent = recurrent + weights.secondary_bias;
        output_gate = inputs[2] + reset * recurrent;
    } else {
        output_gate = inputs[2] + matmul(previous * reset, transposed(rows[2]));
    }
    const Tensor output = activated(view, "output_gate_activation", output_gate);
    const Tensor keep = view.flag("flip_z") ? 1.0 - update : update;
    const std::vector<Tensor> ordered = {reset_first ? reset_gate : update_gate, reset_first ? update_gate : reset_gate,
                                         output_gate};
    return {{keep * state[0] + (1.0 - keep) * output}, side_by_side(ordered)};
}

}  // namespace

std::vector<Tensor> equal_parts(const Tensor& x, int count, int axis) {
    return apply(x.graph_data(), *find_op("split"), {x},
                 {{"num_splits", std::int64_t{count}}, {"axis", std::int64_t{axis}}});
}

Tensor side_by_side(const std::vector<Tensor>& parts) {
    return apply("concat", parts, {{"axis", std::int64_t{-1}}});
}

CellKind rnn_cell() {
    return {"rnn", 1, 1, rnn_step, {activation_attr("activation", "relu", "of the gate")}};
}

CellKind lstm_cell() {
    return {"lstm",
            4,
            2,
            lstm_step,
            {flag_attr("forget_gate_last", false, "the gates are in the order i, z, f, o instead of i, f, z, o"),
             activation_attr("input_gate_activation", "sigmoid", "of the input gate i"),
             activation_attr("forget_gate_activation", "sigmoid", "of the forget gate f"),
             activation_attr("cell_gate_activation", "tanh", "of the cell gate z"),
             activation_attr("output_gate_activation", "sigmoid", "of the output gate o"),
             activation_attr("activation", "tanh", "of the cell, where it becomes the state")}};
}

CellKind gru_cell() {
    return {"gru",
            3,
            1,
            gru_step,
            {flag_attr("reset_gate_first", false, "the gates are in the order r, z, o instead of z, r, o"),
             flag_attr("reset_after", false, "the reset gate is applied after the recurrent product, not before it"),
             flag_attr("flip_z", false, "the state becomes (1 - z) * h + z * o instead of z * h + (1 - z) * o"),
             activation_attr("update_gate_activation", "sigmoid", "of the update gate z"),
             activation_attr("reset_gate_activation", "sigmoid", "of the reset gate r"),
             activation_attr("output_gate_activation", "tanh", "of the output gate o")}};
}

}  // namespace topstitch::ops
