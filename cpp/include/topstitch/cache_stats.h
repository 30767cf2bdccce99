// How a cache has served so far.
// Counted since the process began.
#pragma once

#include <cstdint>

namespace topstitch {

struct CacheStats {
    std::int64_t hits = 0;
    std::int64_t misses = 0;
    std::int64_t evictions = 0;
    std::int64_t entries = 0;
};

}  // namespace topstitch
