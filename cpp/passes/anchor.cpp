// Gives every result, and every new value of a variable, an operation that computes it into memory: feeds,
// constants and variables' old values that are passed on as they are go through `identity`, and so do strided results
// that are something else too.
#include <algorithm>
#include <map>

#include "passes/passes.h"

namespace topstitch {

Program anchor(const Program& program) {
    Rebuild rebuild(program);
    for (std::size_t k = 0; k < program.graph->ops.size(); ++k) rebuild.copy(static_cast<OpId>(k));
    Program anchored = std::move(rebuild).finish();
    const auto is_given = [&](TensorRef ref) {
        return std::holds_alternative<BuiltinBody>(anchored.graph->op(ref.op).def->body);
    };
    // Loops, branches and operations with kernels of their own.
    const auto writes_packed = [&](TensorRef ref) {
        const auto& body = anchored.graph->op(ref.op).def->body;
        return std::holds_alternative<ControlBody>(body) || std::holds_alternative<CompositeBody>(body);
    };
    const auto append_identity = [&](TensorRef ref) {
        const OpNode& node = anchored.graph->op(ref.op);
        OpNode copy;
        copy.def = find_op("identity");
        copy.inputs = {ref};
        copy.outputs = {anchored.graph->type(ref)};
        copy.name = node.name;
        copy.location = node.location;
        return TensorRef{append(*anchored.graph, std::move(copy)), 0};
    };
    const auto uses = [&](TensorRef ref) {
        return std::count(anchored.results.begin(), anchored.results.end(), ref) +
               std::count_if(anchored.states.begin(), anchored.states.end(),
                             [&](const Program::State& state) { return state.assigned && state.after == ref; });
    };
    for (std::size_t k = 0; k < anchored.layouts.size(); ++k) {
        TensorRef& result = anchored.results[k];
        if (anchored.layouts[k] && (is_given(result) || writes_packed(result) || uses(result) > 1))
            result = append_identity(result);
    }
    std::map<TensorRef, TensorRef> copies;
    const auto through_identity = [&](TensorRef ref) {
        if (!is_given(ref)) return ref;
        if (!copies.contains(ref)) copies[ref] = append_identity(ref);
        return copies[ref];
    };
    for (TensorRef& result : anchored.results) result = through_identity(result);
    for (Program::State& state : anchored.states) {
        if (state.assigned) state.after = through_identity(state.after);
    }
    return anchored;
}

}  // namespace topstitch
