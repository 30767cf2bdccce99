// Runs emitted Metal source on the simulated device, on data in guarded memory.
// Only what drives the simulation is in the source file, so that tests do not know it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "codegen/emit.h"
#include "test_kernel_support.h"

namespace topstitch::testing {

// The contents of all buffers afterwards. InternalError with what the compiler or the simulation complains about.
// `version`: of the language, 310 for 3.1.
std::vector<Data> run_emitted(const codegen::Source& source, std::vector<Data> buffers,
                              const std::vector<std::int64_t>& sizes, int version = 310);

// The same with threads that start in order, backwards and shuffled. InternalError also when the results differ.
std::vector<Data> run_in_each_order(const codegen::Source& source, const std::vector<Data>& buffers,
                                    const std::vector<std::int64_t>& sizes);

// Emits the kernel, runs it, and compares with the interpreter: the first difference as text, with both programs, or
// "".
std::string check_emitted(const loopir::Kernel& kernel, const std::vector<Data>& buffers,
                          const std::vector<std::int64_t>& sizes, const codegen::EmitOptions& options = {},
                          double tolerance = 0);

}  // namespace topstitch::testing
