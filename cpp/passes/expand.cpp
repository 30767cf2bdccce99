// Replaces composites by their expansions, until only primitives (and what has kernels of its own) are left.
// Shapes are decided by now, so an expansion may depend on them.
#include <algorithm>

#include "passes/passes.h"

namespace topstitch {

namespace {

const CompositeBody* find_composite(const OpNode& node, bool keep_library) {
    const auto* composite = std::get_if<CompositeBody>(&node.def->body);
    const bool kept = composite != nullptr && keep_library && composite->library != Library::none;
    return kept ? nullptr : composite;
}

bool has_composite(const GraphData& graph, bool keep_library) {
    return std::any_of(graph.ops.begin(), graph.ops.end(),
                       [&](const OpNode& node) { return find_composite(node, keep_library) != nullptr; });
}

}  // namespace

Program expand(const Program& program, bool keep_library) {
    Program current = program;
    // Each round takes one level of nesting away.
    for (int round = 0; has_composite(*current.graph, keep_library); ++round) {
        internal_check(round < 32, "composites expand into each other without end");
        Rebuild rebuild(current);
        for (std::size_t index = 0; index < current.graph->ops.size(); ++index) {
            const auto id = static_cast<OpId>(index);
            const OpNode& node = current.graph->ops[index];
            const CompositeBody* composite = find_composite(node, keep_library);
            if (composite == nullptr) {
                rebuild.copy(id);
                continue;
            }
            std::vector<Tensor> inputs;
            for (TensorRef input : node.inputs) inputs.push_back(rebuild.mapped_tensor(input));
            const NodeView view(*current.graph, node);
            CompositeContext context(std::move(inputs), view.view);
            set_current_location(node.location);
            const std::size_t first = rebuild.graph()->ops.size();
            const std::vector<Tensor> outputs = composite->expand(context);
            internal_check(outputs.size() == node.outputs.size(), "an expansion has another number of outputs");
            std::vector<TensorRef> refs;
            for (const Tensor& output : outputs) refs.push_back(output.ref());
            // What came from a named operation carries its name into reports.
            if (!node.name.empty()) {
                for (std::size_t k = first; k < rebuild.graph()->ops.size(); ++k) {
                    OpNode& made = rebuild.graph()->ops[k];
                    if (made.name.empty()) made.name = node.name;
                }
            }
            rebuild.map(id, std::move(refs));
        }
        set_current_location({});
        current = std::move(rebuild).finish();
    }
    return current;
}

}  // namespace topstitch
