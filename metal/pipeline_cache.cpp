// See pipeline_cache.h.
// The key is the whole source: two kernels are the same when their text is.
#include "metal/pipeline_cache.h"

#include <utility>

namespace topstitch::metal {

PipelineCache::PipelineCache(Gpu gpu, std::size_t limit)
    : gpu_(std::move(gpu)), archives_("pipelines", gpu_.archive_version()), cache_([limit] { return limit; }) {}

std::shared_ptr<const Pipeline> PipelineCache::get(const std::string& source, const std::string& function) {
    const std::string key = function + '\n' + source;
    return cache_.get(key, [&] {
        const std::string stored = archives_.find(key).value_or("");
        CompiledPipeline compiled = gpu_.compile(source, function, disk_cache_folder().empty() ? nullptr : &stored);
        ++(compiled.from_archive ? disk_hits_ : compiled_);
        if (!compiled.archive.empty()) archives_.store(key, compiled.archive);
        return std::make_shared<const Pipeline>(std::move(compiled.pipeline));
    });
}

KernelCacheStats PipelineCache::stats() const {
    const CacheStats memory = cache_.stats();
    return {memory.hits, disk_hits_, compiled_, memory.evictions, memory.entries};
}

}  // namespace topstitch::metal
