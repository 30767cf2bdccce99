// Recurrent layers over sequences, forwards, backwards or in both directions, and their single steps.
// The inputs' part of the gates is one product over all steps; the rest is a scan (control.cpp) of the cell's step.
#include "ops/recurrent.h"

#include "ops/absent.h"
#include "ops/expr.h"
#include "ops/families.h"
#include "ops/rules.h"
#include "topstitch/control.h"

namespace topstitch::ops {

using namespace expr;

namespace {

// Where the inputs of an operation are; -1 for what its kind of cell has not.
struct Places {
    int source = 0, recurrent = 1, input = 2, bias = 3, first_state = 4, mask, peephole = -1, secondary = -1;
    bool is_step;  // the states come second, and are needed

    Places(const CellKind& kind, bool step) : is_step(step) {
        if (step) {
            first_state = 1;
            recurrent = 1 + kind.states;
            input = recurrent + 1;
            bias = input + 1;
            mask = bias + 1;
        } else {
            mask = first_state + kind.states;
        }
        if (kind.states == 2) peephole = mask + 1;
        if (kind.gates == 3) secondary = mask + 1;
    }
};

bool both_directions(const OpView& view) {
    return view.def().attribute_index("bidirectional") >= 0 && view.flag("bidirectional");
}

// --- Types.

// One dim of what is found in several shapes; `name` is its letter in the docs.
class Letter {
public:
    Letter(const OpView& view, const char* name) : view_(view), name_(name) {}
    void meet(const Dim& found, int input) {
        if (!dims_agree(dim_, found)) {
            view_.fail(concat(input_name(view_, input), " makes ", name_, " = ", found.str(), ", but by ",
                              input_name(view_, source_), " it is ", dim_.str()));
        }
        if (dim_.is_unknown() && !found.is_unknown()) source_ = input;
        dim_ = unify_dims(dim_, found);
    }
    const Dim& dim() const { return dim_; }

private:
    const OpView& view_;
    const char* name_;
    Dim dim_ = Dim::unknown();
    int source_ = 0;
};

class RecurrentTypes {
public:
    RecurrentTypes(const OpView& view, const CellKind& kind, const Places& places)
        : view_(view), kind_(kind), places_(places), directions_(both_directions(view) ? 2 : 1) {}

    std::vector<TensorType> infer() {
        check_dtypes();
        const int rank = places_.is_step ? 2 : 3;
        const Shape source = ranked(places_.source, rank, places_.is_step ? "[N, I]" : "[T, N, I]");
        Dim time = Dim::unknown();
        if (source.has_rank()) {
            if (!places_.is_step) time = source[0];
            batch_.meet(source[rank - 2], places_.source);
        }
        const std::string matrix = directions_ == 2 ? concat("[2, ", kind_.gates, "*H, H]") : "[G*H, H]";
        const Shape recurrent = ranked(places_.recurrent, directions_ == 2 ? 3 : 2, matrix.c_str());
        if (recurrent.has_rank()) {
            if (directions_ == 2) require(places_.recurrent, recurrent[0], 2, "its first axis");
            hidden_.meet(recurrent[recurrent.rank() - 1], places_.recurrent);
        }
        const Dim gates = hidden_.dim().is_unknown() ? Dim::unknown() : hidden_.dim() * Dim(kind_.gates);
        const Dim all = multiplied(gates, directions_);
        if (recurrent.has_rank()) require(places_.recurrent, recurrent[recurrent.rank() - 2], gates, "its rows");
        check_input_weight(source, all);
        vector(places_.bias, all, "[G*H], twice that for both directions");
        const Dim width = multiplied(hidden_.dim(), directions_);
        for (int k = 0; k < kind_.states; ++k) state(places_.first_state + k, width);
        state_like(places_.mask, width);
        if (places_.peephole >= 0) peephole(gates);
        if (places_.secondary >= 0) vector(places_.secondary, width, "[H], twice that for both directions");

        std::vector<Dim> shape = {batch_.dim(), width};
        std::vector<Dim> gate_shape = {batch_.dim(), all};
        if (!places_.is_step) {
            shape.insert(shape.begin(), time);
            gate_shape.insert(gate_shape.begin(), time);
        }
        const DType dtype = view_.input(0).dtype;
        std::vector<TensorType> types(static_cast<std::size_t>(kind_.states), {dtype, Shape(shape)});
        types.push_back({dtype, Shape(gate_shape)});
        return types;
    }

private:
    void check_dtypes() {
        for (int k = 0; k < view_.num_inputs(); ++k) {
            if (!is_given(view_, k)) continue;
            require_floating(view_, k);
            require_same_dtype(view_, 0, 0);
            if (view_.input(k).dtype == view_.input(0).dtype) continue;
            view_.fail_type(concat(input_name(view_, k), " has dtype ", name_of(view_.input(k).dtype), ", but ",
                                   input_name(view_, 0), " has ", name_of(view_.input(0).dtype),
                                   "; all must be equal, so use cast to convert one of them"));
        }
    }

    static Dim multiplied(const Dim& dim, int factor) { return dim.is_unknown() ? dim : dim * Dim(factor); }

    Shape ranked(int input, int rank, const char* layout) const {
        const Shape& shape = view_.in_shape(input);
        if (shape.has_rank() && shape.rank() != rank) {
            view_.fail(concat(input_name(view_, input), " is ", view_.input(input).str(), ", but must have ", rank,
                              " axes: ", layout));
        }
        return shape;
    }

    void require(int input, const Dim& found, const Dim& wanted, const char* what) const {
        if (dims_agree(found, wanted)) return;
        view_.fail(concat(input_name(view_, input), " is ", view_.input(input).str(), ", but ", what, " must be ",
                          wanted.str(), ": there are ", kind_.gates, " gates of H = ", hidden_.dim().str()));
    }

    void check_input_weight(const Shape& source, const Dim& all) {
        if (!is_given(view_, places_.input)) {
            // The source is the inputs' part of the gates itself.
            if (source.has_rank())
                require(places_.source, source[source.rank() - 1], all, "without input_weight its last axis");
            return;
        }
        const Shape weight = ranked(places_.input, 2, "[G*H, I], twice the rows for both directions");
        if (!weight.has_rank()) return;
        require(places_.input, weight[0], all, "its rows");
        if (source.has_rank() && !dims_agree(weight[1], source[source.rank() - 1])) {
            view_.fail(concat(input_name(view_, places_.input), " is ", view_.input(places_.input).str(), ", but ",
                              input_name(view_, places_.source), " has ", source[source.rank() - 1].str(),
                              " features"));
        }
    }

    void vector(int input, const Dim& length, const char* layout) const {
        if (!is_given(view_, input)) return;
        const Shape shape = ranked(input, 1, layout);
        if (shape.has_rank()) require(input, shape[0], length, "its length");
    }

    void state(int input, const Dim& width) {
        if (!is_given(view_, input)) return;
        const Shape shape = ranked(input, 2, "[N, H], twice as wide for both directions");
        if (!shape.has_rank()) return;
        batch_.meet(shape[0], input);
        require(input, shape[1], width, "its last axis");
    }

    // One for all of the batch will do.
    void state_like(int input, const Dim& width) {
        if (!is_given(view_, input)) return;
        const Shape shape = ranked(input, 2, "[N, H] or [1, H], twice as wide for both directions");
        if (!shape.has_rank()) return;
        if (!dim_is_one(shape[0])) batch_.meet(shape[0], input);
        require(input, shape[1], width, "its last axis");
    }

    void peephole(const Dim& gates) const {
        if (!is_given(view_, places_.peephole)) return;
        const Shape shape = ranked(places_.peephole, directions_, directions_ == 2 ? "[2, 4*H]" : "[4*H]");
        if (!shape.has_rank()) return;
        if (directions_ == 2) require(places_.peephole, shape[0], 2, "its first axis");
        require(places_.peephole, shape[shape.rank() - 1], gates, "its last axis");
    }

    const OpView& view_;
    const CellKind& kind_;
    Places places_;
    int directions_;
    Letter batch_{view_, "N"};
    Letter hidden_{view_, "H"};
};

// --- Bodies.

// The part of direction `d` along an axis that holds both one after the other.
Tensor half_of(const Tensor& x, int d, int directions, int axis) {
    if (!x || directions == 1) return x;
    return equal_parts(x, 2, axis)[static_cast<std::size_t>(d)];
}

// The same where they lie along an axis of their own, the first.
Tensor plane_of(const Tensor& x, int d, int directions) {
    if (!x || directions == 1) return x;
    return apply("squeeze", {half_of(x, d, directions, 0)}, {{"axes", std::vector<std::int64_t>{0}}});
}

CellWeights weights_of(const CompositeContext& c, const Places& places, int d, int directions) {
    const auto optional = [&](int place) { return place < 0 ? Tensor() : given_input(c, place); };
    return {plane_of(c.input(places.recurrent), d, directions), half_of(optional(places.mask), d, directions, -1),
            plane_of(optional(places.peephole), d, directions), half_of(optional(places.secondary), d, directions, 0)};
}

Tensor projected(const CompositeContext& c, const Places& places, int d, int directions) {
    const Tensor& source = c.input(places.source);
    const Tensor weight = half_of(given_input(c, places.input), d, directions, 0);
    Tensor result = weight ? matmul(source, transpose(weight, {1, 0})) : half_of(source, d, directions, -1);
    const Tensor bias = half_of(given_input(c, places.bias), d, directions, 0);
    return bias ? result + bias : result;
}

// The states of one direction, one for each step, and its gates.
std::vector<Tensor> one_direction(const CompositeContext& c, const CellKind& kind, const Places& places, int d,
                                  int directions) {
    const Tensor gates = projected(c, places, d, directions);
    const CellWeights weights = weights_of(c, places, d, directions);
    std::vector<Tensor> initial;
    for (int k = 0; k < kind.states; ++k) {
        Tensor state = half_of(given_input(c, places.first_state + k), d, directions, -1);
        if (!state) {
            // Zeros in the shape of one gate of one step; only the shape is used.
            const Tensor step = sum(gates, {0}, false);
            state = zeros_like(equal_parts(step, kind.gates, -1).front());
        }
        initial.push_back(state);
    }
    ScanOptions options;
    options.reverse = directions == 2 ? d == 1 : c.op.flag("reverse");
    const ScanResult result = scan(
        Graph(gates.graph_data()), initial, {gates},
        [&](const Tensor&, const std::vector<Tensor>& state, const std::vector<Tensor>& parts) {
            const CellStep step = kind.step(c.op, parts[0], state, weights);
            std::vector<Tensor> stacked = step.state;
            stacked.push_back(step.gates);
            return ScanResult{step.state, std::move(stacked)};
        },
        options);
    return result.stacked;
}

std::vector<Tensor> expand_sequence(CompositeContext& c, const CellKind& kind, const Places& places) {
    const int directions = both_directions(c.op) ? 2 : 1;
    std::vector<Tensor> results = one_direction(c, kind, places, 0, directions);
    if (directions == 1) return results;
    const std::vector<Tensor> backwards = one_direction(c, kind, places, 1, directions);
    for (std::size_t k = 0; k < results.size(); ++k) { results[k] = side_by_side({results[k], backwards[k]}); }
    return results;
}

std::vector<Tensor> expand_step(CompositeContext& c, const CellKind& kind, const Places& places) {
    std::vector<Tensor> state;
    for (int k = 0; k < kind.states; ++k) state.push_back(c.input(places.first_state + k));
    const CellStep step = kind.step(c.op, projected(c, places, 0, 1), state, weights_of(c, places, 0, 1));
    std::vector<Tensor> results = step.state;
    results.push_back(step.gates);
    return results;
}

// --- Declarations.

std::vector<ArgDef> arguments(const CellKind& kind, bool step) {
    const bool is_lstm = kind.states == 2;
    const auto optional = [](std::string name, std::string doc) {
        return ArgDef{std::move(name), std::move(doc), false, true};
    };
    std::vector<ArgDef> args;
    args.push_back(
        {"source",
         step ? "[N, I], floating-point; without input_weight [N, G*H]"
              : "[T, N, I], floating-point; without input_weight [T, N, G*H], twice that for both directions"});
    if (step) {
        args.push_back({"state", "[N, H]"});
        if (is_lstm) args.push_back({"cell", "[N, H]"});
    }
    args.push_back({"recurrent_weight", step ? "R, [G*H, H]" : "R, [G*H, H], or [2, G*H, H] for both directions"});
    args.push_back(optional("input_weight", step ? "W, [G*H, I]" : "W, [G*H, I], twice the rows for both directions"));
    args.push_back(optional("bias", step ? "b, [G*H]" : "b, [G*H], twice that for both directions"));
    if (!step) {
        args.push_back(optional("initial_state", "[N, H], or [N, 2*H] for both directions; zeros without it"));
        if (is_lstm) args.push_back(optional("initial_cell", "as initial_state"));
    }
    args.push_back(optional("mask",
                            "m, [N, H] or [1, H], twice as wide for both directions: multiplies the state in the "
                            "recurrent product, for dropout"));
    if (is_lstm) args.push_back(optional("peephole", step ? "p, [4*H]" : "p, [4*H], or [2, 4*H] for both directions"));
    if (kind.gates == 3)
        args.push_back(optional("secondary_bias",
                                step ? "b2, [H]" : "b2, [H], twice that for both directions; used with reset_after"));
    return args;
}

const char* formula(const CellKind& kind) {
    switch (kind.gates) {
        case 1:
            return "gate = x W^T + (h * m) R^T + b, and the new state is activation(gate)";
        case 4:
            return "the gates i, f, z, o are x W^T + (h * m) R^T + b + p * c, each with its activation; the new cell "
                   "is "
                   "f * c + i * z, and the new state o * activation(c)";
        default:
            return "the gates z and r are x W^T + (h * m) R^T + b with their activations, o is x W^T + ((h * m) * r) "
                   "R^T + b "
                   "or, with reset_after, x W^T + r * ((h * m) R^T + b2) + b; the new state is z * h + (1 - z) * o";
    }
}

OpDef recurrent_op(const CellKind& kind, bool step, std::vector<std::string> mpsgraph, const char* onnx) {
    OpDef def;
    def.name = step ? concat(kind.name, "_step") : kind.name;
    def.family = "recurrent";
    def.doc = concat(
        step ? "One step of a recurrent layer" : "A recurrent layer over a sequence of T steps", ": ", formula(kind),
        ". G = ", kind.gates, " gates of H features each lie one after the other in the rows of R and W. ",
        step ? "Results: the new state" : "Results: the states of all steps", kind.states == 2 ? ", the cells," : "",
        " and the gates before their activations; what is not used is not computed into memory. Without W the "
        "source is the inputs' part of the gates itself. Gradients flow to everything.");
    def.args = arguments(kind, step);
    if (!step) {
        def.attributes = {flag_attr("reverse", false, "from the last step to the first; not for both directions"),
                          flag_attr("bidirectional", false,
                                    "in both directions, whose results lie one after the other in the last axis")};
    }
    def.attributes.insert(def.attributes.end(), kind.attributes.begin(), kind.attributes.end());
    def.results = {step ? "state" : "states"};
    if (kind.states == 2) def.results.push_back(step ? "cell" : "cells");
    def.results.push_back("gates");
    const Places places(kind, step);
    def.infer = [kind, places](const OpView& view) { return RecurrentTypes(view, kind, places).infer(); };
    def.body = CompositeBody{[kind, places, step](CompositeContext& c) {
        return step ? expand_step(c, kind, places) : expand_sequence(c, kind, places);
    }};
    def.gradient = FromExpansion{};
    def.mpsgraph = std::move(mpsgraph);
    def.onnx = step ? "" : onnx;
    return def;
}

}  // namespace

std::vector<OpDef> recurrent_ops() {
    return {recurrent_op(rnn_cell(), false, {"singleGateRNN"}, "RNN"),
            recurrent_op(lstm_cell(), false, {"LSTM"}, "LSTM"),
            recurrent_op(gru_cell(), false, {"GRU"}, "GRU"),
            recurrent_op(rnn_cell(), true, {}, ""),
            recurrent_op(lstm_cell(), true, {}, ""),
            recurrent_op(gru_cell(), true, {}, "")};
}

}  // namespace topstitch::ops
