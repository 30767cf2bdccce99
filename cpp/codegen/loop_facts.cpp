// Walks a kernel once and collects what its loops do; see loop_facts.h.
// Whether iterations are independent is decided from the schedule's flags, which say so, or from the places written.
#include "codegen/loop_facts.h"

#include <algorithm>

#include "core/short_list.h"

namespace topstitch::codegen {

using loopir::Block;
using loopir::Index;
using loopir::Instr;
using loopir::Kernel;
using loopir::Loop;
using loopir::no_value;
using loopir::ScalarOp;
using loopir::Stmt;
using loopir::ValueId;
using loopir::VarId;

namespace {

void merge(Contents& into, const Contents& from) {
    const auto append = [](auto& a, const auto& b) { a.insert(a.end(), b.begin(), b.end()); };
    append(into.initialised, from.initialised);
    append(into.accumulated, from.accumulated);
    append(into.values, from.values);
    append(into.stores, from.stores);
    append(into.loops, from.loops);
}

// The absolute value of a coefficient; unknown when its sign is.
Dim magnitude(const Dim& coefficient) {
    if (coefficient.is_unknown() || provably_nonnegative(coefficient)) return coefficient;
    const Dim negated = 0 - coefficient;
    return provably_nonnegative(negated) ? negated : Dim::unknown();
}

bool is_load_from(const Kernel& kernel, ValueId value, int buffer) {
    const Instr& instr = kernel.instrs[static_cast<std::size_t>(value)];
    return instr.op == ScalarOp::load && instr.slot == buffer;
}

}  // namespace

const Loop* only_loop(const Block& block) {
    const Loop* found = nullptr;
    for (const Stmt& stmt : block.stmts) {
        if (std::holds_alternative<loopir::Let>(stmt)) continue;
        const auto* loop = std::get_if<Loop>(&stmt);
        if (loop == nullptr || found != nullptr) return nullptr;
        found = loop;
    }
    return found;
}

bool Contents::loads_from(const Kernel& kernel, int buffer) const {
    return std::any_of(values.begin(), values.end(), [&](ValueId v) { return is_load_from(kernel, v, buffer); });
}

bool Contents::stores_to(int buffer) const {
    return std::any_of(stores.begin(), stores.end(), [&](const loopir::Store* s) { return s->buffer == buffer; });
}

int Contents::accesses(const Kernel& kernel, int buffer) const {
    const auto loads =
        std::count_if(values.begin(), values.end(), [&](ValueId v) { return is_load_from(kernel, v, buffer); });
    const auto written =
        std::count_if(stores.begin(), stores.end(), [&](const loopir::Store* s) { return s->buffer == buffer; });
    return static_cast<int>(loads + written);
}

LoopFacts::LoopFacts(const Kernel& kernel) : kernel_(kernel), depends_(kernel.instrs.size()) {
    root_ = visit(kernel.body);
    find_outer();
}

void LoopFacts::find_outer() {
    const Block* inside = &kernel_.body;
    while (const Loop* loop = only_loop(*inside)) {
        if (!carried(*loop).empty() || !is_independent(*loop)) break;
        outer_.push_back(loop);
        inside = &loop->body.front();
    }
}

bool LoopFacts::is_local(int buffer) const {
    return kernel_.buffers[static_cast<std::size_t>(buffer)].role == loopir::BufferParam::Role::local;
}

Contents LoopFacts::visit(const Block& block) {
    Contents contents;
    for (const Stmt& stmt : block.stmts) {
        if (const auto* let = std::get_if<loopir::Let>(&stmt)) {
            visit_value(let->value);
            contents.values.push_back(let->value);
        } else if (const auto* store = std::get_if<loopir::Store>(&stmt)) {
            contents.stores.push_back(store);
        } else if (const auto* init = std::get_if<loopir::InitAcc>(&stmt)) {
            add_once(contents.initialised, int{init->accumulator});
        } else if (const auto* accumulate = std::get_if<loopir::Accumulate>(&stmt)) {
            add_once(contents.accumulated, int{accumulate->accumulator});
        } else {
            const Loop& loop = std::get<Loop>(stmt);
            open_.push_back(loop.var);
            Contents inner = visit(loop.body.front());
            open_.pop_back();
            contents.loops.push_back(&loop);
            merge(contents, inner);
            contents_[&loop] = std::move(inner);
        }
    }
    return contents;
}

void LoopFacts::visit_value(ValueId id) {
    const Instr& instr = kernel_.instrs[static_cast<std::size_t>(id)];
    std::vector<VarId>& vars = depends_[static_cast<std::size_t>(id)];
    // What statements change may differ in each iteration.
    const bool changes = instr.op == ScalarOp::acc_read || (instr.op == ScalarOp::load && is_local(instr.slot));
    if (changes) vars = open_;
    std::vector<ValueId> sources;
    for (const ValueId arg : instr.args) {
        if (arg != no_value) sources.push_back(arg);
    }
    instr.index.collect_values(sources);
    instr.index.collect_vars(vars);
    for (const ValueId source : sources) {
        for (const VarId var : depends_[static_cast<std::size_t>(source)]) add_once(vars, var);
    }
}

bool LoopFacts::depends(const Index& index, VarId var) const {
    if (index.depends_on(var)) return true;
    std::vector<ValueId> values;
    index.collect_values(values);
    return std::any_of(values.begin(), values.end(), [&](ValueId v) { return depends(v, var); });
}

bool LoopFacts::depends(ValueId value, VarId var) const {
    return contains(depends_[static_cast<std::size_t>(value)], var);
}

std::vector<int> LoopFacts::carried(const Loop& loop) const {
    std::vector<int> result;
    for (const int accumulator : of(loop).accumulated) {
        if (!contains(of(loop).initialised, accumulator)) add_once(result, accumulator);
    }
    return result;
}

bool LoopFacts::contains_vector_loop(const Loop& loop) const {
    const std::vector<const Loop*>& loops = of(loop).loops;
    return std::any_of(loops.begin(), loops.end(), [](const Loop* inner) { return inner->vector; });
}

bool LoopFacts::is_private(const Loop& loop, int buffer) const {
    const std::vector<const loopir::Store*>& stores = of(loop).stores;
    return is_local(buffer) && std::any_of(stores.begin(), stores.end(), [&](const loopir::Store* store) {
               return store->buffer == buffer && !depends(store->index, loop.var);
           });
}

bool LoopFacts::is_touched_outside(const Loop& loop, int buffer) const {
    return root_.accesses(kernel_, buffer) != of(loop).accesses(kernel_, buffer);
}

bool LoopFacts::has_separate_iterations(const Loop& loop) const {
    for (std::size_t b = 0; b < kernel_.buffers.size(); ++b) {
        const int buffer = static_cast<int>(b);
        if (is_private(loop, buffer) && is_touched_outside(loop, buffer)) return false;
    }
    return loop.parallel || loop.vector || proves_independence(loop);
}

bool LoopFacts::is_independent(const Loop& loop) const {
    const std::vector<int> sums = carried(loop);
    const bool runs = std::any_of(of(loop).values.begin(), of(loop).values.end(), [&](ValueId value) {
        const Instr& instr = kernel_.instrs[static_cast<std::size_t>(value)];
        return instr.op == ScalarOp::acc_read && contains(sums, int{instr.slot});
    });
    return !runs && has_separate_iterations(loop);
}

bool LoopFacts::proves_independence(const Loop& loop) const {
    const Contents& contents = of(loop);
    for (const loopir::Store* store : contents.stores) {
        if (is_private(loop, store->buffer)) continue;
        if (!writes_apart(loop, store->index)) return false;
        // And each iteration reads back at most what it wrote.
        for (const ValueId value : contents.values) {
            if (!is_load_from(kernel_, value, store->buffer)) continue;
            if (!(kernel_.instrs[static_cast<std::size_t>(value)].index == store->index)) return false;
        }
        for (const loopir::Store* other : contents.stores) {
            if (other->buffer == store->buffer && !(other->index == store->index)) return false;
        }
    }
    return true;
}

// No two iterations of the loop reach the same element by `index`, whatever the loops inside do. With s the step of the
// loop and n its extent: what inner loops with short steps add stays below s, and the other steps are multiples of n s.
bool LoopFacts::writes_apart(const Loop& loop, const Index& index) const {
    std::vector<ValueId> values;
    index.collect_values(values);
    const Dim step = magnitude(index.coefficient_of(loop.var));
    if (!values.empty() || step.is_unknown() || !provably_nonnegative(step - 1)) return false;
    Dim within = 0;
    for (const Loop* inner : of(loop).loops) {
        if (!index.depends_on(inner->var)) continue;
        const Dim inner_step = magnitude(index.coefficient_of(inner->var));
        if (inner_step.is_unknown()) return false;
        if (exact_div(inner_step, step * loop.extent).is_unknown()) within = within + inner_step * (inner->extent - 1);
    }
    return provably_nonnegative(step - 1 - within);
}

}  // namespace topstitch::codegen
