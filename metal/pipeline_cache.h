// Pipelines by their source and function: compiled once, shared between threads, bounded, and kept on disk.
// The back end asks here for every kernel.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "core/disk_cache.h"
#include "core/shared_cache.h"
#include "metal/gpu.h"
#include "runtime/device.h"

namespace topstitch::metal {

class PipelineCache {
public:
    PipelineCache(Gpu gpu, std::size_t limit);

    // InternalError when it does not compile; that is not remembered.
    std::shared_ptr<const Pipeline> get(const std::string& source, const std::string& function);
    KernelCacheStats stats() const;

private:
    Gpu gpu_;
    DiskCache archives_;
    SharedCache<std::string, Pipeline> cache_;
    std::atomic<std::int64_t> disk_hits_{0};
    std::atomic<std::int64_t> compiled_{0};
};

}  // namespace topstitch::metal
