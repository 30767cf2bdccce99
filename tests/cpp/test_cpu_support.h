// Runs one kernel through the interpreter and through generated code on the same data, and compares every byte.
// The memory, the data and the reference are in test_kernel_support.h.
#pragma once

#include <string>
#include <vector>

#include "cpu/jit.h"
#include "test_kernel_support.h"

namespace topstitch::cpu::testing {

using namespace topstitch::testing;

// The contents of all non-local buffers after running generated code; `parallel` gives the extent of the parallel loop
// (1 for none), which is run in `chunks` pieces.
std::vector<Data> run_compiled(const loopir::Kernel& kernel, const CompiledKernel& compiled, std::vector<Data> buffers,
                               const std::vector<std::int64_t>& sizes, int chunks = 2);
// Both ways, for one target; the difference, or "".
std::string check_kernel(const loopir::Kernel& kernel, const TargetInfo& target, const std::vector<Data>& buffers,
                         const std::vector<std::int64_t>& sizes, double tolerance = 0);

// SSE2, AVX2 and this machine (the same number of targets everywhere but on x86-64: this machine alone).
const std::vector<TargetInfo>& test_targets();

// All test targets for the types that matter most, one of them in turn for the others: compiling takes the time.
std::vector<TargetInfo> targets_for(DType type, int turn);

}  // namespace topstitch::cpu::testing
