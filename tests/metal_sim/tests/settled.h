// Counts of living objects, once threads of queues have let go of what earlier tests left to them.
// For tests of leaks.
#pragma once

#include <chrono>
#include <thread>

#include "metal_sim/control.h"

namespace metal_sim_test {

// The counts when they have not changed for a tenth of a second.
inline std::map<std::string, std::int64_t> settled_objects() {
    auto counts = metal_sim::live_objects();
    for (int unchanged = 0; unchanged < 10; ++unchanged) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        const auto now = metal_sim::live_objects();
        if (now != counts) unchanged = 0;
        counts = now;
    }
    return counts;
}

}  // namespace metal_sim_test
