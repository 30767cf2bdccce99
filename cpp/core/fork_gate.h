// Keeps fork() away from half-done work: a process waits with forking until runs and compilations have ended.
// So no lock of ours is held, and no variable half written, in the child.
#pragma once

#include <cstdint>

namespace topstitch {

// While one lives, fork() in another thread waits (but not for ever: see fork_gate.cpp). Needs no lock and may be
// nested. Whoever holds one must not wait for a lock that the forking thread may hold, such as Python's.
class ForkGate {
public:
    ForkGate();
    ~ForkGate();
    ForkGate(const ForkGate&) = delete;
    ForkGate& operator=(const ForkGate&) = delete;
};

// How many times this process and its ancestors have forked to get here: what a thread of another generation was to
// do will never be done.
std::uint32_t fork_generation();

}  // namespace topstitch
