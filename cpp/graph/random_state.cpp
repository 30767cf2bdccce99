// Makes the random variable of a graph and the streams that are drawn from it.
// See random_state.h.
#include "graph/random_state.h"

#include <algorithm>

#include "graph/apply.h"
#include "graph/function.h"

namespace topstitch {

namespace {

NDArray pair(std::uint64_t first, std::uint64_t second) {
    NDArray array(DType::uint64, Sizes{2});
    auto* values = static_cast<std::uint64_t*>(array.data());
    values[0] = first;
    values[1] = second;
    return array;
}

const OpDef& known_op(std::string_view name) {
    const OpDef* def = find_op(name);
    internal_check(def != nullptr, "an operation of random numbers is missing from the registry");
    return *def;
}

}  // namespace

NDArray random_variable_value(std::uint64_t seed) {
    return pair(0, seed);
}

Tensor next_random_stream(const std::shared_ptr<GraphData>& graph) {
    const ScopedBody here(graph);  // even while a body inside it is being described
    if (graph->outer != nullptr) {
        const Tensor state = captured(graph, next_random_stream(graph->outer));
        if (!graph->repeats) return state;  // a branch
        return apply(graph, known_op(random_iteration_op), {state, iteration_of(graph)}).front();
    }
    Tensor variable;
    std::int64_t stream = 0;
    {
        const std::lock_guard lock(graph->random_mutex);
        RandomSource& random = graph->random;
        if (random.num_streams >= max_random_streams) {
            throw UserError(concat("random: the graph has ", random.num_streams,
                                   " operations that draw random numbers, which is the most that are possible; give "
                                   "further ones a state (random_state)"));
        }
        if (random.variable < 0) {
            const ScopedLocation nowhere{SourceLocation{}};  // it belongs to the graph, not to one line of code
            random.variable =
                apply(graph, known_op("variable"), {},
                      {{"value", random_variable_value(random.seed)}, {"step", pair(1, 0)}}, "random_state")
                    .front()
                    .ref()
                    .op;
        }
        variable = Tensor(graph, {random.variable, 0});
        stream = random.num_streams++;
    }
    return apply(graph, known_op(random_stream_op), {variable}, {{"stream", stream}}).front();
}

void note_random_stream(GraphData& graph, const OpNode& node) {
    const auto stream =
        std::get<std::int64_t>(node.attributes[static_cast<std::size_t>(node.def->attribute_index("stream"))]);
    const std::lock_guard lock(graph.random_mutex);
    if (graph.random.variable < 0) graph.random.variable = node.inputs.front().op;
    if (graph.random.variable == node.inputs.front().op) {
        graph.random.num_streams = std::max(graph.random.num_streams, stream + 1);
    }
}

std::optional<Tensor> store_seed(const std::shared_ptr<GraphData>& graph, std::uint64_t seed) {
    const std::lock_guard lock(graph->random_mutex);
    graph->random.seed = seed;
    if (graph->random.variable < 0) return std::nullopt;
    return Tensor(graph, {graph->random.variable, 0});
}

}  // namespace topstitch
