// See grid.h: goes through the threadgroups, and turns what went wrong into words.
// Here are also the functions that kernels call.
#include "grid/grid.h"

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <numeric>

#include "grid/faults.h"
#include "grid/scheduler.h"
#include "grid/threadgroup_memory.h"

namespace metal_sim {

namespace {

constexpr std::size_t reach = 1 << 20;  // a fault this near to a buffer is taken for one beyond its end

ThreadgroupMemory& threadgroup_memory() {
    static auto* memory = new ThreadgroupMemory;  // never destroyed, like the scheduler
    return *memory;
}

// The threadgroups in the order in which they run, as linear positions.
std::vector<std::uint32_t> group_order(std::size_t count, Order order, std::uint64_t seed) {
    std::vector<std::uint32_t> sequence(count);
    std::iota(sequence.begin(), sequence.end(), 0u);
    if (order == Order::reversed) std::reverse(sequence.begin(), sequence.end());
    if (order == Order::shuffled) {
        for (std::size_t i = count; i > 1; --i) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            std::swap(sequence[i - 1], sequence[(seed >> 33) % i]);
        }
    }
    return sequence;
}

void place_group(msl_launch& launch, std::uint32_t linear) {
    const unsigned* count = launch.threadgroups_per_grid;
    const unsigned position[3] = {linear % count[0], linear / count[0] % count[1], linear / count[0] / count[1]};
    unsigned threads = 1;
    for (int d = 0; d < 3; ++d) {
        const unsigned size = launch.dispatch_threads_per_threadgroup[d];
        launch.threadgroup_position[d] = position[d];
        launch.threads_per_threadgroup[d] = std::min(size, launch.threads_per_grid[d] - position[d] * size);
        threads *= launch.threads_per_threadgroup[d];
    }
    launch.simdgroups_per_threadgroup = (threads + msl_simd_width - 1) / msl_simd_width;
}

// What was written after the end of a buffer; that is wiped out, so that it is reported once.
std::optional<GridError> written_past_end(const GridJob& job) {
    std::optional<GridError> error;
    for (const BoundBuffer& buffer : job.buffers) {
        std::byte* end = buffer.begin + buffer.bytes;
        const auto* hit = std::find_if(end, end + buffer.slack, [](std::byte byte) { return byte != slack_byte; });
        if (hit == end + buffer.slack) continue;
        std::fill(end, end + buffer.slack, slack_byte);
        error = GridError{GridFailure::out_of_bounds,
                          "wrote " + std::to_string(hit - end) + " bytes past the end of buffer(" +
                              std::to_string(buffer.index) + ") of " + std::to_string(buffer.bytes) + " bytes"};
    }
    return error;
}

// A fault leaves this without unwinding: nothing here may own memory.
void run_groups(const GridJob& job, msl_launch& launch, const std::vector<std::uint32_t>& groups) {
    const auto order = settings().order;
    const auto seed = settings().seed;
    auto& memory = threadgroup_memory();
    for (const auto group : groups) {
        place_group(launch, group);
        memory.poison();
        scheduler().run_threadgroup(job.entry, launch, order, seed + group);
        if (scheduler().error()) return;
        if (const auto damage = memory.damage()) {
            scheduler().note(GridFailure::out_of_bounds, *damage);
            return;
        }
    }
}

GridError address_error(const GridJob& job, const void* address) {
    const auto* fault = static_cast<const std::byte*>(address);
    if (!fault) {
        return {GridFailure::page_fault, "read or wrote at an address that is null, misaligned for its type, or wild"};
    }
    for (const BoundBuffer& buffer : job.buffers) {
        const std::string name =
            "buffer(" + std::to_string(buffer.index) + ") of " + std::to_string(buffer.bytes) + " bytes";
        const std::byte* end = buffer.begin + buffer.bytes;
        if (fault >= end && fault < end + reach) {
            return {GridFailure::page_fault,
                    "read or wrote " + std::to_string(fault - end) + " bytes past the end of " + name};
        }
        if (fault < buffer.begin && fault + reach >= buffer.begin) {
            return {GridFailure::page_fault,
                    "read or wrote " + std::to_string(buffer.begin - fault) + " bytes before the start of " + name};
        }
    }
    if (threadgroup_memory().contains(address)) return {GridFailure::page_fault, "left threadgroup memory"};
    return {GridFailure::page_fault, "read or wrote at an address outside of every buffer"};
}

GridError fault_error(const GridJob& job, const Fault& fault) {
    if (fault.signal == timeout_signal()) return {GridFailure::timeout, "ran for longer than the time limit"};
    if (fault.signal == SIGFPE) return {GridFailure::arithmetic, "divided an integer by zero"};
    if (fault.signal == SIGILL) return {GridFailure::arithmetic, "reached code that must not be reached"};
    return address_error(job, fault.address);
}

}  // namespace

std::optional<GridError> run_grid(const GridJob& job) {
    static std::mutex one_at_a_time;
    const std::lock_guard lock(one_at_a_time);
    msl_launch launch = job.launch;
    threadgroup_memory().lay_out(job, launch);
    const unsigned* count = launch.threadgroups_per_grid;
    const auto groups = group_order(std::size_t{count[0]} * count[1] * count[2], settings().order, settings().seed);
    const Fault fault = guarded_run([&] { run_groups(job, launch, groups); }, settings().timeout);
    std::optional<GridError> error = scheduler().error();
    if (!error && fault.signal != 0) error = fault_error(job, fault);
    std::optional<GridError> overrun;
    guarded_run([&] { overrun = written_past_end(job); }, settings().timeout);  // a buffer may be gone by now
    if (!error) error = overrun;
    if (error) {
        scheduler().abandon();
        scheduler().clear_error();
        error->message = "kernel '" + job.kernel + "': " + error->message;
    }
    return error;
}

}  // namespace metal_sim

extern "C" {

void msl_threadgroup_barrier(int line) {
    metal_sim::scheduler().barrier(line);
}

void msl_simd_exchange(void* lane, msl_combine combine, int all_lanes, int line) {
    metal_sim::scheduler().simd_exchange(lane, combine, all_lanes != 0, line);
}

unsigned msl_simd_lane() {
    return metal_sim::scheduler().simd_lane();
}

void* msl_threadgroup_variable(unsigned id) {
    return metal_sim::threadgroup_memory().variable(id);
}

void msl_fail(int line, const char* what) {
    metal_sim::scheduler().fail(metal_sim::GridFailure::out_of_bounds, "line " + std::to_string(line) + ": " + what);
}
}
