// How the loops of one kernel will run: lanes, copies, split accumulators, and where local buffers live.
// Computed before any code is emitted; knows nothing of LLVM.
#pragma once

#include <span>
#include <unordered_map>
#include <vector>

#include "cpu/jit.h"
#include "loopir/kernel.h"

namespace topstitch::cpu {

// One loop. `lanes` consecutive iterations form a vector; `copies` of those run together.
struct LoopShape {
    int lanes = 1;
    int copies = 1;
    // Iterations that follow each other without a test between them, where lanes and copies are 1.
    int repeats = 1;
    // Accumulators that are initialised outside and accumulated inside.
    std::vector<int> carried;
    // Of those, what every iteration reads after it has accumulated: each lane and copy has the value up to there.
    std::vector<int> running;
    // Every access along the vector is contiguous or to one place, so that a short vector may be masked.
    bool maskable = false;
    // Iterations may run twice: none reads what another one wrote.
    bool repeatable = false;
    bool narrow_memory = false;  // some buffer has elements of 8 or 16 bits

    int step() const { return lanes * copies; }
};

// A local buffer's place in the scratch memory of a thread.
struct LocalPlace {
    int buffer = -1;
    int factor = 1;                         // copies of each element: one for each lane and copy of the loops below
    std::vector<loopir::VarId> private_to;  // the loops whose concurrent iterations have an element each
};

class LoopPlan {
public:
    LoopPlan(const loopir::Kernel& kernel, const TargetInfo& target);

    const LoopShape& shape(const loopir::Loop& loop) const { return shapes_.at(&loop); }
    const std::vector<LocalPlace>& locals() const { return locals_; }
    const LocalPlace* local(int buffer) const;
    // The product's rounding is skipped: its only use is to be added to a sum.
    bool fused_into_sum(loopir::ValueId value) const { return fused_[static_cast<std::size_t>(value)]; }
    bool streams() const { return streams_; }
    bool multiplies_tiles() const { return multiplies_tiles_; }
    std::int64_t granularity() const { return granularity_; }

private:
    friend class LoopAnalysis;
    std::unordered_map<const loopir::Loop*, LoopShape> shapes_;
    std::vector<LocalPlace> locals_;
    std::vector<bool> fused_;
    bool streams_ = false;
    bool multiplies_tiles_ = false;
    std::int64_t granularity_ = 1;
};

// Bytes between the starts of locals are rounded up to this; it also pads the last vector of each.
inline constexpr std::int64_t scratch_alignment = 64;

// Bytes that a local of `elements` needs.
constexpr std::int64_t local_bytes(std::int64_t elements, int factor, std::int64_t element_bytes) {
    const std::int64_t bytes = elements * factor * element_bytes;
    return (bytes + 2 * scratch_alignment - 1) / scratch_alignment * scratch_alignment;
}

}  // namespace topstitch::cpu
