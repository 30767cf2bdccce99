// Walks the loop nest with the number of iterations around each statement.
// See kernel_cost.h.
#include "stitch/kernel_cost.h"

namespace topstitch::stitch {

namespace {

bool is_float(DType type) {
    return type == DType::float32 || type == DType::float64;
}

std::int64_t flops_of(const loopir::Instr& instr) {
    using loopir::ScalarOp;
    if (!is_float(instr.type)) return 0;
    switch (instr.op) {
        case ScalarOp::add:
        case ScalarOp::sub:
        case ScalarOp::mul:
        case ScalarOp::div:
        case ScalarOp::rem:
        case ScalarOp::sqrt:
        case ScalarOp::min:
        case ScalarOp::max:
        case ScalarOp::fmin:
        case ScalarOp::fmax:
            return 1;
        case ScalarOp::fma:
            return 2;
        default:
            return loopir::info(instr.op).is_math ? 1 : 0;
    }
}

class Counter {
public:
    explicit Counter(const loopir::Kernel& kernel) : kernel_(kernel) {}

    Dim flops(const loopir::Block& block) const {
        Dim total = here(block);
        for (const loopir::Stmt& stmt : block.stmts) {
            if (const auto* loop = std::get_if<loopir::Loop>(&stmt)) {
                total = total + loop->extent * flops(loop->body.front());
            }
        }
        return total;
    }

private:
    // The statements of the block itself, without its loops.
    Dim here(const loopir::Block& block) const {
        std::int64_t count = 0;
        for (const loopir::Stmt& stmt : block.stmts) {
            if (const auto* let = std::get_if<loopir::Let>(&stmt)) {
                count += flops_of(kernel_.instrs[static_cast<std::size_t>(let->value)]);
            } else if (const auto* accumulate = std::get_if<loopir::Accumulate>(&stmt)) {
                const auto& accumulator = kernel_.accumulators[static_cast<std::size_t>(accumulate->accumulator)];
                count += is_float(accumulator.type) ? 1 : 0;
            }
        }
        return count;
    }

    const loopir::Kernel& kernel_;
};

}  // namespace

KernelCounts count(const loopir::Kernel& kernel) {
    KernelCounts counts{0, 0, Counter(kernel).flops(kernel.body)};
    using Role = loopir::BufferParam::Role;
    for (const loopir::BufferParam& buffer : kernel.buffers) {
        const Dim bytes = buffer.size * Dim(static_cast<std::int64_t>(size_of(buffer.dtype)));
        if (buffer.role == Role::input || buffer.role == Role::inout) counts.bytes_read = counts.bytes_read + bytes;
        if (buffer.role == Role::output || buffer.role == Role::inout)
            counts.bytes_written = counts.bytes_written + bytes;
    }
    return counts;
}

}  // namespace topstitch::stitch
