// What Job, CommandBuffer, Queue and Event handles point to, and how commands are performed.
// Everything but the commands themselves is guarded by the monitor.
#pragma once

#include <atomic>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/fork_gate.h"
#include "topstitch/queue.h"

namespace topstitch {

struct EventState {
    std::uint64_t value = 0;
    std::uint64_t failed_value = 0;  // values up to this one, and not reached, will not come:
    std::string failure;             // why
};

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
    std::atomic<bool> cancelled{false};  // asked for; heeded until a run has begun to change something
    std::thread::id performer;           // the thread that runs it, or will
    std::shared_ptr<QueueState> queue;   // until it is done
    const std::uint32_t generation = fork_generation();

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
};

// Commits it to the queue.
Job submit(const std::shared_ptr<QueueState>& queue, std::shared_ptr<Submission> submission);
// Runs the commands on this thread, and tells everybody.
void perform(const std::shared_ptr<Submission>& submission);
// Ends a submission that will not be performed. While nobody else can.
void finish(const std::shared_ptr<Submission>& submission, JobStatus status, std::exception_ptr error,
            std::vector<Command> left);
// Runs it on a thread of its own, or on this one if none can be had.
void perform_detached(const std::shared_ptr<Submission>& submission);
// Starts `work` on a detached thread without signals; false when the system has none to give.
bool start_thread(std::function<void()> work);

}  // namespace topstitch
