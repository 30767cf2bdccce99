// The fork-join pool: the split, nesting, many callers, and a forked child.
// Sums are compared with their closed form.
#include <doctest/doctest.h>

#include <atomic>
#include <cstdint>
#include <limits>
#include <mutex>
#include <set>
#include <thread>
#include <tuple>
#include <vector>

#if !defined(_WIN32)
#include <sys/wait.h>
#include <unistd.h>
#endif

#include "cpu/thread_pool.h"

using topstitch::cpu::num_threads;
using topstitch::cpu::parallel_for;
using topstitch::cpu::set_num_threads;

namespace {

// Restores the thread count when a test ends.
class Threads {
public:
    explicit Threads(int count) { set_num_threads(count); }
    ~Threads() { set_num_threads(0); }
};

std::int64_t sum_in_parallel(std::int64_t count, std::int64_t granularity) {
    std::atomic<std::int64_t> sum{0};
    parallel_for(count, granularity, 0, [&](int, std::int64_t begin, std::int64_t end) {
        std::int64_t part = 0;
        for (std::int64_t i = begin; i < end; ++i) part += i;
        sum += part;
    });
    return sum;
}

using Chunk = std::tuple<std::int64_t, std::int64_t, int>;  // begin, end, thread

std::set<Chunk> chunks(std::int64_t count, std::int64_t granularity, int max_threads) {
    std::set<Chunk> result;
    std::mutex mutex;
    parallel_for(count, granularity, max_threads, [&](int thread, std::int64_t begin, std::int64_t end) {
        const std::lock_guard lock(mutex);
        result.insert({begin, end, thread});
    });
    return result;
}

}  // namespace

TEST_CASE("pool: every iteration runs exactly once") {
    for (const int threads : {1, 2, 3, 8}) {
        const Threads setting(threads);
        for (const std::int64_t count : {0, 1, 2, 3, 7, 8, 100, 1000}) {
            for (const std::int64_t granularity : {1, 2, 8, 64}) {
                std::vector<std::atomic<int>> visits(static_cast<std::size_t>(count));
                parallel_for(count, granularity, 0, [&](int, std::int64_t begin, std::int64_t end) {
                    for (std::int64_t i = begin; i < end; ++i) ++visits[static_cast<std::size_t>(i)];
                });
                for (const auto& visit : visits) CHECK(visit == 1);
            }
        }
    }
}

TEST_CASE("pool: chunks are aligned, and threads are numbered from 0") {
    const Threads setting(3);
    for (const std::int64_t count : {1, 5, 9, 10, 70, 1000}) {
        for (const std::int64_t granularity : {1, 16}) {
            for (const int max_threads : {0, 2, 50}) {
                for (int repeat = 0; repeat < 20; ++repeat) {
                    std::int64_t at = 0;
                    for (const auto& [begin, end, thread] : chunks(count, granularity, max_threads)) {
                        CHECK(begin == at);
                        CHECK(begin < end);
                        CHECK((end % granularity == 0 || end == count));
                        CHECK(thread >= 0);
                        CHECK(thread < (max_threads == 2 ? 2 : 3));
                        at = end;
                    }
                    CHECK(at == count);
                }
            }
        }
    }
}

TEST_CASE("pool: enough work for all is shared by all") {
    CHECK(num_threads() >= 1);
    const Threads setting(3);
    CHECK(num_threads() == 3);
    // Each thread holds its first chunk until all three have one.
    std::atomic<int> arrived{0};
    std::set<int> threads;
    std::mutex mutex;
    parallel_for(300, 1, 0, [&](int thread, std::int64_t, std::int64_t) {
        {
            const std::lock_guard lock(mutex);
            if (!threads.insert(thread).second) return;
        }
        ++arrived;
        while (arrived < 3) std::this_thread::yield();
    });
    CHECK(threads == std::set<int>{0, 1, 2});
}

TEST_CASE("pool: counts near the highest") {
    const Threads setting(4);
    constexpr std::int64_t count = std::numeric_limits<std::int64_t>::max() - 5;
    std::int64_t at = 0;
    for (const auto& [begin, end, thread] : chunks(count, 8, 0)) {
        CHECK(begin == at);
        at = end;
    }
    CHECK(at == count);
}

TEST_CASE("pool: a nested call runs serially") {
    const Threads setting(4);
    std::atomic<std::int64_t> total{0};
    std::atomic<int> foreign{0};
    parallel_for(4, 1, 0, [&](int, std::int64_t, std::int64_t) {
        const auto self = std::this_thread::get_id();
        parallel_for(100, 1, 0, [&](int, std::int64_t begin, std::int64_t end) {
            if (std::this_thread::get_id() != self) ++foreign;
            total += end - begin;
        });
    });
    CHECK(total == 400);
    CHECK(foreign == 0);
}

TEST_CASE("pool: many callers at once") {
    const Threads setting(4);
    std::atomic<int> wrong{0};
    std::vector<std::thread> callers;
    for (int caller = 0; caller < 6; ++caller) {
        callers.emplace_back([&wrong, caller] {
            for (int repeat = 0; repeat < 300; ++repeat) {
                const std::int64_t count = 1 + (repeat * 37 + caller * 101) % 500;
                if (sum_in_parallel(count, 1 + repeat % 9) != count * (count - 1) / 2) ++wrong;
            }
        });
    }
    for (std::thread& caller : callers) caller.join();
    CHECK(wrong == 0);
}

TEST_CASE("pool: sleeping workers wake up") {
    const Threads setting(4);
    for (int repeat = 0; repeat < 20; ++repeat) {
        CHECK(sum_in_parallel(1000, 1) == 499500);
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
}

TEST_CASE("pool: the thread count may change between calls") {
    for (int repeat = 0; repeat < 50; ++repeat) {
        const Threads setting(1 + repeat % 7);
        CHECK(sum_in_parallel(777, 3) == 777 * 776 / 2);
    }
}

#if !defined(_WIN32) && !defined(__SANITIZE_THREAD__)  // TSan does not follow threads into a forked child
TEST_CASE("pool: a forked child has a pool of its own") {
    const Threads setting(3);
    CHECK(sum_in_parallel(1000, 1) == 499500);
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        alarm(20);  // a hang must not keep the test
        const bool right = sum_in_parallel(1000, 1) == 499500 && sum_in_parallel(5000, 1) == 12497500;
        _exit(right ? 0 : 1);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
    CHECK(sum_in_parallel(1000, 1) == 499500);
}
#endif
