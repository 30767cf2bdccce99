// Loop IR to LLVM IR: the state while one kernel is emitted. Only the emit_*.cpp files include it.
// Loops whose iterations run together are axes; a value has one LLVM value for each copy along its axes.
#pragma once

#include <llvm/ADT/SmallVector.h>
#include <llvm/IR/Module.h>

#include <cstdint>
#include <vector>

#include "cpu/code_builder.h"
#include "cpu/jit.h"
#include "cpu/loop_plan.h"
#include "cpu/scalar_emitter.h"

namespace topstitch::cpu {

// An open loop that runs `copies` groups of `lanes` iterations together.
struct Axis {
    loopir::VarId var;
    int copies;
    int lanes;
    llvm::Value* active = nullptr;  // which lanes are iterations; null: all
};

// A set of open axes, by their position.
using AxisSet = std::uint32_t;

// A copy: its number along each open axis.
using CopyId = llvm::SmallVector<int, 4>;

// A value: one LLVM value for each copy along `axes`, the last axis varying fastest; vectors of the lanes if
// the axes contain one with lanes.
struct Copies {
    AxisSet axes = 0;
    llvm::SmallVector<llvm::Value*, 4> values;
};

struct AccState {
    Copies value;
    Copies position;  // argmin, argmax
    AxisSet own = 0;  // axes that were open at the initialisation: their copies are never joined
};

// A sum whose addends may belong to different depths, in elements.
struct Affine {
    llvm::SmallVector<llvm::Value*, 4> addends;
    std::int64_t constant = 0;
};

// An index in one copy. Lane l is at base + l * stride + varying[l].
struct LaneIndex {
    Affine base;
    std::int64_t alignment = 0;      // the base is a multiple of it; 0: the base is 0
    std::int64_t step = 0;           // so is the base without its constant of this; 0: it is a constant
    llvm::Value* stride = nullptr;   // null: 0
    llvm::Value* varying = nullptr;  // vector of i32 or i64, or null
    std::int64_t limit = 0;          // of the magnitude of `varying`; no_limit if unknown
    static constexpr std::int64_t no_limit = -1;
    bool uniform() const { return stride == nullptr && varying == nullptr; }
};

// Where a load or store goes in one copy.
struct Place {
    llvm::Value* pointer;           // of lane 0, without `varying`
    llvm::Value* stride = nullptr;  // in elements; null: all lanes at one place
    llvm::Value* varying = nullptr;
};

class Emitter {
public:
    Emitter(const loopir::Kernel& kernel, const LoopPlan& plan, const TargetInfo& target, llvm::Function& function);
    void run();

private:
    using IRBuilder = llvm::IRBuilder<>;

    // --- emitter.cpp: statements and values.
    void emit_block(const loopir::Block& block);
    void emit(const loopir::Let& let);
    Copies emit_op(const loopir::Instr& instr);
    const loopir::Instr& instr(loopir::ValueId id) const { return kernel_.instrs[static_cast<std::size_t>(id)]; }
    const Copies& copies(loopir::ValueId id) const { return values_[static_cast<std::size_t>(id)]; }
    // The value in copy `id`, as a vector if `lanes` > 1.
    llvm::Value* value_in(const Copies& value, const CopyId& id, int lanes);
    llvm::Value* dim(const Dim& dim);

    // --- Axes.
    int lanes_of(AxisSet axes) const;  // 1 if none of them has lanes
    std::size_t number_of(const CopyId& id, AxisSet axes) const;
    std::size_t count_of(AxisSet axes) const;
    template <typename F>
    void for_each_copy(AxisSet axes, F f) const;
    const Axis* axis_of(loopir::VarId var, int* position = nullptr) const;
    AxisSet axes_of(const loopir::Index& index) const;
    AxisSet private_axes(int buffer) const;
    llvm::Value* active_lanes(AxisSet axes) const;

    // --- emit_index.cpp
    LaneIndex lane_index(const loopir::Index& index, const CopyId& id);
    void add_term(LaneIndex& sum, const loopir::Index::Part& part, const CopyId& id);
    LaneIndex term_index(const loopir::IndexTerm& term, const CopyId& id);
    LaneIndex quotient_index(const loopir::IndexTerm& term, const CopyId& id);
    LaneIndex var_index(loopir::VarId var, const CopyId& id);
    void scale(LaneIndex& index, llvm::Value* factor);
    llvm::Value* sum_of(const Affine& affine);  // int64
    llvm::Value* lane_values(const LaneIndex& index, llvm::Type* type, int lanes);
    Copies index_value(const loopir::Index& index);
    Place place(int buffer, const loopir::Index& index, const CopyId& id);

    // --- emit_memory.cpp
    Copies emit_load(const loopir::Instr& instr);
    int crossed_axis(const loopir::Instr& load, AxisSet axes);
    Copies load_crossing(const loopir::Instr& load, AxisSet axes, int across);
    void emit(const loopir::Store& store);
    llvm::Value* load_lanes(int buffer, const Place& place, llvm::Value* guard, int lanes);
    llvm::Value* load_strided(int buffer, const Place& place, std::int64_t stride, int lanes);
    llvm::Value* load_near(int buffer, const Place& place, int lanes);
    llvm::Value* load_all_or_each(int buffer, const Place& place, llvm::Value* guard, int lanes);
    llvm::Value* load_each(int buffer, const Place& place, llvm::Value* guard, int lanes);
    llvm::Value* load_scalar(int buffer, llvm::Value* pointer, llvm::Value* guard);
    llvm::Value* load_or_zeros(llvm::Type* type, llvm::Value* pointer, llvm::Value* guard);
    llvm::Value* load_at(int buffer, llvm::Type* type, llvm::Value* pointer);
    void store_lanes(int buffer, const Place& place, llvm::Value* value, llvm::Value* guard, int lanes);
    void store_each(int buffer, const Place& place, llvm::Value* value, llvm::Value* guard, int lanes);
    void store_scalar(int buffer, llvm::Value* pointer, llvm::Value* value, llvm::Value* guard);
    void store_copies(const loopir::Store& store, AxisSet axes, bool streaming);
    void store_streaming(llvm::Value* pointer, llvm::Value* value);
    llvm::Value* streaming_allowed(const loopir::Store& store, AxisSet axes);
    llvm::Value* lane_pointer(int buffer, const Place& place, int lane);
    bool masks_natively(int buffer) const;
    DType memory_dtype(int buffer) const { return kernel_.buffers[static_cast<std::size_t>(buffer)].dtype; }
    llvm::Type* memory_type(int buffer) { return scalar_.memory_type(memory_dtype(buffer)); }
    llvm::Value* zeros();  // somewhere harmless to read from
    // Runs `then` only where `condition` holds.
    template <typename Then>
    void when(llvm::Value* condition, Then then);
    // Runs `then` where it holds, and `otherwise` elsewhere.
    template <typename Then, typename Otherwise>
    void either(llvm::Value* condition, Then then, Otherwise otherwise);

    // --- emit_tiles.cpp
    void emit(const loopir::MultiplyTiles& product);
    void configure_tiles();
    llvm::Value* uniform(const loopir::Index& index);

    // --- emit_loops.cpp
    struct Phase;
    void emit(const loopir::Loop& loop);
    llvm::Value* clamp(const loopir::Index& limit, llvm::Value* extent);
    bool can_mask(const LoopShape& shape) const;
    void emit_loop(const loopir::Loop& loop, const LoopShape& shape, const Phase& phase);
    void emit_phase(const loopir::Loop& loop, const LoopShape& shape, const Phase& phase);
    void emit_body(const loopir::Loop& loop, const Phase& phase, llvm::Value* position);

    // --- emit_reductions.cpp
    void emit(const loopir::InitAcc& init);
    void emit(const loopir::Accumulate& accumulate);
    Copies acc_read(const loopir::Instr& instr);
    AccState split(int accumulator, const AccState& state, int axis);
    AccState join(int accumulator, const AccState& state, int axis);
    AccState combine(int accumulator, const AccState& a, const AccState& b);
    struct AccValue {
        llvm::Value* value;
        llvm::Value* position;
    };
    AccValue combine(int accumulator, AccValue a, AccValue b);
    AccValue join_lanes(int accumulator, AccValue value);
    void accumulate_running(const loopir::Accumulate& accumulate, int axis);
    AccValue scan_lanes(int accumulator, AccValue value, int lanes);
    void keep_last(int accumulator, int axis);
    bool is_running(int accumulator, int axis) const {
        return running_axis_[static_cast<std::size_t>(accumulator)] == axis;
    }
    AccValue acc_in(const AccState& state, const CopyId& id, int lanes);

    const loopir::Kernel& kernel_;
    const LoopPlan& plan_;
    const TargetInfo& target_;
    llvm::Function& function_;
    CodeBuilder code_;
    IRBuilder& ir_;
    ScalarEmitter scalar_;

    std::vector<Dim> size_params_;
    std::vector<llvm::Value*> sizes_;    // by size parameter
    std::vector<llvm::Value*> buffers_;  // by buffer
    std::vector<Copies> values_;         // by value
    std::vector<AccState> accumulators_;
    std::vector<int> running_axis_;  // by accumulator: along which open axis it is a running value, or -1
    struct Var {
        llvm::Value* position = nullptr;  // of the first iteration of the group
        std::int64_t offset = 0;          // to be added to it
        std::int64_t alignment = 1;       // which is a multiple of this
    };
    std::vector<Var> vars_;
    std::vector<Axis> axes_;  // open, outermost first
    llvm::Value* zeros_ = nullptr;
    bool streamed_ = false;
};

template <typename F>
void Emitter::for_each_copy(AxisSet axes, F f) const {
    CopyId id(axes_.size(), 0);
    while (true) {
        f(id);
        int axis = static_cast<int>(axes_.size()) - 1;
        for (; axis >= 0; --axis) {
            if ((axes >> axis & 1u) == 0) continue;
            if (++id[static_cast<std::size_t>(axis)] < axes_[static_cast<std::size_t>(axis)].copies) break;
            id[static_cast<std::size_t>(axis)] = 0;
        }
        if (axis < 0) return;
    }
}

template <typename Then>
void Emitter::when(llvm::Value* condition, Then then) {
    llvm::BasicBlock* inside = code_.new_block("then");
    llvm::BasicBlock* after = code_.new_block("after");
    ir_.CreateCondBr(condition, inside, after);
    ir_.SetInsertPoint(inside);
    code_.push_scope();
    then();
    code_.pop_scope();
    ir_.CreateBr(after);
    ir_.SetInsertPoint(after);
}

template <typename Then, typename Otherwise>
void Emitter::either(llvm::Value* condition, Then then, Otherwise otherwise) {
    llvm::BasicBlock* first = code_.new_block("then");
    llvm::BasicBlock* second = code_.new_block("else");
    llvm::BasicBlock* after = code_.new_block("after");
    ir_.CreateCondBr(condition, first, second);
    const auto branch = [&](llvm::BasicBlock* block, const auto& emit_branch) {
        ir_.SetInsertPoint(block);
        code_.push_scope();
        emit_branch();
        code_.pop_scope();
        ir_.CreateBr(after);
    };
    branch(first, then);
    branch(second, otherwise);
    ir_.SetInsertPoint(after);
}

}  // namespace topstitch::cpu
