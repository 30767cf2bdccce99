// A thread that performs tasks in order, for queues and listeners.
// Tasks may call Objective-C: the thread is known to Foundation and has a pool for each task.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace metal_sim {

class Worker {
public:
    Worker();
    ~Worker();  // after the tasks that were submitted; a worker may be destroyed by its own last task
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;

    void submit(std::function<void()> task);

private:
    struct Shared {
        std::mutex mutex;
        std::condition_variable changed;
        std::deque<std::function<void()>> tasks;
        bool stop = false;
    };
    static void run(const std::shared_ptr<Shared>& shared);

    std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
    std::thread thread_;
};

}  // namespace metal_sim
