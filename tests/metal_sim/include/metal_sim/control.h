// How the simulated Metal device behaves, and what tests may ask of it.
// A real device has nothing of this; only tests include it.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>

namespace metal_sim {

#define METAL_SIM_API __attribute__((visibility("default")))

// The order in which threads and threadgroups start. A kernel that lacks a barrier gives another result in another
// order.
enum class Order { forward, reversed, shuffled };

// Read from the environment once, by the names in the comments.
struct Settings {
    Order order = Order::forward;  // METAL_SIM_ORDER=forward, reversed, shuffled or shuffled:SEED
    std::uint64_t seed = 1;
    bool buffers_end_at_guard = false;         // METAL_SIM_GUARD=end: a buffer's last bytes lie before the guard page
    std::chrono::milliseconds timeout{30000};  // METAL_SIM_TIMEOUT_MS: of a grid, and of a wait for an event
    std::uint64_t memory_bytes = std::uint64_t{16} << 30;  // METAL_SIM_MEMORY_MB: of all buffers together
    std::string compiler;                                  // METAL_SIM_COMPILER: a clang++ of at least version 19
    std::string cache_folder;                              // METAL_SIM_CACHE: of compiled libraries
    bool out_of_memory = false;  // command buffers end as if the system could not make their memory resident
};

// Changes count for what is created or dispatched afterwards, and must not race with that.
METAL_SIM_API Settings& settings();

// Objects of the simulation that are alive, by class; for tests of leaks.
METAL_SIM_API std::map<std::string, std::int64_t> live_objects();

// The name of the NSException that misuse of the API raises; a real device's validation layer aborts.
inline constexpr const char* misuse_exception = "MetalSimMisuse";

}  // namespace metal_sim
