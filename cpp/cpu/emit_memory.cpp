// Loads and stores: contiguous, broadcast, reversed, strided and gathered, each with and without a guard.
// Reads under a guard go to a block of zeros where the guard is false, so that they need no branch.
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/MDBuilder.h>

#include <algorithm>
#include <numeric>

#include "cpu/emitter.h"

namespace topstitch::cpu {

using llvm::Value;
using loopir::no_value;

namespace {

std::optional<std::int64_t> constant_stride(Value* stride) {
    if (stride == nullptr) return 0;
    const auto* constant = llvm::dyn_cast<llvm::ConstantInt>(stride);
    if (constant == nullptr) return std::nullopt;
    return constant->getSExtValue();
}

constexpr unsigned zeros_bytes = 64;
constexpr unsigned streaming_bytes = 16;  // of one streaming store, and its alignment

llvm::Align element_align(llvm::Type* type) {
    return llvm::Align(std::max(1u, type->getScalarSizeInBits() / 8));
}

}  // namespace

// --- Loads.

Copies Emitter::emit_load(const loopir::Instr& i) {
    Copies result;
    const AxisSet own = private_axes(i.slot);
    result.axes = axes_of(i.index) | own;
    const loopir::ValueId guard = i.args[0];
    if (guard != no_value) result.axes |= copies(guard).axes;
    // Lanes past the end are part of the guard, unless they fall into the padding of a local.
    const bool padded = plan_.local(i.slot) != nullptr && own == 0;
    Value* active = padded ? nullptr : active_lanes(axes_of(i.index));
    const int lanes = lanes_of(result.axes);
    if (guard == no_value && active == nullptr) {
        if (const int across = crossed_axis(i, result.axes); across >= 0) return load_crossing(i, result.axes, across);
    }
    // What all lanes want or none is read from zeros where they do not: that is cheaper than a mask.
    auto* type = llvm::FixedVectorType::get(memory_type(i.slot), static_cast<unsigned>(lanes));
    const bool uniform = guard != no_value && active == nullptr && lanes > 1 && lanes_of(copies(guard).axes) == 1 &&
                         type->getPrimitiveSizeInBits() <= 8 * zeros_bytes;
    for_each_copy(result.axes, [&](const CopyId& id) {
        const Place at = place(i.slot, i.index, id);
        if (uniform && at.varying == nullptr && constant_stride(at.stride) == 1) {
            Value* loaded = load_or_zeros(type, at.pointer, value_in(copies(guard), id, 1));
            result.values.push_back(scalar_.widen(loaded, memory_dtype(i.slot)));
            return;
        }
        Value* condition = active;
        if (guard != no_value) {
            condition = value_in(copies(guard), id, lanes);
            if (active != nullptr) condition = ir_.CreateAnd(condition, active);
        }
        result.values.push_back(scalar_.widen(load_lanes(i.slot, at, condition, lanes), memory_dtype(i.slot)));
    });
    return result;
}

// The axis whose copies read, lane by lane, what lies next to each other in memory: as many as there are lanes, which
// themselves lie apart. -1: there is none.
int Emitter::crossed_axis(const loopir::Instr& load, AxisSet axes) {
    const int lanes = lanes_of(axes);
    if (lanes < 4) return -1;
    const Place first = place(load.slot, load.index, CopyId(axes_.size(), 0));
    const std::optional<std::int64_t> stride = constant_stride(first.stride);
    if (first.varying == nullptr && stride && std::abs(*stride) <= 4) return -1;  // read otherwise, and well
    std::vector<loopir::ValueId> values;
    load.index.collect_values(values);
    for (std::size_t k = 0; k < axes_.size(); ++k) {
        const Axis& axis = axes_[k];
        if ((axes >> k & 1u) == 0 || axis.lanes > 1 || axis.copies != lanes) continue;
        if (!(load.index.coefficient_of(axis.var) == Dim(1))) continue;
        const auto uses = [&](loopir::ValueId value) { return (copies(value).axes >> k & 1u) != 0; };
        if (std::none_of(values.begin(), values.end(), uses)) return static_cast<int>(k);
    }
    return -1;
}

// A vector along the crossed axis for each lane, turned in registers.
Copies Emitter::load_crossing(const loopir::Instr& load, AxisSet axes, int across) {
    const auto axis = static_cast<std::size_t>(across);
    const int lanes = lanes_of(axes);
    auto* vector = llvm::FixedVectorType::get(memory_type(load.slot), static_cast<unsigned>(lanes));
    Copies result{axes, {}};
    result.values.resize(count_of(axes));
    for_each_copy(axes, [&](const CopyId& id) {
        if (id[axis] != 0) return;
        const Place at = place(load.slot, load.index, id);
        llvm::SmallVector<Value*, 16> rows;
        for (int lane = 0; lane < lanes; ++lane) {
            rows.push_back(load_at(load.slot, vector, lane_pointer(load.slot, at, lane)));
        }
        code_.transpose(rows);
        CopyId copy = id;
        for (copy[axis] = 0; copy[axis] < lanes; ++copy[axis]) {
            result.values[number_of(copy, axes)] =
                scalar_.widen(rows[static_cast<std::size_t>(copy[axis])], memory_dtype(load.slot));
        }
    });
    return result;
}

Value* Emitter::load_at(int buffer, llvm::Type* type, Value* pointer) {
    llvm::LoadInst* load = ir_.CreateAlignedLoad(type, pointer, element_align(type));
    if (kernel_.buffers[static_cast<std::size_t>(buffer)].role == loopir::BufferParam::Role::input) {
        load->setMetadata(llvm::LLVMContext::MD_invariant_load, llvm::MDNode::get(load->getContext(), {}));
    }
    return load;
}

Value* Emitter::load_lanes(int buffer, const Place& place, Value* guard, int lanes) {
    if (lanes == 1) return load_scalar(buffer, place.pointer, guard);
    llvm::Type* type = memory_type(buffer);
    auto* vector = llvm::FixedVectorType::get(type, static_cast<unsigned>(lanes));
    const std::optional<std::int64_t> stride = constant_stride(place.stride);
    if (place.varying == nullptr && stride == 0) {
        // One element for all lanes, read if any of them wants it.
        Value* any = guard == nullptr ? nullptr : ir_.CreateOrReduce(guard);
        Value* all = code_.splat(load_scalar(buffer, place.pointer, any), lanes);
        return guard == nullptr ? all : ir_.CreateSelect(guard, all, llvm::Constant::getNullValue(vector));
    }
    const bool forward = place.varying == nullptr && stride == 1;
    const bool backward = place.varying == nullptr && stride == -1;
    if (forward || backward) {
        Value* pointer = forward ? place.pointer : code_.element(type, place.pointer, code_.number(1 - lanes));
        Value* value = nullptr;
        if (guard == nullptr) {
            value = load_at(buffer, vector, pointer);
        } else if (masks_natively(buffer)) {
            Value* mask = forward ? guard : ir_.CreateVectorReverse(guard);
            value =
                ir_.CreateMaskedLoad(vector, pointer, element_align(type), mask, llvm::Constant::getNullValue(vector));
        } else {
            return load_all_or_each(buffer, place, guard, lanes);
        }
        return forward ? value : ir_.CreateVectorReverse(value);
    }
    if (guard == nullptr && place.varying == nullptr && stride && *stride >= 2 && *stride <= 4 && lanes >= 4) {
        return load_strided(buffer, place, *stride, lanes);
    }
    if (guard == nullptr) {
        if (Value* value = load_near(buffer, place, lanes)) return value;
    }
    return load_each(buffer, place, guard, lanes);
}

// Lanes that lie within one vector at known places: read as a vector that ends with the last of them, and picked. Null
// where they do not.
Value* Emitter::load_near(int buffer, const Place& place, int lanes) {
    const auto* varying = llvm::dyn_cast_or_null<llvm::ConstantDataVector>(place.varying);
    const std::optional<std::int64_t> stride = constant_stride(place.stride);
    if (varying == nullptr || !stride) return nullptr;
    llvm::SmallVector<std::int64_t, 16> offsets;
    for (int lane = 0; lane < lanes; ++lane) {
        const auto part = static_cast<unsigned>(lane);
        const unsigned bits = varying->getElementType()->getIntegerBitWidth();
        offsets.push_back(*stride * lane + llvm::SignExtend64(varying->getElementAsInteger(part), bits));
    }
    const auto [first, last] = std::minmax_element(offsets.begin(), offsets.end());
    const std::int64_t span = *last - *first + 1;
    if (span > lanes) return nullptr;
    llvm::Type* type = memory_type(buffer);
    Value* pointer = code_.element(type, place.pointer, code_.number(*first));
    if (span == 1) return code_.splat(load_at(buffer, type, pointer), lanes);
    Value* vector = load_at(buffer, llvm::FixedVectorType::get(type, static_cast<unsigned>(span)), pointer);
    llvm::SmallVector<int, 16> pick;
    for (const std::int64_t offset : offsets) pick.push_back(static_cast<int>(offset - *first));
    return ir_.CreateShuffleVector(vector, pick);
}

// Without masks in the instruction set: most vectors have a guard that is true in every lane.
Value* Emitter::load_all_or_each(int buffer, const Place& place, Value* guard, int lanes) {
    llvm::BasicBlock* all = code_.new_block("all");
    llvm::BasicBlock* some = code_.new_block("some");
    llvm::BasicBlock* after = code_.new_block("loaded");
    llvm::PHINode* result = llvm::PHINode::Create(
        llvm::FixedVectorType::get(memory_type(buffer), static_cast<unsigned>(lanes)), 2, "", after);
    ir_.CreateCondBr(ir_.CreateAndReduce(guard), all, some);
    for (llvm::BasicBlock* block : {all, some}) {
        ir_.SetInsertPoint(block);
        code_.push_scope();
        result->addIncoming(
            block == all ? load_lanes(buffer, place, nullptr, lanes) : load_each(buffer, place, guard, lanes), block);
        code_.pop_scope();
        ir_.CreateBr(after);
    }
    ir_.SetInsertPoint(after);
    return result;
}

// Every second (third, fourth) element: whole vectors, of which the wanted lanes are picked. The last vector ends with
// the last wanted element, so that nothing past it is read.
Value* Emitter::load_strided(int buffer, const Place& place, std::int64_t stride, int lanes) {
    llvm::Type* type = memory_type(buffer);
    auto* vector = llvm::FixedVectorType::get(type, static_cast<unsigned>(lanes));
    const std::int64_t last = stride * (lanes - 1);
    Value* result = nullptr;
    for (std::int64_t part = 0; part < stride; ++part) {
        const std::int64_t start = part + 1 < stride ? part * lanes : last - (lanes - 1);
        Value* piece = load_at(buffer, vector, code_.element(type, place.pointer, code_.number(start)));
        // Lanes whose element lies in this piece, and was not in an earlier one.
        llvm::SmallVector<int, 16> pick;
        for (int lane = 0; lane < lanes; ++lane) {
            const std::int64_t element = lane * stride;
            const std::int64_t home = std::min<std::int64_t>(element / lanes, stride - 1);
            pick.push_back(home == part ? static_cast<int>(lanes + element - start) : lane);
        }
        result = ir_.CreateShuffleVector(result == nullptr ? piece : result, piece, pick);
    }
    return result;
}

Value* Emitter::load_each(int buffer, const Place& place, Value* guard, int lanes) {
    auto* vector = llvm::FixedVectorType::get(memory_type(buffer), static_cast<unsigned>(lanes));
    Value* result = llvm::PoisonValue::get(vector);
    for (int lane = 0; lane < lanes; ++lane) {
        Value* condition =
            guard == nullptr ? nullptr : ir_.CreateExtractElement(guard, static_cast<std::uint64_t>(lane));
        Value* element = load_scalar(buffer, lane_pointer(buffer, place, lane), condition);
        result = ir_.CreateInsertElement(result, element, static_cast<std::uint64_t>(lane));
    }
    return result;
}

Value* Emitter::load_scalar(int buffer, Value* pointer, Value* guard) {
    llvm::Type* type = memory_type(buffer);
    return guard == nullptr ? load_at(buffer, type, pointer) : load_or_zeros(type, pointer, guard);
}

Value* Emitter::load_or_zeros(llvm::Type* type, Value* pointer, Value* guard) {
    return ir_.CreateAlignedLoad(type, ir_.CreateSelect(guard, pointer, zeros()), element_align(type));
}

Value* Emitter::lane_pointer(int buffer, const Place& place, int lane) {
    llvm::Type* type = memory_type(buffer);
    Value* pointer = place.pointer;
    if (place.varying != nullptr) {
        Value* offset = ir_.CreateExtractElement(place.varying, static_cast<std::uint64_t>(lane));
        pointer = ir_.CreateGEP(type, pointer, ir_.CreateSExt(offset, code_.i64()));
    }
    if (place.stride != nullptr) pointer = code_.element(type, pointer, code_.mul(place.stride, code_.number(lane)));
    return pointer;
}

bool Emitter::masks_natively(int buffer) const {
    return size_of(memory_dtype(buffer)) >= 4 ? scalar_.features().masked_words : scalar_.features().masked_bytes;
}

Value* Emitter::zeros() {
    if (zeros_ == nullptr) {
        llvm::BasicBlock& entry = function_.getEntryBlock();
        llvm::IRBuilder<> first(&entry, entry.getFirstInsertionPt());
        auto* type = llvm::FixedVectorType::get(code_.i64(), static_cast<unsigned>(zeros_bytes / 8));
        auto* slot = first.CreateAlloca(type);
        first.CreateStore(llvm::Constant::getNullValue(type), slot);
        zeros_ = slot;
    }
    return zeros_;
}

// --- Stores.

void Emitter::emit(const loopir::Store& store) {
    AxisSet axes = axes_of(store.index) | private_axes(store.buffer) | copies(store.value).axes;
    if (store.guard != no_value) axes |= copies(store.guard).axes;
    Value* aligned = store.streaming ? streaming_allowed(store, axes) : nullptr;
    if (aligned == nullptr) return store_copies(store, axes, false);

    // The answer does not change in the loop: the branch costs next to nothing.
    either(aligned, [&] { store_copies(store, axes, true); }, [&] { store_copies(store, axes, false); });
    streamed_ = true;
}

// Whether the store may bypass the caches, decided at run time; null when it never may.
Value* Emitter::streaming_allowed(const loopir::Store& store, AxisSet axes) {
    const int lanes = lanes_of(axes);
    const DType type = memory_dtype(store.buffer);
    const std::uint64_t bytes = static_cast<std::uint64_t>(lanes) * size_of(type);
    if (bytes < streaming_bytes || store.guard != no_value || active_lanes(axes) != nullptr) return nullptr;
    if (plan_.local(store.buffer) != nullptr) return nullptr;
    // All copies are aligned if the first is, when they follow each other.
    for (std::size_t i = 0; i < axes_.size(); ++i) {
        if ((axes >> i & 1u) != 0 && axes_[i].lanes == 1) return nullptr;
    }
    const Place first = place(store.buffer, store.index, CopyId(axes_.size(), 0));
    if (first.varying != nullptr || constant_stride(first.stride) != 1) return nullptr;
    Value* misplaced = ir_.CreateAnd(ir_.CreatePtrToInt(first.pointer, code_.i64()), streaming_bytes - 1);
    return ir_.CreateICmpEQ(misplaced, code_.number(0));
}

void Emitter::store_copies(const loopir::Store& store, AxisSet axes, bool streaming) {
    const int lanes = lanes_of(axes);
    // Every lane, also one past the end, has its own place in a private local.
    Value* active = active_lanes(axes & ~(private_axes(store.buffer) & ~axes_of(store.index)));
    // One condition for all lanes is a branch.
    const bool uniform =
        store.guard != no_value && active == nullptr && lanes > 1 && lanes_of(copies(store.guard).axes) == 1;
    for_each_copy(axes, [&](const CopyId& id) {
        Value* condition = active;
        if (store.guard != no_value && !uniform) {
            condition = value_in(copies(store.guard), id, lanes);
            if (active != nullptr) condition = ir_.CreateAnd(condition, active);
        }
        Value* value = scalar_.narrow(value_in(copies(store.value), id, lanes), memory_dtype(store.buffer));
        const Place at = place(store.buffer, store.index, id);
        if (uniform) {
            const Copies& guard = copies(store.guard);
            return when(guard.values[number_of(id, guard.axes)],
                        [&] { store_lanes(store.buffer, at, value, nullptr, lanes); });
        }
        if (!streaming) return store_lanes(store.buffer, at, value, condition, lanes);
        store_streaming(at.pointer, value);
    });
}

// In pieces of 16 bytes: allocators of other libraries align to no more.
void Emitter::store_streaming(Value* pointer, Value* value) {
    const auto* type = llvm::cast<llvm::FixedVectorType>(value->getType());
    const unsigned step = streaming_bytes * 8 / type->getScalarSizeInBits();
    for (unsigned lane = 0; lane < type->getNumElements(); lane += step) {
        llvm::SmallVector<int, 16> lanes(step);
        std::iota(lanes.begin(), lanes.end(), static_cast<int>(lane));
        Value* piece = ir_.CreateShuffleVector(value, lanes);
        Value* at = ir_.CreateConstInBoundsGEP1_64(type->getElementType(), pointer, lane);
        llvm::StoreInst* instruction = ir_.CreateAlignedStore(piece, at, llvm::Align(streaming_bytes));
        instruction->setMetadata(
            llvm::LLVMContext::MD_nontemporal,
            llvm::MDNode::get(instruction->getContext(), llvm::ConstantAsMetadata::get(ir_.getInt32(1))));
    }
}

void Emitter::store_lanes(int buffer, const Place& place, Value* value, Value* guard, int lanes) {
    if (lanes == 1) return store_scalar(buffer, place.pointer, value, guard);
    llvm::Type* type = memory_type(buffer);
    const std::optional<std::int64_t> stride = constant_stride(place.stride);
    const bool forward = place.varying == nullptr && stride == 1;
    const bool backward = place.varying == nullptr && stride == -1;
    if (!forward && !backward) return store_each(buffer, place, value, guard, lanes);
    Value* pointer = place.pointer;
    if (backward) {
        pointer = code_.element(type, pointer, code_.number(1 - lanes));
        value = ir_.CreateVectorReverse(value);
        if (guard != nullptr) guard = ir_.CreateVectorReverse(guard);
    }
    const auto store_all = [&] { ir_.CreateAlignedStore(value, pointer, element_align(type)); };
    if (guard == nullptr) return store_all();
    const auto store_some = [&] {
        if (masks_natively(buffer)) {
            ir_.CreateMaskedStore(value, pointer, element_align(type), guard);
        } else {
            store_each(buffer, {pointer, code_.number(1)}, value, guard, lanes);
        }
    };
    if (target_.vector_bytes >= 64) return store_some();
    // Before AVX-512 a masked store takes as long as a dozen others, and at most edges of tiles need one.
    either(ir_.CreateAndReduce(guard), store_all, store_some);
}

void Emitter::store_each(int buffer, const Place& place, Value* value, Value* guard, int lanes) {
    const bool one_place = place.varying == nullptr && place.stride == nullptr;
    for (int lane = one_place && guard == nullptr ? lanes - 1 : 0; lane < lanes; ++lane) {
        Value* condition =
            guard == nullptr ? nullptr : ir_.CreateExtractElement(guard, static_cast<std::uint64_t>(lane));
        Value* element = ir_.CreateExtractElement(value, static_cast<std::uint64_t>(lane));
        store_scalar(buffer, lane_pointer(buffer, place, lane), element, condition);
    }
}

void Emitter::store_scalar(int buffer, Value* pointer, Value* value, Value* guard) {
    const auto store = [&] { ir_.CreateAlignedStore(value, pointer, element_align(memory_type(buffer))); };
    if (guard == nullptr) return store();
    when(guard, store);
}

}  // namespace topstitch::cpu
