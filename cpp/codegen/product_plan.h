// How a product becomes tiles: a group of threads for each, slices of both factors in the group's memory, matrices of
// sums in registers. Products of few rows become strips. Computed before any text is written.
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
    Product product;
    // Tiles; or, of a few rows, strips: each lane has some columns of all rows, and simdgroups share out the steps.
    enum class Form { tiles, strips };
    Form form = Form::tiles;
    Staging row_staging, column_staging;

    // --- Tiles.
    // A group has simdgroups in so many rows and columns, each of which has a part of the tile.
    static constexpr int simd_rows = 2;
    static constexpr int simd_columns = 2;
    static constexpr int slice = 16;   // steps whose factors are in memory together
    static constexpr int padding = 4;  // elements between lines of a tile, which then begin in different banks
    int tile_rows = 0;
    int tile_columns = 0;
    DType element = DType::float32;  // of the staged factors
    std::optional<WideAccesses> wide_results;

    // --- Strips.
    static constexpr int strip_simdgroups = 8;
    int strip_rows = 0;

    int group_threads(const Limits& limits) const {
        return (form == Form::tiles ? simd_rows * simd_columns : strip_simdgroups) * limits.simd_width;
    }
    static int strip_columns(const Limits& limits) { return limits.simd_width * wide_count; }
    // The most that what is staged, and sums that are finished together, take of the group's memory.
    std::int64_t group_bytes(const Dialect& dialect) const;
};

// Nothing when the kernel is no product, or one that is better left to its loops.
std::optional<ProductPlan> plan_product(const loopir::Kernel& kernel, const LoopFacts& facts);

}  // namespace topstitch::codegen
