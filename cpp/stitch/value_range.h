// The integers that the elements of a tensor may be, as far as the graph shows it.
// Products of numbers that fit into 16 bits have instructions of their own.
#pragma once

#include <cstdint>

#include "passes/program.h"

namespace topstitch::stitch {

struct ValueRange {
    std::int64_t low = 0, high = 0;

    bool contains(const ValueRange& other) const { return low <= other.low && other.high <= high; }
    bool fits(DType type) const;
};

// Of a tensor of bool or integers: from casts, arithmetic on numbers of known ranges, views and constants.
ValueRange value_range(const GraphData& graph, TensorRef ref);

}  // namespace topstitch::stitch
