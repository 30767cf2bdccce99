// See scheduler.h. The scheduler runs on the stack of its caller and switches to a fibre whenever one can go on.
// Only when none can, a barrier opens: so a barrier that some threads never reach is seen.
#include "grid/scheduler.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>
#include <numeric>

#include "grid/faults.h"

namespace metal_sim {

namespace {

constexpr std::size_t stack_bytes = 128 << 10;
constexpr std::size_t page = 4096;

std::byte* new_stack() {
    void* memory =
        mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    mprotect(memory, page, PROT_NONE);  // so that an overflow faults
    return static_cast<std::byte*>(memory);
}

// A linear congruential generator is random enough to mix an order.
unsigned next_random(std::uint64_t& state) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<unsigned>(state >> 33);
}

std::string line_text(int line) {
    return "line " + std::to_string(line);
}

}  // namespace

Scheduler& scheduler() {
    static auto* instance = new Scheduler;  // never destroyed: a queue may still run when the process ends
    return *instance;
}

void Scheduler::fibre_body() {
    Scheduler& self = scheduler();
    Fibre& fibre = *self.current_;
    for (;;) {
        while (self.started_ < self.sequence_.size() && !self.error_) self.start_next(fibre);
        self.idle_.push_back(&fibre);
        self.wait(fibre);
    }
}

void Scheduler::start_next(Fibre& fibre) {
    const unsigned index = sequence_[started_++];
    const unsigned* size = launch_->threads_per_threadgroup;
    fibre.thread = {launch_, {index % size[0], index / size[0] % size[1], index / size[0] / size[1]}, index};
    hold_timeout(false);
    entry_(&fibre.thread);
    hold_timeout(true);
    ++returned_;
    --simdgroups_[index / msl_simd_width].live;
}

Fibre& Scheduler::idle_fibre() {
    if (idle_.empty()) {
        fibres_.push_back(std::make_unique<Fibre>());
        Fibre& fibre = *fibres_.back();
        fibre.stack = new_stack();
        prepare_context(fibre.context, fibre.stack, stack_bytes, fibre_body);
        return fibre;
    }
    Fibre& fibre = *idle_.back();
    idle_.pop_back();
    return fibre;
}

void Scheduler::abandon() {
    idle_.clear();
    for (const auto& fibre : fibres_) {
        prepare_context(fibre->context, fibre->stack, stack_bytes, fibre_body);
        idle_.push_back(fibre.get());
    }
    ready_.clear();
    at_barrier_.clear();
}

void Scheduler::resume(Fibre& fibre) {
    current_ = &fibre;
    switch_context(main_, fibre.context);
}

void Scheduler::wait(Fibre& fibre) {
    switch_context(fibre.context, main_);
}

void Scheduler::note(GridFailure kind, const std::string& message) {
    if (!error_) error_ = GridError{kind, message};
}

void Scheduler::fail(GridFailure kind, const std::string& message) {
    hold_timeout(true);
    note(kind, message);
    for (;;) wait(*current_);  // never resumed
}

void Scheduler::choose_order(unsigned threads) {
    sequence_.resize(threads);
    std::iota(sequence_.begin(), sequence_.end(), 0u);
    if (order_ == Order::reversed) std::reverse(sequence_.begin(), sequence_.end());
    if (order_ == Order::shuffled) {
        for (unsigned i = threads; i > 1; --i) std::swap(sequence_[i - 1], sequence_[next_random(random_) % i]);
    }
}

Fibre& Scheduler::take_ready() {
    if (order_ == Order::shuffled) std::swap(ready_.back(), ready_[next_random(random_) % ready_.size()]);
    Fibre& fibre = *ready_.back();
    ready_.pop_back();
    return fibre;
}

void Scheduler::run_threadgroup(msl_entry entry, const msl_launch& launch, Order order, std::uint64_t seed) {
    entry_ = entry;
    launch_ = &launch;
    order_ = order;
    random_ = seed;
    const unsigned* size = launch.threads_per_threadgroup;
    const unsigned threads = size[0] * size[1] * size[2];
    choose_order(threads);
    simdgroups_.assign(launch.simdgroups_per_threadgroup, {});
    for (unsigned i = 0; i < simdgroups_.size(); ++i) {
        simdgroups_[i].live = std::min<unsigned>(msl_simd_width, threads - i * msl_simd_width);
    }
    started_ = returned_ = 0;
    while (!error_) {
        if (timed_out()) return note(GridFailure::timeout, "ran for longer than the time limit");
        if (!ready_.empty()) {
            resume(take_ready());
        } else if (started_ < threads) {
            resume(idle_fibre());
        } else if (returned_ == threads) {
            return;
        } else if (!perform_partial()) {
            release_barrier();
        }
    }
}

void Scheduler::barrier(int line) {
    hold_timeout(true);
    Fibre& fibre = *current_;
    fibre.line = line;
    at_barrier_.push_back(&fibre);
    wait(fibre);
    hold_timeout(false);
}

// Opens the barrier that all threads wait at. No thread is ready, and none is in a simdgroup operation.
void Scheduler::release_barrier() {
    const int line = at_barrier_.front()->line;
    if (returned_ > 0) {
        note(GridFailure::divergence, line_text(line) + ": threadgroup_barrier is never reached by " +
                                          std::to_string(returned_) + " thread(s) of the threadgroup that returned");
    }
    for (const Fibre* fibre : at_barrier_) {
        if (fibre->line != line) {
            note(GridFailure::divergence,
                 "threadgroup_barrier: threads of one threadgroup wait at different barriers, " + line_text(line) +
                     " and " + line_text(fibre->line));
        }
    }
    ready_.swap(at_barrier_);
    if (order_ == Order::forward) std::reverse(ready_.begin(), ready_.end());  // the last one goes on first
}

void Scheduler::simd_exchange(void* lane, msl_combine combine, bool all_lanes, int line) {
    hold_timeout(true);
    Fibre& fibre = *current_;
    Simdgroup& group = simdgroups_[fibre.thread.index / msl_simd_width];
    fibre.lane = lane;
    fibre.combine = combine;
    fibre.all_lanes = all_lanes;
    fibre.line = line;
    group.lanes[fibre.thread.index % msl_simd_width] = &fibre;
    ++group.waiting;
    if (group.waiting == group.live) {
        perform(group, true);
    } else {
        wait(fibre);
    }
    hold_timeout(false);
}

// Performs the operation in which the waiting lanes of `group` are; all must be in the same one.
void Scheduler::perform(Simdgroup& group, bool arrived_last) {
    void* lanes[msl_simd_width] = {};
    unsigned long active = 0;
    const Fibre* first = nullptr;
    const auto diverged = [&](const std::string& message) {
        if (arrived_last) fail(GridFailure::divergence, message);
        note(GridFailure::divergence, message);
    };
    for (int i = 0; i < msl_simd_width; ++i) {
        Fibre* fibre = group.lanes[i];
        if (!fibre) continue;
        if (!first) first = fibre;
        if (fibre->line != first->line || fibre->combine != first->combine) {
            return diverged("simdgroup operation: lanes of one simdgroup are in different ones, " +
                            line_text(first->line) + " and " + line_text(fibre->line));
        }
        lanes[i] = fibre->lane;
        active |= 1ul << i;
    }
    if (first->all_lanes && active != 0xffffffff) {
        return diverged(line_text(first->line) +
                        ": a simdgroup_matrix operation needs all 32 threads of the simdgroup");
    }
    first->combine(lanes, active);
    group.waiting = 0;
    for (Fibre*& fibre : group.lanes) {
        if (fibre && !(arrived_last && fibre == current_)) ready_.push_back(fibre);
        fibre = nullptr;
    }
}

// A simdgroup operation in a branch: the lanes that are in it go on without those that wait at a barrier.
bool Scheduler::perform_partial() {
    for (Simdgroup& group : simdgroups_) {
        if (group.waiting > 0) {
            perform(group, false);
            return true;
        }
    }
    return false;
}

}  // namespace metal_sim
