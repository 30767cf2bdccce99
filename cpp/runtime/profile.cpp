// A profile as a table, and as a trace.
// See topstitch/profile.h.
#include "topstitch/profile.h"

#include <algorithm>
#include <cstdio>
#include <map>

#include "core/utf8.h"
#include "io/json.h"
#include "topstitch/error.h"

namespace topstitch {

namespace {

constexpr std::size_t operations_width = 48;

template <typename... Args>
std::string format(const char* pattern, Args... args) {
    char text[256];
    std::snprintf(text, sizeof text, pattern, args...);
    return text;
}

std::string operations_text(const std::vector<std::string>& operations) {
    std::string text;
    for (const std::string& operation : operations) text += (text.empty() ? "" : ", ") + operation;
    if (text.size() > operations_width) text = text.substr(0, operations_width - 3) + "...";
    return text;
}

std::string quoted(const std::string& text) {
    return json_string(is_utf8(text) ? text : printable(text, 4 * text.size()), "[trace_json] a name");
}

}  // namespace

std::string Profile::str() const {
    double total = 0;
    for (const Kernel& kernel : kernels) total += kernel.microseconds;
    std::string text =
        format("%zu kernels, %.1f us in kernels of %.1f us a run (median of %d runs); compiled in %.1f ms\n",
               kernels.size(), total, run_microseconds, runs, compile_milliseconds);
    text += format("limits measured here: %.1f GB/s, %.1f GFLOP/s (float32)\n\n", limits.bytes_per_second * 1e-9,
                   limits.flops_per_second * 1e-9);
    text += format("%-14s %8s %10s %6s %7s %9s %9s %9s %9s %7s  %s\n", "kernel", "launches", "us", "share", "threads",
                   "MB", "GB/s", "MFLOP", "GFLOP/s", "limit", "operations");
    for (const Kernel& kernel : kernels) {
        const double bytes = static_cast<double>(kernel.cost.bytes_read + kernel.cost.bytes_written);
        // Of the nearer limit: what the kernel would take there, to what it takes.
        const double bound = std::max(bytes / limits.bytes_per_second,
                                      static_cast<double>(kernel.cost.flops) / limits.flops_per_second) *
                             1e6;
        text += format("%-14s %8d %10.1f %5.1f%% %7d %9.3f %9.1f %9.3f %9.1f %6.1f%%  %s\n", kernel.cost.name.c_str(),
                       kernel.launches, kernel.microseconds, total > 0 ? 100 * kernel.microseconds / total : 0.0,
                       kernel.threads, bytes * 1e-6, kernel.bytes_per_second() * 1e-9,
                       static_cast<double>(kernel.cost.flops) * 1e-6, kernel.flops_per_second() * 1e-9,
                       100 * bound / kernel.microseconds, operations_text(kernel.cost.operations).c_str());
    }
    return text;
}

std::string Profile::trace_json() const {
    std::map<std::string, int> tracks;
    std::string text = "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n";
    for (const Event& event : events) {
        const auto [track, fresh] = tracks.emplace(event.track, static_cast<int>(tracks.size()) + 1);
        if (fresh) {
            text += concat("{\"ph\": \"M\", \"name\": \"thread_name\", \"pid\": 1, \"tid\": ", track->second,
                           ", \"args\": {\"name\": ", quoted(event.track), "}},\n");
        }
        text += concat("{\"ph\": \"X\", \"cat\": \"topstitch\", \"pid\": 1, \"tid\": ", track->second,
                       ", \"name\": ", quoted(event.name),
                       format(", \"ts\": %.3f, \"dur\": %.3f", event.start, event.duration),
                       ", \"args\": {\"detail\": ", quoted(event.detail), "}},\n");
    }
    return text + "{\"ph\": \"M\", \"name\": \"process_name\", \"pid\": 1, \"args\": {\"name\": \"topstitch\"}}\n]}\n";
}

}  // namespace topstitch
