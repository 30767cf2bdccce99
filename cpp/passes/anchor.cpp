// Gives every result, and every new value of a variable, an operation that computes it into memory: feeds,
// constants and variables' old values that are passed on as they are go through `identity`.
#include <map>

#include "passes/passes.h"

namespace topstitch {

Program anchor(const Program& program) {
    Rebuild rebuild(program);
    for (std::size_t k = 0; k < program.graph->ops.size(); ++k) rebuild.copy(static_cast<OpId>(k));
    Program anchored = std::move(rebuild).finish();
    std::map<TensorRef, TensorRef> copies;
    const auto through_identity = [&](TensorRef ref) {
        const OpNode& node = anchored.graph->op(ref.op);
        if (!std::holds_alternative<BuiltinBody>(node.def->body)) return ref;
        if (const auto found = copies.find(ref); found != copies.end()) return found->second;
        OpNode copy;
        copy.def = find_op("identity");
        copy.inputs = {ref};
        copy.outputs = {anchored.graph->type(ref)};
        copy.name = node.name;
        copy.location = node.location;
        const TensorRef made{append(*anchored.graph, std::move(copy)), 0};
        copies[ref] = made;
        return made;
    };
    for (TensorRef& result : anchored.results) result = through_identity(result);
    for (Program::State& state : anchored.states) {
        if (state.assigned) state.after = through_identity(state.after);
    }
    return anchored;
}

}  // namespace topstitch
