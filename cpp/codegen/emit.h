// Loop IR kernels as source text for GPUs, with all that a device has to know to launch them.
// Device-free: nothing here compiles or runs anything.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "codegen/dialect.h"
#include "codegen/size_expr.h"
#include "loopir/kernel.h"

namespace topstitch::codegen {

struct EmitOptions {
    bool fused_multiply_add = true;
    // Indices in 32 bits, for launches where Source::fits_narrow. Where numbers alone prove that, they have 32 bits
    // anyway.
    bool narrow = false;
};

// How a kernel is spread over a grid.
struct Launch {
    // A group of `group_threads` threads for each of x iterations, else one thread for each of x * y. Groups of the
    // latter may have any size and reach past the end of the grid.
    bool groups = false;
    int group_threads = 0;
    SizeExpr x = 1;
    SizeExpr y = 1;
    std::vector<SizeExpr> group_bytes;    // of group memory that the launch provides, in slots 0, 1, ...
    std::int64_t static_group_bytes = 0;  // and what the kernel declares itself
    int simd_width = 0;                   // that the machine must have; 0: any
};

struct Source {
    std::string text;
    std::string entry;  // the kernel's name in it
    // Buffers are in slots 0, 1, ... in the order of the kernel's parameters that are not local. The sizes follow in
    // one buffer of int64, if there are any: size_params of the kernel.
    int sizes_slot = -1;
    std::vector<Dim> sizes;
    Launch launch;
    bool narrow = false;               // most indices have 32 bits
    std::vector<SizeExpr> magnitudes;  // bounds of these, as far as sizes matter
    // Whether indices of 32 bits suffice for these sizes.
    bool fits_narrow(std::span<const std::int64_t> size_arguments) const;
};

// Why a kernel has no such source; for people.
struct Refusal {
    std::string reason;
};

std::variant<Source, Refusal> emit(const loopir::Kernel& kernel, const Dialect& dialect, const EmitOptions& options);

// What the source computes, to the bit but for the order of sums, as loop IR: multiply-adds fused, math expanded.
loopir::Kernel prepared(const loopir::Kernel& kernel, const Dialect& dialect, const EmitOptions& options);

}  // namespace topstitch::codegen
