// Runs the threads of one threadgroup after another, on fibres: a thread that never waits costs no more than a call.
// Threads wait at threadgroup barriers and in simdgroup operations; what cannot go on is an error.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "grid/context.h"
#include "grid/grid.h"
#include "metal_sim/control.h"

namespace metal_sim {

// A stack, and the thread of the kernel that runs on it.
struct Fibre {
    Context context;
    std::byte* stack = nullptr;
    msl_thread thread{};
    int line = 0;          // where it waits
    void* lane = nullptr;  // in a simdgroup operation: its operand
    msl_combine combine = nullptr;
    bool all_lanes = false;
};

struct Simdgroup {
    unsigned live = 0;     // threads that have not returned
    unsigned waiting = 0;  // of those, in a simdgroup operation
    Fibre* lanes[msl_simd_width] = {};
};

class Scheduler {
public:
    // Runs all threads of the group that `launch` describes; stops at the first error.
    void run_threadgroup(msl_entry entry, const msl_launch& launch, Order order, std::uint64_t seed);

    // Notes an error; the first one counts.
    void note(GridFailure kind, const std::string& message);
    // The first error of the grid; its next threadgroup does not start.
    const std::optional<GridError>& error() const { return error_; }
    void clear_error() { error_.reset(); }
    // After a fault or an error: what is on the stacks is given up.
    void abandon();

    // Called by the thread that runs.
    void barrier(int line);
    void simd_exchange(void* lane, msl_combine combine, bool all_lanes, int line);
    [[noreturn]] void fail(GridFailure kind, const std::string& message);
    unsigned simd_lane() const { return current_->thread.index % msl_simd_width; }

private:
    static void fibre_body();
    void start_next(Fibre& fibre);
    Fibre& idle_fibre();
    void resume(Fibre& fibre);
    void wait(Fibre& fibre);
    void choose_order(unsigned threads);
    Fibre& take_ready();
    void perform(Simdgroup& group, bool arrived_last);
    bool perform_partial();
    void release_barrier();

    std::vector<std::unique_ptr<Fibre>> fibres_;
    std::vector<Fibre*> idle_, ready_, at_barrier_;
    std::vector<Simdgroup> simdgroups_;
    std::vector<unsigned> sequence_;  // the threads in the order in which they start
    Context main_;
    Fibre* current_ = nullptr;
    const msl_launch* launch_ = nullptr;
    msl_entry entry_ = nullptr;
    Order order_ = Order::forward;
    std::uint64_t random_ = 0;
    std::size_t started_ = 0, returned_ = 0;
    std::optional<GridError> error_;
};

// The one that runs grids; to be used by one thread at a time.
Scheduler& scheduler();

}  // namespace metal_sim
