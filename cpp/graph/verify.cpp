// Checks every invariant of a graph: references, arity, attributes, types, variables.
// What it finds is a defect of topstitch, since apply() lets nothing else in.
#include "graph/apply.h"
#include "graph/function.h"

namespace topstitch {

namespace {

[[noreturn]] void broken(OpId id, const OpNode& node, const std::string& message) {
    throw InternalError(concat("verify: operation %", id, " (`", node.def == nullptr ? "?" : node.def->name, "`) ",
                               message, "; this is a defect of topstitch, please report it"));
}

void verify_references(const GraphData& graph, OpId id, const OpNode& node) {
    for (std::size_t k = 0; k < node.inputs.size(); ++k) {
        const TensorRef ref = node.inputs[k];
        if (ref.op < 0 || ref.op >= id) broken(id, node, concat("takes %", ref.op, ", which is not created before it"));
        if (ref.output < 0 || static_cast<std::size_t>(ref.output) >= graph.find(ref.op).outputs.size()) {
            broken(id, node, concat("takes result ", ref.output, " of %", ref.op, ", which does not exist"));
        }
    }
    for (const OpId before : node.control) {
        if (before < 0 || before >= id)
            broken(id, node, concat("runs after %", before, ", which is not created before it"));
    }
}

void verify_attributes(OpId id, const OpNode& node) {
    const auto& declared = node.def->attributes;
    if (node.attributes.size() != declared.size()) {
        broken(id, node, concat("has ", node.attributes.size(), " attributes instead of ", declared.size()));
    }
    for (std::size_t k = 0; k < declared.size(); ++k) {
        const AttributeKind kind = kind_of(node.attributes[k]);
        const bool left_out = kind == AttributeKind::none && !declared[k].required;
        if (!declared[k].allows(kind) && !left_out) {
            broken(id, node, concat("has the attribute '", declared[k].name, "' in another kind than declared"));
        }
    }
}

void verify_types(const GraphData& graph, OpId id, const OpNode& node) {
    std::vector<TensorType> inputs;
    for (const TensorRef ref : node.inputs) {
        inputs.push_back(graph.find(ref.op).outputs[static_cast<std::size_t>(ref.output)]);
    }
    std::vector<TensorType> outputs;
    try {
        check_input_count(*node.def, node.inputs.size());
        const ScopedDimAssumptions building(nullptr);
        outputs = infer_types(*node.def, inputs, node.attributes, &node.location);
    } catch (const UserError& error) { broken(id, node, concat("is not well-formed: ", error.what())); }
    if (outputs.size() != node.outputs.size()) {
        broken(id, node, concat("has ", node.outputs.size(), " results instead of ", outputs.size()));
    }
    for (std::size_t k = 0; k < outputs.size(); ++k) {
        if (!same_type(outputs[k], node.outputs[k])) {
            broken(id, node,
                   concat("has result ", k, " of type ", node.outputs[k].str(), " instead of ", outputs[k].str()));
        }
    }
}

void verify_variable(const GraphData& graph, OpId id, const OpNode& node) {
    const bool is_variable = node.def->name == "variable";
    if (is_variable != (node.variable != nullptr))
        broken(id, node, "is a variable without storage, or storage without one");
    if (is_variable) {
        const std::lock_guard lock(node.variable->mutex);
        const TensorType stored{node.variable->value.dtype(), Shape::of(node.variable->value.shape())};
        if (!same_type(stored, node.outputs.front())) {
            broken(id, node, concat("is ", node.outputs.front().str(), ", but holds ", stored.str()));
        }
    }
    if (node.def->name == "read" || node.def->name == "assign") {
        if (graph.find(node.inputs.front().op).variable == nullptr) broken(id, node, "acts on what is not a variable");
    }
}

}  // namespace

void Graph::verify() const {
    const std::size_t count = data_->size();
    for (std::size_t k = 0; k < count; ++k) {
        const auto id = static_cast<OpId>(k);
        const OpNode& node = data_->find(id);
        if (node.def == nullptr) broken(id, node, "has no declaration");
        verify_references(*data_, id, node);
        verify_attributes(id, node);
        verify_types(*data_, id, node);
        verify_variable(*data_, id, node);
        each_function(node, [](const Function& function) { Graph(function.graph).verify(); });
    }
}

}  // namespace topstitch
