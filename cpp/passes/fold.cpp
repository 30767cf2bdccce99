// Evaluates operations on small constants with the interpreter.
// Large ones stay, since a kernel computes them faster than the interpreter would.
#include "ops/evaluate.h"
#include "passes/passes.h"

namespace topstitch {

namespace {

constexpr std::int64_t max_folded_elements = 1024;

const NDArray* constant_of(const GraphData& graph, TensorRef ref) {
    const OpNode& node = graph.op(ref.op);
    return node.def->name == "constant" ? &std::get<NDArray>(node.attributes[0]) : nullptr;
}

bool foldable(const GraphData& graph, const OpNode& node) {
    const bool has_body =
        !std::holds_alternative<BuiltinBody>(node.def->body) && !std::holds_alternative<ControlBody>(node.def->body);
    if (!has_body || node.inputs.empty() || node.outputs.size() != 1) return false;
    const std::optional<Sizes> sizes = node.outputs[0].shape.sizes();
    if (!sizes || num_elements(*sizes) > max_folded_elements) return false;
    std::int64_t read = 0;
    for (TensorRef input : node.inputs) {
        const NDArray* value = constant_of(graph, input);
        if (value == nullptr) return false;
        read += value->size();
    }
    return read <= max_folded_elements;
}

}  // namespace

Program fold(const Program& program) {
    Rebuild rebuild(program);
    const OpDef* constant = find_op("constant");
    for (std::size_t index = 0; index < program.graph->ops.size(); ++index) {
        const auto id = static_cast<OpId>(index);
        OpNode node = rebuild.mapped_node(id);
        if (!foldable(*rebuild.graph(), node)) {
            rebuild.add(id, std::move(node));
            continue;
        }
        std::vector<NDArray> inputs;
        for (TensorRef input : node.inputs) inputs.push_back(*constant_of(*rebuild.graph(), input));
        OpNode folded;
        folded.def = constant;
        folded.attributes = {evaluate(*node.def, inputs, node.attributes)[0]};
        folded.outputs = node.outputs;
        folded.name = node.name;
        folded.location = node.location;
        rebuild.add(id, std::move(folded));
    }
    return std::move(rebuild).finish();
}

}  // namespace topstitch
