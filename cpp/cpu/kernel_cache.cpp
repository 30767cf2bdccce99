// The cache of kernels in memory, and the form in which their object code lies on disk.
// The object code itself is what LLVM wrote: it is linked anew in each process.
#include "cpu/kernel_cache.h"

#include <llvm/Support/MemoryBuffer.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>

#include "core/disk_cache.h"
#include "core/settings.h"
#include "cpu/codegen_id.h"
#include "topstitch/error.h"

namespace topstitch::cpu {

namespace {

struct Counters {
    std::atomic<std::int64_t> disk_hits{0};
    std::atomic<std::int64_t> compiled{0};
};
Counters counters;

// Never destroyed: kernels may be compiled while the process ends.
DiskCache& disk_cache() {
    static auto* cache = new DiskCache("kernels", codegen_id);
    return *cache;
}

class Writer {
public:
    void number(std::int64_t value) { bytes_.append(reinterpret_cast<const char*>(&value), sizeof value); }
    void text(const char* data, std::size_t size) { bytes_.append(data, size); }
    std::string take() { return std::move(bytes_); }

private:
    std::string bytes_;
};

// Gives nothing once the bytes have run out.
class Reader {
public:
    explicit Reader(std::string_view bytes) : bytes_(bytes) {}
    std::optional<std::int64_t> number() {
        std::int64_t value = 0;
        if (bytes_.size() < sizeof value) return std::nullopt;
        std::memcpy(&value, bytes_.data(), sizeof value);
        bytes_.remove_prefix(sizeof value);
        return value;
    }
    std::string_view rest() const { return bytes_; }

private:
    std::string_view bytes_;
};

constexpr std::int64_t max_locals = 4096;

std::string packed(const ObjectCode& code) {
    Writer writer;
    writer.number(code.granularity);
    writer.number(static_cast<std::int64_t>(code.locals.size()));
    for (const LocalSize& local : code.locals) {
        for (const std::int64_t value :
             {std::int64_t{local.size_param}, local.elements, std::int64_t{local.factor}, local.element_bytes})
            writer.number(value);
    }
    writer.text(code.object->getBufferStart(), code.object->getBufferSize());
    return writer.take();
}

std::optional<ObjectCode> unpacked(std::string_view bytes) {
    Reader reader(bytes);
    ObjectCode code;
    const auto granularity = reader.number();
    const auto count = reader.number();
    if (!granularity || !count || *granularity < 1 || *count < 0 || *count > max_locals) return std::nullopt;
    code.granularity = *granularity;
    for (std::int64_t k = 0; k < *count; ++k) {
        const auto size_param = reader.number();
        const auto elements = reader.number();
        const auto factor = reader.number();
        const auto element_bytes = reader.number();
        if (!element_bytes) return std::nullopt;
        code.locals.push_back({static_cast<int>(*size_param), *elements, static_cast<int>(*factor), *element_bytes});
    }
    if (reader.rest().empty()) return std::nullopt;
    code.object =
        llvm::MemoryBuffer::getMemBufferCopy(llvm::StringRef(reader.rest().data(), reader.rest().size()), "kernel");
    return code;
}

}  // namespace

KernelCache& kernel_cache() {
    // Never destroyed: kernels may be in use while the process ends.
    static auto* cache = new KernelCache(
        [] { return static_cast<std::size_t>(std::max<std::int64_t>(1, setting_int(Setting::kernel_cache_entries))); });
    return *cache;
}

ObjectCode cached_object(const std::string& key, const std::function<ObjectCode()>& make) {
    if (const std::optional<std::string> stored = disk_cache().find(key)) {
        if (std::optional<ObjectCode> code = unpacked(*stored)) {
            ++counters.disk_hits;
            return std::move(*code);
        }
    }
    ObjectCode code = make();
    ++counters.compiled;
    disk_cache().store(key, packed(code));
    return code;
}

KernelCacheStats kernel_cache_stats() {
    const CacheStats memory = kernel_cache().stats();
    return {memory.hits, counters.disk_hits, counters.compiled, memory.evictions, memory.entries};
}

}  // namespace topstitch::cpu
