// How a product becomes tiles: a group of threads for each tile of the result, slices of both factors in the group's
// memory, matrices of sums in registers. Computed before any text is written.
#pragma once

#include <cstdint>
#include <optional>

#include "codegen/dialect.h"
#include "codegen/product.h"
#include "codegen/wide.h"

namespace topstitch::codegen {

// How a slice of a factor comes into the group's memory.
struct Staging {
    bool along_steps = false;  // neighbours there are successive steps of the sum, else successive rows or columns
    std::optional<WideAccesses> wide;
};

struct ProductPlan {
    // A group has simdgroups in so many rows and columns, each of which has a part of the tile.
    static constexpr int simd_rows = 2;
    static constexpr int simd_columns = 2;
    static constexpr int slice = 16;   // steps whose factors are in memory together
    static constexpr int padding = 4;  // elements between lines of a tile, which then begin in different banks

    Product product;
    int tile_rows = 0;
    int tile_columns = 0;
    DType element = DType::float32;  // of the staged factors
    Staging row_staging, column_staging;
    std::optional<WideAccesses> wide_results;

    static int group_threads(const Limits& limits) { return simd_rows * simd_columns * limits.simd_width; }
    // The most that the tiles and the results that are finished together take of the group's memory.
    std::int64_t group_bytes(const Dialect& dialect) const;
};

// Nothing when the kernel is no product, or one that is better left to its loops.
std::optional<ProductPlan> plan_product(const loopir::Kernel& kernel, const LoopFacts& facts);

}  // namespace topstitch::codegen
