// The copying machinery that passes share.
// See program.h.
#include "passes/program.h"

#include <cmath>

namespace topstitch {

const Layout* Program::layout_of(TensorRef ref) const {
    for (std::size_t k = 0; k < layouts.size(); ++k) {
        if (layouts[k] && results[k] == ref) return &*layouts[k];
    }
    return nullptr;
}

Rebuild::Rebuild(const Program& from)
    : from_(&from), graph_(std::make_shared<GraphData>()), map_(from.graph->ops.size()) {}

TensorRef Rebuild::mapped(TensorRef old) const {
    const auto& outputs = map_[static_cast<std::size_t>(old.op)];
    internal_check(static_cast<std::size_t>(old.output) < outputs.size(), "a pass left an operation out that is used");
    return outputs[static_cast<std::size_t>(old.output)];
}

void Rebuild::map(OpId old, std::vector<TensorRef> outputs) {
    map_[static_cast<std::size_t>(old)] = std::move(outputs);
}

OpNode Rebuild::mapped_node(OpId old) const {
    OpNode node = from_->graph->op(old);
    for (TensorRef& input : node.inputs) input = mapped(input);
    node.control.clear();
    return node;
}

OpId Rebuild::add(OpId old, OpNode node) {
    const auto count = static_cast<std::int32_t>(node.outputs.size());
    const OpId id = append(*graph_, std::move(node));
    std::vector<TensorRef> outputs;
    for (std::int32_t k = 0; k < count; ++k) outputs.push_back({id, k});
    map(old, std::move(outputs));
    return id;
}

Program Rebuild::finish() && {
    Program program;
    program.graph = std::move(graph_);
    for (TensorRef feed : from_->feeds) program.feeds.push_back(mapped(feed));
    for (Program::State state : from_->states) {
        state.before = mapped(state.before);
        state.after = mapped(state.after);
        program.states.push_back(std::move(state));
    }
    for (TensorRef result : from_->results) program.results.push_back(mapped(result));
    for (TensorRef feed : from_->invariant) program.invariant.push_back(mapped(feed));
    program.repeats = from_->repeats;
    program.layouts = from_->layouts;
    program.assumptions = from_->assumptions;
    return program;
}

namespace {

std::vector<TensorType> types_of_inputs(const GraphData& graph, const OpNode& node) {
    std::vector<TensorType> types;
    types.reserve(node.inputs.size());
    for (TensorRef input : node.inputs) types.push_back(graph.type(input));
    return types;
}

}  // namespace

NodeView::NodeView(const GraphData& graph, const OpNode& node)
    : inputs(types_of_inputs(graph, node)), view(*node.def, inputs, node.outputs, node.attributes, &node.location) {}

std::optional<double> splat_value(const GraphData& graph, TensorRef ref) {
    for (;;) {
        const OpNode& node = graph.op(ref.op);
        if (is_complex(graph.type(ref).dtype)) return std::nullopt;
        if (node.def->name == "constant") {
            const auto& value = std::get<NDArray>(node.attributes[0]);
            // 64-bit integers beyond 2^53 would not survive the trip through a double.
            if (value.size() != 1) return std::nullopt;
            const double number = value.at(0);
            if (std::abs(number) > 9007199254740992.0 && is_integer(value.dtype())) return std::nullopt;
            return number;
        }
        if (node.def->name == "full_like") {
            return std::get<double>(node.attributes[static_cast<std::size_t>(node.def->attribute_index("value"))]);
        }
        // A view only moves elements, so the splat of its input is its own.
        const bool moves =
            node.def->view && node.inputs.size() == 1 && graph.type(node.inputs[0]).dtype == graph.type(ref).dtype;
        if (!moves) return std::nullopt;
        ref = node.inputs[0];
    }
}

}  // namespace topstitch
