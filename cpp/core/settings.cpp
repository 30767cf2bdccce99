// The table of environment variables, and the values in force.
// A mutex guards the values; settings are read at start-up and configuration, not in hot paths.
#include "core/settings.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <mutex>
#include <optional>

#include "topstitch/error.h"

namespace topstitch {

namespace {

constexpr std::array<SettingInfo, 9> table = {{
    {Setting::num_threads, "TOPSTITCH_NUM_THREADS", "0", "Threads that kernels run on; 0 means all usable cores."},
    {Setting::log_level, "TOPSTITCH_LOG_LEVEL", "off",
     "What is written to standard error: off; info, each compilation; debug, also why it was needed."},
    {Setting::verify, "TOPSTITCH_VERIFY", "0", "1 verifies the intermediate representation after every step."},
    {Setting::kernel_cache_entries, "TOPSTITCH_KERNEL_CACHE_ENTRIES", "4096",
     "Compiled kernels kept in memory; the least recently used go first."},
    {Setting::executable_cache_entries, "TOPSTITCH_EXECUTABLE_CACHE_ENTRIES", "256",
     "Executables that a graph keeps, and compiled programs that the process keeps; the least recently used go first."},
    {Setting::cache_dir, "TOPSTITCH_CACHE_DIR", "",
     "Folder of the disk cache for compiled kernels; empty means the user's cache folder, off means none."},
    {Setting::cache_megabytes, "TOPSTITCH_CACHE_MEGABYTES", "256", "Size of the disk cache at most."},
    {Setting::target_cpu, "TOPSTITCH_TARGET_CPU", "", "LLVM name of the CPU to compile for; empty means this machine."},
    {Setting::device, "TOPSTITCH_DEVICE", "cpu", "Name of the device that graphs run on where no other is asked for."},
}};

struct Values {
    std::mutex mutex;
    std::array<std::optional<std::string>, table.size()> values;
};

// Never destroyed: other static objects may ask for a setting while the process ends.
Values& values() {
    static Values* instance = new Values;
    return *instance;
}

const SettingInfo& info(Setting id) {
    return table[static_cast<std::size_t>(id)];
}

}  // namespace

std::span<const SettingInfo> all_settings() {
    return table;
}

std::string setting(Setting id) {
    const SettingInfo& entry = info(id);
    Values& all = values();
    const std::lock_guard lock(all.mutex);
    std::optional<std::string>& value = all.values[static_cast<std::size_t>(id)];
    if (!value) {
        const char* text = std::getenv(entry.variable);
        value = text != nullptr ? text : entry.fallback;
    }
    return *value;
}

std::int64_t setting_int(Setting id) {
    const std::string text = setting(id);
    std::int64_t number = 0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, number);
    if (error != std::errc() || stop != end) {
        throw UserError(concat("settings: ", info(id).variable, " is '", text,
                               "', which is not an integer; set it to a number such as ", info(id).fallback,
                               ", or unset it"));
    }
    return number;
}

std::size_t setting_count(Setting id) {
    return static_cast<std::size_t>(std::max<std::int64_t>(setting_int(id), 1));
}

void override_setting(Setting id, const std::string& value) {
    Values& all = values();
    const std::lock_guard lock(all.mutex);
    all.values[static_cast<std::size_t>(id)] = value;
}

}  // namespace topstitch
