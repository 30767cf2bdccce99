// How the loops of one kernel become a grid of threads, what threads of a group share, and where local buffers live.
// Computed before any text is written.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "codegen/dialect.h"
#include "codegen/loop_facts.h"
#include "codegen/matrix_nest.h"
#include "codegen/prefix_loop.h"
#include "codegen/wide.h"

namespace topstitch::codegen {

// One thread for each iteration of the outermost loops, which does everything inside. Or a group of threads for each:
// then all threads of the group do the same, except that `spread` loops share out their iterations, and what those
// accumulate is joined afterwards. A spread loop over fewer rows than there are threads gives each row to a team of
// neighbouring lanes, which share out the loops inside. A product in the group's memory goes to simdgroups instead, and
// of a loop with running values each thread takes neighbouring iterations.
class GridPlan {
public:
    enum class Role : std::uint8_t { grid, spread, nested, serial };
    enum class Space : std::uint8_t { thread, group, group_by_launch };

    GridPlan(const loopir::Kernel& kernel, const LoopFacts& facts, const Limits& limits);
    // Groups of so many threads, which something else than loops shares out work to.
    GridPlan(const loopir::Kernel& kernel, const LoopFacts& facts, const Limits& limits, int group_threads);

    bool groups() const { return groups_; }
    int group_threads() const { return group_threads_; }
    const LoopStack& grid() const { return grid_; }  // the outermost first
    Role role(const loopir::Loop& loop) const;
    // A spread loop and the loops inside it with which it is counted through, the outermost first.
    LoopStack nest(const loopir::Loop& spread) const;
    // The product of matrices that a spread loop is; null when it is none.
    const MatrixNest* matrices(const loopir::Loop& loop) const;
    bool has_matrices() const { return !matrices_.empty(); }
    // How the running values of a spread loop are found; null when it has none.
    const PrefixLoop* prefix(const loopir::Loop& loop) const;
    // So many lanes have each iteration of a spread loop, and share out the loops in it; 1: each thread has its own.
    int team(const loopir::Loop& loop) const;
    Space space(int buffer) const { return spaces_.at(buffer); }
    // How the loop, the last of the grid or a spread one (with its nest), makes four iterations at once; null when it
    // does not.
    const WideAccesses* wide(const loopir::Loop& loop) const;
    // Buffers that threads of a group exchange elements through: barriers order their accesses.
    bool is_shared(int buffer) const { return shared_.contains(buffer); }

    // Accumulators of which each thread has a part while the loop runs; the parts are joined at its end.
    const std::vector<int>& joined_after(const loopir::Loop& loop) const;
    // Those that are never joined: their parts are added to parts of another one.
    bool is_left_in_parts(int accumulator) const { return left_.contains(accumulator); }
    // The accumulation is done by each thread for its part, else by one thread for the whole group.
    bool adds_part(const loopir::Accumulate& accumulate) const { return parts_.contains(&accumulate); }

    // Sums in float64 of float32 numbers, on a machine without float64: kept as two float32 numbers.
    bool is_paired(int accumulator) const { return paired_.contains(accumulator); }

    // Why the kernel cannot be emitted; empty if it can.
    const std::string& refusal() const { return refusal_; }

private:
    // An accumulation and the loops around it.
    struct Site {
        const loopir::Accumulate* accumulate;
        LoopStack loops;
    };
    struct Sites {
        std::vector<LoopStack> inits;
        std::vector<Site> sites;
    };
    void choose_grid();
    void choose_spread(const loopir::Block& block);
    void choose_teams();
    bool suits_team(const loopir::Loop& loop) const;
    bool is_shared_out(const loopir::Loop& loop, const loopir::Loop& step) const;
    LoopStack whole_nest(const loopir::Loop& loop) const;
    bool worth_a_group() const;
    void place_locals();
    void choose_wide();
    void choose_wide(const loopir::Loop& loop);
    void choose_wide_nest(const loopir::Loop& loop);
    void collect(const loopir::Block& block, LoopStack& open);
    void find_pairs();
    void find_parts();
    bool can_leave_in_parts(int accumulator, const std::vector<int>& uses, std::set<loopir::ValueId>& parts) const;
    const loopir::Loop* spread_loop(const LoopStack& loops, std::size_t from) const;
    bool has_parts(int accumulator, const LoopStack& loops, std::size_t from) const;
    const loopir::Instr& instr(loopir::ValueId id) const { return kernel_.instrs[static_cast<std::size_t>(id)]; }
    void refuse(const std::string& reason) {
        if (refusal_.empty()) refusal_ = reason;
    }

    const loopir::Kernel& kernel_;
    const LoopFacts& facts_;
    const Limits& limits_;
    bool groups_ = false;
    int group_threads_ = 0;
    LoopStack grid_;
    std::set<const loopir::Loop*> spread_;
    std::map<const loopir::Loop*, LoopStack> nests_;
    std::map<const loopir::Loop*, MatrixNest> matrices_;
    std::map<const loopir::Loop*, PrefixLoop> prefixes_;
    std::map<const loopir::Loop*, int> teams_;
    std::map<const loopir::Loop*, WideAccesses> wide_;
    std::map<int, Space> spaces_;
    std::set<int> shared_;
    std::map<int, Sites> sites_;  // by accumulator
    std::map<const loopir::Loop*, std::vector<int>> joined_;
    std::set<int> partial_;
    std::set<int> left_;
    std::set<const loopir::Accumulate*> parts_;
    std::set<int> paired_;
    std::string refusal_;
};

}  // namespace topstitch::codegen
