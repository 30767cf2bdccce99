// Releasing and taking Python's global lock, safely even while the interpreter goes down.
// Use these instead of pybind11's guards, which end the process when a daemon thread comes back too late.
#pragma once

#include <Python.h>

#include <chrono>
#include <thread>

#if defined(__GLIBCXX__)
#include <cxxabi.h>
#endif

namespace topstitch::bindings {

// Before Python 3.14, a thread that asks for the lock of a dying interpreter is ended by pthread_exit, which
// unwinds the stack: through functions that must not throw, and dropping references without the lock. Such a
// thread sleeps here until the process ends, as from Python 3.14 on.
template <typename Acquire>
auto acquire_or_sleep(Acquire acquire) {
#if defined(__GLIBCXX__)
    try {
        return acquire();
    } catch (abi::__forced_unwind&) {
        for (;;) std::this_thread::sleep_for(std::chrono::hours(1));  // must not be left
    }
#else
    return acquire();
#endif
}

// Lets other Python threads run while it lives.
class ReleaseGil {
public:
    ReleaseGil() : state_(PyEval_SaveThread()) {}
    ~ReleaseGil() {
        acquire_or_sleep([this] { PyEval_RestoreThread(state_); });
    }
    ReleaseGil(const ReleaseGil&) = delete;
    ReleaseGil& operator=(const ReleaseGil&) = delete;

private:
    PyThreadState* state_;
};

}  // namespace topstitch::bindings
