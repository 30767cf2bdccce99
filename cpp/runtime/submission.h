// What Job, CommandBuffer, Queue and Event handles point to, and how commands are performed.
// Everything but the commands themselves is guarded by the monitor.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/fork_gate.h"
#include "runtime/outside_event.h"
#include "topstitch/queue.h"

namespace topstitch {

struct EventState {
    std::uint64_t value = 0;               // known so far, where `outside` has the value
    std::multiset<std::uint64_t> pending;  // what committed work will signal
    std::uint64_t failed_value = 0;        // of what failed to be signalled
    std::string failure;                   // why
    std::shared_ptr<OutsideEvent> outside;
    std::set<std::uint64_t> watched;  // values that `outside` will tell

    bool reached(std::uint64_t wanted) const { return value >= wanted; }
    // Nothing that is committed will get there.
    bool hopeless(std::uint64_t wanted) const {
        return failed_value >= wanted && pending.lower_bound(wanted) == pending.end();
    }
};

// Before waiting, and while not holding the monitor: the value outside, if there is one, becomes known here as soon as
// it reaches `wanted`.
void watch(const std::shared_ptr<EventState>& event, std::uint64_t wanted);

struct Submission;

struct Command {
    enum class Kind : std::uint8_t { run, wait, signal };
    Kind kind = Kind::run;
    std::function<void(Submission&)> run;
    std::shared_ptr<EventState> event;
    std::uint64_t value = 0;
};

struct Submission {
    JobStatus status = JobStatus::encoding;
    std::vector<Command> commands;  // of whoever encodes, then of the thread that performs them
    std::vector<NDArray> results;
    std::exception_ptr error;
    std::vector<std::function<void()>> scheduled_handlers;
    std::vector<std::function<void()>> completed_handlers;
    std::atomic<bool> changed{false};              // a run has begun to change a variable
    std::atomic<bool> cancelled{false};            // asked for; heeded until a run has begun to change something
    std::thread::id performer;                     // the thread that runs it, or will
    std::shared_ptr<QueueState> queue;             // until it is done
    std::uint32_t generation = fork_generation();  // when it was committed

    bool stops() const { return cancelled.load() && !changed.load(); }
    bool done() const { return status >= JobStatus::completed; }
    // Neither done nor ever to be: its thread stayed in the parent process.
    bool lost() const { return !done() && status != JobStatus::encoding && generation != fork_generation(); }
};

struct QueueState {
    Device device;
    std::string label;
    std::deque<std::shared_ptr<Submission>> waiting;
    std::shared_ptr<Submission> running;
    bool closed = false;
    bool has_worker = false;
    std::thread::id worker;
    std::uint32_t generation = fork_generation();
    // Wakes the worker. In a forked child it remembers a thread that is not there, and is left alone.
    std::condition_variable* wake = new std::condition_variable;

    QueueState() = default;
    ~QueueState() {
        if (generation == fork_generation()) delete wake;
    }
    QueueState(const QueueState&) = delete;
    QueueState& operator=(const QueueState&) = delete;
};

// Commits it to the queue.
Job submit(const std::shared_ptr<QueueState>& queue, std::shared_ptr<Submission> submission);
// What it will signal can be waited for. While holding the monitor.
void announce_signals(Submission& submission);
// Runs the commands on this thread, and tells everybody.
void perform(const std::shared_ptr<Submission>& submission);
// Ends a submission that will not be performed. While nobody else can.
void finish(const std::shared_ptr<Submission>& submission, JobStatus status, std::exception_ptr error,
            std::vector<Command> left);
// Runs it on a thread of its own, or on this one if none can be had.
void perform_detached(const std::shared_ptr<Submission>& submission);

}  // namespace topstitch
