// See pipeline_cache.h.
// The key is the whole source: two kernels are the same when their text is.
#include "metal/pipeline_cache.h"

namespace topstitch::metal {

PipelineCache::PipelineCache(Gpu gpu, std::size_t limit) : gpu_(std::move(gpu)), cache_([limit] { return limit; }) {}

std::shared_ptr<const Pipeline> PipelineCache::get(const std::string& source, const std::string& function) {
    return cache_.get(function + '\n' + source,
                      [&] { return std::make_shared<const Pipeline>(gpu_.compile(source, function)); });
}

}  // namespace topstitch::metal
