// The fork-join pool: one mailbox for each worker, a countdown for the caller, spinning first and sleeping later.
// The pool is never destroyed, so that idle workers cannot hold up the end of the process; a forked child starts anew.
#include "cpu/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <fstream>
#include <mutex>
#include <system_error>
#include <thread>

#if defined(__linux__)
#include <sched.h>
#endif
#if !defined(_WIN32)
#include <pthread.h>
#include <signal.h>
#endif
#if defined(__x86_64__) || defined(_M_X64)
#include <immintrin.h>
#endif

#include "core/settings.h"

namespace topstitch::cpu {

namespace {

using Body = std::function<void(int, std::int64_t, std::int64_t)>;

// How long a thread spins before it sleeps. Longer than the gap between two kernels of one graph, shorter than
// anybody notices in an idle process.
constexpr auto spin_time = std::chrono::microseconds(30);

void pause() {
#if defined(__x86_64__) || defined(_M_X64)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("isb" ::: "memory");  // about as long as x86's pause; "yield" does nothing on most cores
#endif
}

#if defined(__linux__)
// The cores' worth of time that the container may use ("200000 100000": two), or `cores` when it is not limited.
int within_quota(int cores) {
    std::ifstream file("/sys/fs/cgroup/cpu.max");
    double quota = 0;
    double period = 0;
    if (!(file >> quota >> period) || quota <= 0 || period <= 0) return cores;  // "max": no limit
    return std::clamp(static_cast<int>(quota / period + 0.5), 1, cores);
}
#endif

int usable_cores() {
#if defined(__linux__)
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0) return within_quota(std::max(1, CPU_COUNT(&set)));
#endif
    return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

// Waits until `word` differs from `old`: spins for a while if that can help, then sleeps in the kernel.
void wait_for_change(const std::atomic<std::uint32_t>& word, std::uint32_t old, bool may_spin) {
    if (may_spin) {
        const auto give_up = std::chrono::steady_clock::now() + spin_time;
        int rounds = 0;  // of about a microsecond
        do {
            for (int i = 0; i < 32; ++i) {
                if (word.load(std::memory_order_acquire) != old) return;
                pause();
            }
            // The other thread may be waiting for this very core.
            if (++rounds > 4) std::this_thread::yield();
        } while (std::chrono::steady_clock::now() < give_up);
    }
    word.wait(old, std::memory_order_acquire);
}

// Contiguous chunks whose boundaries are multiples of `granularity`.
struct Split {
    std::int64_t count;
    std::int64_t granularity;
    std::int64_t units;
    int chunks;

    Split(std::int64_t count, std::int64_t granularity, int threads)
        : count(count), granularity(std::max<std::int64_t>(1, granularity)) {
        units = count / this->granularity + (count % this->granularity != 0 ? 1 : 0);
        chunks = static_cast<int>(std::clamp<std::int64_t>(threads, 1, std::max<std::int64_t>(units, 1)));
    }
    std::int64_t boundary(int chunk) const {
        const std::int64_t even = units / chunks;
        const std::int64_t extra = units % chunks;  // the first `extra` chunks have one unit more
        const std::int64_t unit = chunk * even + std::min<std::int64_t>(chunk, extra);
        return unit >= units ? count : unit * granularity;
    }
    void run(int chunk, const Body& body) const { body(chunk, boundary(chunk), boundary(chunk + 1)); }
};

class Pool {
public:
    // False when another thread is using the pool.
    bool try_run(const Split& split, const Body& body) {
        const std::unique_lock lock(busy_, std::try_to_lock);
        if (!lock.owns_lock()) return false;
        const int helpers = ensure_workers(split.chunks - 1);
        split_ = &split;
        body_ = &body;
        may_spin_ = helpers < usable_cores_;
        remaining_.store(static_cast<std::uint32_t>(helpers), std::memory_order_relaxed);
        for (int i = 0; i < helpers; ++i) {
            Worker& worker = workers_[static_cast<std::size_t>(i)];
            worker.ticket.fetch_add(1, std::memory_order_seq_cst);  // publishes the job
            worker.ticket.notify_one();
        }
        split.run(0, body);
        for (int chunk = helpers + 1; chunk < split.chunks; ++chunk) split.run(chunk, body);  // threads were refused
        for (std::uint32_t left; (left = remaining_.load(std::memory_order_acquire)) != 0;) {
            wait_for_change(remaining_, left, may_spin_);
        }
        return true;
    }

private:
    struct alignas(64) Worker {
        std::atomic<std::uint32_t> ticket{0};  // the number of jobs handed to this worker
    };

    // Starts what is missing; gives how many of the `wanted` workers there are.
    int ensure_workers(int wanted) {
        while (static_cast<int>(workers_.size()) < wanted) {
            const int number = static_cast<int>(workers_.size());
            Worker& worker = workers_.emplace_back();
            if (!start(worker, number)) {
                workers_.pop_back();
                break;
            }
        }
        return std::min(wanted, static_cast<int>(workers_.size()));
    }

    bool start(Worker& worker, int number) {
#if !defined(_WIN32)
        // Signals belong to the program's own threads (Python handles them in the main one).
        sigset_t all;
        sigset_t before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
#endif
        bool started = true;
        try {
            std::thread([this, &worker, number] { work(worker, number); }).detach();
        } catch (const std::system_error&) { started = false; }
#if !defined(_WIN32)
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
#endif
        return started;
    }

    void work(Worker& worker, int number);

    std::mutex busy_;
    std::deque<Worker> workers_;  // a deque: workers keep their address
    const int usable_cores_ = usable_cores();
    // The job in hand; written before the tickets, read after them.
    const Split* split_ = nullptr;
    const Body* body_ = nullptr;
    bool may_spin_ = true;
    alignas(64) std::atomic<std::uint32_t> remaining_{0};
};

thread_local bool inside_body = false;  // nested calls run serially

void Pool::work(Worker& worker, int number) {
    inside_body = true;
    bool may_spin = true;
    for (std::uint32_t done = 0;; ++done) {
        wait_for_change(worker.ticket, done, may_spin);
        may_spin = may_spin_;
        split_->run(number + 1, *body_);
        // Once the count is down the caller may return and the job is gone.
        if (remaining_.fetch_sub(1, std::memory_order_acq_rel) == 1) remaining_.notify_one();
    }
}

std::atomic<Pool*> current_pool{nullptr};
std::atomic<int> thread_limit{0};  // set_num_threads; 0: the setting

// A child process has none of the workers. The old pool is left as it is: its lock may be held for ever.
void forget_pool() {
    current_pool.store(nullptr);
}

Pool& pool() {
    Pool* existing = current_pool.load(std::memory_order_acquire);
    if (existing != nullptr) return *existing;
#if !defined(_WIN32)
    static const int registered = pthread_atfork(nullptr, nullptr, forget_pool);
    static_cast<void>(registered);
#endif
    Pool* fresh = new Pool;
    if (current_pool.compare_exchange_strong(existing, fresh, std::memory_order_acq_rel)) return *fresh;
    delete fresh;  // another thread was faster; no worker has started
    return *existing;
}

}  // namespace

void parallel_for(std::int64_t count, std::int64_t granularity, int max_threads,
                  const std::function<void(int thread, std::int64_t begin, std::int64_t end)>& body) {
    if (count <= 0) return;
    const int threads = max_threads > 0 ? std::min(max_threads, num_threads()) : num_threads();
    const Split split(count, granularity, threads);
    const bool outer = inside_body;
    inside_body = true;
    if (split.chunks == 1 || outer || !pool().try_run(split, body)) {
        for (int chunk = 0; chunk < split.chunks; ++chunk) split.run(chunk, body);
    }
    inside_body = outer;
}

int num_threads() {
    const int limit = thread_limit.load(std::memory_order_relaxed);
    if (limit > 0) return limit;
    static const int fallback = [] {
        const std::int64_t wanted = setting_int(Setting::num_threads);
        return wanted > 0 ? static_cast<int>(std::min<std::int64_t>(wanted, 1024)) : usable_cores();
    }();
    return fallback;
}

void set_num_threads(int threads) {
    thread_limit.store(std::clamp(threads, 0, 1024), std::memory_order_relaxed);
}

}  // namespace topstitch::cpu
