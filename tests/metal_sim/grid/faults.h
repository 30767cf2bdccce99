// Faults of kernels: reading beyond a buffer, dividing by zero, running for ever.
// They come as signals; what was running is left where it is, and the grid ends with an error.
#pragma once

#include <signal.h>

#include <chrono>
#include <csetjmp>
#include <functional>

namespace metal_sim {

struct Fault {
    int signal = 0;
    void* address = nullptr;
};

// Calls `body` so that a fault in it, on this thread, ends it. One at a time in the process.
// Returns the fault, with signal 0 when there was none.
Fault guarded_run(const std::function<void()>& body, std::chrono::milliseconds timeout);

// Set round code that a timeout must not interrupt, because it would leave the scheduler in disorder.
void hold_timeout(bool held);
// Whether the time is over; for code that holds it off.
bool timed_out();

// The signal by which a timeout shows in Fault.
int timeout_signal();

}  // namespace metal_sim
