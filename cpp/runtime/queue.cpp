// Queues, each with a worker thread, and the command buffers that are committed to them.
// Workers are never joined: work in flight holds up neither the end of the process nor a fork.
#include "topstitch/queue.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "core/thread.h"
#include "runtime/monitor.h"
#include "runtime/submission.h"
#include "topstitch/error.h"

namespace topstitch {

namespace {

// Takes what is committed, in order, until the queue has been let go and is empty.
void work(const std::shared_ptr<QueueState>& queue) {
    for (;;) {
        std::shared_ptr<Submission> next;
        {
            std::unique_lock lock(monitor().mutex);
            queue->worker = std::this_thread::get_id();
            queue->wake->wait(lock, [&] { return !queue->waiting.empty() || queue->closed; });
            if (queue->waiting.empty()) {
                queue->has_worker = false;
                return;
            }
            next = std::move(queue->waiting.front());
            queue->waiting.pop_front();
            queue->running = next;
        }
        perform(next);
    }
}

// In a forked child the worker is gone, and what it had to do is lost. While holding the monitor.
void leave_parent_behind(QueueState& queue, std::deque<std::shared_ptr<Submission>>& lost) {
    if (queue.generation == fork_generation()) return;
    lost.swap(queue.waiting);
    if (queue.running) lost.push_back(std::move(queue.running));
    queue.running.reset();
    queue.has_worker = false;
    queue.generation = fork_generation();
    queue.wake = new std::condition_variable;
}

}  // namespace

Job submit(const std::shared_ptr<QueueState>& queue, std::shared_ptr<Submission> submission) {
    // Objects of the parent's jobs belong to threads that are not here: they are not touched again.
    static auto* graveyard = new std::deque<std::shared_ptr<Submission>>;
    {
        const std::lock_guard lock(monitor().mutex);
        std::deque<std::shared_ptr<Submission>> lost;
        leave_parent_behind(*queue, lost);
        graveyard->insert(graveyard->end(), lost.begin(), lost.end());
        if (!queue->has_worker) {
            if (!start_thread([queue] { work(queue); }))
                throw MemoryError("[queue] the system has no thread to give; end some, or raise the limit");
            queue->has_worker = true;
        }
        submission->status = JobStatus::committed;
        submission->generation = fork_generation();
        submission->queue = queue;
        announce_signals(*submission);
        queue->waiting.push_back(submission);
        queue->wake->notify_one();
    }
    return Job(std::move(submission));
}

const char* name_of(JobStatus status) {
    constexpr const char* names[] = {"encoding", "committed", "running", "completed", "failed", "cancelled"};
    return names[static_cast<std::size_t>(status)];
}

// --- Queue

Queue::Queue(Device device, std::string label) : state_(std::make_shared<QueueState>()) {
    state_->device = device;
    state_->label = std::move(label);
    // The worker keeps the state alive; the handles together keep it open.
    closer_ = std::shared_ptr<void>(nullptr, [state = state_](void*) {
        {
            const std::lock_guard lock(monitor().mutex);
            state->closed = true;
            if (state->generation == fork_generation()) state->wake->notify_one();
        }
    });
}

Device Queue::device() const {
    return state_->device;
}

const std::string& Queue::label() const {
    return state_->label;
}

int Queue::pending() const {
    const std::lock_guard lock(monitor().mutex);
    if (state_->generation != fork_generation()) return 0;
    return static_cast<int>(state_->waiting.size()) + (state_->running ? 1 : 0);
}

std::vector<Job> Queue::pending_jobs() const {
    const std::lock_guard lock(monitor().mutex);
    std::vector<Job> jobs;
    if (state_->generation != fork_generation()) return jobs;
    if (state_->running) jobs.emplace_back(state_->running);
    for (const std::shared_ptr<Submission>& submission : state_->waiting) jobs.emplace_back(submission);
    return jobs;
}

bool Queue::wait(std::optional<double> seconds) const {
    return wait_for_all(pending_jobs(), seconds);
}

const Queue& default_queue(const Device& device) {
    static std::mutex mutex;
    static auto* queues = new std::map<const DeviceBackend*, Queue>;  // never destroyed
    const std::lock_guard lock(mutex);
    const auto found = queues->find(&device.backend());
    if (found != queues->end()) return found->second;
    return queues->emplace(&device.backend(), Queue(device, "default")).first->second;
}

// --- CommandBuffer

CommandBuffer::CommandBuffer(const Queue& queue) : queue_(queue), submission_(std::make_shared<Submission>()) {}

void CommandBuffer::check_open(const char* what) const {
    if (status() != JobStatus::encoding)
        throw UserError(concat("[", what, "] the command buffer has been committed already; make a new one"));
}

void CommandBuffer::wait_for(const Event& event, std::uint64_t value) {
    check_open("wait_for");
    submission_->commands.push_back({Command::Kind::wait, {}, event.state(), value});
}

void CommandBuffer::signal(const Event& event, std::uint64_t value) {
    check_open("signal");
    submission_->commands.push_back({Command::Kind::signal, {}, event.state(), value});
}

void CommandBuffer::add_scheduled_handler(std::function<void()> handler) {
    check_open("add_scheduled_handler");
    submission_->scheduled_handlers.push_back(std::move(handler));
}

void CommandBuffer::add_completed_handler(std::function<void()> handler) {
    check_open("add_completed_handler");
    submission_->completed_handlers.push_back(std::move(handler));
}

Job CommandBuffer::commit() {
    check_open("commit");
    return submit(queue_.state(), submission_);
}

JobStatus CommandBuffer::status() const {
    return Job(submission_).status();
}

}  // namespace topstitch
