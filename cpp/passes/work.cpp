// Finds what operations cost by running their bodies once on a scratch builder.
// See work.h.
#include "passes/work.h"

#include "loopir/instr_cost.h"
#include "ops/element_lowering.h"

namespace topstitch {

ElementCost element_cost(const GraphData& graph, const OpNode& node) {
    const NodeView view(graph, node);
    loopir::Builder builder;
    std::vector<int> buffers;
    for (const TensorType& input : view.inputs) {
        buffers.push_back(
            builder.add_buffer(buffer_param("", input.dtype, input.shape, loopir::BufferParam::Role::input)));
    }
    FunctionContext context(builder, view.view, [&](int k, const Indices& at, loopir::ValueId guard) {
        const auto slot = static_cast<std::size_t>(k);
        return load_element(builder, buffers[slot], view.inputs[slot].dtype,
                            row_major_offset(view.inputs[slot].shape, at), guard);
    });
    const auto begin_loops = [&builder](const std::vector<Dim>& extents) {
        Indices at;
        for (const Dim& extent : extents) at.push_back(extent == Dim(1) ? Index(0) : builder.begin_loop("i", extent));
        return at;
    };
    ElementCost cost;
    const Indices at = begin_loops(node.outputs[0].shape.dims());
    if (const auto* element = std::get_if<ElementBody>(&node.def->body)) {
        element->element(context, at);
    } else if (const auto* scan = std::get_if<CumulativeBody>(&node.def->body)) {
        scan->element(context, at);
        cost.term = 1;
    } else if (const auto* reduce = std::get_if<ReduceBody>(&node.def->body)) {
        const std::vector<Dim> domain = reduce->domain(view.view);
        reduce->element(context, at, begin_loops(domain));
        cost.term = 1;
        cost.terms = Shape(domain).num_elements();
    }
    for (const loopir::Instr& instr : builder.kernel().instrs) cost.term += loopir::cost_of(instr);
    return cost;
}

Dim bytes_of(const TensorType& type) {
    return type.shape.num_elements() * Dim(static_cast<std::int64_t>(size_of(type.dtype)));
}

}  // namespace topstitch
