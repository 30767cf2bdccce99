// See faults.h: a handler on a stack of its own, from which siglongjmp leaves the fibre that failed.
// Faults outside of kernels go to whoever handled them before.
#include "grid/faults.h"

#include <sanitizer/asan_interface.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <memory>

namespace metal_sim {

namespace {

constexpr std::array fault_signals{SIGSEGV, SIGBUS, SIGFPE, SIGILL};

sigjmp_buf recovery;
volatile sig_atomic_t running = 0;
volatile sig_atomic_t held = 0;
volatile sig_atomic_t expired = 0;
pthread_t runner;
Fault fault;
std::array<struct sigaction, fault_signals.size()> previous;

void on_fault(int signal, siginfo_t* info, void*) {
    if (!running || !pthread_equal(pthread_self(), runner)) {
        for (std::size_t i = 0; i < fault_signals.size();
             ++i) {  // not ours: it happens again, for the handler before us
            if (fault_signals[i] == signal) sigaction(signal, &previous[i], nullptr);
        }
        return;
    }
    fault = {signal, info->si_addr};
    siglongjmp(recovery, 1);
}

void on_timeout(int signal, siginfo_t*, void*) {
    expired = 1;
    if (!running || held || !pthread_equal(pthread_self(), runner)) return;
    fault = {signal, nullptr};
    siglongjmp(recovery, 1);
}

// Our handlers, while this lives: test frameworks change them between tests.
class Handlers {
public:
    Handlers() {
        struct sigaction action{};
        action.sa_flags = SA_SIGINFO | SA_ONSTACK;
        sigemptyset(&action.sa_mask);
        action.sa_sigaction = on_fault;
        for (std::size_t i = 0; i < fault_signals.size(); ++i) sigaction(fault_signals[i], &action, &previous[i]);
        action.sa_flags |= SA_RESTART;
        action.sa_sigaction = on_timeout;
        sigaction(timeout_signal(), &action, nullptr);  // stays: the timer's last signal may come late
    }
    ~Handlers() {
        for (std::size_t i = 0; i < fault_signals.size(); ++i) sigaction(fault_signals[i], &previous[i], nullptr);
    }
    Handlers(const Handlers&) = delete;
    Handlers& operator=(const Handlers&) = delete;
};

// A stack for the handlers, while this lives: that of a fibre may be the one that overflowed.
class SignalStack {
public:
    SignalStack() : memory_(std::make_unique_for_overwrite<std::byte[]>(bytes)) {
        stack_t stack{};
        stack.ss_sp = memory_.get();
        stack.ss_size = bytes;
        sigaltstack(&stack, &previous_);
    }
    ~SignalStack() { sigaltstack(&previous_, nullptr); }
    SignalStack(const SignalStack&) = delete;
    SignalStack& operator=(const SignalStack&) = delete;

private:
    static constexpr std::size_t bytes = 64 << 10;
    std::unique_ptr<std::byte[]> memory_;
    stack_t previous_{};
};

// Sends the timeout's signal to this thread, again and again in case it came while it was held off.
class Timer {
public:
    explicit Timer(std::chrono::milliseconds timeout) {
        sigevent event{};
        event.sigev_notify = SIGEV_THREAD_ID;
        event.sigev_signo = timeout_signal();
        event._sigev_un._tid = static_cast<pid_t>(syscall(SYS_gettid));
        timer_create(CLOCK_MONOTONIC, &event, &timer_);
        itimerspec when{};
        when.it_value.tv_sec = timeout.count() / 1000;
        when.it_value.tv_nsec = timeout.count() % 1000 * 1000000;
        when.it_interval.tv_nsec = 10000000;
        timer_settime(timer_, 0, &when, nullptr);
    }
    ~Timer() { timer_delete(timer_); }
    Timer(const Timer&) = delete;
    Timer& operator=(const Timer&) = delete;

private:
    timer_t timer_{};
};

}  // namespace

int timeout_signal() {
    return SIGRTMIN + 5;
}

void hold_timeout(bool hold) {
    held = hold;
}

bool timed_out() {
    return expired;
}

Fault guarded_run(const std::function<void()>& body, std::chrono::milliseconds timeout) {
    const SignalStack stack;
    const Handlers handlers;
    fault = {};
    expired = 0;
    held = 1;
    runner = pthread_self();
    const Timer timer(timeout);
    if (sigsetjmp(recovery, 1) == 0) {
        running = 1;
        body();
    } else {
        // For the address sanitizer: the frames below this one are gone.
        constexpr std::size_t given_up = 64 << 10;
        ASAN_UNPOISON_MEMORY_REGION(static_cast<char*>(__builtin_frame_address(0)) - given_up, given_up);
    }
    running = 0;
    return fault;
}

}  // namespace metal_sim
