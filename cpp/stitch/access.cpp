// Probes the bodies of operations.
// See access.h.
#include "stitch/access.h"

#include <algorithm>

#include "loopir/instr_cost.h"
#include "ops/element_lowering.h"
#include "ops/memory.h"

namespace topstitch::stitch {

namespace {

using loopir::ScalarOp;

// More requests than this and a view is computed once instead of being repeated in its readers.
constexpr std::size_t max_inlined_requests = 16;
constexpr double max_inlined_cost = 12;
constexpr int max_inlined_depth = 4;  // times the members of a region: so deep do bodies call each other

bool is_dynamic(const Indices& at) {
    std::vector<loopir::ValueId> values;
    for (const Index& index : at) index.collect_values(values);
    return !values.empty();
}

Index substitute(const Index& index, const std::vector<Index>& own) {
    return index.substitute([&own](loopir::VarId var, const Dim&) { return own[static_cast<std::size_t>(var)]; });
}

class Prober {
public:
    Prober(const Program& program, bool look_through)
        : program_(program), graph_(*program.graph), look_through_(look_through) {}

    std::vector<OpAccess> run() {
        accesses_.reserve(graph_.ops.size());
        for (std::size_t k = 0; k < graph_.ops.size(); ++k) {
            accesses_.push_back(probe(static_cast<OpId>(k)));
            accesses_.back().invariant = is_invariant(static_cast<OpId>(k));
        }
        return std::move(accesses_);
    }

private:
    bool is_invariant(OpId id) const {
        const OpNode& node = graph_.op(id);
        if (!program_.repeats) return false;
        if (node.def->name == "placeholder") {
            const std::vector<TensorRef>& known = program_.invariant;
            return std::find(known.begin(), known.end(), TensorRef{id, 0}) != known.end();
        }
        return std::all_of(node.inputs.begin(), node.inputs.end(),
                           [this](TensorRef input) { return accesses_[at(input.op)].invariant; });
    }

    OpAccess probe(OpId id) {
        const OpNode& node = graph_.op(id);
        OpAccess access;
        access.inlined = is_scalar_constant(graph_, {id, 0});
        if (std::holds_alternative<BuiltinBody>(node.def->body)) return access;
        access.has_body = true;
        if (std::holds_alternative<ControlBody>(node.def->body)) {
            access.is_control = true;
            for (const TensorRef input : node.inputs) access.requests.push_back({input, {}, true, false});
            return access;
        }
        const NodeView node_view(graph_, node);
        if (const auto* composite = std::get_if<CompositeBody>(&node.def->body)) {
            access.library = composite->library;
            internal_check(access.library != Library::none, "a composite was not expanded");
            probe_inputs(node, node_view, access);
            return access;
        }
        internal_check(node.outputs.size() == 1, "a primitive has one output");
        loopir::Builder builder;
        const auto new_var = [&](const Dim& extent) {
            access.vars.push_back(extent);
            return builder.begin_loop(concat("v", access.vars.size()), extent);
        };
        for (const Dim& extent : node.outputs[0].shape.dims()) {
            access.home.push_back(extent == Dim(1) ? Index(0) : new_var(extent));
        }
        access.num_out = static_cast<int>(access.vars.size());

        std::vector<Request> direct;
        std::vector<int> buffers;
        for (const TensorType& input : node_view.inputs) {
            buffers.push_back(
                builder.add_buffer(buffer_param("", input.dtype, input.shape, loopir::BufferParam::Role::input)));
        }
        FunctionContext context(builder, node_view.view, [&](int k, const Indices& at, loopir::ValueId guard) {
            const auto slot = static_cast<std::size_t>(k);
            direct.push_back({node.inputs[slot], at, is_dynamic(at), guard != loopir::no_value});
            return load_element(builder, buffers[slot], node_view.inputs[slot].dtype,
                                row_major_offset(node_view.inputs[slot].shape, at), guard);
        });
        if (const auto* element = std::get_if<ElementBody>(&node.def->body)) {
            element->element(context, access.home);
        } else if (const auto* scan = std::get_if<CumulativeBody>(&node.def->body)) {
            scan->element(context, access.home);
            access.cost += 1;
            const Index& along = access.home[at(scan->axis(node_view.view))];
            if (!along.is_constant()) {
                const Combiner combiner = scan->combiner(node_view.view);
                const bool rounds = combiner == Combiner::product && is_floating(node.outputs[0].dtype);
                access.scan = {along.parts().front().term.var, scan->reverse(node_view.view), !rounds};
            }
        } else if (const auto* sort = std::get_if<SortBody>(&node.def->body)) {
            access.is_sort = true;
            const int axis = sort->axis(node_view.view);
            const Dim& length = node_view.inputs[0].shape[axis];
            Indices from = access.home;
            from[at(axis)] = Index(0);
            if (!(length == Dim(1))) {
                access.sorted = static_cast<loopir::VarId>(access.vars.size());
                from[at(axis)] = new_var(length);
            }
            access.num_out = static_cast<int>(access.vars.size());  // nothing is reduced
            sort->element(context, from);
        } else if (const auto* scatter = std::get_if<ScatterBody>(&node.def->body)) {
            Indices update;
            for (const Dim& extent : scatter->domain(node_view.view)) {
                update.push_back(extent == Dim(1) ? Index(0) : new_var(extent));
            }
            access.num_out = static_cast<int>(access.vars.size());  // nothing is reduced
            const Value before = scatter->base(context, access.home);
            scatter->combine(context, before, scatter->update(context, update));
            scatter->place(context, update);
            probe_places(node_view, access, *scatter, update);
        } else {
            const auto& reduce = std::get<ReduceBody>(node.def->body);
            access.is_reduce = true;
            Indices domain;
            for (const Dim& extent : reduce.domain(node_view.view)) {
                domain.push_back(extent == Dim(1) ? Index(0) : new_var(extent));
            }
            reduce.element(context, access.home, domain);
            access.cost += 1;
            probe_factors(node, node_view, access, reduce, domain);
        }
        for (const loopir::Instr& instr : builder.kernel().instrs) {
            access.cost += loopir::cost_of(instr);
            if (instr.op == ScalarOp::index_value && !instr.index.is_constant())
                access.index_uses.push_back(instr.index);
        }
        look_through(access, direct);
        // What reads nothing (a fill, a size), and a cheap single number, costs a kernel less than a load would.
        const bool cheap_scalar = (access.requests.empty() || access.vars.empty()) && access.cost <= max_inlined_cost;
        access.inlined = look_through_ && (node.def->view || cheap_scalar) && !access.walks_row() &&
                         !access.has_own_loops() && access.requests.size() <= max_inlined_requests &&
                         access.depth < max_inlined_depth;
        return access;
    }

    // Of an operation with kernels of its own: every element of every input.
    void probe_inputs(const OpNode& node, const NodeView& view, OpAccess& access) {
        std::vector<Request> direct;
        for (std::size_t k = 0; k < node.inputs.size(); ++k) {
            Request request{node.inputs[k], {}, true, false};
            for (const Dim& extent : view.inputs[k].shape.dims()) {
                request.at.push_back(Index::var(static_cast<loopir::VarId>(access.vars.size()), extent));
                access.vars.push_back(extent);
            }
            direct.push_back(std::move(request));
        }
        access.num_out = static_cast<int>(access.vars.size());
        look_through(access, direct);
    }

    // Where the updates of a scatter go.
    static void probe_places(const NodeView& node, OpAccess& access, const ScatterBody& body, const Indices& update) {
        OpAccess::Scatter& scatter = access.scatter.emplace();
        scatter.searched = used_vars(node, access, 0, [&](ElementContext& context, const Indices&) {
            const ScatterBody::Place place = body.place(context, update);
            for (const Index& index : place.at) {
                std::vector<loopir::VarId> vars;
                index.collect_vars(vars);
                const bool direct = vars.size() == 1 && index == Index::var(vars[0], access.vars[at(vars[0])]);
                scatter.direct.push_back(direct ? vars[0] : -1);
                if (!direct) context.b.index_value(index);
            }
        });
        const auto last = static_cast<loopir::VarId>(access.vars.size()) - 1;
        const bool in_lanes = last >= 0 && !scatter.direct.empty() && scatter.direct.back() == last;
        if (in_lanes && !scatter.searched[at(last)]) scatter.lanes = last;
    }
    static std::size_t at(std::int32_t number) { return static_cast<std::size_t>(number); }

    // What the parts of a contraction depend on.
    void probe_factors(const OpNode& op, const NodeView& node, OpAccess& access, const ReduceBody& body,
                       const Indices& domain) const {
        for (const ReduceBody::Factor& factor : body.factors) {
            std::vector<int> operands;
            access.factor_vars.push_back(used_vars(
                node, access, 0, [&](ElementContext& context, const Indices&) { factor(context, access.home, domain); },
                &operands));
            access.invariant_factors.push_back(std::all_of(
                operands.begin(), operands.end(), [&](int k) { return accesses_[at(op.inputs[at(k)].op)].invariant; }));
        }
        if (body.window) {
            access.positions = body.window->positions(node.view, access.home, domain);
            access.window_vars =
                used_vars(node, access, access.positions.size(), [&](ElementContext& context, const Indices& free) {
                    body.window->element(context, access.home, domain, free);
                });
        }
        if (body.exists) {
            access.exists_vars = used_vars(node, access, 0, [&](ElementContext& context, const Indices&) {
                const loopir::ValueId exists = body.exists(context, access.home, domain);
                access.is_empty_sum = exists != loopir::no_value && context.b.constant_value(exists) == 0.0;
            });
        }
    }

    // Which of an operation's variables matter to `body`, which gets `free` further variables, and which operands it
    // reads.
    template <typename Body>
    static std::vector<bool> used_vars(const NodeView& node, const OpAccess& access, std::size_t free, Body body,
                                       std::vector<int>* operands = nullptr) {
        loopir::Builder builder;
        for (const Dim& extent : access.vars) builder.begin_loop("v", extent);
        Indices others;
        for (std::size_t k = 0; k < free; ++k) others.push_back(builder.begin_loop("p", Dim(std::int64_t{1} << 30)));
        std::vector<bool> used(access.vars.size(), false);
        const auto note = [&used](const Index& index) {
            for (std::size_t v = 0; v < used.size(); ++v) {
                if (index.depends_on(static_cast<loopir::VarId>(v))) used[v] = true;
            }
        };
        FunctionContext context(builder, node.view, [&](int k, const Indices& at, loopir::ValueId) {
            for (const Index& index : at) note(index);
            if (operands != nullptr) operands->push_back(k);
            return context_value(builder, node.inputs[static_cast<std::size_t>(k)].dtype);
        });
        body(context, others);
        for (const loopir::Instr& instr : builder.kernel().instrs) note(instr.index);
        return used;
    }

    // Stands for an operand of which only the index matters.
    static Value context_value(loopir::Builder& builder, DType dtype) {
        const DType type = compute_type(dtype);
        const auto number = [&] { return builder.index_value(Index(1)); };
        Value value{builder.cast(number(), type), loopir::no_value};
        if (is_complex(dtype)) value.im = value.re;
        return value;
    }

    // Replaces requests of inlined operations by what those request in turn.
    void look_through(OpAccess& access, const std::vector<Request>& direct) {
        for (const Request& request : direct) {
            const OpAccess& producer = accesses_[static_cast<std::size_t>(request.tensor.op)];
            if (!producer.inlined) {
                add(access.requests, request);
                continue;
            }
            if (!producer.has_body) continue;  // a scalar constant
            access.depth = std::max(access.depth, producer.depth + 1);
            std::vector<Index> own;
            for (std::size_t axis = 0; axis < producer.home.size(); ++axis) {
                if (!producer.home[axis].is_constant()) own.push_back(request.at[axis]);
            }
            access.cost += producer.cost;
            for (const Request& inner : producer.requests) {
                Request composed{inner.tensor, {}, inner.dynamic || request.dynamic, inner.guarded || request.guarded};
                for (const Index& index : inner.at) composed.at.push_back(substitute(index, own));
                add(access.requests, std::move(composed));
            }
            for (const Index& use : producer.index_uses) access.index_uses.push_back(substitute(use, own));
        }
    }

    static void add(std::vector<Request>& requests, Request request) {
        for (const Request& known : requests) {
            const bool same =
                known.tensor == request.tensor && known.guarded == request.guarded && known.at == request.at;
            if (same && !known.dynamic && !request.dynamic) return;
        }
        requests.push_back(std::move(request));
    }

    const Program& program_;
    const GraphData& graph_;
    bool look_through_;
    std::vector<OpAccess> accesses_;
};

}  // namespace

Dim window_extent(const Program& program, const OpAccess& access, OpId op, int position) {
    const Shape& shape = program.graph->type(program.graph->op(op).inputs[0]).shape;
    return shape[shape.rank() - static_cast<int>(access.positions.size()) + position];
}

bool is_scalar_constant(const GraphData& graph, TensorRef ref) {
    const OpNode& node = graph.op(ref.op);
    return node.def->name == "constant" && std::get<NDArray>(node.attributes[0]).size() == 1;
}

Index memory_offset(const Program& program, TensorRef ref, const Indices& at) {
    const Shape& shape = program.graph->type(ref).shape;
    const Layout* layout = program.layout_of(ref);
    return layout == nullptr ? row_major_offset(shape, at)
                             : ops::strided_offset(shape, layout->strides, layout->reversed, at);
}

Dim memory_size(const Program& program, TensorRef ref) {
    const Shape& shape = program.graph->type(ref).shape;
    const Layout* layout = program.layout_of(ref);
    return layout == nullptr ? shape.num_elements() : ops::spanned(shape, layout->strides);
}

std::vector<OpAccess> find_accesses(const Program& program, bool look_through) {
    return Prober(program, look_through).run();
}

}  // namespace topstitch::stitch
