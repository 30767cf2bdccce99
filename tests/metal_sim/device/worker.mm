// See worker.h.
// What the thread needs is shared with it, so that it can outlive the Worker that a task of it destroys.
#import <Foundation/Foundation.h>
#import <GNUstepBase/NSThread+GNUstepBase.h>

#include "device/worker.h"

namespace metal_sim {

Worker::Worker() : thread_([shared = shared_] { run(shared); }) {}

Worker::~Worker() {
    {
        const std::lock_guard lock(shared_->mutex);
        shared_->stop = true;
    }
    shared_->changed.notify_all();
    if (thread_.get_id() == std::this_thread::get_id()) {
        thread_.detach();
    } else {
        thread_.join();
    }
}

void Worker::submit(std::function<void()> task) {
    {
        const std::lock_guard lock(shared_->mutex);
        shared_->tasks.push_back(std::move(task));
    }
    shared_->changed.notify_all();
}

void Worker::run(const std::shared_ptr<Shared>& shared) {
    GSRegisterCurrentThread();
    for (;;) {
        std::function<void()> task;
        {
            std::unique_lock lock(shared->mutex);
            shared->changed.wait(lock, [&] { return shared->stop || !shared->tasks.empty(); });
            if (shared->tasks.empty()) break;
            task = std::move(shared->tasks.front());
            shared->tasks.pop_front();
        }
        @autoreleasepool {
            task();
            task = nullptr;  // what it held is released here
        }
    }
    GSUnregisterCurrentThread();
}

}  // namespace metal_sim
