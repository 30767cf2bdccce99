// A loop that computes again what an earlier loop computed in the same iterations, as a gradient does, reads it from
// there: the earlier one stacks it. So it is for what takes more time to compute than to write and read back, as long
// as what a loop keeps stays in proportion to what passes through it anyway.
#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "ops/control.h"
#include "passes/bodies.h"
#include "passes/passes.h"
#include "passes/work.h"

namespace topstitch {

namespace {

// Additions that take as long as a byte takes to memory and back.
constexpr double additions_per_byte = 10;
// What a loop stacks for others is at most so many times as large as what it carries, reads and stacks by itself.
constexpr std::int64_t max_kept = 8;

bool is_scan(const OpNode& node) {
    return node.def->name == "scan";
}

const Function& body_of(const OpNode& scan) {
    return *std::get<FunctionPtr>(scan.attributes[static_cast<std::size_t>(scan.def->attribute_index("body"))]);
}

bool is_dear(const GraphData& graph, const OpNode& node) {
    if (std::holds_alternative<BuiltinBody>(node.def->body) || node.def->view) return false;
    if (std::holds_alternative<CompositeBody>(node.def->body) || is_control(node)) return true;
    if (std::holds_alternative<ScatterBody>(node.def->body)) return false;
    if (std::holds_alternative<SortBody>(node.def->body)) return true;
    const ElementCost cost = element_cost(graph, node);
    const double enough = additions_per_byte * static_cast<double>(size_of(node.outputs[0].dtype));
    // A number of terms that is not known is taken for a large one.
    return !cost.terms.is_known() || cost.term * static_cast<double>(cost.terms.value()) >= enough;
}

// One scan of the program, and what becomes of it.
struct Loop {
    OpId id = -1;
    Dim length;
    ops::ScanLayout layout;
    Dim room;                       // bytes in each iteration that may still be kept for others
    std::vector<TensorRef> stacks;  // tensors of the body that are to be stacked in addition
    struct Recalled {
        TensorRef own;   // a tensor of the body
        TensorRef from;  // the output of an earlier loop that has it for all iterations, by its future number
    };
    std::vector<Recalled> recalled;
};

// Which tensors of a loop's body an earlier loop's body has too.
class Match {
public:
    Match(const GraphData& graph, const Loop& earlier, const Loop& later)
        : from_(*body_of(graph.op(earlier.id)).graph), to_(*body_of(graph.op(later.id)).graph) {
        if (match_parameters(graph, earlier, later)) match_operations();
    }

    // The same in the earlier loop.
    std::optional<TensorRef> find(TensorRef tensor) const {
        const auto found = map_.find(tensor);
        return found == map_.end() ? std::nullopt : std::optional(found->second);
    }
    bool matches(OpId op) const { return map_.contains({op, 0}); }

private:
    // False when nothing that changes from iteration to iteration is common.
    bool match_parameters(const GraphData& graph, const Loop& earlier, const Loop& later) {
        const OpNode& source = graph.op(earlier.id);
        const Function& body = body_of(source);
        std::map<TensorRef, TensorRef> parts, captures;
        const auto number = [](int k) { return static_cast<std::size_t>(k); };
        const ops::ScanLayout& from = earlier.layout;
        for (int k = 0; k < from.carried; ++k)
            parts[{earlier.id, from.output_of_history(k)}] = body.parameters[number(from.parameter_of_carried(k))];
        for (int k = 0; k < from.stacked; ++k) {
            const int output = from.output_of_stacked(k);
            parts[{earlier.id, output}] = body.results[number(output)];
        }
        for (int k = 0; k < from.sequences; ++k)
            parts[source.inputs[number(from.carried + k)]] = body.parameters[number(from.parameter_of_sequence(k))];
        for (int k = 0; k < from.captures; ++k) {
            captures[source.inputs[number(from.carried + from.sequences + k)]] =
                body.parameters[number(from.parameter_of_capture(k))];
        }
        const OpNode& target = graph.op(later.id);
        const std::vector<TensorRef>& parameters = body_of(target).parameters;
        const ops::ScanLayout& to = later.layout;
        bool common = false;
        map_[parameters[0]] = body.parameters[0];
        for (int k = 0; k < to.sequences; ++k) {
            const auto found = parts.find(target.inputs[number(to.carried + k)]);
            if (found == parts.end()) continue;
            map_[parameters[number(to.parameter_of_sequence(k))]] = found->second;
            common = true;
        }
        for (int k = 0; k < to.captures; ++k) {
            const auto found = captures.find(target.inputs[number(to.carried + to.sequences + k)]);
            if (found != captures.end()) map_[parameters[number(to.parameter_of_capture(k))]] = found->second;
        }
        return common;
    }

    void match_operations() {
        std::multimap<std::pair<const OpDef*, std::vector<TensorRef>>, OpId> known;
        const auto key = [](const OpNode& node, std::vector<TensorRef> inputs) {
            if (node.def->commutative) std::sort(inputs.begin(), inputs.end());
            return std::pair(node.def, std::move(inputs));
        };
        for (std::size_t id = 0; id < from_.ops.size(); ++id) {
            const OpNode& node = from_.ops[id];
            if (node.def->name != "placeholder") known.emplace(key(node, node.inputs), static_cast<OpId>(id));
        }
        for (std::size_t id = 0; id < to_.ops.size(); ++id) {
            const OpNode& node = to_.ops[id];
            std::vector<TensorRef> inputs;
            for (const TensorRef input : node.inputs) {
                const auto found = map_.find(input);
                if (found != map_.end()) inputs.push_back(found->second);
            }
            if (node.def->name == "placeholder" || inputs.size() != node.inputs.size()) continue;
            for (auto [at, end] = known.equal_range(key(node, inputs)); at != end; ++at) {
                if (!same(from_.op(at->second), node)) continue;
                for (std::size_t k = 0; k < node.outputs.size(); ++k) {
                    const auto output = static_cast<std::int32_t>(k);
                    map_[{static_cast<OpId>(id), output}] = {at->second, output};
                }
                break;
            }
        }
    }

    static bool same(const OpNode& a, const OpNode& b) {
        return a.outputs == b.outputs &&
               std::equal(a.attributes.begin(), a.attributes.end(), b.attributes.begin(), b.attributes.end(),
                          [](const Attribute& x, const Attribute& y) { return equal(x, y); });
    }

    const GraphData& from_;
    const GraphData& to_;
    std::map<TensorRef, TensorRef> map_;  // from the later loop's tensors to the earlier one's
};

// Decides what a loop recalls from an earlier one.
class Chooser {
public:
    Chooser(const GraphData& graph, Loop& earlier, Loop& later)
        : from_(earlier),
          to_(later),
          source_(body_of(graph.op(earlier.id))),
          function_(body_of(graph.op(later.id))),
          body_(*function_.graph),
          match_(graph, earlier, later),
          readers_(body_.ops.size()) {
        for (std::size_t id = 0; id < body_.ops.size(); ++id) {
            for (const TensorRef input : body_.ops[id].inputs)
                readers_[static_cast<std::size_t>(input.op)].push_back({static_cast<OpId>(id), input});
        }
        for (const TensorRef result : function_.results)
            readers_[static_cast<std::size_t>(result.op)].push_back({-1, result});
        for (const Loop::Recalled& known : to_.recalled) done_.insert(known.own);
    }

    // From the results backwards: what only recalled tensors are made of is not needed.
    void run() {
        std::set<TensorRef> candidates;
        for (std::size_t id = 0; id < body_.ops.size(); ++id) {
            const auto op = static_cast<OpId>(id);
            if (match_.matches(op) && is_dear(body_, body_.ops[id])) candidates.merge(wanted(op));
        }
        std::set<TensorRef> needed(function_.results.begin(), function_.results.end());
        for (std::size_t id = body_.ops.size(); id-- > 0;) {
            const auto first = needed.lower_bound({static_cast<OpId>(id), 0});
            const auto last = needed.lower_bound({static_cast<OpId>(id) + 1, 0});
            const bool computed = !std::all_of(first, last, [&](TensorRef tensor) {
                return done_.contains(tensor) || (candidates.contains(tensor) && recall(tensor));
            });
            if (computed) needed.insert(body_.ops[id].inputs.begin(), body_.ops[id].inputs.end());
        }
    }

private:
    struct Reader {
        OpId op;  // -1: it is a result
        TensorRef tensor;
    };

    // What is read of `op`; or what is made of that, when nothing else is read and it is not larger: whatever the
    // earlier loop stitches to a product is then not computed again either.
    std::set<TensorRef> wanted(OpId op) const {
        for (;;) {
            const std::vector<Reader>& readers = readers_[static_cast<std::size_t>(op)];
            const auto same_reader = [&](const Reader& reader) { return reader.op == readers.front().op; };
            const OpId next = readers.empty() ? -1 : readers.front().op;
            const bool goes_on = next >= 0 && std::all_of(readers.begin(), readers.end(), same_reader) &&
                                 match_.matches(next) && is_made_of(next, op);
            if (!goes_on) break;
            op = next;
        }
        std::set<TensorRef> read;
        for (const Reader& reader : readers_[static_cast<std::size_t>(op)]) read.insert(reader.tensor);
        return read;
    }
    bool is_made_of(OpId next, OpId op) const {
        const OpNode& made = body_.op(next);
        if (!std::holds_alternative<ElementBody>(made.def->body) || made.def->view) return false;
        return provably_nonnegative(bytes_of(body_.op(op).outputs[0]) - bytes_of(made.outputs[0]));
    }

    bool recall(TensorRef tensor) {
        const std::optional<int> output = output_of(*match_.find(tensor), bytes_of(body_.type(tensor)));
        if (!output) return false;
        to_.recalled.push_back({tensor, {from_.id, *output}});
        done_.insert(tensor);
        return true;
    }

    // The output of the earlier loop that stacks a tensor of its body; none when there is no room for it.
    std::optional<int> output_of(TensorRef tensor, const Dim& bytes) {
        const int carried = from_.layout.carried;
        const auto stacked = source_.results.begin() + carried;
        if (const auto at = std::find(stacked, source_.results.end(), tensor); at != source_.results.end())
            return carried + static_cast<int>(at - stacked);
        const int first = carried + from_.layout.stacked;
        if (const auto at = std::find(from_.stacks.begin(), from_.stacks.end(), tensor); at != from_.stacks.end())
            return first + static_cast<int>(at - from_.stacks.begin());
        if (!provably_nonnegative(from_.room - bytes)) return std::nullopt;
        from_.room = from_.room - bytes;
        from_.stacks.push_back(tensor);
        return first + static_cast<int>(from_.stacks.size()) - 1;
    }

    Loop& from_;
    Loop& to_;
    const Function& source_;
    const Function& function_;
    const GraphData& body_;
    Match match_;
    std::vector<std::vector<Reader>> readers_;  // by operation of the later body
    std::set<TensorRef> done_;
};

Loop loop_of(const GraphData& graph, OpId id) {
    const NodeView view(graph, graph.op(id));
    const ops::ScanLayout layout(view.view);
    const Function& body = body_of(graph.op(id));
    Dim passing = 0;
    for (int k = 0; k < layout.carried + layout.sequences; ++k)
        passing = passing + bytes_of(body.graph->type(body.parameters[static_cast<std::size_t>(1 + k)]));
    for (int k = 0; k < layout.stacked; ++k)
        passing = passing + bytes_of(body.graph->type(body.results[static_cast<std::size_t>(layout.carried + k)]));
    return {id, layout.length, layout, passing * Dim(max_kept), {}, {}};
}

std::vector<Loop> find_loops(const GraphData& graph) {
    std::vector<Loop> loops;
    for (std::size_t id = 0; id < graph.ops.size(); ++id) {
        if (is_scan(graph.ops[id])) loops.push_back(loop_of(graph, static_cast<OpId>(id)));
    }
    for (std::size_t later = 0; later < loops.size(); ++later) {
        for (std::size_t earlier = 0; earlier < later; ++earlier) {
            if (loops[earlier].length == loops[later].length) Chooser(graph, loops[earlier], loops[later]).run();
        }
    }
    return loops;
}

// The loop with what it stacks and recalls in addition; its outputs before these are mapped to those behind.
void rebuild_loop(Rebuild& rebuild, const Loop& loop) {
    OpNode node = rebuild.mapped_node(loop.id);
    const auto first = static_cast<std::size_t>(loop.layout.carried + loop.layout.sequences);
    const Function& body = body_of(node);
    std::vector<NewParameter> added;
    for (const Loop::Recalled& recalled : loop.recalled)
        added.push_back({body.graph->type(recalled.own), "", recalled.own});
    FunctionPtr changed = with_parameters(body, 1 + first, added, loop.stacks);
    auto at = node.inputs.begin() + static_cast<std::ptrdiff_t>(first);
    for (const Loop::Recalled& recalled : loop.recalled) {
        // Numbers are those that the earlier loop gives its outputs when it is rebuilt.
        const OpId earlier = rebuild.mapped({recalled.from.op, 0}).op;
        at = 1 + node.inputs.insert(at, {earlier, recalled.from.output});
    }
    std::vector<bool> kept(changed->parameters.size(), false);
    std::fill_n(kept.begin(), 1 + loop.layout.carried, true);
    if (loop.layout.sequences > 0) kept[static_cast<std::size_t>(1 + loop.layout.carried)] = true;  // tells the length
    changed = without_unused(*changed, kept);
    std::vector<TensorRef> inputs;
    std::int64_t sequences = 0;
    for (std::size_t k = 0; k < node.inputs.size(); ++k) {
        if (!kept[k + 1]) continue;
        inputs.push_back(node.inputs[k]);
        if (k >= static_cast<std::size_t>(loop.layout.carried) && k < first + loop.recalled.size()) ++sequences;
    }
    node.inputs = std::move(inputs);
    const auto attribute = [&node](const char* name) -> Attribute& {
        return node.attributes[static_cast<std::size_t>(node.def->attribute_index(name))];
    };
    attribute("body") = changed;
    attribute("sequences") = sequences;
    attribute("length") = Shape({loop.length});
    std::vector<TensorType> types;
    for (const TensorRef input : node.inputs) types.push_back(rebuild.graph()->type(input));
    const int old_outputs = static_cast<int>(node.outputs.size());
    node.outputs = infer_types(*node.def, types, node.attributes, &node.location);
    const OpId made = rebuild.add(loop.id, std::move(node));
    std::vector<TensorRef> outputs;
    const int first_history = loop.layout.output_of_history(0);
    for (int k = 0; k < old_outputs; ++k)
        outputs.push_back({made, k < first_history ? k : k + static_cast<int>(loop.stacks.size())});
    rebuild.map(loop.id, std::move(outputs));
}

}  // namespace

Program recall(const Program& program) {
    const std::vector<Loop> loops = find_loops(*program.graph);
    Rebuild rebuild(program);
    auto next = loops.begin();
    for (std::size_t index = 0; index < program.graph->ops.size(); ++index) {
        const auto id = static_cast<OpId>(index);
        const bool is_loop = next != loops.end() && next->id == id;
        if (is_loop && (!next->stacks.empty() || !next->recalled.empty())) {
            rebuild_loop(rebuild, *next);
        } else {
            rebuild.copy(id);
        }
        if (is_loop) ++next;
    }
    Program outer = std::move(rebuild).finish();
    Rebuild inner(outer);
    for (std::size_t index = 0; index < outer.graph->ops.size(); ++index) {
        OpNode node = inner.mapped_node(static_cast<OpId>(index));
        change_functions(node, [](const Program& body) { return dce(recall(body)); });
        inner.add(static_cast<OpId>(index), std::move(node));
    }
    return std::move(inner).finish();
}

}  // namespace topstitch
