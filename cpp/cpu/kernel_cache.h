// Compiled kernels by the text that they were made from: bounded, least recently used first out.
// Two threads that ask for the same kernel compile it once.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "cpu/jit.h"

namespace topstitch::cpu {

using CompiledKernelPtr = std::shared_ptr<const CompiledKernel>;

// The kernel of `key` (its canonical text and target), made by `make` when there is none. An exception of `make`
// reaches everyone who waits for that kernel and is not remembered.
CompiledKernelPtr cached_kernel(const std::string& key, const std::function<CompiledKernelPtr()>& make);
// The kernel of `key` if it is there and finished, else null. Counts as a use but not as a miss.
CompiledKernelPtr find_cached_kernel(const std::string& key);

}  // namespace topstitch::cpu
