// Chooses between a thread and a group for each iteration, and finds which accumulators are joined where.
// A loop that cannot be shared out runs in every thread of the group alike.
#include "codegen/grid_plan.h"

#include <algorithm>
#include <optional>

#include "loopir/contract.h"
#include "loopir/scalar_op.h"
#include "topstitch/error.h"

namespace topstitch::codegen {

using loopir::Block;
using loopir::Combiner;
using loopir::Instr;
using loopir::Loop;
using loopir::no_value;
using loopir::ScalarOp;
using loopir::Stmt;
using loopir::ValueId;

namespace {

// Shorter rows are walked by one thread.
constexpr std::int64_t min_group_row = 16;
// The longest rows that one simdgroup walks, and the shortest that take the largest group: half of it walks others.
constexpr std::int64_t simd_row = 256;
constexpr std::int64_t whole_group_row = 1024;
// Fewer iterations occupy a machine better one by one than four by four; and shorter rows are mostly ends.
constexpr std::int64_t min_wide_grid = 4096;
constexpr std::int64_t min_wide_row = 16;
// Nests with fewer iterations are counted through together with the loop around them.
constexpr std::int64_t short_nest = 1024;
// So many single threads occupy a machine.
constexpr std::int64_t enough_threads = 8192;
// Columns side by side have a thread each, which reads what its neighbours read; fewer have a group each.
constexpr std::int64_t few_threads = 256;

// How many iterations the loops have together, if that is known.
std::optional<std::int64_t> iterations(const LoopStack& nest) {
    std::int64_t product = 1;
    for (const Loop* loop : nest) {
        if (!loop->extent.is_known()) return std::nullopt;
        product *= loop->extent.value();
    }
    return product;
}

}  // namespace

GridPlan::GridPlan(const loopir::Kernel& kernel, const LoopFacts& facts, const Limits& limits)
    : kernel_(kernel), facts_(facts), limits_(limits) {
    choose_grid();
    LoopStack open;
    collect(kernel.body, open);
    if (!limits.float64) find_pairs();
    if (groups_) find_parts();
    place_locals();
    choose_wide();
}

GridPlan::GridPlan(const loopir::Kernel& kernel, const LoopFacts& facts, const Limits& limits, int group_threads)
    : kernel_(kernel), facts_(facts), limits_(limits), groups_(true), group_threads_(group_threads) {}

GridPlan::Role GridPlan::role(const Loop& loop) const {
    if (std::find(grid_.begin(), grid_.end(), &loop) != grid_.end()) return Role::grid;
    if (spread_.contains(&loop)) return Role::spread;
    const bool nested = std::any_of(nests_.begin(), nests_.end(), [&](const auto& entry) {
        return std::find(entry.second.begin(), entry.second.end(), &loop) != entry.second.end();
    });
    return nested ? Role::nested : Role::serial;
}

LoopStack GridPlan::nest(const Loop& spread) const {
    const auto found = nests_.find(&spread);
    return found == nests_.end() ? LoopStack{&spread} : found->second;
}

const std::vector<int>& GridPlan::joined_after(const Loop& loop) const {
    static const std::vector<int> none;
    const auto found = joined_.find(&loop);
    return found == joined_.end() ? none : found->second;
}

// --- The grid.

void GridPlan::choose_grid() {
    grid_ = facts_.outer();
    const bool in_lanes = std::any_of(grid_.begin(), grid_.end(), [](const Loop* loop) { return loop->vector; });
    if (in_lanes && iterations(grid_).value_or(few_threads) >= few_threads) return;
    choose_spread(grid_.empty() ? kernel_.body : grid_.back()->body.front());
    groups_ = worth_a_group();
    if (!groups_) {
        spread_.clear();
        nests_.clear();
        matrices_.clear();
        prefixes_.clear();
        return;
    }
    std::int64_t longest = 0;
    for (const Loop* loop : spread_) longest = std::max(longest, iterations(nest(*loop)).value_or(whole_group_row - 1));
    group_threads_ = longest <= simd_row         ? limits_.simd_width
                     : longest < whole_group_row ? limits_.group_threads / 2
                                                 : limits_.group_threads;
    choose_teams();
}

void GridPlan::choose_spread(const Block& block) {
    for (const Stmt& stmt : block.stmts) {
        const auto* loop = std::get_if<Loop>(&stmt);
        if (loop == nullptr) continue;
        if (const auto product = find_matrix_nest(kernel_, facts_, *loop, limits_.matrix_side)) {
            spread_.insert(loop);
            nests_[loop] = {product->rows, product->columns};
            matrices_[loop] = *product;
            continue;
        }
        if (auto prefix = find_prefix_loop(kernel_, facts_, *loop, limits_.float64)) {
            spread_.insert(loop);
            prefixes_[loop] = *std::move(prefix);
            continue;
        }
        const LoopStack nest = whole_nest(*loop);
        if (nest.empty()) {
            choose_spread(loop->body.front());
            continue;
        }
        spread_.insert(loop);
        if (nest.size() > 1) nests_[loop] = nest;
    }
}

// The loop, if its iterations can be shared out; with the loops inside it, if those alone would not occupy a group.
LoopStack GridPlan::whole_nest(const Loop& loop) const {
    if (!facts_.is_independent(loop)) return {};
    if (!facts_.contains_vector_loop(loop)) return {&loop};
    const Loop* inner = only_loop(loop.body.front());
    if (inner == nullptr || inner->limit || loop.limit || !loop.extent.is_known()) return {};
    LoopStack nest = whole_nest(*inner);
    if (nest.empty() || iterations(nest).value_or(short_nest) >= short_nest) return {};
    nest.insert(nest.begin(), &loop);
    return nest;
}

// Where nothing is meant to run in lanes, and there are iterations enough for one thread each, they are that.
bool GridPlan::worth_a_group() const {
    const bool in_lanes = std::any_of(spread_.begin(), spread_.end(), [this](const Loop* loop) {
        return loop->vector || facts_.contains_vector_loop(*loop);
    });
    if (!in_lanes && iterations(grid_).value_or(0) >= enough_threads) return false;
    return std::any_of(spread_.begin(), spread_.end(), [this](const Loop* loop) {
        return iterations(nest(*loop)).value_or(min_group_row) >= min_group_row;
    });
}

const MatrixNest* GridPlan::matrices(const Loop& loop) const {
    const auto found = matrices_.find(&loop);
    return found == matrices_.end() ? nullptr : &found->second;
}

const PrefixLoop* GridPlan::prefix(const Loop& loop) const {
    const auto found = prefixes_.find(&loop);
    return found == prefixes_.end() ? nullptr : &found->second;
}

const WideAccesses* GridPlan::wide(const Loop& loop) const {
    const auto found = wide_.find(&loop);
    return found == wide_.end() ? nullptr : &found->second;
}

void GridPlan::choose_wide() {
    if (groups_) {
        for (const Loop* loop : spread_) {
            if (nest(*loop).size() == 1) {
                choose_wide(*loop);
            } else if (!matrices_.contains(loop)) {
                choose_wide_nest(*loop);
            }
        }
        return;
    }
    if (grid_.empty() || iterations(grid_).value_or(min_wide_grid) < min_wide_grid) return;
    const Loop& last = *grid_.back();
    const bool is_short = last.extent.is_known() && last.extent.value() < min_wide_row;
    if (!last.limit && !is_short) choose_wide(last);
}

void GridPlan::choose_wide(const Loop& loop) {
    const bool running = prefixes_.contains(&loop);
    const std::optional<PlainBody> body = plain_body(kernel_, loop, running);
    if (!body) return;
    const AxisGroup iterations(Axis{loop.var, loop.extent});
    std::optional<WideAccesses> accesses = find_wide(kernel_, facts_, iterations, body->values, body->stores);
    // Iterations with running values are written twice.
    if (accesses && !(running && !accesses->before.empty())) wide_[&loop] = *std::move(accesses);
}

// The four are neighbours in the innermost loop.
void GridPlan::choose_wide_nest(const Loop& loop) {
    const LoopStack nest = this->nest(loop);
    AxisGroup iterations;
    for (const Loop* one : nest) iterations.add({one->var, one->extent});
    std::optional<PlainBody> body = plain_body(kernel_, *nest.back());
    if (!body || nest.back()->limit || !AxisGroup(iterations.last()).is_multiple_of(wide_count)) return;
    std::vector<ValueId> values;
    for (const Loop* one : nest) {
        for (const Stmt& stmt : one->body.front().stmts) {
            if (const auto* let = std::get_if<loopir::Let>(&stmt)) values.push_back(let->value);
        }
    }
    std::optional<WideAccesses> accesses = find_wide(kernel_, facts_, iterations, values, body->stores);
    if (accesses) wide_[&loop] = *std::move(accesses);
}

// --- Local buffers.

void GridPlan::place_locals() {
    std::int64_t thread_bytes = 0;
    std::int64_t group_bytes = 0;
    for (std::size_t b = 0; b < kernel_.buffers.size(); ++b) {
        const int buffer = static_cast<int>(b);
        const loopir::BufferParam& param = kernel_.buffers[b];
        if (param.role != loopir::BufferParam::Role::local) {
            const bool written = facts_.root().stores_to(buffer);
            if (groups_ && written && facts_.root().accesses(kernel_, buffer) > 1) shared_.insert(buffer);
            continue;
        }
        const bool own = !groups_ || std::any_of(spread_.begin(), spread_.end(), [&](const Loop* loop) {
            return facts_.is_private(*loop, buffer) && !facts_.is_touched_outside(*loop, buffer);
        });
        Space space = own ? Space::thread : Space::group;
        if (param.size.is_known()) {
            (own ? thread_bytes : group_bytes) += param.size.value() * static_cast<std::int64_t>(size_of(param.dtype));
        } else if (own) {
            refuse(concat("each thread needs ", param.size.str(), " elements of local buffer ", param.name,
                          ", but arrays of a thread have a fixed size"));
        } else {
            space = Space::group_by_launch;
        }
        if (!own) shared_.insert(buffer);
        spaces_[buffer] = space;
    }
    if (thread_bytes > limits_.thread_bytes) {
        refuse(concat("local buffers take ", thread_bytes, " bytes of each thread, more than the ",
                      limits_.thread_bytes, " that are sensible"));
    }
    if (group_bytes > limits_.group_bytes) {
        refuse(concat("local buffers take ", group_bytes, " bytes of each group of threads, which has ",
                      limits_.group_bytes));
    }
}

// --- Accumulators.

void GridPlan::collect(const Block& block, LoopStack& open) {
    for (const Stmt& stmt : block.stmts) {
        if (const auto* init = std::get_if<loopir::InitAcc>(&stmt)) {
            sites_[init->accumulator].inits.push_back(open);
        } else if (const auto* accumulate = std::get_if<loopir::Accumulate>(&stmt)) {
            sites_[accumulate->accumulator].sites.push_back({accumulate, open});
        } else if (const auto* loop = std::get_if<Loop>(&stmt)) {
            open.push_back(loop);
            collect(loop->body.front(), open);
            open.pop_back();
        }
    }
}

// float64 occurs as sums of float32 numbers and nowhere else, or the kernel is refused.
void GridPlan::find_pairs() {
    constexpr DType wide = DType::float64;
    const auto type = [&](ValueId value) { return instr(value).type; };
    const auto is_widening = [&](ValueId value) {
        const Instr& i = instr(value);
        return i.op == ScalarOp::cast && i.type == wide && type(i.args[0]) == DType::float32;
    };
    for (const loopir::BufferParam& buffer : kernel_.buffers) {
        if (buffer.dtype == wide) refuse(concat("buffer ", buffer.name, " has elements of float64"));
    }
    std::set<ValueId> added;
    for (std::size_t a = 0; a < kernel_.accumulators.size(); ++a) {
        const int accumulator = static_cast<int>(a);
        if (kernel_.accumulators[a].type != wide) continue;
        bool fits = kernel_.accumulators[a].combiner == Combiner::sum;
        for (const Site& site : sites_[accumulator].sites) {
            fits = fits && is_widening(site.accumulate->value);
            added.insert(site.accumulate->value);
        }
        if (fits) paired_.insert(accumulator);
    }
    // All that is left of it: the widened numbers, reads of the sums, and what these are narrowed to.
    const auto is_sum = [&](ValueId value) {
        return instr(value).op == ScalarOp::acc_read && is_paired(instr(value).slot);
    };
    for (const ValueId value : facts_.root().values) {
        const Instr& i = instr(value);
        const bool allowed = i.type != wide || (added.contains(value) && is_widening(value)) || is_sum(value);
        bool used = true;
        for (const ValueId arg : i.args) {
            if (arg == no_value || type(arg) != wide) continue;
            used = used && is_sum(arg) && i.op == ScalarOp::cast && i.type == DType::float32;
        }
        if (!allowed || !used) refuse(concat("it computes ", loopir::info(i.op).name, " in float64"));
    }
    for (const loopir::Store* store : facts_.root().stores) {
        if (type(store->value) == wide) refuse("it stores float64");
    }
}

const Loop* GridPlan::spread_loop(const LoopStack& loops, std::size_t from) const {
    for (std::size_t k = from; k < loops.size(); ++k) {
        if (spread_.contains(loops[k])) return loops[k];
    }
    return nullptr;
}

// Whether threads add to parts of their own: in a spread loop, unless the accumulator runs there.
bool GridPlan::has_parts(int accumulator, const LoopStack& loops, std::size_t from) const {
    const Loop* spread = spread_loop(loops, from);
    const PrefixLoop* prefix = spread == nullptr ? nullptr : this->prefix(*spread);
    return spread != nullptr && (prefix == nullptr || !prefix->runs(accumulator));
}

void GridPlan::find_parts() {
    // Accumulators to which spread loops add. Then those to which the parts of the former are added: a sum in blocks
    // need not be joined after each block.
    const std::vector<int> uses = loopir::count_uses(kernel_);
    std::set<ValueId> part_values;
    bool found = true;
    while (found) {
        found = false;
        for (auto& [accumulator, sites] : sites_) {
            if (partial_.contains(accumulator) || sites.inits.empty()) continue;
            const std::size_t depth = sites.inits.front().size();
            if (spread_loop(sites.inits.front(), 0) != nullptr) continue;  // each thread has its own
            std::set<const Loop*> around;
            for (const Site& site : sites.sites) {
                const bool spread = has_parts(accumulator, site.loops, depth);
                if (!spread && !part_values.contains(site.accumulate->value)) continue;
                parts_.insert(site.accumulate);
                around.insert(site.loops[depth]);
            }
            if (around.empty()) continue;
            found = true;
            partial_.insert(accumulator);
            if (can_leave_in_parts(accumulator, uses, part_values)) {
                left_.insert(accumulator);
                continue;
            }
            for (const Loop* loop : around) joined_[loop].push_back(accumulator);
        }
    }
}

// Nothing happens to the accumulator's value but that it is added to another one of the same kind, in a loop at whose
// end that can be joined. If so, the values that are parts are noted.
bool GridPlan::can_leave_in_parts(int accumulator, const std::vector<int>& uses, std::set<ValueId>& parts) const {
    if (kernel_.accumulators[static_cast<std::size_t>(accumulator)].combiner != Combiner::sum) return false;
    const auto feeds_sum = [&](ValueId value) {
        for (const auto& [target, sites] : sites_) {
            if (kernel_.accumulators[static_cast<std::size_t>(target)].combiner != Combiner::sum) continue;
            if (partial_.contains(target)) continue;  // its other parts are settled
            for (const Site& site : sites.sites) {
                if (site.accumulate->value != value || site.accumulate->guard != no_value || sites.inits.empty())
                    continue;
                const std::size_t depth = sites.inits.front().size();
                if (site.loops.size() > depth && spread_loop(site.loops, 0) == nullptr) return true;
            }
        }
        return false;
    };
    std::set<ValueId> found;
    for (const ValueId value : facts_.root().values) {
        const Instr& read = instr(value);
        if (read.op != ScalarOp::acc_read || read.slot != accumulator) continue;
        if (uses[static_cast<std::size_t>(value)] != 1) return false;
        ValueId last = value;
        for (const ValueId user : facts_.root().values) {
            const Instr& i = instr(user);
            if (i.op == ScalarOp::cast && i.args[0] == value && i.type == DType::float64 &&
                uses[static_cast<std::size_t>(user)] == 1) {
                last = user;
            }
        }
        if (!feeds_sum(last)) return false;
        found.insert(last);
    }
    parts.insert(found.begin(), found.end());
    return !found.empty();
}

}  // namespace topstitch::codegen
