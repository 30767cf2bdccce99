// The in-memory kernel cache: a hash map of the full texts over a list in order of use.
// Kernels being compiled are entries already, with a future that others wait for.
#include "cpu/kernel_cache.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <list>
#include <mutex>
#include <unordered_map>

#include "core/settings.h"

namespace topstitch::cpu {

namespace {

class KernelCache {
public:
    // Never destroyed: kernels may be in use while the process ends.
    static KernelCache& instance() {
        static auto* cache = new KernelCache;
        return *cache;
    }

    CompiledKernelPtr find(const std::string& key) {
        std::shared_future<CompiledKernelPtr> future;
        {
            const std::lock_guard lock(mutex_);
            const auto found = entries_.find(key);
            if (found == entries_.end()) return nullptr;
            future = touch(found->second)->future;
            if (!is_ready(future)) return nullptr;
            ++stats_.hits;
        }
        return future.get();
    }

    CompiledKernelPtr get(const std::string& key, const std::function<CompiledKernelPtr()>& make) {
        std::promise<CompiledKernelPtr> promise;
        std::shared_future<CompiledKernelPtr> future;
        bool mine = false;
        {
            const std::lock_guard lock(mutex_);
            const auto found = entries_.find(key);
            if (found != entries_.end()) {
                ++stats_.hits;
                future = touch(found->second)->future;
            } else {
                ++stats_.misses;
                mine = true;
                future = promise.get_future().share();
                order_.push_front({key, future});
                entries_.emplace(key, order_.begin());
            }
        }
        if (!mine) return future.get();
        try {
            promise.set_value(make());
        } catch (...) {
            promise.set_exception(std::current_exception());
            forget(key);
        }
        evict();
        return future.get();
    }

    KernelCacheStats stats() {
        const std::lock_guard lock(mutex_);
        KernelCacheStats stats = stats_;
        stats.kernels = static_cast<std::int64_t>(entries_.size());
        return stats;
    }

private:
    struct Entry {
        std::string key;
        std::shared_future<CompiledKernelPtr> future;
    };
    using Order = std::list<Entry>;  // most recently used first

    static bool is_ready(const std::shared_future<CompiledKernelPtr>& future) {
        return future.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    }

    Order::iterator touch(Order::iterator entry) {
        order_.splice(order_.begin(), order_, entry);
        return entry;
    }

    void forget(const std::string& key) {
        const std::lock_guard lock(mutex_);
        const auto found = entries_.find(key);
        if (found == entries_.end()) return;
        order_.erase(found->second);
        entries_.erase(found);
    }

    void evict() {
        const auto limit =
            static_cast<std::size_t>(std::max<std::int64_t>(1, setting_int(Setting::kernel_cache_entries)));
        Order evicted;  // destroyed after the lock is released: freeing code takes time
        const std::lock_guard lock(mutex_);
        auto entry = order_.end();
        while (entries_.size() > limit && entry != order_.begin()) {
            --entry;
            if (!is_ready(entry->future)) continue;  // somebody is compiling it
            const auto last = entry++;
            entries_.erase(last->key);
            evicted.splice(evicted.end(), order_, last);
        }
    }

    std::mutex mutex_;
    Order order_;
    std::unordered_map<std::string, Order::iterator> entries_;
    KernelCacheStats stats_;
};

}  // namespace

CompiledKernelPtr cached_kernel(const std::string& key, const std::function<CompiledKernelPtr()>& make) {
    return KernelCache::instance().get(key, make);
}

CompiledKernelPtr find_cached_kernel(const std::string& key) {
    return KernelCache::instance().find(key);
}

KernelCacheStats kernel_cache_stats() {
    return KernelCache::instance().stats();
}

}  // namespace topstitch::cpu
