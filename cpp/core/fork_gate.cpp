// A counter of who is inside and a flag that keeps others out while a fork waits.
// Handlers of pthread_atfork close the gate before a fork and open it in both processes afterwards.
#include "core/fork_gate.h"

#include <atomic>
#include <chrono>
#include <thread>

#if !defined(_WIN32)
#include <pthread.h>
#endif

namespace topstitch {

namespace {

// A fork that waits longer than this goes on regardless: better a child that cannot use a variable than no child.
constexpr auto longest_wait = std::chrono::seconds(30);

std::atomic<int> inside{0};
std::atomic<bool> closed{false};
std::atomic<std::uint32_t> generation{0};
thread_local int depth = 0;  // of the gates that this thread holds

void leave() {
    inside.fetch_sub(1, std::memory_order_release);
}

#if !defined(_WIN32)
void before_fork() {
    closed.store(true);
    const int own = depth > 0 ? 1 : 0;
    const auto give_up = std::chrono::steady_clock::now() + longest_wait;
    while (inside.load() > own && std::chrono::steady_clock::now() < give_up) {
        std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
}

void open_gate() {
    closed.store(false);
    closed.notify_all();
}

void in_child() {
    generation.fetch_add(1);
    inside.store(depth > 0 ? 1 : 0);  // no other thread is here
    open_gate();
}

int install_handlers() {
    return pthread_atfork(before_fork, open_gate, in_child);
}
#endif

void enter() {
#if !defined(_WIN32)
    static const int installed = install_handlers();
    static_cast<void>(installed);
#endif
    for (;;) {
        // Announced before the flag is read, as the fork closes before it counts: one of the two sees the other.
        inside.fetch_add(1, std::memory_order_seq_cst);
        if (!closed.load(std::memory_order_seq_cst)) return;
        leave();
        closed.wait(true);
    }
}

}  // namespace

ForkGate::ForkGate() {
    if (depth++ == 0) enter();
}

ForkGate::~ForkGate() {
    if (--depth == 0) leave();
}

std::uint32_t fork_generation() {
    return generation.load(std::memory_order_relaxed);
}

}  // namespace topstitch
