// Running without waiting: queues, command buffers, events and jobs.
// A queue runs what is committed to it in order, on a thread of its own; events order work across queues.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "topstitch/device.h"
#include "topstitch/export.h"
#include "topstitch/ndarray.h"

namespace topstitch {

struct Submission;
struct QueueState;
struct EventState;

enum class JobStatus : std::uint8_t { encoding, committed, running, completed, failed, cancelled };
TOPSTITCH_API const char* name_of(JobStatus status);

// A counter that queues and the program wait for and signal. Its value only grows.
class TOPSTITCH_API Event {
public:
    Event();
    explicit Event(std::shared_ptr<EventState> state);
    std::uint64_t value() const;
    // UserError when `value` is below the present one.
    void signal(std::uint64_t value) const;
    // Until the value is reached; false when `seconds` have passed before. UserError when the work that was to signal
    // it, or more, has failed, and nothing else that is committed will.
    bool wait(std::uint64_t value, std::optional<double> seconds = std::nullopt) const;

    const std::shared_ptr<EventState>& state() const { return state_; }

private:
    std::shared_ptr<EventState> state_;
};

// Work that has been committed. A cheap handle; the work goes on when all handles are gone.
class TOPSTITCH_API Job {
public:
    Job() = default;
    explicit Job(std::shared_ptr<Submission> submission) : submission_(std::move(submission)) {}
    explicit operator bool() const { return submission_ != nullptr; }

    JobStatus status() const;
    bool done() const;  // completed, failed or cancelled
    // False when `seconds` have passed before it was done. UserError where it would wait for ever: from a handler of
    // its own queue, and in a forked child.
    bool wait(std::optional<double> seconds = std::nullopt) const;
    // Waits, and gives the results of all runs in the order of their encoding; throws what the work threw.
    std::vector<NDArray> results() const;
    // Waits; null when it has completed.
    std::exception_ptr error() const;
    // True when it had not begun to run and never will. Work that waits for an event can be cancelled too.
    bool cancel() const;
    // Called on the queue's thread when its first run starts, at once if it has already.
    void add_scheduled_handler(std::function<void()> handler) const;
    // Called on the queue's thread once it is done, at once if it is already; on the thread that cancels it.
    void add_completed_handler(std::function<void()> handler) const;

    const std::shared_ptr<Submission>& submission() const { return submission_; }

private:
    std::shared_ptr<Submission> submission_;
};

// Until all are done; false when `seconds` have passed before.
TOPSTITCH_API bool wait_for_all(const std::vector<Job>& jobs, std::optional<double> seconds = std::nullopt);

// Does `work` on a thread of its own, beside everything else.
TOPSTITCH_API Job perform_detached(std::function<void()> work);

class CommandBuffer;

// In order. Work of a queue that is let go is still done.
class TOPSTITCH_API Queue {
public:
    explicit Queue(Device device = {}, std::string label = "");
    Device device() const;
    const std::string& label() const;
    // Committed and not done.
    int pending() const;
    std::vector<Job> pending_jobs() const;
    // Until all that has been committed so far is done; false when `seconds` have passed before.
    bool wait(std::optional<double> seconds = std::nullopt) const;

    const std::shared_ptr<QueueState>& state() const { return state_; }

private:
    std::shared_ptr<QueueState> state_;
    std::shared_ptr<void> closer_;
};

// The queue of runs on the device that name none.
TOPSTITCH_API const Queue& default_queue(const Device& device = {});

// Commands for one queue, committed together: they run one after the other, and when one fails the rest do not run.
// Graphs and executables are encoded into it by their encode(). Not for several threads at once.
class TOPSTITCH_API CommandBuffer {
public:
    explicit CommandBuffer(const Queue& queue = default_queue());

    // What is encoded after this waits until the event has the value.
    void wait_for(const Event& event, std::uint64_t value);
    // After what has been encoded so far. When that fails, whoever waits for the value is told so.
    void signal(const Event& event, std::uint64_t value);
    void add_scheduled_handler(std::function<void()> handler);  // when its first run starts
    void add_completed_handler(std::function<void()> handler);
    // Hands it to the queue. Once only: UserError after that.
    Job commit();
    JobStatus status() const;
    const Queue& queue() const { return queue_; }

    const std::shared_ptr<Submission>& submission() const { return submission_; }
    void check_open(const char* what) const;

private:
    Queue queue_;
    std::shared_ptr<Submission> submission_;
};

}  // namespace topstitch
