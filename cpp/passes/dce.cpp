// Drops operations that no result and no assignment needs.
// Feeds stay, because the caller passes them by position.
#include "passes/passes.h"

namespace topstitch {

Program dce(const Program& program) {
    const GraphData& graph = *program.graph;
    std::vector<bool> live(graph.ops.size(), false);
    for (TensorRef feed : program.feeds) live[static_cast<std::size_t>(feed.op)] = true;
    for (TensorRef result : program.results) live[static_cast<std::size_t>(result.op)] = true;
    for (const Program::State& state : program.states) {
        live[static_cast<std::size_t>(state.before.op)] = true;
        live[static_cast<std::size_t>(state.after.op)] = true;
    }
    // Inputs come before their users, so one sweep backwards reaches everything.
    for (std::size_t k = graph.ops.size(); k-- > 0;) {
        if (!live[k]) continue;
        for (TensorRef input : graph.ops[k].inputs) live[static_cast<std::size_t>(input.op)] = true;
    }
    Rebuild rebuild(program);
    for (std::size_t k = 0; k < graph.ops.size(); ++k) {
        if (live[k]) rebuild.copy(static_cast<OpId>(k));
    }
    return std::move(rebuild).finish();
}

}  // namespace topstitch
