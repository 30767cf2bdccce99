// The fork-join pool: one mailbox for each worker, a queue of chunks for all, spinning first and sleeping later.
// The pool is never destroyed, so that idle workers cannot hold up the end of the process; a forked child starts anew.
#include "cpu/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <fstream>
#include <mutex>
#include <thread>

#if defined(__linux__)
#include <sched.h>
#endif
#if !defined(_WIN32)
#include <pthread.h>
#endif
#if defined(__x86_64__) || defined(_M_X64)
#include <immintrin.h>
#endif

#include "core/settings.h"
#include "core/thread.h"

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

// Contiguous chunks whose boundaries are multiples of `granularity`, for whoever comes first: large ones to begin with,
// small ones at the end, so that threads that start late or run slowly hold nobody up.
struct Split {
    // In eighths: the first chunk of each thread is half of its even share, the next a quarter, then two eighths.
    static constexpr int levels = 4;
    static constexpr int starts[levels + 1] = {0, 4, 6, 7, 8};

    std::int64_t count;
    std::int64_t granularity;
    std::int64_t units;
    int threads;

    Split(std::int64_t count, std::int64_t granularity, int threads)
        : count(count), granularity(std::max<std::int64_t>(1, granularity)) {
        units = count / this->granularity + (count % this->granularity != 0 ? 1 : 0);
        this->threads = static_cast<int>(std::clamp<std::int64_t>(threads, 1, std::max<std::int64_t>(units, 1)));
    }
    int chunks() const { return threads == 1 ? 1 : levels * threads; }
    std::int64_t boundary(int chunk) const {
        if (chunk == chunks()) return count;
        const int level = chunk / threads;
        const std::int64_t eighths =
            std::int64_t{starts[level]} * threads + std::int64_t{chunk % threads} * (starts[level + 1] - starts[level]);
        const std::int64_t whole = 8 * std::int64_t{threads};
        // Without a product that could overflow.
        const std::int64_t unit = units / whole * eighths + units % whole * eighths / whole;
        return std::min(unit * granularity, count);
    }
    void run(int thread, int chunk, const Body& body) const {
        const std::int64_t begin = boundary(chunk);
        const std::int64_t end = boundary(chunk + 1);
        if (begin < end) body(thread, begin, end);
    }
};

#if defined(__linux__)
// A worker that wakes on the caller's core would wait for it, or hold it up: it moves to another one, and stays free to
// be moved again. Some kernels wake threads so to keep other cores asleep.
void leave_core(int core) {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    if (core < 0 || sched_getcpu() != core || sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
    if (core >= CPU_SETSIZE || !CPU_ISSET(core, &allowed) || CPU_COUNT(&allowed) < 2) return;
    cpu_set_t others = allowed;
    CPU_CLR(core, &others);
    if (sched_setaffinity(0, sizeof others, &others) == 0) sched_setaffinity(0, sizeof allowed, &allowed);
}
int this_core() {
    return sched_getcpu();
}
#else
void leave_core(int) {}
int this_core() {
    return -1;
}
#endif

class Pool {
public:
    // False when another thread is using the pool.
    bool try_run(const Split& split, const Body& body) {
        const std::unique_lock lock(busy_, std::try_to_lock);
        if (!lock.owns_lock()) return false;
        const int helpers = ensure_workers(split.threads - 1);
        split_ = &split;
        body_ = &body;
        may_spin_.store(helpers < usable_cores_, std::memory_order_relaxed);
        core_.store(this_core(), std::memory_order_relaxed);
        left_.store(static_cast<std::uint32_t>(split.chunks()), std::memory_order_relaxed);
        const std::uint32_t job = ++job_;
        queue_.store(Queue{job, split.chunks(), 0}.packed(), std::memory_order_seq_cst);  // publishes the job
        for (int i = 0; i < helpers; ++i) {
            Worker& worker = workers_[static_cast<std::size_t>(i)];
            worker.job.store(job, std::memory_order_seq_cst);
            worker.job.notify_one();
        }
        take_chunks(job, 0);
        for (std::uint32_t left; (left = left_.load(std::memory_order_acquire)) != 0;) {
            wait_for_change(left_, left, helpers < usable_cores_);
        }
        return true;
    }

private:
    struct alignas(64) Worker {
        std::atomic<std::uint32_t> job{0};  // the last one that this worker was woken for
    };

    // The chunks that nobody has taken yet, of which job. One word, so that a worker that comes late takes none of
    // another job by mistake.
    struct Queue {
        std::uint32_t job;
        int chunks;
        int next;
        static constexpr int bits = 16;

        std::uint64_t packed() const {
            return std::uint64_t{job} << (2 * bits) | static_cast<std::uint64_t>(chunks) << bits |
                   static_cast<std::uint64_t>(next);
        }
        static Queue of(std::uint64_t word) {
            constexpr std::uint64_t mask = (1U << bits) - 1;
            return {static_cast<std::uint32_t>(word >> (2 * bits)), static_cast<int>(word >> bits & mask),
                    static_cast<int>(word & mask)};
        }
    };

    // Starts what is missing; gives how many of the `wanted` workers there are.
    int ensure_workers(int wanted) {
        while (static_cast<int>(workers_.size()) < wanted) {
            const int number = static_cast<int>(workers_.size());
            Worker& worker = workers_.emplace_back();
            if (!start_thread([this, &worker, number] { work(worker, number); })) {
                workers_.pop_back();
                break;
            }
        }
        return std::min(wanted, static_cast<int>(workers_.size()));
    }

    // Runs chunks of a job until there are none left. The job cannot end while a chunk is being run.
    void take_chunks(std::uint32_t job, int thread) {
        for (std::uint64_t word = queue_.load(std::memory_order_acquire);;) {
            const Queue queue = Queue::of(word);
            if (queue.job != job || queue.next == queue.chunks) return;
            if (!queue_.compare_exchange_weak(word, word + 1, std::memory_order_acq_rel, std::memory_order_acquire))
                continue;
            split_->run(thread, queue.next, *body_);
            if (left_.fetch_sub(1, std::memory_order_acq_rel) == 1) left_.notify_one();
            word = queue_.load(std::memory_order_acquire);
        }
    }

    void work(Worker& worker, int number);

    std::mutex busy_;
    std::deque<Worker> workers_;  // a deque: workers keep their address
    const int usable_cores_ = usable_cores();
    std::uint32_t job_ = 0;
    // The job in hand: written before the queue, read after a chunk has been taken from it.
    const Split* split_ = nullptr;
    const Body* body_ = nullptr;
    std::atomic<bool> may_spin_{true};
    std::atomic<int> core_{-1};  // where the caller runs
    alignas(64) std::atomic<std::uint64_t> queue_{0};
    alignas(64) std::atomic<std::uint32_t> left_{0};  // chunks that are not done
};

thread_local bool inside_body = false;  // nested calls run serially

void Pool::work(Worker& worker, int number) {
    inside_body = true;
    bool may_spin = true;
    for (std::uint32_t seen = 0;;) {
        wait_for_change(worker.job, seen, may_spin);
        seen = worker.job.load(std::memory_order_acquire);
        may_spin = may_spin_.load(std::memory_order_relaxed);
        leave_core(core_.load(std::memory_order_relaxed));
        take_chunks(seen, number + 1);
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
    if (split.threads == 1 || outer || !pool().try_run(split, body)) body(0, 0, count);
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
