// Compiled kernels in memory and on disk, by the text that they were made from and the target.
// Two threads that ask for the same kernel compile it once.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/shared_cache.h"
#include "cpu/jit.h"
#include "cpu/llvm_codegen.h"

namespace topstitch::cpu {

using CompiledKernelPtr = std::shared_ptr<const CompiledKernel>;
using KernelCache = SharedCache<std::string, CompiledKernel>;

// Those in memory. Bounded by the setting kernel_cache_entries.
KernelCache& kernel_cache();

// The object code of `key` from the folder of the disk cache, made by `make` and put there when there is none.
ObjectCode cached_object(const std::string& key, const std::function<ObjectCode()>& make);

}  // namespace topstitch::cpu
