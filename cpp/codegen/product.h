// A kernel that is one sum of products of two factors: a matrix product or a convolution, with what is stitched to it.
// Found in the loop IR, where views, padding and windows are nothing but indices and guards.
#pragma once

#include <optional>
#include <vector>

#include "codegen/axis_group.h"
#include "codegen/loop_facts.h"
#include "loopir/kernel.h"

namespace topstitch::codegen {

struct Product {
    struct Factor {
        loopir::ValueId value = loopir::no_value;
        std::vector<loopir::ValueId> values;  // all that it is computed from, and itself, in the order of the kernel
    };
    // Of an element of the result: what both factors depend on, or neither; what one alone does; what the other does.
    AxisGroup batch, rows, columns;
    AxisGroup steps;  // of the sum
    Factor row_factor, column_factor;
    int sum = -1;  // the accumulator
    // What is done to each sum.
    std::vector<loopir::ValueId> result_values;
    std::vector<const loopir::Store*> stores;

    void exchange_factors();  // rows become columns
};

// Nothing when the kernel is something else, or more than that. Columns are what the result is contiguous along, if it
// is; there may be no rows, when one factor is a vector. `kernel` is one without sums in blocks (join_blocks.h).
std::optional<Product> find_product(const loopir::Kernel& kernel, const LoopFacts& facts);

}  // namespace topstitch::codegen
