// Scalar instructions on integers and bool, and conversions between numbers.
// Everything wraps; division by zero and shifts past the width have defined results.
#include <llvm/IR/Intrinsics.h>

#include "cpu/scalar_emitter.h"
#include "topstitch/error.h"

namespace topstitch::cpu {

using llvm::Value;
using loopir::ScalarOp;

Value* ScalarEmitter::integer_arithmetic(ScalarOp op, DType type, llvm::ArrayRef<Value*> args) {
    const bool is_signed = is_signed_integer(type);
    Value* a = args[0];
    switch (op) {
        case ScalarOp::add:
            return ir_.CreateAdd(a, args[1]);
        case ScalarOp::sub:
            return ir_.CreateSub(a, args[1]);
        case ScalarOp::mul:
            return ir_.CreateMul(a, args[1]);
        case ScalarOp::div:
            return divide(false, is_signed, a, args[1]);
        case ScalarOp::rem:
            return divide(true, is_signed, a, args[1]);
        case ScalarOp::neg:
            return ir_.CreateNeg(a);
        case ScalarOp::abs:
            if (!is_signed) return a;
            return ir_.CreateIntrinsic(llvm::Intrinsic::abs, {a->getType()}, {a, ir_.getFalse()});
        case ScalarOp::fma:
            return ir_.CreateAdd(ir_.CreateMul(a, args[1]), args[2]);
        case ScalarOp::min:
        case ScalarOp::fmin:
            return call(is_signed ? llvm::Intrinsic::smin : llvm::Intrinsic::umin, {a, args[1]});
        case ScalarOp::max:
        case ScalarOp::fmax:
            return call(is_signed ? llvm::Intrinsic::smax : llvm::Intrinsic::umax, {a, args[1]});
        case ScalarOp::bit_and:
            return ir_.CreateAnd(a, args[1]);
        case ScalarOp::bit_or:
            return ir_.CreateOr(a, args[1]);
        case ScalarOp::bit_xor:
            return ir_.CreateXor(a, args[1]);
        case ScalarOp::bit_not:
            return ir_.CreateNot(a);
        case ScalarOp::shl:
            return shift(true, is_signed, a, args[1]);
        case ScalarOp::shr:
            return shift(false, is_signed, a, args[1]);
        case ScalarOp::popcount:
            return call(llvm::Intrinsic::ctpop, {a});
        default:
            break;
    }
    throw InternalError(concat("LLVM: ", loopir::info(op).name, " of ", name_of(type), " has no code"));
}

Value* ScalarEmitter::divide(bool remainder, bool is_signed, Value* a, Value* b) {
    llvm::Type* type = a->getType();
    const unsigned bits = type->getScalarSizeInBits();
    Value* zero = integer(type, 0);
    Value* one = integer(type, 1);
    Value* by_zero = ir_.CreateICmpEQ(b, zero);
    // Where the machine would trap, divide by one instead: x / -1 overflows only for the lowest x, and lowest / 1
    // is what wrapping gives.
    Value* unsafe = by_zero;
    if (is_signed) {
        Value* overflow = ir_.CreateAnd(ir_.CreateICmpEQ(b, integer(type, ~std::uint64_t{0})),
                                        ir_.CreateICmpEQ(a, integer(type, std::uint64_t{1} << (bits - 1))));
        unsafe = ir_.CreateOr(by_zero, overflow);
    }
    Value* divisor = ir_.CreateSelect(unsafe, one, b);
    const bool as_floats = type->isVectorTy() && bits <= 32 && !llvm::isa<llvm::Constant>(b);
    Value* quotient = as_floats   ? divide_as_floats(is_signed, a, divisor)
                      : remainder ? nullptr
                      : is_signed ? ir_.CreateSDiv(a, divisor)
                                  : ir_.CreateUDiv(a, divisor);
    if (!remainder) return ir_.CreateSelect(by_zero, zero, quotient);
    if (quotient != nullptr) return ir_.CreateSub(a, ir_.CreateMul(quotient, divisor));  // by one: 0
    return is_signed ? ir_.CreateSRem(a, divisor) : ir_.CreateURem(a, divisor);
}

// Vector units divide floats only. A quotient of integers is at least 1 / divisor away from the next integer,
// which float64 (for 8 and 16 bits: float32) resolves, so that its integer part is exact.
Value* ScalarEmitter::divide_as_floats(bool is_signed, Value* a, Value* b) {
    llvm::Type* type = a->getType();
    llvm::Type* real = with_lanes(type->getScalarSizeInBits() == 32 ? ir_.getDoubleTy() : ir_.getFloatTy(), a);
    llvm::Type* between = with_lanes(type->getScalarSizeInBits() == 32 ? ir_.getInt64Ty() : ir_.getInt32Ty(), a);
    if (is_signed) {
        return ir_.CreateFPToSI(ir_.CreateFDiv(ir_.CreateSIToFP(a, real), ir_.CreateSIToFP(b, real)), type);
    }
    Value* quotient = ir_.CreateFDiv(ir_.CreateUIToFP(a, real), ir_.CreateUIToFP(b, real));
    if (type->getScalarSizeInBits() == 32) return ir_.CreateFPToUI(quotient, type);
    return ir_.CreateTrunc(ir_.CreateFPToSI(quotient, between), type);
}

Value* ScalarEmitter::shift(bool left, bool is_signed, Value* a, Value* count) {
    llvm::Type* type = a->getType();
    const unsigned bits = type->getScalarSizeInBits();
    Value* inside = ir_.CreateICmpULT(count, integer(type, bits));
    if (!left && is_signed) {
        // Past the width an arithmetic shift gives what shifting by all but one bit gives.
        return ir_.CreateAShr(a, ir_.CreateSelect(inside, count, integer(type, bits - 1)));
    }
    Value* safe = ir_.CreateSelect(inside, count, integer(type, 0));
    Value* shifted = left ? ir_.CreateShl(a, safe) : ir_.CreateLShr(a, safe);
    return ir_.CreateSelect(inside, shifted, integer(type, 0));
}

Value* ScalarEmitter::cast(Value* a, DType from, DType to) {
    if (from == to) return a;
    llvm::Type* type = with_lanes(compute_type(to), a);
    if (to == DType::boolean) {
        Value* zero = llvm::Constant::getNullValue(a->getType());
        return is_floating(from) ? ir_.CreateFCmpUNE(a, zero) : ir_.CreateICmpNE(a, zero);
    }
    if (is_floating(from)) {
        if (is_floating(to)) return ir_.CreateFPCast(a, type);
        const auto id = is_signed_integer(to) ? llvm::Intrinsic::fptosi_sat : llvm::Intrinsic::fptoui_sat;
        return ir_.CreateIntrinsic(id, {type, a->getType()}, {a});
    }
    if (is_floating(to)) return is_signed_integer(from) ? ir_.CreateSIToFP(a, type) : ir_.CreateUIToFP(a, type);
    return ir_.CreateIntCast(a, type, is_signed_integer(from));
}

}  // namespace topstitch::cpu
