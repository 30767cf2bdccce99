// Keeps the end of the process away from compilations, which use objects that exit() destroys.
// Kernels that run, and threads that wait, use none: they hold nothing up.
#pragma once

#include "topstitch/export.h"

namespace topstitch {

// While one lives, the end of the process waits (some seconds at most, a hundred times what a kernel takes). Once it
// has begun, constructing one throws InternalError: whoever compiles many kernels constructs one for each, and so stops
// at the next.
class ExitGate {
public:
    ExitGate();
    ~ExitGate();
    ExitGate(const ExitGate&) = delete;
    ExitGate& operator=(const ExitGate&) = delete;
};

// Waits for what is inside and lets nothing in any more. Runs by itself at exit(); a host that knows of the end
// earlier, as Python does, calls it then.
TOPSTITCH_API void close_exit_gate() noexcept;

}  // namespace topstitch
