// One lock and one condition for the state of all jobs, queues and events: each changes seldom and for an instant.
// A forked child gets fresh ones, so that it never waits for a thread that it does not have.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>

namespace topstitch {

struct Monitor {
    std::mutex mutex;
    std::condition_variable changed;
};
// Nothing that may take another lock (Python's above all) is done while holding its mutex.
Monitor& monitor();

using Deadline = std::optional<std::chrono::steady_clock::time_point>;  // none: never
Deadline deadline_after(std::optional<double> seconds);

// Waits until `done()`, asked while the mutex is held; false when the deadline passes before.
template <typename Done>
bool wait_until(std::unique_lock<std::mutex>& lock, const Deadline& deadline, Done done) {
    if (deadline) return monitor().changed.wait_until(lock, *deadline, done);
    monitor().changed.wait(lock, done);
    return true;
}

}  // namespace topstitch
