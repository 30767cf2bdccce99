// Loops: phases of vectors and copies first, then what is left over.
// Every phase emits the body anew with its own axes; accumulators are carried through phi nodes.
#include <llvm/IR/Intrinsics.h>

#include <algorithm>
#include <optional>

#include "cpu/emitter.h"
#include "topstitch/error.h"

namespace topstitch::cpu {

using llvm::Value;

// A run of iterations [begin, end) in steps of lanes * copies * repeats.
struct Emitter::Phase {
    int lanes = 1;
    int copies = 1;
    int repeats = 1;
    bool masked = false;  // the last step may be short
    Value* begin = nullptr;
    Value* end = nullptr;  // begin plus a multiple of the step, unless masked

    int together() const { return lanes * copies; }
    int step() const { return together() * repeats; }
};

namespace {

std::optional<std::int64_t> number_of_steps(Value* begin, Value* end, int step) {
    const auto* first = llvm::dyn_cast<llvm::ConstantInt>(begin);
    const auto* last = llvm::dyn_cast<llvm::ConstantInt>(end);
    if (first == nullptr || last == nullptr) return std::nullopt;
    const std::int64_t count = last->getSExtValue() - first->getSExtValue();
    return count <= 0 ? 0 : (count + step - 1) / step;
}

}  // namespace

void Emitter::emit(const loopir::Loop& loop) {
    const LoopShape& shape = plan_.shape(loop);
    Value* end = loop.parallel ? function_.getArg(4) : dim(loop.extent);
    if (loop.limit) end = clamp(*loop.limit, end);
    Value* position = loop.parallel ? static_cast<Value*>(function_.getArg(3)) : code_.number(0);

    const auto run = [&](int lanes, int copies, bool whole, int repeats = 1) {
        Phase phase{lanes, copies, repeats, false, position, end};
        if (whole && phase.step() > 1) {
            // The iterations that fill whole steps.
            Value* count = code_.sub(end, position);
            phase.end = code_.add(position, code_.sub(count, code_.remainder(count, code_.number(phase.step()))));
        }
        emit_phase(loop, shape, phase);
        position = phase.end;
    };
    if (shape.step() > 1) run(shape.lanes, shape.copies, true);
    if (position == end) return;
    // The last group begins early, and does again what the one before it did.
    const bool begins_early = shape.repeatable && !loop.parallel && !loop.limit && loop.extent.is_known();
    const auto finish_early = [&](int lanes, int copies) {
        if (loop.extent.value() % (lanes * copies) == 0) return;
        position = code_.number(loop.extent.value() - lanes * copies);
        run(lanes, copies, false);
    };
    if (shape.lanes == 1) {
        if (begins_early && shape.copies > 1) return finish_early(1, shape.copies);
        if (shape.repeats > 1) run(1, 1, true, shape.repeats);
        run(1, 1, false);
    } else if (begins_early) {
        if (shape.copies > 1) run(shape.lanes, 1, true);
        finish_early(shape.lanes, 1);
    } else if (can_mask(shape)) {
        Phase rest{shape.lanes, 1, 1, true, position, end};
        const auto steps = number_of_steps(position, end, 1);
        if (steps && *steps % shape.lanes == 0) rest.masked = false;
        emit_phase(loop, shape, rest);
    } else {
        if (shape.copies > 1) run(shape.lanes, 1, true);
        run(1, 1, false);
    }
}

// The number of iterations below a limit: at most `extent`, and not negative.
Value* Emitter::clamp(const loopir::Index& limit, Value* extent) {
    Value* below = sum_of(lane_index(limit, CopyId(axes_.size(), 0)).base);
    below = ir_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, below, extent);
    return ir_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, below, code_.number(0));
}

bool Emitter::can_mask(const LoopShape& shape) const {
    const TargetFeatures& features = scalar_.features();
    return shape.maskable && features.masked_words && (!shape.narrow_memory || features.masked_bytes);
}

void Emitter::emit_phase(const loopir::Loop& loop, const LoopShape& shape, const Phase& phase) {
    const std::optional<std::int64_t> steps = number_of_steps(phase.begin, phase.end, phase.step());
    if (steps == 0) return;

    // Where the accumulators stand before, for the case that there is no iteration.
    std::vector<AccState> before;
    for (const int accumulator : shape.carried) before.push_back(accumulators_[static_cast<std::size_t>(accumulator)]);
    llvm::BasicBlock* skip_from = nullptr;
    llvm::BasicBlock* merge = nullptr;
    if (!steps) {
        skip_from = ir_.GetInsertBlock();
        llvm::BasicBlock* preheader = code_.new_block("preheader");
        merge = code_.new_block("merge");
        ir_.CreateCondBr(ir_.CreateICmpSLT(phase.begin, phase.end), preheader, merge);
        ir_.SetInsertPoint(preheader);
        code_.push_scope();
    }

    const bool together = phase.together() > 1;
    const int axis = static_cast<int>(axes_.size());
    if (together) {
        axes_.push_back({loop.var, phase.copies, phase.lanes});
        for (const int accumulator : shape.running) running_axis_[static_cast<std::size_t>(accumulator)] = axis;
        for (const int accumulator : shape.carried) {
            if (is_running(accumulator, axis)) continue;
            AccState& state = accumulators_[static_cast<std::size_t>(accumulator)];
            state = split(accumulator, state, axis);
        }
    }
    if (steps == 1) {
        emit_body(loop, phase, phase.begin);
    } else {
        emit_loop(loop, shape, phase);
    }
    if (together) {
        for (std::size_t i = 0; i < shape.carried.size(); ++i) {
            if (is_running(shape.carried[i], axis)) continue;
            AccState& state = accumulators_[static_cast<std::size_t>(shape.carried[i])];
            state = combine(shape.carried[i], before[i], join(shape.carried[i], state, axis));
        }
        for (const int accumulator : shape.running) running_axis_[static_cast<std::size_t>(accumulator)] = -1;
        axes_.pop_back();
    }

    if (merge == nullptr) return;
    llvm::BasicBlock* from = ir_.GetInsertBlock();
    code_.pop_scope();
    ir_.CreateBr(merge);
    ir_.SetInsertPoint(merge);
    for (std::size_t i = 0; i < shape.carried.size(); ++i) {
        AccState& after = accumulators_[static_cast<std::size_t>(shape.carried[i])];
        const auto merged = [&](const Copies& skipped, const Copies& run) {
            Copies result{run.axes, {}};
            for (std::size_t k = 0; k < run.values.size(); ++k) {
                llvm::PHINode* phi = ir_.CreatePHI(run.values[k]->getType(), 2);
                phi->addIncoming(skipped.values[k], skip_from);
                phi->addIncoming(run.values[k], from);
                result.values.push_back(phi);
            }
            return result;
        };
        after = {merged(before[i].value, after.value), merged(before[i].position, after.position), after.own};
    }
}

void Emitter::emit_loop(const loopir::Loop& loop, const LoopShape& shape, const Phase& phase) {
    // The counter ends exactly at `last`, which is the cheapest test.
    Value* last = phase.end;
    if (phase.masked) {
        Value* count = code_.add(code_.sub(phase.end, phase.begin), code_.number(phase.step() - 1));
        last = code_.add(phase.begin, code_.sub(count, code_.remainder(count, code_.number(phase.step()))));
    }
    llvm::BasicBlock* preheader = ir_.GetInsertBlock();
    code_.open_level(preheader);
    llvm::BasicBlock* body = code_.new_block("loop");
    ir_.CreateBr(body);
    ir_.SetInsertPoint(body);
    llvm::PHINode* position = ir_.CreatePHI(code_.i64(), 2, kernel_.vars[static_cast<std::size_t>(loop.var)].name);
    position->addIncoming(phase.begin, preheader);
    code_.set_counter(position, phase.begin, phase.step());

    // One phi node for each number of a carried accumulator.
    std::vector<llvm::PHINode*> phis;
    const auto carry = [&](Copies& state) {
        for (Value*& value : state.values) {
            llvm::PHINode* phi = ir_.CreatePHI(value->getType(), 2);
            phi->addIncoming(value, preheader);
            value = phi;
            phis.push_back(phi);
        }
    };
    for (const int accumulator : shape.carried) {
        carry(accumulators_[static_cast<std::size_t>(accumulator)].value);
        carry(accumulators_[static_cast<std::size_t>(accumulator)].position);
    }

    emit_body(loop, phase, position);

    llvm::BasicBlock* latch = ir_.GetInsertBlock();
    Value* next = ir_.CreateAdd(position, code_.number(phase.step()));
    position->addIncoming(next, latch);
    code_.step_derived();
    std::size_t number = 0;
    for (const int accumulator : shape.carried) {
        const AccState& state = accumulators_[static_cast<std::size_t>(accumulator)];
        for (Value* value : state.value.values) phis[number++]->addIncoming(value, latch);
        for (Value* value : state.position.values) phis[number++]->addIncoming(value, latch);
    }
    Value* more = ir_.CreateICmpNE(next, last);
    code_.close_level();
    llvm::BasicBlock* after = code_.new_block("after");
    ir_.SetInsertPoint(latch);
    ir_.CreateCondBr(more, body, after);
    ir_.SetInsertPoint(after);
}

void Emitter::emit_body(const loopir::Loop& loop, const Phase& phase, Value* position) {
    Var& var = vars_[static_cast<std::size_t>(loop.var)];
    if (phase.masked) axes_.back().active = code_.below(position, phase.end, phase.lanes);
    // Loops start at 0, and chunks of a parallel loop at a multiple of its step; the leftovers of a vector loop
    // start where whole vectors end.
    for (int repeat = 0; repeat < phase.repeats; ++repeat) {
        var = {position, static_cast<std::int64_t>(repeat) * phase.together(), phase.step()};
        emit_block(loop.body.front());
    }
    var = {};
    if (phase.together() == 1) return;
    const int axis = static_cast<int>(axes_.size()) - 1;
    for (const int accumulator : plan_.shape(loop).running) keep_last(accumulator, axis);
}

}  // namespace topstitch::cpu
