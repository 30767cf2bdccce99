// Starts detached threads with all signals blocked, which they inherit from the thread that starts them.
// See thread.h.
#include "core/thread.h"

#include <system_error>
#include <thread>

#if !defined(_WIN32)
#include <signal.h>
#endif

namespace topstitch {

bool start_thread(std::function<void()> work) {
#if !defined(_WIN32)
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
#endif
    bool started = true;
    try {
        std::thread(std::move(work)).detach();
    } catch (const std::system_error&) { started = false; }
#if !defined(_WIN32)
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
#endif
    return started;
}

}  // namespace topstitch
