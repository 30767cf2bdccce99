// Describing, inlining and comparing functions.
// See function.h.
#include "graph/function.h"

#include <algorithm>
#include <map>
#include <utility>

#include "graph/apply.h"

namespace topstitch {

namespace {

int depth_of(const GraphData& graph) {
    int depth = 0;
    for (const GraphData* at = &graph; at->outer != nullptr; at = at->outer.get()) ++depth;
    return depth;
}

const OpDef& placeholder_def() {
    static const OpDef* const def = find_op("placeholder");
    return *def;
}

Tensor add_placeholder(const std::shared_ptr<GraphData>& graph, const TensorType& type, const std::string& name) {
    const ScopedBody here(graph);  // even while a body inside it is being described
    return apply(graph, placeholder_def(), {}, {{"shape", type.shape}, {"dtype", type.dtype}}, name).front();
}

bool is_parameter(const std::vector<TensorRef>& parameters, TensorRef ref) {
    return std::find(parameters.begin(), parameters.end(), ref) != parameters.end();
}

}  // namespace

FunctionBuilder::FunctionBuilder(std::shared_ptr<GraphData> outer)
    : outer_(std::move(outer)), graph_(std::make_shared<GraphData>()) {
    internal_check(outer_ != nullptr, "a function without a graph around it");
    if (depth_of(*outer_) + 1 >= deepest_function)
        throw UserError(
            concat("[control flow] bodies lie in each other ", deepest_function, " deep, which is the most"));
    graph_->outer = outer_;
}

FunctionBuilder::~FunctionBuilder() {
    // The graph around holds the function, so that this would be a cycle.
    graph_->outer.reset();
    graph_->sealed = true;
}

Tensor FunctionBuilder::parameter(const TensorType& type, const std::string& name) {
    const Tensor made = add_placeholder(graph_, type, name);
    parameters_.push_back(made.ref());
    return made;
}

void FunctionBuilder::set_repeats(const Tensor& index) {
    graph_->repeats = true;
    if (index) graph_->iteration = index.ref();
}

Tensor FunctionBuilder::add_iteration() {
    const Tensor index = iteration_of(graph_);
    parameters_.push_back(index.ref());
    return index;
}

std::vector<Tensor> FunctionBuilder::captured() const {
    std::vector<Tensor> tensors;
    for (const GraphData::Capture& capture : graph_->captures) tensors.emplace_back(outer_, capture.outer);
    return tensors;
}

FunctionPtr FunctionBuilder::finish(const std::vector<Tensor>& results, const std::vector<Tensor>& captures) {
    const auto function = std::make_shared<Function>();
    function->graph = graph_;
    for (const Tensor& result : results) {
        internal_check(result.graph_data() == graph_, "a result of a function is not a tensor of it");
        function->results.push_back(result.ref());
    }
    function->parameters = parameters_;
    for (const Tensor& capture : captures) {
        function->parameters.push_back(topstitch::captured(graph_, capture).ref());
    }
    for (std::size_t id = 0; id < graph_->size(); ++id) {
        const OpNode& node = graph_->find(static_cast<OpId>(id));
        if (node.def != &placeholder_def() || is_parameter(function->parameters, {static_cast<OpId>(id), 0})) continue;
        throw UserError(concat("[placeholder] ", node.name.empty() ? "it" : "'" + node.name + "'",
                               " was created in the body of a loop or branch, where nothing can be fed; create it in "
                               "the graph around",
                               node.location.known() ? " (created at " + node.location.str() + ")" : ""));
    }
    graph_->outer.reset();
    graph_->sealed = true;
    return function;
}

namespace {

thread_local std::shared_ptr<GraphData> open_body;

}  // namespace

ScopedBody::ScopedBody(std::shared_ptr<GraphData> body) : previous_(std::exchange(open_body, std::move(body))) {}

ScopedBody::~ScopedBody() {
    open_body = std::move(previous_);
}

const std::shared_ptr<GraphData>& current_body(const std::shared_ptr<GraphData>& graph) {
    return open_body != nullptr && encloses(*graph, *open_body) ? open_body : graph;
}

Tensor iteration_of(const std::shared_ptr<GraphData>& body) {
    internal_check(body->repeats, "a graph that is not repeated has no iterations");
    if (body->iteration.op < 0) {
        body->iteration = add_placeholder(body, {DType::int64, Shape(std::vector<Dim>{})}, "iteration").ref();
    }
    return Tensor(body, body->iteration);
}

bool encloses(const GraphData& graph, const GraphData& inner) {
    for (const GraphData* at = inner.outer.get(); at != nullptr; at = at->outer.get()) {
        if (at == &graph) return true;
    }
    return false;
}

Tensor captured(const std::shared_ptr<GraphData>& graph, const Tensor& tensor) {
    if (!tensor || tensor.graph_data() == graph || graph->outer == nullptr) return tensor;
    if (!encloses(*tensor.graph_data(), *graph)) return tensor;
    const Tensor outer = captured(graph->outer, tensor);
    for (const GraphData::Capture& known : graph->captures) {
        if (known.outer == outer.ref()) return Tensor(graph, known.inner);
    }
    const Tensor made = add_placeholder(graph, outer.type(), outer.name());
    graph->captures.push_back({outer.ref(), made.ref()});
    return made;
}

std::vector<TensorType> function_types(const Function& function, std::span<const TensorType> parameters) {
    internal_check(parameters.size() == function.parameters.size(), "a function is called with other parameters");
    std::map<TensorRef, TensorType> types;
    for (std::size_t k = 0; k < parameters.size(); ++k) types[function.parameters[k]] = parameters[k];
    const GraphData& graph = *function.graph;
    std::vector<TensorType> inputs;
    for (std::size_t id = 0; id < graph.size(); ++id) {
        const OpNode& node = graph.find(static_cast<OpId>(id));
        if (node.def == &placeholder_def()) continue;
        inputs.clear();
        for (const TensorRef input : node.inputs) inputs.push_back(types.at(input));
        const std::vector<TensorType> outputs = infer_types(*node.def, inputs, node.attributes, &node.location);
        for (std::size_t k = 0; k < outputs.size(); ++k) {
            types[{static_cast<OpId>(id), static_cast<std::int32_t>(k)}] = outputs[k];
        }
    }
    std::vector<TensorType> results;
    for (const TensorRef result : function.results) results.push_back(types.at(result));
    return results;
}

std::vector<Tensor> inline_function(const std::shared_ptr<GraphData>& graph, const Function& function,
                                    const std::vector<Tensor>& arguments) {
    internal_check(arguments.size() == function.parameters.size(), "a function is inlined with other arguments");
    std::map<TensorRef, Tensor> map;
    for (std::size_t k = 0; k < arguments.size(); ++k) map[function.parameters[k]] = arguments[k];
    for (std::size_t id = 0; id < function.graph->size(); ++id) {
        const OpNode& node = function.graph->find(static_cast<OpId>(id));
        if (node.def == &placeholder_def()) continue;
        std::vector<Tensor> inputs;
        for (const TensorRef input : node.inputs) inputs.push_back(map.at(input));
        NamedAttributes attributes;
        for (std::size_t k = 0; k < node.attributes.size(); ++k) {
            attributes.emplace_back(node.def->attributes[k].name, node.attributes[k]);
        }
        const ScopedLocation location(node.location);
        const std::vector<Tensor> outputs = apply(graph, *node.def, inputs, attributes, node.name);
        for (std::size_t k = 0; k < outputs.size(); ++k) {
            map[{static_cast<OpId>(id), static_cast<std::int32_t>(k)}] = outputs[k];
        }
    }
    std::vector<Tensor> results;
    for (const TensorRef result : function.results) results.push_back(map.at(result));
    return results;
}

FunctionPtr without_unused(const Function& function, std::vector<bool>& kept) {
    const std::size_t count = function.graph->size();
    std::vector<bool> used(count, false);
    for (const TensorRef result : function.results) used[static_cast<std::size_t>(result.op)] = true;
    for (std::size_t id = count; id-- > 0;) {
        if (!used[id]) continue;
        const OpNode& node = function.graph->find(static_cast<OpId>(id));
        for (const TensorRef input : node.inputs) used[static_cast<std::size_t>(input.op)] = true;
    }
    for (std::size_t k = 0; k < function.parameters.size(); ++k) {
        const auto id = static_cast<std::size_t>(function.parameters[k].op);
        if (used[id]) kept[k] = true;
        used[id] = kept[k];
    }
    const auto pruned = std::make_shared<Function>();
    pruned->graph = std::make_shared<GraphData>();
    std::vector<OpId> map(count, -1);
    const auto mapped = [&map](TensorRef ref) { return TensorRef{map[static_cast<std::size_t>(ref.op)], ref.output}; };
    for (std::size_t id = 0; id < count; ++id) {
        if (!used[id]) continue;
        OpNode node = function.graph->find(static_cast<OpId>(id));
        for (TensorRef& input : node.inputs) input = mapped(input);
        node.control.clear();  // nothing in a function has an effect beside its results
        map[id] = append(*pruned->graph, std::move(node));
    }
    for (std::size_t k = 0; k < kept.size(); ++k) {
        if (kept[k]) pruned->parameters.push_back(mapped(function.parameters[k]));
    }
    for (const TensorRef result : function.results) pruned->results.push_back(mapped(result));
    pruned->graph->sealed = true;
    return pruned;
}

FunctionPtr with_changed_operations(const Function& function, const std::function<void(OpNode&)>& change) {
    const auto changed = std::make_shared<Function>(function);
    changed->graph = std::make_shared<GraphData>();
    for (std::size_t id = 0; id < function.graph->size(); ++id) {
        OpNode node = function.graph->find(static_cast<OpId>(id));
        change(node);
        append(*changed->graph, std::move(node));
    }
    changed->graph->sealed = true;
    return changed;
}

void each_function(const OpNode& node, const std::function<void(const Function&)>& visit) {
    for (const Attribute& attribute : node.attributes) {
        if (const auto* function = std::get_if<FunctionPtr>(&attribute)) visit(**function);
    }
}

void each_operation(const GraphData& graph, const std::function<void(const OpNode&)>& visit) {
    for (const OpNode& node : graph.ops) {
        visit(node);
        each_function(node, [&visit](const Function& function) { each_operation(*function.graph, visit); });
    }
}

bool equal(const Function& a, const Function& b) {
    if (&a == &b) return true;
    if (a.parameters != b.parameters || a.results != b.results || a.graph->size() != b.graph->size()) return false;
    for (std::size_t id = 0; id < a.graph->size(); ++id) {
        const OpNode& x = a.graph->find(static_cast<OpId>(id));
        const OpNode& y = b.graph->find(static_cast<OpId>(id));
        const bool same = x.def == y.def && x.inputs == y.inputs && x.control == y.control &&
                          x.attributes.size() == y.attributes.size() &&
                          std::equal(x.attributes.begin(), x.attributes.end(), y.attributes.begin(),
                                     [](const Attribute& p, const Attribute& q) { return equal(p, q); });
        if (!same) return false;
    }
    return true;
}

}  // namespace topstitch
