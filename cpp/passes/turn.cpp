// Turns products whose transpose is all that is read: that is the product of the transposed factors, the other way
// round. A product reads its factors in any order, but whoever reads its result across memory is slow.
#include <algorithm>

#include "ops/expr.h"
#include "passes/passes.h"

namespace topstitch {

namespace {

// Whether an operation exchanges the last two axes of its input, and leaves the others where they are.
bool swaps_matrices(const GraphData& graph, const OpNode& node) {
    const bool is_swap = node.def->name == "swap_axes";
    if (!is_swap && node.def->name != "transpose") return false;
    const NodeView view(graph, node);
    const auto rank = static_cast<std::int64_t>(view.view.in_shape(0).rank());
    const auto counted = [rank](std::int64_t axis) { return axis < 0 ? axis + rank : axis; };
    if (rank < 2) return false;
    if (is_swap) {
        const std::int64_t one = counted(view.view.integer("axis1"));
        const std::int64_t other = counted(view.view.integer("axis2"));
        return std::min(one, other) == rank - 2 && std::max(one, other) == rank - 1;
    }
    if (!view.view.has("permutation")) return rank == 2;
    const std::vector<std::int64_t>& permutation = view.view.integers("permutation");
    for (std::int64_t axis = 0; axis < rank; ++axis) {
        const std::int64_t wanted = axis < rank - 2 ? axis : 2 * rank - 3 - axis;
        if (counted(permutation[static_cast<std::size_t>(axis)]) != wanted) return false;
    }
    return true;
}

bool is_product_of_matrices(const GraphData& graph, TensorRef ref) {
    const OpNode& node = graph.op(ref.op);
    return node.def->name == "matmul" && std::all_of(node.inputs.begin(), node.inputs.end(), [&](TensorRef input) {
               return graph.type(input).shape.rank() >= 2;
           });
}

// How often each operation is read; results and new values of variables count.
std::vector<int> count_readers(const Program& program) {
    std::vector<int> readers(program.graph->ops.size(), 0);
    const auto read = [&readers](TensorRef ref) { ++readers[static_cast<std::size_t>(ref.op)]; };
    for (const OpNode& node : program.graph->ops) std::for_each(node.inputs.begin(), node.inputs.end(), read);
    std::for_each(program.results.begin(), program.results.end(), read);
    for (const Program::State& state : program.states) read(state.after);
    return readers;
}

Tensor turned(const Tensor& matrix) {
    return apply("swap_axes", {matrix}, {{"axis1", std::int64_t{-2}}, {"axis2", std::int64_t{-1}}});
}

}  // namespace

Program turn(const Program& program) {
    const GraphData& graph = *program.graph;
    const std::vector<int> readers = count_readers(program);
    Rebuild rebuild(program);
    for (std::size_t index = 0; index < graph.ops.size(); ++index) {
        const auto id = static_cast<OpId>(index);
        const OpNode& node = graph.ops[index];
        const bool turns = swaps_matrices(graph, node) && is_product_of_matrices(graph, node.inputs[0]) &&
                           readers[static_cast<std::size_t>(node.inputs[0].op)] == 1;
        if (!turns) {
            rebuild.copy(id);
            continue;
        }
        const OpNode& product = graph.op(node.inputs[0].op);
        const ScopedLocation location(product.location);
        const Tensor left = rebuild.mapped_tensor(product.inputs[0]);
        const Tensor right = rebuild.mapped_tensor(product.inputs[1]);
        const Tensor made = apply("matmul", {turned(right), turned(left)}, {}, product.name);
        rebuild.map(id, {made.ref()});
    }
    return std::move(rebuild).finish();
}

}  // namespace topstitch
