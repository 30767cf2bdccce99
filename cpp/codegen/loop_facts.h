// What happens inside each loop of a kernel, and which of its loops may run their iterations in any order.
// Computed once, before anything is emitted.
#pragma once

#include <unordered_map>
#include <vector>

#include "loopir/kernel.h"

namespace topstitch::codegen {

using LoopStack = std::vector<const loopir::Loop*>;  // open loops, the outermost first

// The only statement besides values, if that is a loop.
const loopir::Loop* only_loop(const loopir::Block& block);

// Everything inside one loop, or in the whole kernel.
struct Contents {
    std::vector<int> initialised;
    std::vector<int> accumulated;
    std::vector<loopir::ValueId> values;
    std::vector<const loopir::Store*> stores;
    std::vector<const loopir::Loop*> loops;

    bool loads_from(const loopir::Kernel& kernel, int buffer) const;
    bool stores_to(int buffer) const;
    int accesses(const loopir::Kernel& kernel, int buffer) const;
};

class LoopFacts {
public:
    explicit LoopFacts(const loopir::Kernel& kernel);

    const Contents& root() const { return root_; }
    const Contents& of(const loopir::Loop& loop) const { return contents_.at(&loop); }
    bool depends(const loopir::Index& index, loopir::VarId var) const;
    bool depends(loopir::ValueId value, loopir::VarId var) const;
    // The outermost loops, one inside the other with nothing beside them but values, whose iterations do not touch each
    // other.
    const LoopStack& outer() const { return outer_; }

    // Accumulators that are initialised outside of the loop and accumulated inside.
    std::vector<int> carried(const loopir::Loop& loop) const;
    bool contains_vector_loop(const loopir::Loop& loop) const;
    // Each iteration has an element of `buffer`, a local, at the same index: concurrent ones need one each.
    bool is_private(const loopir::Loop& loop, int buffer) const;
    bool is_touched_outside(const loopir::Loop& loop, int buffer) const;
    // Iterations touch no memory of each other: because the schedule says so, or because each writes to places of its
    // own that no other reads.
    bool has_separate_iterations(const loopir::Loop& loop) const;
    // Then they may run in any order, and at once, save for what they accumulate: unless each goes on from what the one
    // before it came to.
    bool is_independent(const loopir::Loop& loop) const;

private:
    void find_outer();
    Contents visit(const loopir::Block& block);
    void visit_value(loopir::ValueId id);
    bool is_local(int buffer) const;
    bool proves_independence(const loopir::Loop& loop) const;
    bool writes_apart(const loopir::Loop& loop, const loopir::Index& index) const;

    const loopir::Kernel& kernel_;
    Contents root_;
    LoopStack outer_;
    std::unordered_map<const loopir::Loop*, Contents> contents_;
    std::vector<std::vector<loopir::VarId>> depends_;  // by value
    std::vector<loopir::VarId> open_;
};

}  // namespace topstitch::codegen
