// The report as text.
// See Report in executable.h.
#include <cstdio>

#include "topstitch/executable.h"

namespace topstitch {

namespace {

std::string bytes_str(std::int64_t bytes) {
    const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    auto value = static_cast<double>(bytes);
    std::size_t unit = 0;
    while (value >= 1024 && unit + 1 < std::size(units)) {
        value /= 1024;
        ++unit;
    }
    char text[32];
    std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
    return text;
}

std::string joined(const std::vector<std::string>& parts, const char* separator) {
    std::string text;
    for (const std::string& part : parts) text += (text.empty() ? "" : separator) + part;
    return text;
}

}  // namespace

std::string Report::str() const {
    std::int64_t saved = 0;
    std::size_t operations = 0;
    for (const Region& region : regions) {
        saved += region.bytes_saved;
        operations += region.operations.size();
    }
    char timing[96];
    std::snprintf(timing, sizeof timing, "%.1f ms (%.1f ms of it stitching)", compile_milliseconds,
                  stitch_milliseconds);
    std::string text =
        concat(operations, operations == 1 ? " operation in " : " operations in ", kernels,
               kernels == 1 ? " kernel" : " kernels", ", of which ", kernels_compiled, " had to be compiled; ", timing,
               "\nmemory traffic saved by stitching: ", bytes_str(saved), "; arena: ", bytes_str(arena_bytes), "\n");
    for (const Region& region : regions) {
        text += concat("\n", region.name, ": ", region.schedule, "\n  reads ", bytes_str(region.bytes_read),
                       ", writes ", bytes_str(region.bytes_written), ", saves ", bytes_str(region.bytes_saved),
                       "\n  stitched: ", joined(region.operations, ", "), "\n");
        if (!region.kept.empty()) text += concat("  kept in cache for the row: ", joined(region.kept, ", "), "\n");
        if (!region.in_place.empty()) text += concat("  updated in place: ", joined(region.in_place, ", "), "\n");
        if (!region.remark.empty()) text += concat("  ", region.remark, "\n");
    }
    if (!kept_apart.empty()) text += "\n" + joined(kept_apart, "\n") + "\n";
    return text;
}

}  // namespace topstitch
