// A product of two matrices in the memory of a group of threads, among the other statements of a kernel: loops over its
// rows, columns and steps that the simdgroups of the group replace by products of small matrices.
#pragma once

#include <cstdint>
#include <optional>

#include "codegen/dialect.h"
#include "codegen/loop_facts.h"
#include "loopir/kernel.h"

namespace topstitch::codegen {

struct MatrixNest {
    // A load whose index has the two variables with these steps: lines lie `pitch` elements apart, each contiguous.
    struct Factor {
        loopir::ValueId load = loopir::no_value;
        std::int64_t pitch = 0;
        bool across = false;  // lines are columns of the matrix, else rows
    };
    const loopir::Loop* rows = nullptr;
    const loopir::Loop* columns = nullptr;
    const loopir::Loop* steps = nullptr;
    Factor left;   // rows by steps
    Factor right;  // steps by columns
    const loopir::Store* result = nullptr;
    std::int64_t result_pitch = 0;
    bool adds = false;  // to what is there

    std::int64_t row_count() const { return rows->extent.value(); }
    std::int64_t column_count() const { return columns->extent.value(); }
    std::int64_t step_count() const { return steps->extent.value(); }
};

// Nothing when the loop is something else, or more than that.
std::optional<MatrixNest> find_matrix_nest(const loopir::Kernel& kernel, const LoopFacts& facts,
                                           const loopir::Loop& loop, int matrix_side);

// How many small matrices, down and across, a simdgroup has the sums of at once.
struct MatrixBlock {
    int rows = 1;
    int columns = 1;
};
MatrixBlock choose_block(const MatrixNest& nest, int matrix_side, int simdgroups);

}  // namespace topstitch::codegen
