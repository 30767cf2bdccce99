// A counter of compilations in progress and a flag that says that the process is ending.
// See exit_gate.h.
#include "core/exit_gate.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "topstitch/error.h"

namespace topstitch {

namespace {

constexpr auto longest_wait = std::chrono::seconds(5);

// Plain atomics: nothing here is destroyed.
std::atomic<int> inside{0};
std::atomic<bool> closed{false};

}  // namespace

ExitGate::ExitGate() {
    static const int installed = std::atexit(close_exit_gate);
    static_cast<void>(installed);
    // Announced before the flag is read, as closing sets it before it counts: one of the two sees the other.
    inside.fetch_add(1);
    if (!closed.load()) return;
    inside.fetch_sub(1);
    throw InternalError("[compile] the process is ending; nothing is compiled any more");
}

ExitGate::~ExitGate() {
    inside.fetch_sub(1);
    // Once more: what this compilation has made for all of them is then destroyed later than the gate is closed.
    static const int installed = std::atexit(close_exit_gate);
    static_cast<void>(installed);
}

void close_exit_gate() noexcept {
    closed.store(true);
    const auto give_up = std::chrono::steady_clock::now() + longest_wait;
    while (inside.load() > 0 && std::chrono::steady_clock::now() < give_up)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace topstitch
