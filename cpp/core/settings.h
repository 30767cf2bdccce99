// Every environment variable that topstitch reads, in one table with its meaning.
// Values are read once, when first asked for, and may be overridden by the program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace topstitch {

enum class Setting : std::uint8_t {
    num_threads,
    log_level,
    verify,
    kernel_cache_entries,
    executable_cache_entries,
    cache_dir,
    cache_megabytes,
    target_cpu,
    device
};

struct SettingInfo {
    Setting id;
    const char* variable;  // TOPSTITCH_NUM_THREADS, ...
    const char* fallback;
    const char* doc;
};
std::span<const SettingInfo> all_settings();

// As text, or as a number (UserError naming the variable when it is not one).
std::string setting(Setting id);
std::int64_t setting_int(Setting id);
std::size_t setting_count(Setting id);  // a number of things to keep: at least 1
void override_setting(Setting id, const std::string& value);

}  // namespace topstitch
