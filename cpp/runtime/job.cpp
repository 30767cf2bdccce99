// What can be asked of committed work, and of events.
// See topstitch/queue.h.
#include <algorithm>

#include "runtime/compiled_program.h"
#include "runtime/monitor.h"
#include "runtime/submission.h"
#include "topstitch/error.h"

namespace topstitch {

namespace {

// Waiting would never end. While holding the monitor.
void check_can_wait(const Submission& submission) {
    if (submission.status == JobStatus::encoding)
        throw UserError("[wait] the command buffer has not been committed; call commit() first");
    if (submission.lost()) {
        throw UserError(
            "[wait] the run was in flight when the process forked: it goes on in the parent process, not in this one");
    }
    const bool own_thread = submission.performer == std::this_thread::get_id() ||
                            (submission.queue && submission.queue->worker == std::this_thread::get_id());
    if (!submission.done() && own_thread) {
        throw UserError(
            "[wait] a handler waits for work of the very queue that runs the handler, which would never "
            "end; wait on another thread, or add a handler to that work");
    }
}

}  // namespace

JobStatus Job::status() const {
    const std::lock_guard lock(monitor().mutex);
    return submission_->status;
}

bool Job::done() const {
    return status() >= JobStatus::completed;
}

bool Job::wait(std::optional<double> seconds) const {
    const Deadline deadline = deadline_after(seconds);
    std::unique_lock lock(monitor().mutex);
    check_can_wait(*submission_);
    return wait_until(lock, deadline, [this] { return submission_->done(); });
}

std::vector<NDArray> Job::results() const {
    wait();
    const std::lock_guard lock(monitor().mutex);
    if (submission_->error) std::rethrow_exception(submission_->error);
    return submission_->results;
}

std::exception_ptr Job::error() const {
    wait();
    const std::lock_guard lock(monitor().mutex);
    return submission_->error;
}

bool Job::cancel() const {
    std::shared_ptr<Submission> removed;
    {
        const std::lock_guard lock(monitor().mutex);
        if (submission_->done() || submission_->lost()) return submission_->status == JobStatus::cancelled;
        submission_->cancelled = true;
        if (QueueState* queue = submission_->queue.get()) {
            const auto at = std::find(queue->waiting.begin(), queue->waiting.end(), submission_);
            if (at != queue->waiting.end()) {
                removed = *at;
                queue->waiting.erase(at);
            }
        }
    }
    monitor().changed.notify_all();
    if (removed) {
        std::vector<Command> commands;
        commands.swap(removed->commands);
        finish(removed, JobStatus::cancelled, std::make_exception_ptr(Cancelled("[run] cancelled before it started")),
               std::move(commands));
        return true;
    }
    // On the thread that performs it: whether it is in time is known when it is done.
    const std::lock_guard lock(monitor().mutex);
    return submission_->status == JobStatus::cancelled;
}

void Job::add_scheduled_handler(std::function<void()> handler) const {
    {
        const std::lock_guard lock(monitor().mutex);
        if (submission_->status < JobStatus::running) {
            submission_->scheduled_handlers.push_back(std::move(handler));
            return;
        }
        if (submission_->status == JobStatus::cancelled) return;
    }
    handler();
}

void Job::add_completed_handler(std::function<void()> handler) const {
    {
        const std::lock_guard lock(monitor().mutex);
        if (submission_->lost()) check_can_wait(*submission_);  // throws
        if (!submission_->done()) {
            submission_->completed_handlers.push_back(std::move(handler));
            return;
        }
    }
    handler();
}

bool wait_for_all(const std::vector<Job>& jobs, std::optional<double> seconds) {
    const Deadline deadline = deadline_after(seconds);
    for (const Job& job : jobs) {
        std::optional<double> left;
        if (deadline) left = std::chrono::duration<double>(*deadline - std::chrono::steady_clock::now()).count();
        if (!job.wait(left)) return false;
    }
    return true;
}

// --- Event

Event::Event() : state_(std::make_shared<EventState>()) {}

Event::Event(std::shared_ptr<EventState> state) : state_(std::move(state)) {}

std::uint64_t Event::value() const {
    const std::uint64_t outside = state_->outside ? state_->outside->value() : 0;
    const std::lock_guard lock(monitor().mutex);
    return std::max(state_->value, outside);
}

void Event::signal(std::uint64_t value) const {
    const std::uint64_t present = this->value();
    {
        const std::lock_guard lock(monitor().mutex);
        const std::uint64_t least = std::max(present, state_->value);
        if (value < least) {
            throw UserError(concat("[Event.signal] the value is ", least, " and cannot go back to ", value,
                                   "; an event only counts up"));
        }
        state_->value = value;
    }
    monitor().changed.notify_all();
    if (state_->outside) state_->outside->signal(value);
}

void watch(const std::shared_ptr<EventState>& event, std::uint64_t wanted) {
    if (!event->outside) return;
    {
        const std::lock_guard lock(monitor().mutex);
        if (event->reached(wanted) || !event->watched.insert(wanted).second) return;
    }
    event->outside->notify(wanted, [weak = std::weak_ptr(event), wanted] {
        const std::shared_ptr<EventState> reached = weak.lock();
        if (!reached) return;
        {
            const std::lock_guard lock(monitor().mutex);
            reached->value = std::max(reached->value, wanted);
            reached->watched.erase(wanted);
        }
        monitor().changed.notify_all();
    });
}

bool Event::wait(std::uint64_t value, std::optional<double> seconds) const {
    const Deadline deadline = deadline_after(seconds);
    watch(state_, value);
    std::unique_lock lock(monitor().mutex);
    const bool told = wait_until(lock, deadline, [&] { return state_->reached(value) || state_->hopeless(value); });
    if (state_->value >= value) return true;
    if (told) throw UserError(concat("[Event.wait] what was to signal ", value, " has failed: ", state_->failure));
    return false;
}

}  // namespace topstitch
