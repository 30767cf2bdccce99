// Pipelines by their source and function: compiled once, shared between threads, bounded.
// The back end asks here for every kernel.
#pragma once

#include <memory>
#include <string>

#include "core/shared_cache.h"
#include "metal/gpu.h"

namespace topstitch::metal {

class PipelineCache {
public:
    PipelineCache(Gpu gpu, std::size_t limit);

    // InternalError when it does not compile; that is not remembered.
    std::shared_ptr<const Pipeline> get(const std::string& source, const std::string& function);
    CacheStats stats() const { return cache_.stats(); }

private:
    Gpu gpu_;
    SharedCache<std::string, Pipeline> cache_;
};

}  // namespace topstitch::metal
