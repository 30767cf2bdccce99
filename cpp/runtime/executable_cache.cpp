// The executables that one graph keeps: found by what was asked for, the least recently used go first.
// A miss says which component of the key was new.
#include <algorithm>
#include <atomic>

#include "core/settings.h"
#include "runtime/executable_impl.h"

namespace topstitch {

namespace {

// Of all graphs together.
struct Counters {
    std::atomic<std::int64_t> hits{0};
    std::atomic<std::int64_t> misses{0};
    std::atomic<std::int64_t> evictions{0};
    std::atomic<std::int64_t> entries{0};
};

Counters& counters() {
    static auto* instance = new Counters;  // never destroyed: graphs may outlive static objects
    return *instance;
}

}  // namespace

std::size_t ExecutableCache::KeyHash::operator()(const std::vector<std::int32_t>& key) const noexcept {
    std::uint64_t hash = 0xcbf29ce484222325ULL;
    for (std::int32_t part : key) hash = (hash ^ static_cast<std::uint32_t>(part)) * 0x100000001b3ULL;
    return static_cast<std::size_t>(hash);
}

ExecutableCache::~ExecutableCache() {
    counters().entries -= static_cast<std::int64_t>(entries_.size());
}

// While holding the mutex. Compares with the most recently used executable that differs least.
std::string ExecutableCache::why_new(const Signature& wanted) const {
    if (entries_.empty()) return "it is the first run or compilation of this graph";
    std::vector<std::string> fewest;
    std::uint64_t newest = 0;
    for (const auto& [key, entry] : entries_) {
        const Signature& known = entry.first->signature();
        std::vector<std::string> parts;
        if (known.feeds != wanted.feeds) parts.push_back("the set of feeds");
        if (known.targets != wanted.targets) parts.push_back("the targets");
        if (known.operations != wanted.operations) parts.push_back("the operations");
        if (known.options != wanted.options) parts.push_back("the compile options");
        const bool better =
            fewest.empty() || parts.size() < fewest.size() || (parts.size() == fewest.size() && entry.second > newest);
        if (!better || parts.empty()) continue;
        fewest = std::move(parts);
        newest = entry.second;
    }
    std::string text;
    for (std::size_t k = 0; k < fewest.size(); ++k)
        text += (k == 0 ? "" : k + 1 == fewest.size() ? " and " : ", ") + fewest[k];
    return text + (fewest.size() == 1 && fewest[0] == "the set of feeds" ? " differs" : " differ") +
           " from those of every earlier run of this graph";
}

std::shared_ptr<ExecutableImpl> ExecutableCache::find_or_add(const std::vector<std::int32_t>& key,
                                                             const std::function<Signature()>& make) {
    const std::lock_guard lock(mutex_);
    ++clock_;
    if (const auto found = entries_.find(key); found != entries_.end()) {
        found->second.second = clock_;
        counters().hits.fetch_add(1, std::memory_order_relaxed);
        return found->second.first;
    }
    Signature signature = make();
    std::string why = why_new(signature);
    auto made = std::make_shared<ExecutableImpl>(std::move(signature), std::move(why));
    ++counters().misses;
    if (entries_.size() >= setting_count(Setting::executable_cache_entries)) {
        entries_.erase(std::min_element(entries_.begin(), entries_.end(), [](const auto& a, const auto& b) {
            return a.second.second < b.second.second;
        }));
        ++counters().evictions;
        --counters().entries;
    }
    entries_.emplace(key, std::pair(made, clock_));
    ++counters().entries;
    return made;
}

CacheStats executable_cache_stats() {
    CacheStats stats;
    stats.hits = counters().hits;
    stats.misses = counters().misses;
    stats.evictions = counters().evictions;
    stats.entries = counters().entries;
    return stats;
}

}  // namespace topstitch
