// The cost rule: when it is cheaper to compute again than to store and read back.
// All thresholds are here, in the unit "one addition for one element".
#pragma once

namespace topstitch::stitch {

// An element may be computed again at another index, or for every iteration of a larger space, when its
// whole chain costs at most this: about what a load from the nearest cache costs.
inline constexpr double max_recompute_cost = 4;

// Inside a contraction an operand's element is computed once or a few times, when it is packed or staged.
inline constexpr double max_contraction_prologue_cost = 24;

// An operation that costs more is kept out of the kernel of a contraction, whose tiles run across memory: random
// numbers come in blocks that neighbours in memory share.
inline constexpr double max_cost_beside_contraction = 80;

// So many reads of each element are windows that overlap; fewer are the edge of a padding.
inline constexpr double worth_counting_as_overlap = 1.5;

// In a row region, a value that costs more than this is kept for the row instead of being computed in each pass.
inline constexpr double max_repass_cost = 6;

}  // namespace topstitch::stitch
