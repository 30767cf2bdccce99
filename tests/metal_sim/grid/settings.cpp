// The settings of the simulation, from the environment.
// See metal_sim/control.h.
#include <unistd.h>

#include <cstdlib>

#include "metal_sim/control.h"

namespace metal_sim {

namespace {

std::string variable(const char* name, const std::string& otherwise) {
    const char* value = std::getenv(name);
    return value && *value ? value : otherwise;
}

std::string default_cache() {
    const std::string home = variable("HOME", "");
    const std::string cache = variable("XDG_CACHE_HOME", home.empty() ? "/tmp" : home + "/.cache");
    return cache + "/topstitch-metal-sim-" + std::to_string(getuid());
}

Settings from_environment() {
    Settings result;
    const std::string order = variable("METAL_SIM_ORDER", "forward");
    if (order == "reversed") result.order = Order::reversed;
    if (order.rfind("shuffled", 0) == 0) result.order = Order::shuffled;
    if (const auto colon = order.find(':'); colon != order.npos)
        result.seed = std::strtoull(order.c_str() + colon + 1, nullptr, 10);
    result.buffers_end_at_guard = variable("METAL_SIM_GUARD", "") == "end";
    result.timeout =
        std::chrono::milliseconds(std::strtol(variable("METAL_SIM_TIMEOUT_MS", "30000").c_str(), nullptr, 10));
    result.memory_bytes = std::strtoull(variable("METAL_SIM_MEMORY_MB", "16384").c_str(), nullptr, 10) << 20;
    result.compiler = variable("METAL_SIM_COMPILER", METAL_SIM_COMPILER);
    result.cache_folder = variable("METAL_SIM_CACHE", default_cache());
    return result;
}

}  // namespace

Settings& settings() {
    static Settings instance = from_environment();
    return instance;
}

}  // namespace metal_sim
