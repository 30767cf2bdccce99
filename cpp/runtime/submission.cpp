// Performs the commands of a submission one after the other, and ends it: completed, failed or cancelled.
// Commands, handlers and results may hold objects of the caller, and are let go without holding the monitor.
#include "runtime/submission.h"

#include "core/log.h"
#include "core/thread.h"
#include "runtime/compiled_program.h"
#include "runtime/monitor.h"
#include "topstitch/error.h"

namespace topstitch {

namespace {

std::string message_of(const std::exception_ptr& error) {
    try {
        std::rethrow_exception(error);
    } catch (const std::exception& exception) { return exception.what(); } catch (...) {
        return "an unknown exception";
    }
}

// A handler is the caller's code: what it throws must not end the queue.
void call(const std::vector<std::function<void()>>& handlers) {
    for (const auto& handler : handlers) {
        try {
            handler();
        } catch (...) { log_line(LogLevel::info, concat("a handler threw: ", message_of(std::current_exception()))); }
    }
}

void start(Submission& submission) {
    std::vector<std::function<void()>> handlers;
    {
        const std::lock_guard lock(monitor().mutex);
        submission.status = JobStatus::running;
        handlers.swap(submission.scheduled_handlers);
    }
    monitor().changed.notify_all();
    call(handlers);
}

void throw_if_cancelled(const Submission& submission) {
    if (submission.stops()) throw Cancelled("[run] cancelled before it had started");
}

void wait_for_event(const Submission& submission, const Command& command) {
    watch(command.event, command.value);
    std::unique_lock lock(monitor().mutex);
    const EventState& event = *command.event;
    wait_until(lock, std::nullopt,
               [&] { return event.reached(command.value) || event.hopeless(command.value) || submission.stops(); });
    if (event.reached(command.value)) return;
    throw_if_cancelled(submission);
    throw UserError(concat("[run] what was to signal ", command.value, " has failed: ", event.failure));
}

void signal(const Command& command) {
    {
        const std::lock_guard lock(monitor().mutex);
        EventState& event = *command.event;
        event.value = std::max(event.value, command.value);
        event.pending.erase(event.pending.find(command.value));
    }
    monitor().changed.notify_all();
    if (command.event->outside) command.event->outside->signal(command.value);
}

}  // namespace

void finish(const std::shared_ptr<Submission>& submission, JobStatus status, std::exception_ptr error,
            std::vector<Command> left) {
    const std::string failure = error ? message_of(error) : std::string();
    std::vector<std::function<void()>> handlers;
    std::vector<std::function<void()>> unused;
    {
        const std::lock_guard lock(monitor().mutex);
        for (const Command& command : left) {
            if (command.kind != Command::Kind::signal) continue;
            EventState& event = *command.event;
            event.pending.erase(event.pending.find(command.value));
            event.failed_value = std::max(event.failed_value, command.value);
            event.failure = failure;
        }
        submission->status = status;
        submission->error = std::move(error);
        if (submission->queue && submission->queue->running == submission) submission->queue->running.reset();
        submission->queue.reset();
        handlers.swap(submission->completed_handlers);
        unused.swap(submission->scheduled_handlers);
    }
    monitor().changed.notify_all();
    left.clear();  // the arrays of what did not run
    call(handlers);
}

void announce_signals(Submission& submission) {
    for (const Command& command : submission.commands) {
        if (command.kind == Command::Kind::signal) command.event->pending.insert(command.value);
    }
}

void perform(const std::shared_ptr<Submission>& submission) {
    std::vector<Command> commands;
    {
        const std::lock_guard lock(monitor().mutex);
        commands.swap(submission->commands);
        submission->performer = std::this_thread::get_id();
    }
    JobStatus status = JobStatus::completed;
    std::exception_ptr error;
    std::size_t next = 0;
    try {
        throw_if_cancelled(*submission);
        bool started = false;
        for (; next < commands.size(); ++next) {
            Command& command = commands[next];
            if (command.kind == Command::Kind::wait) {
                wait_for_event(*submission, command);
                continue;
            }
            if (!started) start(*submission);
            started = true;
            if (command.kind == Command::Kind::signal) {
                signal(command);
            } else {
                command.run(*submission);
                command.run = nullptr;  // lets its arrays go
            }
        }
        if (!started) start(*submission);
    } catch (const Cancelled&) {
        status = JobStatus::cancelled;
        error = std::current_exception();
    } catch (...) {
        status = JobStatus::failed;
        error = std::current_exception();
    }
    // Outside of the handlers above: letting go of Python's objects may end this thread, which must not happen there.
    commands.erase(commands.begin(), commands.begin() + static_cast<std::ptrdiff_t>(next));
    finish(submission, status, std::move(error), std::move(commands));
}

void perform_detached(const std::shared_ptr<Submission>& submission) {
    {
        const std::lock_guard lock(monitor().mutex);
        submission->status = JobStatus::committed;
        submission->generation = fork_generation();
        announce_signals(*submission);
    }
    if (!start_thread([submission] { perform(submission); })) perform(submission);
}

Job perform_detached(std::function<void()> work) {
    auto submission = std::make_shared<Submission>();
    submission->commands.push_back({Command::Kind::run, [work = std::move(work)](Submission&) { work(); }, nullptr, 0});
    perform_detached(submission);
    return Job(std::move(submission));
}

}  // namespace topstitch
