// Accumulators: split along an axis when its loop begins, joined in a fixed order when it ends.
// argmin and argmax carry a position, and of equals the smaller position wins.
#include <algorithm>
#include <limits>

#include "cpu/emitter.h"
#include "topstitch/error.h"

namespace topstitch::cpu {

using llvm::Value;
using loopir::Combiner;
using loopir::no_value;

namespace {

// The position while nothing has been accumulated: every other one is smaller.
constexpr std::int64_t nowhere = std::numeric_limits<std::int64_t>::max();

bool keeps_position(Combiner combiner) {
    return combiner == Combiner::argmin || combiner == Combiner::argmax;
}

}  // namespace

void Emitter::emit(const loopir::InitAcc& init) {
    const loopir::Accumulator& acc = kernel_.accumulators[static_cast<std::size_t>(init.accumulator)];
    const AxisSet all = static_cast<AxisSet>((std::uint64_t{1} << axes_.size()) - 1);
    const int lanes = lanes_of(all);
    Value* first = scalar_.identity(acc.combiner, acc.type);
    if (lanes > 1) first = code_.splat(first, lanes);
    AccState state;
    state.own = all;
    state.value = {all, llvm::SmallVector<Value*, 4>(count_of(all), first)};
    if (keeps_position(acc.combiner)) {
        Value* position = code_.number(nowhere);
        if (lanes > 1) position = code_.splat(position, lanes);
        state.position = {all, llvm::SmallVector<Value*, 4>(count_of(all), position)};
    }
    accumulators_[static_cast<std::size_t>(init.accumulator)] = std::move(state);
}

Emitter::AccValue Emitter::acc_in(const AccState& state, const CopyId& id, int lanes) {
    return {value_in(state.value, id, lanes),
            state.position.values.empty() ? nullptr : value_in(state.position, id, lanes)};
}

void Emitter::emit(const loopir::Accumulate& accumulate) {
    if (const int axis = running_axis_[static_cast<std::size_t>(accumulate.accumulator)]; axis >= 0)
        return accumulate_running(accumulate, axis);
    const loopir::Accumulator& acc = kernel_.accumulators[static_cast<std::size_t>(accumulate.accumulator)];
    AccState& state = accumulators_[static_cast<std::size_t>(accumulate.accumulator)];
    const bool fused = plan_.fused_into_sum(accumulate.value);
    const AxisSet axes = state.value.axes;
    const int lanes = lanes_of(axes);
    // Lanes past the end spoil nothing in copies that are never joined.
    Value* active = active_lanes(axes & ~state.own);
    AccState next{{axes, {}}, {state.position.axes, {}}, state.own};
    for_each_copy(axes, [&](const CopyId& id) {
        const AccValue old = acc_in(state, id, lanes);
        AccValue sum{nullptr, nullptr};
        if (fused) {
            const loopir::Instr& product = instr(accumulate.value);
            Value* a = value_in(copies(product.args[0]), id, lanes);
            Value* b = value_in(copies(product.args[1]), id, lanes);
            sum.value = product.op == loopir::ScalarOp::dot_pairs ? scalar_.add_pairs(old.value, a, b, product.memory)
                                                                  : scalar_.fma(a, b, old.value);
        } else {
            AccValue added{value_in(copies(accumulate.value), id, lanes), nullptr};
            if (old.position != nullptr) added.position = value_in(copies(accumulate.position), id, lanes);
            sum = combine(accumulate.accumulator, old, added);
        }
        Value* condition = active;
        if (accumulate.guard != no_value) {
            condition = value_in(copies(accumulate.guard), id, lanes);
            if (active != nullptr) condition = ir_.CreateAnd(condition, active);
        }
        const auto guarded = [&](Value* fresh, Value* kept) {
            return condition == nullptr ? fresh : ir_.CreateSelect(condition, fresh, kept);
        };
        next.value.values.push_back(guarded(sum.value, old.value));
        if (keeps_position(acc.combiner)) next.position.values.push_back(guarded(sum.position, old.position));
    });
    state = std::move(next);
}

// What each lane of each copy along the axis holds: all before the vector, and the lanes up to its own.
void Emitter::accumulate_running(const loopir::Accumulate& accumulate, int axis) {
    const int accumulator = accumulate.accumulator;
    AccState& state = accumulators_[static_cast<std::size_t>(accumulator)];
    const AxisSet outer = state.value.axes;
    const AxisSet axes = outer | AxisSet{1} << axis;
    const int lanes = lanes_of(axes);
    const bool along = axes_[static_cast<std::size_t>(axis)].lanes > 1;
    const bool positions = !state.position.values.empty();
    const loopir::Accumulator& acc = kernel_.accumulators[static_cast<std::size_t>(accumulator)];
    AccState next{{axes, {}}, {positions ? axes : 0, {}}, state.own};
    AccValue before{nullptr, nullptr};
    for_each_copy(axes, [&](const CopyId& id) {
        const int copy = id[static_cast<std::size_t>(axis)];
        if (copy == 0) before = acc_in(state, id, lanes);
        AccValue added{value_in(copies(accumulate.value), id, lanes), nullptr};
        if (positions) added.position = value_in(copies(accumulate.position), id, lanes);
        if (Value* active = active_lanes(AxisSet{1} << axis); active != nullptr) {
            added.value =
                ir_.CreateSelect(active, added.value, code_.splat(scalar_.identity(acc.combiner, acc.type), lanes));
            if (positions)
                added.position = ir_.CreateSelect(active, added.position, code_.splat(code_.number(nowhere), lanes));
        }
        if (along) added = scan_lanes(accumulator, added, lanes);
        const AccValue sum = combine(accumulator, before, added);
        next.value.values.push_back(sum.value);
        if (positions) next.position.values.push_back(sum.position);
        before = sum;
        if (!along) return;
        const llvm::SmallVector<int, 16> last(static_cast<std::size_t>(lanes), lanes - 1);
        before.value = ir_.CreateShuffleVector(sum.value, last);
        if (positions) before.position = ir_.CreateShuffleVector(sum.position, last);
    });
    state = std::move(next);
}

// Each lane with all before it, in log2(lanes) steps (W. D. Hillis and G. L. Steele, Data parallel algorithms, 1986).
Emitter::AccValue Emitter::scan_lanes(int accumulator, AccValue value, int lanes) {
    const loopir::Accumulator& acc = kernel_.accumulators[static_cast<std::size_t>(accumulator)];
    Value* neutral = code_.splat(scalar_.identity(acc.combiner, acc.type), lanes);
    Value* none = value.position != nullptr ? code_.splat(code_.number(nowhere), lanes) : nullptr;
    for (int distance = 1; distance < lanes; distance *= 2) {
        llvm::SmallVector<int, 16> pick;
        for (int lane = 0; lane < lanes; ++lane) pick.push_back(lane < distance ? lane : lanes + lane - distance);
        AccValue shifted{ir_.CreateShuffleVector(neutral, value.value, pick), nullptr};
        if (none != nullptr) shifted.position = ir_.CreateShuffleVector(none, value.position, pick);
        value = combine(accumulator, shifted, value);
    }
    return value;
}

// After an iteration: the last lane of the last copy is what the next one goes on from.
void Emitter::keep_last(int accumulator, int axis) {
    AccState& state = accumulators_[static_cast<std::size_t>(accumulator)];
    const AxisSet outer = state.value.axes & ~(AxisSet{1} << axis);
    const Axis& along = axes_[static_cast<std::size_t>(axis)];
    AccState last{{outer, {}}, {state.position.values.empty() ? 0 : outer, {}}, state.own};
    for_each_copy(outer, [&](const CopyId& outer_id) {
        CopyId id = outer_id;
        id[static_cast<std::size_t>(axis)] = along.copies - 1;
        const auto of_last_lane = [&](Value* value) {
            return along.lanes > 1 ? ir_.CreateExtractElement(value, static_cast<std::uint64_t>(along.lanes - 1))
                                   : value;
        };
        last.value.values.push_back(of_last_lane(state.value.values[number_of(id, state.value.axes)]));
        if (state.position.values.empty()) return;
        last.position.values.push_back(of_last_lane(state.position.values[number_of(id, state.position.axes)]));
    });
    state = std::move(last);
}

Copies Emitter::acc_read(const loopir::Instr& i) {
    const AccState& state = accumulators_[static_cast<std::size_t>(i.slot)];
    if (i.integer == 0) return state.value;
    Copies result{state.position.axes, {}};  // of nothing, the position is 0
    for (Value* position : state.position.values) {
        Value* empty = ir_.CreateICmpEQ(position, llvm::ConstantInt::get(position->getType(), nowhere));
        result.values.push_back(ir_.CreateSelect(empty, llvm::Constant::getNullValue(position->getType()), position));
    }
    return result;
}

// argmin, argmax: the better value; of equals the smaller position, in whatever order they come.
Emitter::AccValue Emitter::combine(int accumulator, AccValue a, AccValue b) {
    const loopir::Accumulator& acc = kernel_.accumulators[static_cast<std::size_t>(accumulator)];
    if (!keeps_position(acc.combiner)) return {scalar_.combine(acc.combiner, acc.type, a.value, b.value), nullptr};
    Value* better = scalar_.replaces(acc.combiner, acc.type, b.value, a.value);
    Value* worse = scalar_.replaces(acc.combiner, acc.type, a.value, b.value);
    Value* earlier = ir_.CreateAnd(ir_.CreateNot(worse), ir_.CreateICmpSLT(b.position, a.position));
    better = ir_.CreateOr(better, earlier);
    return {ir_.CreateSelect(better, b.value, a.value), ir_.CreateSelect(better, b.position, a.position)};
}

// Fresh accumulators, one for each copy and lane of the new axis.
AccState Emitter::split(int accumulator, const AccState& state, int axis) {
    const loopir::Accumulator& acc = kernel_.accumulators[static_cast<std::size_t>(accumulator)];
    const AxisSet axes = state.value.axes | AxisSet{1} << axis;
    const int lanes = lanes_of(axes);
    const auto fresh = [&](Value* value) {
        if (lanes > 1) value = code_.splat(value, lanes);
        return Copies{axes, llvm::SmallVector<Value*, 4>(count_of(axes), value)};
    };
    AccState result;
    result.own = state.own;
    result.value = fresh(scalar_.identity(acc.combiner, acc.type));
    if (keeps_position(acc.combiner)) { result.position = fresh(code_.number(nowhere)); }
    return result;
}

// Copies are combined pairwise, then lanes.
AccState Emitter::join(int accumulator, const AccState& state, int axis) {
    const AxisSet outer = state.value.axes & ~(AxisSet{1} << axis);
    const int lanes = lanes_of(state.value.axes);
    AccState result{{outer, {}}, {}, state.own};
    if (!state.position.values.empty()) result.position.axes = outer;
    for_each_copy(outer, [&](const CopyId& outer_id) {
        std::vector<AccValue> parts;
        CopyId id = outer_id;
        for (int copy = 0; copy < axes_[static_cast<std::size_t>(axis)].copies; ++copy) {
            id[static_cast<std::size_t>(axis)] = copy;
            parts.push_back(acc_in(state, id, lanes));
        }
        while (parts.size() > 1) {
            const std::size_t half = (parts.size() + 1) / 2;
            for (std::size_t i = 0; i + half < parts.size(); ++i) {
                parts[i] = combine(accumulator, parts[i], parts[i + half]);
            }
            parts.resize(half);
        }
        AccValue joined = parts.front();
        if (axes_[static_cast<std::size_t>(axis)].lanes > 1) joined = join_lanes(accumulator, joined);
        result.value.values.push_back(joined.value);
        if (joined.position != nullptr) result.position.values.push_back(joined.position);
    });
    return result;
}

// The upper half of the lanes onto the lower, until one is left.
Emitter::AccValue Emitter::join_lanes(int accumulator, AccValue value) {
    auto lanes = static_cast<int>(llvm::cast<llvm::FixedVectorType>(value.value->getType())->getNumElements());
    const auto part = [&](Value* vector, int first, int count) -> Value* {
        if (vector == nullptr) return nullptr;
        if (count == 1) return ir_.CreateExtractElement(vector, static_cast<std::uint64_t>(first));
        llvm::SmallVector<int, 16> pick;
        for (int lane = 0; lane < count; ++lane) pick.push_back(first + lane);
        return ir_.CreateShuffleVector(vector, pick);
    };
    for (; lanes > 1; lanes /= 2) {
        const int half = lanes / 2;
        const AccValue low{part(value.value, 0, half), part(value.position, 0, half)};
        const AccValue high{part(value.value, half, half), part(value.position, half, half)};
        value = combine(accumulator, low, high);
    }
    return value;
}

AccState Emitter::combine(int accumulator, const AccState& a, const AccState& b) {
    AccState result{{a.value.axes, {}}, {a.position.axes, {}}, a.own};
    for (std::size_t i = 0; i < a.value.values.size(); ++i) {
        const bool positions = !a.position.values.empty();
        const AccValue combined = combine(accumulator, {a.value.values[i], positions ? a.position.values[i] : nullptr},
                                          {b.value.values[i], positions ? b.position.values[i] : nullptr});
        result.value.values.push_back(combined.value);
        if (positions) result.position.values.push_back(combined.position);
    }
    return result;
}

}  // namespace topstitch::cpu
