// Messages about what the library does, one line each on standard error; nothing unless the setting asks for them.
// Ask log_enabled() first where making the text costs something.
#pragma once

#include <cstdint>
#include <string>

namespace topstitch {

enum class LogLevel : std::uint8_t { off, info, debug };

// Whether messages of this level are written: those of the setting log_level and below. UserError when the setting
// is none of off, info and debug.
bool log_enabled(LogLevel level);
// Writes "topstitch: message". Lines of several threads do not mix.
void log_line(LogLevel level, const std::string& message);

}  // namespace topstitch
