// The monitor and what becomes of it when the process forks.
// See monitor.h.
#include "runtime/monitor.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#if !defined(_WIN32)
#include <pthread.h>
#endif

namespace topstitch {

namespace {

// Never destroyed: threads may be waiting while the process ends.
std::atomic<Monitor*> current{nullptr};

int install() {
    current = new Monitor;
#if !defined(_WIN32)
    // Locked across the fork, so that the child finds no state half changed. Its copies of the lock and the condition
    // remember waiting threads that do not exist there: they are left alone.
    pthread_atfork([] { current.load()->mutex.lock(); }, [] { current.load()->mutex.unlock(); },
                   [] { current = new Monitor; });
#endif
    return 0;
}

constexpr double longest_wait = 1e9;  // seconds

}  // namespace

Monitor& monitor() {
    static const int installed = install();
    static_cast<void>(installed);
    return *current.load(std::memory_order_acquire);
}

Deadline deadline_after(std::optional<double> seconds) {
    if (!seconds) return std::nullopt;
    const double bounded = std::isnan(*seconds) ? 0 : std::clamp(*seconds, 0.0, longest_wait);
    return std::chrono::steady_clock::now() +
           std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(bounded));
}

}  // namespace topstitch
