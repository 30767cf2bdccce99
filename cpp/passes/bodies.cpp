// Brings the functions of loops and branches into the form that the passes give to programs, from the inside out.
// See bodies.h.
#include "passes/bodies.h"

#include <map>

#include "ops/control.h"
#include "passes/passes.h"
#include "passes/specialize.h"

namespace topstitch {

namespace {

OpNode placeholder(const TensorType& type, const std::string& name) {
    OpNode node;
    node.def = find_op("placeholder");
    node.attributes = complete_attributes(*node.def, {{"shape", type.shape}, {"dtype", type.dtype}});
    node.outputs = {type};
    node.name = name;
    return node;
}

}  // namespace

bool is_control(const OpNode& node) {
    return std::holds_alternative<ControlBody>(node.def->body);
}

Program program_of(const Function& function) {
    Program program;
    program.graph = function.graph;
    program.feeds = function.parameters;
    program.results = function.results;
    return program;
}

FunctionPtr function_of(const Program& program) {
    const auto function = std::make_shared<Function>();
    function->graph = std::make_shared<GraphData>();
    function->parameters = program.feeds;
    function->results = program.results;
    for (const OpNode& node : program.graph->ops) append(*function->graph, node);
    for (const TensorRef feed : program.feeds) {
        OpNode& node = function->graph->ops[static_cast<std::size_t>(feed.op)];
        if (node.def->name == "constant") node = placeholder(node.outputs[0], node.name);
    }
    function->graph->sealed = true;
    return function;
}

void change_functions(OpNode& node, const std::function<Program(const Program&)>& change) {
    for (Attribute& attribute : node.attributes) {
        if (auto* function = std::get_if<FunctionPtr>(&attribute)) {
            *function = function_of(change(program_of(**function)));
        }
    }
}

std::vector<const NDArray*> constant_captures(const GraphData& graph, const OpNode& node) {
    const NodeView view(graph, node);
    const auto [parameter, input] = ops::captures_of(view.view);
    std::vector<const NDArray*> constants(ops::parameter_types(view.view).size(), nullptr);
    for (std::size_t k = input; k < node.inputs.size(); ++k) {
        const OpNode& given = graph.op(node.inputs[k].op);
        if (given.def->name == "constant") constants[parameter + k - input] = &std::get<NDArray>(given.attributes[0]);
    }
    return constants;
}

FunctionPtr with_parameters(const Function& function, std::size_t at, const std::vector<NewParameter>& added,
                            const std::vector<TensorRef>& more) {
    const auto changed = std::make_shared<Function>();
    changed->graph = std::make_shared<GraphData>();
    std::map<TensorRef, TensorRef> map;
    for (std::size_t k = 0; k <= function.parameters.size(); ++k) {
        if (k == at) {
            for (const NewParameter& parameter : added) {
                const OpId made = append(*changed->graph, placeholder(parameter.type, parameter.name));
                changed->parameters.push_back({made, 0});
                if (parameter.replaces.op >= 0) map[parameter.replaces] = {made, 0};
            }
        }
        if (k == function.parameters.size()) break;
        const TensorRef old = function.parameters[k];
        map[old] = {append(*changed->graph, function.graph->op(old.op)), 0};
        changed->parameters.push_back(map[old]);
    }
    for (std::size_t id = 0; id < function.graph->ops.size(); ++id) {
        OpNode node = function.graph->ops[id];
        if (node.def->name == "placeholder") continue;
        for (TensorRef& input : node.inputs) input = map.at(input);
        const auto count = static_cast<std::int32_t>(node.outputs.size());
        const OpId made = append(*changed->graph, std::move(node));
        for (std::int32_t k = 0; k < count; ++k) map.try_emplace({static_cast<OpId>(id), k}, TensorRef{made, k});
    }
    for (const TensorRef result : function.results) changed->results.push_back(map.at(result));
    for (const TensorRef result : more) changed->results.push_back(map.at(result));
    changed->graph->sealed = true;
    return changed;
}

Program bodies(const Program& program, bool keep_library) {
    Rebuild rebuild(program);
    for (std::size_t index = 0; index < program.graph->ops.size(); ++index) {
        const auto id = static_cast<OpId>(index);
        OpNode node = rebuild.mapped_node(id);
        if (is_control(node)) {
            const std::vector<TensorType> types = ops::parameter_types(NodeView(*rebuild.graph(), node).view);
            const std::vector<const NDArray*> constants = constant_captures(*rebuild.graph(), node);
            for (Attribute& attribute : node.attributes) {
                auto* function = std::get_if<FunctionPtr>(&attribute);
                if (function == nullptr) continue;
                const Program body = specialize_function(**function, types, constants);
                require_decided(body);
                *function = function_of(bodies(tidy(body, keep_library), keep_library));
            }
        }
        rebuild.add(id, std::move(node));
    }
    return std::move(rebuild).finish();
}

}  // namespace topstitch
