// Finds in which order the running values of a loop can be found, and what each is made of.
// See prefix_loop.h.
#include "codegen/prefix_loop.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/short_list.h"

namespace topstitch::codegen {

using loopir::Accumulate;
using loopir::Combiner;
using loopir::Instr;
using loopir::Kernel;
using loopir::Let;
using loopir::Loop;
using loopir::no_value;
using loopir::ScalarOp;
using loopir::Stmt;
using loopir::Store;
using loopir::ValueId;

namespace {

class PrefixFinder {
public:
    PrefixFinder(const Kernel& kernel, const LoopFacts& facts, const Loop& loop)
        : kernel_(kernel), contents_(facts.of(loop)), stmts_(loop.body.front().stmts) {
        const std::vector<int> carried = facts.carried(loop);
        for (const ValueId value : contents_.values) {
            inside_.insert(value);
            const Instr& read = instr(value);
            if (read.op == ScalarOp::acc_read && contains(carried, int{read.slot})) running_.insert(read.slot);
        }
    }

    std::optional<PrefixLoop> find(bool float64) {
        if (running_.empty() || !contents_.loops.empty() || !contents_.initialised.empty()) return std::nullopt;
        if (!float64 && std::any_of(running_.begin(), running_.end(), [&](int a) { return is_float64(a); }))
            return std::nullopt;
        std::map<int, std::size_t> step_of;
        PrefixLoop result;
        for (const Stmt& stmt : stmts_) {
            const auto* accumulate = std::get_if<Accumulate>(&stmt);
            if (accumulate == nullptr || !running_.contains(accumulate->accumulator)) continue;
            // An accumulator that is added to more than once has no single step.
            if (step_of.contains(accumulate->accumulator)) return std::nullopt;
            const std::optional<std::size_t> step = add(*accumulate, step_of, result);
            if (!step) return std::nullopt;
            step_of[accumulate->accumulator] = *step;
        }
        for (std::size_t k = 1; k < result.steps.size(); ++k) {
            result.steps[k].accumulated.merge(std::set(result.steps[k - 1].accumulated));
            result.steps[k].values.merge(std::set(result.steps[k - 1].values));
        }
        for (const int id : running_) {
            if (is_checked(id)) result.checked.insert(id);
        }
        if (!result.checked.empty() && result.steps.size() > 1) return std::nullopt;
        if (!reads_before_it_writes(result.steps.back().values)) return std::nullopt;
        return result;
    }

private:
    const Instr& instr(ValueId id) const { return kernel_.instrs[static_cast<std::size_t>(id)]; }

    const loopir::Accumulator& accumulator(int id) const { return kernel_.accumulators[static_cast<std::size_t>(id)]; }
    bool is_float64(int id) const { return accumulator(id).type == DType::float64; }
    bool is_checked(int id) const {
        return accumulator(id).combiner == Combiner::product && is_floating(accumulator(id).type);
    }

    // The step in which the part of the accumulator is found; nothing when it depends on its own running value.
    std::optional<std::size_t> add(const Accumulate& accumulate, const std::map<int, std::size_t>& step_of,
                                   PrefixLoop& result) const {
        std::set<ValueId> values;
        for (const ValueId value : {accumulate.value, accumulate.position, accumulate.guard}) collect(value, values);
        std::size_t step = 0;
        for (const ValueId value : values) {
            const Instr& read = instr(value);
            if (read.op != ScalarOp::acc_read) continue;
            const auto earlier = step_of.find(read.slot);
            if (earlier == step_of.end()) return std::nullopt;
            step = std::max(step, earlier->second + 1);
        }
        if (result.steps.size() <= step) result.steps.resize(step + 1);
        result.steps[step].found.push_back(accumulate.accumulator);
        result.steps[step].accumulated.insert(accumulate.accumulator);
        result.steps[step].values.merge(values);
        return step;
    }

    // What the value is computed from inside of the loop, with itself.
    void collect(ValueId value, std::set<ValueId>& values) const {
        if (value == no_value || !inside_.contains(value) || !values.insert(value).second) return;
        for (const ValueId arg : instr(value).args) collect(arg, values);
        std::vector<ValueId> indices;
        instr(value).index.collect_values(indices);
        for (const ValueId index : indices) collect(index, values);
    }

    // Parts are found before an iteration stores anything.
    bool reads_before_it_writes(const std::set<ValueId>& values) const {
        std::set<int> stored;
        for (const Stmt& stmt : stmts_) {
            if (const auto* store = std::get_if<Store>(&stmt)) stored.insert(store->buffer);
            const auto* let = std::get_if<Let>(&stmt);
            if (let == nullptr || !values.contains(let->value)) continue;
            const Instr& load = instr(let->value);
            if (load.op == ScalarOp::load && stored.contains(load.slot)) return false;
        }
        return true;
    }

    const Kernel& kernel_;
    const Contents& contents_;
    const std::vector<Stmt>& stmts_;
    std::set<ValueId> inside_;
    std::set<int> running_;
};

}  // namespace

std::optional<PrefixLoop> find_prefix_loop(const Kernel& kernel, const LoopFacts& facts, const Loop& loop,
                                           bool float64) {
    if (!facts.has_separate_iterations(loop)) return std::nullopt;
    return PrefixFinder(kernel, facts, loop).find(float64);
}

}  // namespace topstitch::codegen
