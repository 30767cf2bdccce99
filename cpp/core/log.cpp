// The logger: one call of the C library for each line, which it does under the lock of the stream.
// See log.h.
#include "core/log.h"

#include <cstdio>

#include "core/settings.h"
#include "topstitch/error.h"

namespace topstitch {

namespace {

LogLevel wanted_level() {
    const std::string text = setting(Setting::log_level);
    if (text == "off") return LogLevel::off;
    if (text == "info") return LogLevel::info;
    if (text == "debug") return LogLevel::debug;
    throw UserError(concat("settings: TOPSTITCH_LOG_LEVEL is '", text, "'; set it to off, info or debug, or unset it"));
}

}  // namespace

bool log_enabled(LogLevel level) {
    return level <= wanted_level();
}

void log_line(LogLevel level, const std::string& message) {
    if (!log_enabled(level)) return;
    const std::string line = concat("topstitch: ", message, "\n");
    std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace topstitch
