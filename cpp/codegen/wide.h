// Which accesses of four neighbouring iterations are made at once, as one vector of the language.
// The same for plain loops, for the tiles of a product and for its results.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "codegen/axis_group.h"
#include "codegen/loop_facts.h"

namespace topstitch::codegen {

inline constexpr int wide_count = 4;

struct WideAccesses {
    std::vector<Axis> moving;                  // whose values differ among the four
    std::vector<loopir::ValueId> before;       // what all four share, in the order of the kernel
    std::vector<loopir::ValueId> loads;        // four elements at a time
    std::vector<const loopir::Store*> stores;  // likewise
    bool counted = false;                      // something else depends on which of the four it is
};

// Nothing unless every access to memory outside of the group either goes to four neighbours or is the same for all
// four. `values` and `stores` are all that happens in an iteration, in the order of the kernel; loads come first then.
std::optional<WideAccesses> find_wide(const loopir::Kernel& kernel, const LoopFacts& facts, const AxisGroup& iterations,
                                      std::span<const loopir::ValueId> values,
                                      std::span<const loopir::Store* const> stores);

// The values and stores of a loop that has nothing else in it but sums; nothing when there is more. `running`: sums may
// be read in it.
struct PlainBody {
    std::vector<loopir::ValueId> values;
    std::vector<const loopir::Store*> stores;
    bool accumulates = false;
};
std::optional<PlainBody> plain_body(const loopir::Kernel& kernel, const loopir::Loop& loop, bool running = false);

}  // namespace topstitch::codegen
