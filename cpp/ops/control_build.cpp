// Describes branches and loops: runs the user's functions on the parameters of a function.
// See topstitch/control.h.
#include <algorithm>

#include "graph/apply.h"
#include "graph/function.h"
#include "ops/control.h"
#include "topstitch/control.h"

namespace topstitch {

namespace {

// The body that is being described on this thread, if it lies in the graph of the tensors; else that graph.
std::shared_ptr<GraphData> graph_around(const std::shared_ptr<GraphData>& graph, const std::vector<Tensor>& tensors) {
    std::shared_ptr<GraphData> found = graph;
    for (const Tensor& tensor : tensors) {
        if (tensor && encloses(*found, *tensor.graph_data())) found = tensor.graph_data();
    }
    return current_body(found);
}

void require_tensors(const char* op, const char* what, const std::vector<Tensor>& tensors) {
    for (std::size_t k = 0; k < tensors.size(); ++k) {
        if (!tensors[k])
            throw UserError(concat("[", op, "] ", what, " ", k, " is an empty Tensor; pass a tensor of the graph"));
    }
}

// The results of a body, as tensors of it.
std::vector<Tensor> returned(const char* op, const FunctionBuilder& builder, const std::vector<Tensor>& results) {
    require_tensors(op, "what the body returns at position", results);
    std::vector<Tensor> inside;
    for (const Tensor& result : results) {
        inside.push_back(captured(builder.graph(), result));
        if (inside.back().graph_data() == builder.graph()) continue;
        throw UserError(concat("[", op, "] the body returns ", result.str(),
                               ", a tensor of another graph; it must come from the body or the graph around it"));
    }
    return inside;
}

std::vector<Tensor> parameters_for(FunctionBuilder& builder, const std::vector<Tensor>& like) {
    std::vector<Tensor> made;
    for (const Tensor& tensor : like) made.push_back(builder.parameter(tensor.type(), tensor.name()));
    return made;
}

void add_missing(std::vector<Tensor>& all, const std::vector<Tensor>& more) {
    for (const Tensor& tensor : more) {
        if (std::find(all.begin(), all.end(), tensor) == all.end()) all.push_back(tensor);
    }
}

// The number of the iteration becomes a further parameter of the body; gives what it is carried on as.
Tensor next_iteration(FunctionBuilder& builder) {
    const Tensor index = builder.add_iteration();
    const ScopedBody scope(builder.graph());
    const Tensor one =
        apply(builder.graph(), *find_op("constant"), {}, {{"value", NDArray::scalar(1, DType::int64)}}).front();
    return apply(builder.graph(), *find_op("add"), {index, one}).front();
}

}  // namespace

std::vector<Tensor> if_else(const Tensor& predicate, const std::function<std::vector<Tensor>()>& then,
                            const std::function<std::vector<Tensor>()>& otherwise, const std::string& name) {
    require_tensors("if_else", "input", {predicate});
    const std::shared_ptr<GraphData> graph = graph_around(predicate.graph_data(), {});
    std::vector<Tensor> results[2];
    FunctionBuilder first(graph);
    {
        const ScopedBody scope(first.graph());
        results[0] = returned("if_else", first, then());
    }
    FunctionBuilder second(graph);
    {
        const ScopedBody scope(second.graph());
        results[1] = returned("if_else", second, otherwise());
    }
    std::vector<Tensor> captures = first.captured();
    add_missing(captures, second.captured());
    std::vector<Tensor> inputs = {predicate};
    inputs.insert(inputs.end(), captures.begin(), captures.end());
    return apply(graph, *find_op("if_else"), inputs,
                 {{"then", first.finish(results[0], captures)}, {"otherwise", second.finish(results[1], captures)}},
                 name);
}

std::vector<Tensor> while_loop(const std::vector<Tensor>& initial,
                               const std::function<Tensor(const std::vector<Tensor>&)>& condition,
                               const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& body,
                               const std::string& name) {
    require_tensors("while_loop", "the carried tensor", initial);
    if (initial.empty())
        throw UserError("[while_loop] nothing is carried, so that the condition could never change; carry a tensor");
    const std::shared_ptr<GraphData> graph = graph_around(initial.front().graph_data(), initial);
    FunctionBuilder first(graph);
    first.set_repeats();
    std::vector<Tensor> decided;
    {
        const ScopedBody scope(first.graph());
        decided = returned("while_loop", first, {condition(parameters_for(first, initial))});
    }
    FunctionBuilder second(graph);
    second.set_repeats();
    std::vector<Tensor> results;
    {
        const ScopedBody scope(second.graph());
        results = returned("while_loop", second, body(parameters_for(second, initial)));
    }
    std::vector<Tensor> inputs = initial;
    if (first.counts() || second.counts()) {
        first.add_iteration();
        results.push_back(next_iteration(second));
        inputs.push_back(apply(graph, *find_op("constant"), {}, {{"value", NDArray::scalar(0, DType::int64)}}).front());
    }
    const auto carried = static_cast<std::int64_t>(inputs.size());
    std::vector<Tensor> captures = first.captured();
    add_missing(captures, second.captured());
    inputs.insert(inputs.end(), captures.begin(), captures.end());
    std::vector<Tensor> outputs = apply(graph, *find_op("while_loop"), inputs,
                                        {{"condition", first.finish(decided, captures)},
                                         {"body", second.finish(results, captures)},
                                         {"carried", carried}},
                                        name);
    outputs.resize(initial.size());
    return outputs;
}

ScanResult scan(const Graph& given, const std::vector<Tensor>& initial, const std::vector<Tensor>& sequences,
                const ScanBody& body, const ScanOptions& options) {
    require_tensors("scan", "the carried tensor", initial);
    require_tensors("scan", "the sequence", sequences);
    std::vector<Tensor> inputs = initial;
    inputs.insert(inputs.end(), sequences.begin(), sequences.end());
    const std::shared_ptr<GraphData> graph = graph_around(given.data(), inputs);
    FunctionBuilder builder(graph);
    std::vector<Tensor> results;
    {
        const ScopedBody scope(builder.graph());
        const Tensor index = builder.parameter({DType::int32, Shape(std::vector<Dim>{})}, "index");
        builder.set_repeats(index);
        const std::vector<Tensor> carried = parameters_for(builder, initial);
        std::vector<Tensor> parts;
        for (const Tensor& sequence : sequences) {
            if (sequence.shape().has_rank() && sequence.rank() == 0) {
                throw UserError(concat("[scan] the sequence ", parts.size(), " is ", sequence.type().str(),
                                       ", which has no axis to go along"));
            }
            parts.push_back(
                builder.parameter({sequence.dtype(), ops::shape_of_part(sequence.shape())}, sequence.name()));
        }
        ScanResult made = body(index, carried, parts);
        if (made.carried.size() != initial.size()) {
            throw UserError(concat("[scan] the body gives ", made.carried.size(), " carried tensors, but ",
                                   initial.size(), " are carried; return one for each, in the same order"));
        }
        results = returned("scan", builder, made.carried);
        const std::vector<Tensor> stacked = returned("scan", builder, made.stacked);
        results.insert(results.end(), stacked.begin(), stacked.end());
    }
    const std::vector<Tensor> captures = builder.captured();
    inputs.insert(inputs.end(), captures.begin(), captures.end());
    NamedAttributes attributes = {{"body", builder.finish(results, captures)},
                                  {"carried", static_cast<std::int64_t>(initial.size())},
                                  {"sequences", static_cast<std::int64_t>(sequences.size())},
                                  {"reverse", options.reverse}};
    if (!options.length.is_unknown()) attributes.emplace_back("length", Shape({options.length}));
    const std::vector<Tensor> outputs = apply(graph, *find_op("scan"), inputs, attributes, options.name);
    const auto carried_end = outputs.begin() + static_cast<std::ptrdiff_t>(initial.size());
    const auto stacked_end = outputs.begin() + static_cast<std::ptrdiff_t>(results.size());
    return {{outputs.begin(), carried_end}, {carried_end, stacked_end}};
}

}  // namespace topstitch
