// Moves what is the same in all iterations of a loop in front of it, from the innermost loop outwards.
// It is then computed even when the loop runs zero times: no operation fails, but only what ends for certain may move.
#include <algorithm>
#include <map>
#include <set>

#include "ops/control.h"
#include "passes/bodies.h"
#include "passes/passes.h"
#include "passes/work.h"

namespace topstitch {

namespace {

// Costs more than reading the result in each iteration, even when that is larger than what it is made of.
constexpr double worth_storing = 16;

bool is_loop(const OpNode& node) {
    return is_control(node) && node.def->name != "if_else";
}

// Whether the first iteration is certain to come.
bool runs_once(const OpView& loop) {
    return loop.def().name == "scan" && provably_nonnegative(ops::ScanLayout(loop).length - Dim(1));
}

// Views, fills and other cheap operations that make more of their operands are left to whoever reads them.
bool is_worth_moving(const GraphData& graph, const OpNode& node) {
    if (std::holds_alternative<BuiltinBody>(node.def->body) || node.def->view || node.inputs.empty()) return false;
    if (!std::holds_alternative<ElementBody>(node.def->body)) return true;
    Dim read = 0;
    for (const TensorRef input : node.inputs) read = read + bytes_of(graph.type(input));
    if (provably_nonnegative(read - bytes_of(node.outputs[0]))) return true;
    return element_cost(graph, node).term >= worth_storing;
}

// A loop, and the graph in front of it.
class Hoister {
public:
    Hoister(GraphData& outer, OpNode& loop) : outer_(outer), loop_(loop) {
        const NodeView view(outer, loop);
        captures_ = ops::captures_of(view.view);
        runs_once_ = runs_once(view.view);
    }

    void run() {
        std::vector<FunctionPtr> functions;
        for (const Attribute& attribute : loop_.attributes) {
            if (const auto* function = std::get_if<FunctionPtr>(&attribute)) functions.push_back(*function);
        }
        std::vector<std::vector<NewParameter>> added(functions.size());
        for (std::size_t f = 0; f < functions.size(); ++f) {
            for (const Moved& moved : move(*functions[f])) {
                loop_.inputs.push_back(moved.outer);
                // All functions of a loop have the same parameters.
                for (std::size_t other = 0; other < functions.size(); ++other) {
                    added[other].push_back({outer_.type(moved.outer), "", other == f ? moved.inner : TensorRef{}});
                }
            }
        }
        std::size_t next = 0;
        for (Attribute& attribute : loop_.attributes) {
            auto* function = std::get_if<FunctionPtr>(&attribute);
            if (function == nullptr) continue;
            if (!added[next].empty())
                *function = with_parameters(**function, (*function)->parameters.size(), added[next]);
            ++next;
        }
    }

private:
    struct Moved {
        TensorRef inner, outer;
    };

    bool is_invariant(const OpNode& node, const std::vector<bool>& invariant) const {
        if (is_control(node) && !runs_once_) return false;  // it might not end
        return std::all_of(node.inputs.begin(), node.inputs.end(),
                           [&](TensorRef input) { return invariant[static_cast<std::size_t>(input.op)]; });
    }

    // Of what moves: the tensors that operations which stay need. What is invariant and stays is computed for them
    // only.
    static std::vector<TensorRef> read_by_others(const Function& function, const std::vector<bool>& invariant,
                                                 const std::vector<bool>& moves) {
        const GraphData& body = *function.graph;
        std::vector<bool> stays(body.ops.size(), false);
        for (const TensorRef result : function.results) stays[static_cast<std::size_t>(result.op)] = true;
        std::set<TensorRef> read(function.results.begin(), function.results.end());
        for (std::size_t id = body.ops.size(); id-- > 0;) {
            if (moves[id] || (invariant[id] && !stays[id])) continue;
            for (const TensorRef input : body.ops[id].inputs) {
                stays[static_cast<std::size_t>(input.op)] = true;
                read.insert(input);
            }
        }
        std::erase_if(read, [&](TensorRef tensor) { return !moves[static_cast<std::size_t>(tensor.op)]; });
        return {read.begin(), read.end()};
    }

    // Appends what moves to the graph in front, and gives what of it the loop needs.
    std::vector<Moved> move(const Function& function) {
        const GraphData& body = *function.graph;
        std::vector<bool> invariant(body.ops.size(), false);
        std::vector<bool> moves(body.ops.size(), false);
        std::map<TensorRef, TensorRef> outer;  // of what is in front of the loop
        for (std::size_t k = captures_.parameter; k < function.parameters.size(); ++k) {
            invariant[static_cast<std::size_t>(function.parameters[k].op)] = true;
            outer[function.parameters[k]] = loop_.inputs[captures_.input + k - captures_.parameter];
        }
        for (std::size_t id = 0; id < body.ops.size(); ++id) {
            const OpNode& node = body.ops[id];
            if (node.def->name == "placeholder") continue;
            invariant[id] = is_invariant(node, invariant);
            moves[id] = invariant[id] && is_worth_moving(body, node);
        }
        const std::vector<TensorRef> leaving = read_by_others(function, invariant, moves);
        std::vector<bool> needed(body.ops.size(), false);
        for (const TensorRef tensor : leaving) needed[static_cast<std::size_t>(tensor.op)] = true;
        for (std::size_t id = body.ops.size(); id-- > 0;) {
            if (!needed[id]) continue;
            for (const TensorRef input : body.ops[id].inputs) needed[static_cast<std::size_t>(input.op)] = true;
        }
        for (std::size_t id = 0; id < body.ops.size(); ++id) {
            if (needed[id] && body.ops[id].def->name != "placeholder")
                append_outside(body, static_cast<OpId>(id), outer);
        }
        std::vector<Moved> moved;
        for (const TensorRef tensor : leaving) moved.push_back({tensor, outer.at(tensor)});
        return moved;
    }

    void append_outside(const GraphData& body, OpId id, std::map<TensorRef, TensorRef>& outer) {
        OpNode node = body.op(id);
        for (TensorRef& input : node.inputs) input = outer.at(input);
        const auto count = static_cast<std::int32_t>(node.outputs.size());
        const OpId made = append(outer_, std::move(node));
        for (std::int32_t k = 0; k < count; ++k) outer[{id, k}] = {made, k};
    }

    GraphData& outer_;
    OpNode& loop_;
    ops::Captures captures_;
    bool runs_once_ = false;
};

}  // namespace

Program hoist(const Program& program) {
    Rebuild rebuild(program);
    for (std::size_t index = 0; index < program.graph->ops.size(); ++index) {
        const auto id = static_cast<OpId>(index);
        OpNode node = rebuild.mapped_node(id);
        if (is_control(node)) change_functions(node, [](const Program& body) { return dce(cse(hoist(body))); });
        if (is_loop(node)) Hoister(*rebuild.graph(), node).run();
        rebuild.add(id, std::move(node));
    }
    return std::move(rebuild).finish();
}

}  // namespace topstitch
