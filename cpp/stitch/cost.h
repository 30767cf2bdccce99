// The cost rule: when it is cheaper to compute again than to store and read back.
// All thresholds are here, in the unit "one addition for one element".
#pragma once

namespace topstitch::stitch {

// An element may be computed again at another index, or for every iteration of a larger space, when its
// whole chain costs at most this: about what a load from the nearest cache costs.
inline constexpr double max_recompute_cost = 4;

// Inside a contraction every operand element is used once for each row or column of the result.
inline constexpr double max_contraction_prologue_cost = 1;

// In a row region, a value that costs more than this is kept for the row instead of being computed in each pass.
inline constexpr double max_repass_cost = 6;

}  // namespace topstitch::stitch
