// Creates operations: the one way into a graph, with every check.
// Also the inference of types and the expansion of composites, which passes share.
#include "graph/apply.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "graph/dims.h"
#include "graph/function.h"
#include "graph/random_state.h"
#include "graph/suggest.h"

namespace topstitch {

namespace {

thread_local SourceLocation current_location;

// "input 1 (`b`)"
std::string argument_name(const OpDef& def, std::size_t k) {
    if (def.args.empty()) return concat("input ", k);
    const ArgDef& arg = k < def.args.size() ? def.args[k] : def.args.back();
    return concat("input ", k, " (`", arg.name, "`)");
}

std::string signature(const OpDef& def) {
    std::string text = def.name + "(";
    for (std::size_t k = 0; k < def.args.size(); ++k) {
        const ArgDef& arg = def.args[k];
        text += concat(k > 0 ? ", " : "", arg.name, arg.variadic ? "..." : "", arg.optional ? "?" : "");
    }
    return text + ")";
}

[[noreturn]] void fail(const OpDef& def, const std::string& message) {
    std::string text = concat("[", def.name, "] ", message);
    if (current_location.known()) text += concat(" (created at ", current_location.str(), ")");
    throw UserError(text);
}

void check_inputs(const std::shared_ptr<GraphData>& graph, const OpDef& def, const std::vector<Tensor>& inputs) {
    check_input_count(def, inputs.size());
    for (std::size_t k = 0; k < inputs.size(); ++k) {
        const Tensor& input = inputs[k];
        if (!input) fail(def, concat(argument_name(def, k), " is an empty Tensor; pass a tensor of the graph"));
        if (input.graph_data() != graph) {
            fail(def,
                 concat(argument_name(def, k), " is ", input.str(),
                        input.graph_data()->sealed
                            ? ", a tensor from inside the body of a loop or branch; return it from the body to use "
                              "it outside"
                            : ", a tensor of another graph; all inputs must come from one graph"));
        }
        const TensorRef ref = input.ref();
        const bool exists = ref.op >= 0 && static_cast<std::size_t>(ref.op) < graph->size() && ref.output >= 0 &&
                            static_cast<std::size_t>(ref.output) < graph->find(ref.op).outputs.size();
        if (!exists) fail(def, concat(argument_name(def, k), " does not exist in its graph"));
    }
}

// `read` and `assign` act on the storage of a variable, which only the `variable` operation has.
void check_variable(const std::shared_ptr<GraphData>& graph, const OpDef& def, const std::vector<Tensor>& inputs) {
    if (graph->outer != nullptr && def.name == "variable")
        fail(def, "a variable cannot be created in the body of a loop or branch; create it in the graph around");
    if (def.name != "read" && def.name != "assign") return;
    if (graph->outer != nullptr) {
        fail(def,
             "a variable cannot be read or assigned in the body of a loop or branch; use it as a tensor there, return "
             "the new value from the body, and assign that in the graph around");
    }
    const OpNode& node = graph->find(inputs[0].ref().op);
    if (node.variable != nullptr) return;
    fail(def, concat(argument_name(def, 0), " must be a variable, but ", inputs[0].str(), " is the result of `",
                     node.def->name, "`; create one with Graph.variable"));
}

// The body that is being described, or the innermost of the given graph and those of the inputs.
const std::shared_ptr<GraphData>& innermost(const std::shared_ptr<GraphData>& given,
                                            const std::vector<Tensor>& inputs) {
    const std::shared_ptr<GraphData>* found = &given;
    for (const Tensor& input : inputs) {
        if (input && input.graph_data() != *found && encloses(**found, *input.graph_data()))
            found = &input.graph_data();
    }
    return current_body(*found);
}

// Adds what the rules leave out when an error comes from code that does not know the operation.
std::string with_context(const OpView& view, const SourceLocation* location, const char* message) {
    std::string text = message;
    if (!text.starts_with("[")) text = concat("[", view.def().name, "] ", text);
    const bool named = text.find("(created at ") != std::string::npos;
    if (!named && location != nullptr && location->known()) text += concat(" (created at ", location->str(), ")");
    return text;
}

}  // namespace

void check_input_count(const OpDef& def, std::size_t count) {
    std::size_t least = 0;
    bool variadic = false;
    for (const ArgDef& arg : def.args) {
        if (!arg.optional) ++least;
        variadic = variadic || arg.variadic;
    }
    if (count >= least && (variadic || count <= def.args.size())) return;
    const std::string allowed = variadic                  ? concat("at least ", least)
                                : least < def.args.size() ? concat(least, " to ", def.args.size())
                                                          : concat(least);
    fail(def, concat("takes ", allowed, (allowed == "1" ? " input" : " inputs"), ", but got ", count, "; its form is ",
                     signature(def)));
}

void set_current_location(SourceLocation location) {
    current_location = std::move(location);
}

ScopedLocation::ScopedLocation(SourceLocation location)
    : previous_(std::exchange(current_location, std::move(location))) {}

ScopedLocation::~ScopedLocation() {
    current_location = std::move(previous_);
}

std::vector<TensorType> infer_types(const OpDef& def, std::span<const TensorType> inputs,
                                    std::span<const Attribute> attributes, const SourceLocation* location) {
    const OpView view(def, inputs, {}, attributes, location);
    try {
        return def.infer(view);
    } catch (const TypeError& error) {
        throw TypeError(with_context(view, location, error.what()));
    } catch (const UserError& error) { throw UserError(with_context(view, location, error.what())); }
}

OpId append(GraphData& graph, OpNode node) {
    const std::lock_guard lock(graph.mutex);
    if (graph.ops.size() >= static_cast<std::size_t>(std::numeric_limits<OpId>::max())) {
        throw UserError("graph: it has 2147483647 operations, which is the most that are possible");
    }
    // Sources are values, not actions: nothing can come before them.
    const bool is_source = node.inputs.empty() && std::holds_alternative<BuiltinBody>(node.def->body);
    const auto open = graph.control_stacks.find(std::this_thread::get_id());
    if (!is_source && open != graph.control_stacks.end()) {
        for (const auto& group : open->second) {
            for (const OpId id : group) {
                if (std::find(node.control.begin(), node.control.end(), id) == node.control.end()) {
                    node.control.push_back(id);
                }
            }
        }
    }
    graph.ops.push_back(std::move(node));
    return static_cast<OpId>(graph.ops.size() - 1);
}

Operation apply_operation(const std::shared_ptr<GraphData>& given, const OpDef& def,
                          const std::vector<Tensor>& given_inputs, const NamedAttributes& attributes,
                          const std::string& name) {
    internal_check(given != nullptr, "apply() without a graph");
    const std::shared_ptr<GraphData> graph = innermost(given, given_inputs);
    if (graph->sealed)
        fail(def,
             "its inputs come from inside the body of a loop or branch, which is complete; return "
             "them from the body to use them outside");
    std::vector<Tensor> inputs;
    inputs.reserve(given_inputs.size());
    for (const Tensor& input : given_inputs) inputs.push_back(captured(graph, input));
    check_inputs(graph, def, inputs);
    if (std::holds_alternative<BuiltinBody>(def.body)) check_variable(graph, def, inputs);

    OpNode node;
    node.def = &def;
    node.name = name;
    node.location = current_location;
    try {
        node.attributes = complete_attributes(def, attributes);
    } catch (const TypeError& error) {
        throw TypeError(with_context(OpView(def, {}, {}, {}), &current_location, error.what()));
    } catch (const UserError& error) {
        throw UserError(with_context(OpView(def, {}, {}, {}), &current_location, error.what()));
    }
    std::vector<TensorType> types;
    types.reserve(inputs.size() + 1);
    node.inputs.reserve(inputs.size() + 1);
    const auto add_input = [&](const Tensor& input) {
        types.push_back(input.type());
        node.inputs.push_back(input.ref());
    };
    for (const Tensor& input : inputs) add_input(input);
    node.outputs = infer_types(def, types, node.attributes, &node.location);
    const bool lacks_state = def.draws && inputs.size() + 1 == def.args.size();
    if (lacks_state && def.draws(OpView(def, types, node.outputs, node.attributes))) {
        add_input(next_random_stream(graph));
    }
    if (def.name == random_stream_op) note_random_stream(*graph, node);
    if (def.name == "variable") {
        node.variable = std::make_shared<Variable>();
        node.variable->value = std::get<NDArray>(node.attributes[0]).copy();
    }

    return Operation(graph, append(*graph, std::move(node)));
}

std::vector<Tensor> apply(const std::shared_ptr<GraphData>& graph, const OpDef& def, const std::vector<Tensor>& inputs,
                          const NamedAttributes& attributes, const std::string& name) {
    return apply_operation(graph, def, inputs, attributes, name).outputs();
}

Tensor apply(std::string_view op, const std::vector<Tensor>& inputs, const NamedAttributes& attributes,
             const std::string& name) {
    const OpDef* def = find_op(op);
    if (def == nullptr) {
        std::vector<std::string_view> names;
        for (const OpDef& known : all_ops()) names.push_back(known.name);
        throw UserError(concat("[", op, "] there is no operation of this name", did_you_mean(op, names)));
    }
    for (const Tensor& input : inputs) {
        if (!input) continue;
        const std::vector<Tensor> outputs = apply(input.graph_data(), *def, inputs, attributes, name);
        return outputs.empty() ? Tensor() : outputs.front();
    }
    fail(*def, "got no input tensor, so the graph is not known; pass a tensor, or apply it to a graph");
}

std::vector<Tensor> expand_composite(const std::shared_ptr<GraphData>& graph, const OpDef& def,
                                     const std::vector<Tensor>& inputs, std::span<const Attribute> attributes) {
    std::vector<TensorType> types;
    types.reserve(inputs.size());
    for (const Tensor& input : inputs) types.push_back(input.type());
    const std::vector<TensorType> outputs = infer_types(def, types, attributes);

    internal_check(graph != nullptr, "expand_composite() without a graph");
    const OpView view(def, types, outputs, attributes);
    CompositeContext context(inputs, view);
    context.graph = graph;
    std::vector<Tensor> results = std::get<CompositeBody>(def.body).expand(context);

    bool agree = results.size() == outputs.size();
    for (std::size_t k = 0; agree && k < results.size(); ++k) {
        agree = results[k].dtype() == outputs[k].dtype && shapes_agree(outputs[k].shape, results[k].shape());
    }
    if (!agree) {
        std::string text = concat("[", def.name, "] its expansion gives");
        for (const Tensor& result : results) text += " " + result.type().str();
        text += ", but its type rule says";
        for (const TensorType& type : outputs) text += " " + type.str();
        throw InternalError(text);
    }
    return results;
}

}  // namespace topstitch
