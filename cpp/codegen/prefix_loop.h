// Loops with running values that the threads of a group can share out: prefix sums, products, minima and maxima.
// Recognised by an accumulator that is read inside the loop that adds to it.
#pragma once

#include <optional>
#include <set>
#include <vector>

#include "codegen/loop_facts.h"

namespace topstitch::codegen {

// Each thread takes a few neighbouring iterations. It first finds what these come to, step by step; joined in the order
// of the threads, that tells what each thread's iterations go on from. Then they are done as they stand.
struct PrefixLoop {
    // Accumulators whose parts are found together, with the values they are made of. Those of later steps may depend on
    // running values of earlier ones, so that a step holds what the earlier ones need, too.
    struct Step {
        std::vector<int> found;
        std::set<int> accumulated;  // by this step and those before
        std::set<loopir::ValueId> values;
    };
    std::vector<Step> steps;
    // Products of floats: parts may leave the range of the type where the whole, taken in order, does not. Where they
    // do, it is taken in order.
    std::set<int> checked;

    bool runs(int accumulator) const { return !steps.empty() && steps.back().accumulated.contains(accumulator); }
};

// Nothing where parts of the loop cannot be joined: where what is added depends on the running value itself, or is
// checked and there are further steps. `float64`: the machine has it.
std::optional<PrefixLoop> find_prefix_loop(const loopir::Kernel& kernel, const LoopFacts& facts,
                                           const loopir::Loop& loop, bool float64);

}  // namespace topstitch::codegen
