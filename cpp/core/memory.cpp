// Asks the system for its memory, and the control group for its limit.
// See memory.h.
#include "core/memory.h"

#include <algorithm>
#include <fstream>
#include <limits>

#if defined(_WIN32)
#include <windows.h>
#elif defined(__linux__)
#include <sys/sysinfo.h>
#else
#include <unistd.h>
#endif

namespace topstitch {

namespace {

std::size_t ask_system() {
    std::size_t total = std::numeric_limits<std::size_t>::max() / 2;
#if defined(_WIN32)
    MEMORYSTATUSEX status{};
    status.dwLength = sizeof(status);
    if (GlobalMemoryStatusEx(&status)) total = static_cast<std::size_t>(status.ullTotalPageFile);
#elif defined(__linux__)
    struct sysinfo info{};
    if (sysinfo(&info) == 0) total = (static_cast<std::size_t>(info.totalram) + info.totalswap) * info.mem_unit;
    // The limit of the control group, as containers have it: version 2, then version 1.
    for (const char* path : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
        std::ifstream file(path);
        std::size_t limit = 0;
        if (file >> limit && limit > 0) total = std::min(total, limit);
    }
#else
    // Elsewhere (macOS) memory is compressed and swapped freely: allow several times what is built in.
    const long pages = sysconf(_SC_PHYS_PAGES);
    const long page_size = sysconf(_SC_PAGESIZE);
    if (pages > 0 && page_size > 0) total = 4 * static_cast<std::size_t>(pages) * static_cast<std::size_t>(page_size);
#endif
    return total;
}

}  // namespace

std::size_t total_memory() {
    static const std::size_t total = ask_system();  // reads files
    return total;
}

}  // namespace topstitch
