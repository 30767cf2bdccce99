// Finds spread loops over few rows, each of which a team of neighbouring lanes can go through together.
// See grid_plan.h.
#include <algorithm>

#include "codegen/grid_plan.h"
#include "loopir/scalar_op.h"

namespace topstitch::codegen {

using loopir::Loop;
using loopir::Stmt;

void GridPlan::choose_teams() {
    for (const Loop* loop : spread_) {
        if (!loop->extent.is_known() || loop->limit || nests_.contains(loop)) continue;
        const std::int64_t rows = loop->extent.value();
        if (rows < 1 || group_threads_ % rows != 0) continue;
        const std::int64_t lanes = group_threads_ / rows;
        if (lanes > 1 && lanes <= limits_.simd_width && suits_team(*loop)) teams_[loop] = static_cast<int>(lanes);
    }
}

// There are loops to share out, and the lanes of a team see what the others write.
bool GridPlan::suits_team(const Loop& loop) const {
    const Contents& contents = facts_.of(loop);
    bool has_steps = false;
    for (const Stmt& stmt : loop.body.front().stmts) {
        if (std::holds_alternative<loopir::Accumulate>(stmt)) return false;
        const auto* step = std::get_if<Loop>(&stmt);
        if (step != nullptr && !is_shared_out(loop, *step)) return false;
        has_steps = has_steps || step != nullptr;
    }
    return has_steps && std::all_of(contents.stores.begin(), contents.stores.end(), [&](const loopir::Store* store) {
               const bool local =
                   kernel_.buffers[static_cast<std::size_t>(store->buffer)].role == loopir::BufferParam::Role::local;
               return !facts_.is_private(loop, store->buffer) &&
                      (local || !contents.loads_from(kernel_, store->buffer));
           });
}

// A loop of the row without loops in it, and with sums that begin and end with it.
bool GridPlan::is_shared_out(const Loop& loop, const Loop& step) const {
    const Contents& steps = facts_.of(step);
    if (!steps.loops.empty() || !steps.initialised.empty() || !facts_.is_independent(step)) return false;
    const std::vector<int>& initialised = facts_.of(loop).initialised;
    const std::vector<int>& accumulated = facts_.of(loop).accumulated;
    return std::all_of(steps.accumulated.begin(), steps.accumulated.end(), [&](int accumulator) {
        const loopir::Accumulator& acc = kernel_.accumulators[static_cast<std::size_t>(accumulator)];
        return !loopir::is_arg_reduction(acc.combiner) && acc.type != DType::float64 &&
               std::count(initialised.begin(), initialised.end(), accumulator) == 1 &&
               std::count(accumulated.begin(), accumulated.end(), accumulator) == 1;
    });
}

int GridPlan::team(const Loop& loop) const {
    const auto found = teams_.find(&loop);
    return found == teams_.end() ? 1 : found->second;
}

}  // namespace topstitch::codegen
