// A bounded cache of values that are expensive to make, shared between threads: the least recently used go first.
// Two threads that ask for the same value make it once; a failure reaches all who wait and is not remembered.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "topstitch/cache_stats.h"

namespace topstitch {

template <typename Key, typename T, typename Hash = std::hash<Key>>
class SharedCache {
public:
    using Pointer = std::shared_ptr<const T>;

    // `limit` is asked whenever an entry is added.
    explicit SharedCache(std::function<std::size_t()> limit) : limit_(std::move(limit)) {}

    // The value if it is there and finished, else null. Counts as a use but not as a miss.
    Pointer find(const Key& key) {
        std::shared_future<Pointer> future;
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

    // `found`, if given, tells whether the value was there already (or being made by another thread).
    Pointer get(const Key& key, const std::function<Pointer()>& make, bool* found = nullptr) {
        std::promise<Pointer> promise;
        std::shared_future<Pointer> future;
        bool mine = false;
        {
            const std::lock_guard lock(mutex_);
            const auto known = entries_.find(key);
            if (known != entries_.end()) {
                ++stats_.hits;
                future = touch(known->second)->future;
            } else {
                ++stats_.misses;
                mine = true;
                future = promise.get_future().share();
                order_.push_front({key, future});
                entries_.emplace(key, order_.begin());
            }
        }
        if (found != nullptr) *found = !mine;
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

    CacheStats stats() const {
        const std::lock_guard lock(mutex_);
        CacheStats stats = stats_;
        stats.entries = static_cast<std::int64_t>(entries_.size());
        return stats;
    }

    // Drops one entry; whoever has or waits for its value keeps it.
    void erase(const Key& key) { forget(key); }
    // Drops every finished entry.
    void clear() { evict_down_to(0); }

private:
    struct Entry {
        Key key;
        std::shared_future<Pointer> future;
    };
    using Order = std::list<Entry>;  // most recently used first

    static bool is_ready(const std::shared_future<Pointer>& future) {
        return future.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    }

    typename Order::iterator touch(typename Order::iterator entry) {
        order_.splice(order_.begin(), order_, entry);
        return entry;
    }

    void forget(const Key& key) {
        const std::lock_guard lock(mutex_);
        const auto found = entries_.find(key);
        if (found == entries_.end()) return;
        order_.erase(found->second);
        entries_.erase(found);
    }

    void evict() { evict_down_to(std::max<std::size_t>(1, limit_())); }

    void evict_down_to(std::size_t limit) {
        Order evicted;  // destroyed after the lock is released: freeing may take time
        const std::lock_guard lock(mutex_);
        auto entry = order_.end();
        while (entries_.size() > limit && entry != order_.begin()) {
            --entry;
            if (!is_ready(entry->future)) continue;  // somebody is making it
            const auto last = entry++;
            entries_.erase(last->key);
            evicted.splice(evicted.end(), order_, last);
            ++stats_.evictions;
        }
    }

    const std::function<std::size_t()> limit_;
    mutable std::mutex mutex_;
    Order order_;
    std::unordered_map<Key, typename Order::iterator, Hash> entries_;
    CacheStats stats_;
};

}  // namespace topstitch
