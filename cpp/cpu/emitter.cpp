// Emits the function of a kernel: its prologue, statements, and values other than loads and indices.
// Every statement is emitted for all copies before the next one, so that copies hide each other's latency.
#include "cpu/emitter.h"

#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>

#include <algorithm>

#include "topstitch/error.h"

namespace topstitch::cpu {

using llvm::Value;
using loopir::Instr;
using loopir::no_value;
using loopir::ScalarOp;

Emitter::Emitter(const loopir::Kernel& kernel, const LoopPlan& plan, const TargetInfo& target, llvm::Function& function)
    : kernel_(kernel),
      plan_(plan),
      target_(target),
      function_(function),
      code_(function),
      ir_(code_.ir()),
      scalar_(code_, target),
      size_params_(loopir::size_params(kernel)),
      sizes_(size_params_.size(), nullptr),
      buffers_(kernel.buffers.size(), nullptr),
      values_(kernel.instrs.size()),
      accumulators_(kernel.accumulators.size()),
      running_axis_(kernel.accumulators.size(), -1),
      vars_(kernel.vars.size()) {}

void Emitter::run() {
    llvm::Type* pointer = ir_.getPtrTy();
    std::uint64_t argument = 0;
    for (std::size_t b = 0; b < kernel_.buffers.size(); ++b) {
        if (kernel_.buffers[b].role == loopir::BufferParam::Role::local) continue;
        buffers_[b] = ir_.CreateLoad(pointer, ir_.CreateConstGEP1_64(pointer, function_.getArg(0), argument++),
                                     kernel_.buffers[b].name);
    }
    Value* offset = code_.number(0);
    for (const LocalPlace& local : plan_.locals()) {
        const loopir::BufferParam& buffer = kernel_.buffers[static_cast<std::size_t>(local.buffer)];
        buffers_[static_cast<std::size_t>(local.buffer)] = code_.element(ir_.getInt8Ty(), function_.getArg(2), offset);
        const auto bytes = static_cast<std::int64_t>(size_of(buffer.dtype));
        if (buffer.size.is_known()) {
            offset = code_.add(offset, code_.number(local_bytes(buffer.size.value(), local.factor, bytes)));
        } else {
            Value* size = code_.mul(dim(buffer.size), code_.number(local.factor * bytes));
            size = code_.add(size, code_.number(2 * scratch_alignment - 1));
            offset = code_.add(offset, ir_.CreateAnd(size, code_.number(-scratch_alignment)));
        }
    }
    if (plan_.multiplies_tiles()) configure_tiles();
    emit_block(kernel_.body);
    if (plan_.multiplies_tiles()) ir_.CreateIntrinsic(ir_.getVoidTy(), llvm::Intrinsic::x86_tilerelease, {});
    // Streaming stores are not ordered with the release of the thread pool.
    if (streamed_ && scalar_.features().x86) ir_.CreateIntrinsic(ir_.getVoidTy(), llvm::Intrinsic::x86_sse_sfence, {});
    ir_.CreateRetVoid();
}

Value* Emitter::dim(const Dim& dim) {
    if (dim.is_known()) return code_.number(dim.value());
    const auto found = std::find(size_params_.begin(), size_params_.end(), dim);
    if (found == size_params_.end()) {
        throw InternalError(concat("LLVM: kernel ", kernel_.name, ": no argument gives ", dim.str()));
    }
    // Loaded when asked for: a kernel that shares this code may have fewer arguments, for sizes that no code uses.
    const auto number = static_cast<std::size_t>(found - size_params_.begin());
    if (sizes_[number] == nullptr) {
        llvm::BasicBlock& entry = function_.getEntryBlock();
        IRBuilder first(&entry, entry.getFirstInsertionPt());
        sizes_[number] =
            first.CreateLoad(code_.i64(), first.CreateConstGEP1_64(code_.i64(), function_.getArg(1), number), "size");
    }
    return sizes_[number];
}

// --- Axes.

int Emitter::lanes_of(AxisSet axes) const {
    for (std::size_t i = 0; i < axes_.size(); ++i) {
        if ((axes >> i & 1u) != 0 && axes_[i].lanes > 1) return axes_[i].lanes;
    }
    return 1;
}

std::size_t Emitter::count_of(AxisSet axes) const {
    std::size_t count = 1;
    for (std::size_t i = 0; i < axes_.size(); ++i) {
        if ((axes >> i & 1u) != 0) count *= static_cast<std::size_t>(axes_[i].copies);
    }
    return count;
}

std::size_t Emitter::number_of(const CopyId& id, AxisSet axes) const {
    std::size_t number = 0;
    for (std::size_t i = 0; i < axes_.size(); ++i) {
        if ((axes >> i & 1u) == 0) continue;
        number = number * static_cast<std::size_t>(axes_[i].copies) + static_cast<std::size_t>(id[i]);
    }
    return number;
}

const Axis* Emitter::axis_of(loopir::VarId var, int* position) const {
    for (std::size_t i = 0; i < axes_.size(); ++i) {
        if (axes_[i].var != var) continue;
        if (position != nullptr) *position = static_cast<int>(i);
        return &axes_[i];
    }
    return nullptr;
}

AxisSet Emitter::axes_of(const loopir::Index& index) const {
    AxisSet axes = 0;
    for (std::size_t i = 0; i < axes_.size(); ++i) {
        if (index.depends_on(axes_[i].var)) axes |= AxisSet{1} << i;
    }
    std::vector<loopir::ValueId> values;
    index.collect_values(values);
    for (const loopir::ValueId value : values) axes |= copies(value).axes;
    return axes;
}

AxisSet Emitter::private_axes(int buffer) const {
    AxisSet axes = 0;
    const LocalPlace* local = plan_.local(buffer);
    if (local == nullptr) return axes;
    for (const loopir::VarId var : local->private_to) {
        int position = 0;
        if (axis_of(var, &position) != nullptr) axes |= AxisSet{1} << position;
    }
    return axes;
}

Value* Emitter::active_lanes(AxisSet axes) const {
    for (std::size_t i = 0; i < axes_.size(); ++i) {
        if ((axes >> i & 1u) != 0 && axes_[i].active != nullptr) return axes_[i].active;
    }
    return nullptr;
}

// --- Statements and values.

void Emitter::emit_block(const loopir::Block& block) {
    for (const loopir::Stmt& stmt : block.stmts) {
        std::visit([this](const auto& s) { emit(s); }, stmt);
    }
}

void Emitter::emit(const loopir::Let& let) {
    const Instr& i = instr(let.value);
    Copies& result = values_[static_cast<std::size_t>(let.value)];
    switch (i.op) {
        case ScalarOp::constant:
            result = {0, {scalar_.constant(i)}};
            return;
        case ScalarOp::index_value:
            result = index_value(i.index);
            return;
        case ScalarOp::load:
            result = emit_load(i);
            return;
        case ScalarOp::acc_read:
            result = acc_read(i);
            return;
        default:
            if (plan_.fused_into_sum(let.value)) return;  // emitted with the sum
            result = emit_op(i);
    }
}

Copies Emitter::emit_op(const Instr& i) {
    const int arity = loopir::info(i.op).arity;
    Copies result;
    for (int k = 0; k < arity; ++k) result.axes |= copies(i.args[k]).axes;
    const int lanes = lanes_of(result.axes);
    const DType operand = instr(i.args[i.op == ScalarOp::select ? 1 : 0]).type;
    for_each_copy(result.axes, [&](const CopyId& id) {
        llvm::SmallVector<Value*, 3> args;
        for (int k = 0; k < arity; ++k) args.push_back(value_in(copies(i.args[k]), id, lanes));
        result.values.push_back(scalar_.emit(i, operand, args));
    });
    return result;
}

Value* Emitter::value_in(const Copies& value, const CopyId& id, int lanes) {
    Value* found = value.values[number_of(id, value.axes)];
    if (lanes == 1 || found->getType()->isVectorTy()) return found;
    return code_.splat(found, lanes);
}

}  // namespace topstitch::cpu
