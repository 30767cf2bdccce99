// Scalar instructions on floats, comparisons, selections and reductions.
// No fast-math flag is ever set: LLVM must keep every rounding.
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/Module.h>

#include <limits>

#include "cpu/scalar_emitter.h"
#include "topstitch/error.h"

namespace topstitch::cpu {

using llvm::Value;
using loopir::Combiner;
using loopir::Instr;
using loopir::ScalarOp;

ScalarEmitter::ScalarEmitter(CodeBuilder& code, const TargetInfo& target)
    : code_(code), ir_(code.ir()), features_(features_of(target)), fma_(target.fma) {}

llvm::Type* ScalarEmitter::compute_type(DType type) {
    switch (type) {
        case DType::boolean:
            return ir_.getInt1Ty();
        case DType::int8:
        case DType::uint8:
            return ir_.getInt8Ty();
        case DType::int16:
        case DType::uint16:
            return ir_.getInt16Ty();
        case DType::int32:
        case DType::uint32:
            return ir_.getInt32Ty();
        case DType::int64:
        case DType::uint64:
            return ir_.getInt64Ty();
        case DType::float32:
            return ir_.getFloatTy();
        case DType::float64:
            return ir_.getDoubleTy();
        case DType::float16:
        case DType::bfloat16:
        case DType::complex64:
            break;
    }
    throw InternalError(concat("LLVM: ", name_of(type), " is not a type to compute in"));
}

llvm::Type* ScalarEmitter::memory_type(DType type) {
    if (type == DType::boolean) return ir_.getInt8Ty();
    if (is_half(type)) return ir_.getInt16Ty();
    return compute_type(type);
}

llvm::Type* ScalarEmitter::with_lanes(llvm::Type* scalar, Value* shape) {
    const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(shape->getType());
    return vector == nullptr ? scalar : llvm::FixedVectorType::get(scalar, vector->getNumElements());
}

llvm::Constant* ScalarEmitter::integer(llvm::Type* type, std::uint64_t bits) {
    const unsigned width = type->getScalarSizeInBits();
    return llvm::ConstantInt::get(type, llvm::APInt(64, bits).trunc(width));
}

Value* ScalarEmitter::call(llvm::Intrinsic::ID id, llvm::ArrayRef<Value*> args) {
    return ir_.CreateIntrinsic(id, {args.front()->getType()}, args);
}

llvm::Constant* ScalarEmitter::constant(const Instr& instr) {
    llvm::Type* type = compute_type(instr.type);
    // A NaN is made by hand: APFloat keeps its payload, a cast between C++ types might not.
    if (instr.type == DType::float32) {
        return llvm::ConstantFP::get(type->getContext(), llvm::APFloat(static_cast<float>(instr.real)));
    }
    if (instr.type == DType::float64) return llvm::ConstantFP::get(type->getContext(), llvm::APFloat(instr.real));
    return integer(type, static_cast<std::uint64_t>(instr.integer));
}

Value* ScalarEmitter::emit(const Instr& instr, DType operand, llvm::ArrayRef<Value*> args) {
    switch (instr.op) {
        case ScalarOp::eq:
        case ScalarOp::ne:
        case ScalarOp::lt:
        case ScalarOp::le:
            return compare(instr.op, operand, args[0], args[1]);
        case ScalarOp::select:
            return ir_.CreateSelect(args[0], args[1], args[2]);
        case ScalarOp::cast:
            return cast(args[0], operand, instr.type);
        case ScalarOp::bitcast:
            return ir_.CreateBitCast(args[0], with_lanes(compute_type(instr.type), args[0]));
        case ScalarOp::to_bits16:
            return to_bits16(args[0], instr.memory);
        case ScalarOp::from_bits16:
            return from_bits16(args[0], instr.memory);
        case ScalarOp::dot_pairs:
            return dot_pairs(args[0], args[1], instr.memory);
        case ScalarOp::round_to:
            return from_bits16(to_bits16(args[0], instr.memory), instr.memory);
        default:
            return arithmetic(instr.op, operand, args);
    }
}

Value* ScalarEmitter::arithmetic(ScalarOp op, DType type, llvm::ArrayRef<Value*> args) {
    return is_floating(type) ? float_arithmetic(op, args) : integer_arithmetic(op, type, args);
}

Value* ScalarEmitter::float_arithmetic(ScalarOp op, llvm::ArrayRef<Value*> args) {
    Value* a = args[0];
    switch (op) {
        case ScalarOp::add:
            return ir_.CreateFAdd(a, args[1]);
        case ScalarOp::sub:
            return ir_.CreateFSub(a, args[1]);
        case ScalarOp::mul:
            return ir_.CreateFMul(a, args[1]);
        case ScalarOp::div:
            return ir_.CreateFDiv(a, args[1]);
        case ScalarOp::rem:
            return float_remainder(a, args[1]);
        case ScalarOp::neg:
            return ir_.CreateFNeg(a);
        case ScalarOp::abs:
            return call(llvm::Intrinsic::fabs, {a});
        case ScalarOp::fma:
            return fma(a, args[1], args[2]);
        case ScalarOp::min:
            return call(llvm::Intrinsic::minimum, {a, args[1]});
        case ScalarOp::max:
            return call(llvm::Intrinsic::maximum, {a, args[1]});
        case ScalarOp::fmin:
            return call(llvm::Intrinsic::minimumnum, {a, args[1]});
        case ScalarOp::fmax:
            return call(llvm::Intrinsic::maximumnum, {a, args[1]});
        case ScalarOp::floor:
        case ScalarOp::ceil:
        case ScalarOp::trunc:
        case ScalarOp::round_even:
            return round(op, a);
        case ScalarOp::sqrt:
            return call(llvm::Intrinsic::sqrt, {a});
        case ScalarOp::copysign:
            return call(llvm::Intrinsic::copysign, {a, args[1]});
        default:
            break;
    }
    throw InternalError(
        concat("LLVM: ", loopir::info(op).name, " of floats has no code; it should have been expanded"));
}

Value* ScalarEmitter::fma(Value* a, Value* b, Value* c) {
    if (fma_) return call(llvm::Intrinsic::fma, {a, b, c});
    return call_library("fmaf", "fma", {a, b, c});
}

Value* ScalarEmitter::compare(ScalarOp op, DType type, Value* a, Value* b) {
    if (is_floating(type)) {
        switch (op) {
            case ScalarOp::eq:
                return ir_.CreateFCmpOEQ(a, b);
            case ScalarOp::ne:
                return ir_.CreateFCmpUNE(a, b);
            case ScalarOp::lt:
                return ir_.CreateFCmpOLT(a, b);
            default:
                return ir_.CreateFCmpOLE(a, b);
        }
    }
    const bool is_signed = is_signed_integer(type);
    switch (op) {
        case ScalarOp::eq:
            return ir_.CreateICmpEQ(a, b);
        case ScalarOp::ne:
            return ir_.CreateICmpNE(a, b);
        case ScalarOp::lt:
            return is_signed ? ir_.CreateICmpSLT(a, b) : ir_.CreateICmpULT(a, b);
        default:
            return is_signed ? ir_.CreateICmpSLE(a, b) : ir_.CreateICmpULE(a, b);
    }
}

Value* ScalarEmitter::round(ScalarOp op, Value* a) {
    if (features_.rounding) {
        switch (op) {
            case ScalarOp::floor:
                return call(llvm::Intrinsic::floor, {a});
            case ScalarOp::ceil:
                return call(llvm::Intrinsic::ceil, {a});
            case ScalarOp::trunc:
                return call(llvm::Intrinsic::trunc, {a});
            default:
                return call(llvm::Intrinsic::roundeven, {a});
        }
    }
    // Adding 2^23 (2^52) to a smaller magnitude leaves no fraction, rounded to even. Larger ones, infinities
    // and NaN are integers already.
    llvm::Type* type = a->getType();
    const bool is_float = type->getScalarType()->isFloatTy();
    Value* big = llvm::ConstantFP::get(type, is_float ? 0x1p23 : 0x1p52);
    Value* one = llvm::ConstantFP::get(type, 1.0);
    Value* zero = llvm::ConstantFP::get(type, 0.0);
    Value* magnitude = call(llvm::Intrinsic::fabs, {a});
    Value* even = ir_.CreateFSub(ir_.CreateFAdd(magnitude, big), big);
    Value* rounded = nullptr;
    switch (op) {
        case ScalarOp::round_even:
            rounded = even;
            break;
        case ScalarOp::trunc:
            rounded = ir_.CreateFSub(even, ir_.CreateSelect(ir_.CreateFCmpOGT(even, magnitude), one, zero));
            break;
        case ScalarOp::floor: {
            Value* with_sign = call(llvm::Intrinsic::copysign, {even, a});
            rounded = ir_.CreateFSub(with_sign, ir_.CreateSelect(ir_.CreateFCmpOGT(with_sign, a), one, zero));
            break;
        }
        default: {
            Value* with_sign = call(llvm::Intrinsic::copysign, {even, a});
            rounded = ir_.CreateFAdd(with_sign, ir_.CreateSelect(ir_.CreateFCmpOLT(with_sign, a), one, zero));
            break;
        }
    }
    Value* result = call(llvm::Intrinsic::copysign, {rounded, a});  // -0.5 becomes -0
    return ir_.CreateSelect(ir_.CreateFCmpOLT(magnitude, big), result, a);
}

// fmod is exact, so the usual a - trunc(a / b) * b will not do. With a fused multiply-add it is exact as long
// as the quotient is an exact integer, save that the division may have rounded it up by one.
Value* ScalarEmitter::float_remainder(Value* a, Value* b) {
    if (!fma_) return call_library("fmodf", "fmod", {a, b});
    llvm::Type* type = a->getType();
    const bool is_float = type->getScalarType()->isFloatTy();
    Value* dividend = call(llvm::Intrinsic::fabs, {a});
    Value* divisor = call(llvm::Intrinsic::fabs, {b});
    Value* ratio = ir_.CreateFDiv(dividend, divisor);
    Value* exact = ir_.CreateFCmpOLT(ratio, llvm::ConstantFP::get(type, is_float ? 0x1p22 : 0x1p51));
    Value* all_exact = type->isVectorTy() ? ir_.CreateAndReduce(exact) : exact;

    llvm::BasicBlock* fast = code_.new_block("fmod_fast");
    llvm::BasicBlock* slow = code_.new_block("fmod_slow");
    llvm::BasicBlock* done = code_.new_block("fmod_done");
    ir_.CreateCondBr(all_exact, fast, slow);

    ir_.SetInsertPoint(fast);
    Value* rest = fma(ir_.CreateFNeg(round(ScalarOp::trunc, ratio)), divisor, dividend);
    Value* negative = ir_.CreateFCmpOLT(rest, llvm::ConstantFP::get(type, 0.0));
    rest = ir_.CreateSelect(negative, ir_.CreateFAdd(rest, divisor), rest);
    rest = ir_.CreateSelect(ir_.CreateFCmpOLT(dividend, divisor), dividend, rest);  // also where b is infinite
    Value* fast_result = call(llvm::Intrinsic::copysign, {rest, a});
    llvm::BasicBlock* fast_end = ir_.GetInsertBlock();
    ir_.CreateBr(done);

    ir_.SetInsertPoint(slow);
    Value* slow_result = call_library("fmodf", "fmod", {a, b});
    llvm::BasicBlock* slow_end = ir_.GetInsertBlock();
    ir_.CreateBr(done);

    ir_.SetInsertPoint(done);
    llvm::PHINode* result = ir_.CreatePHI(type, 2);
    result->addIncoming(fast_result, fast_end);
    result->addIncoming(slow_result, slow_end);
    return result;
}

Value* ScalarEmitter::call_library(const char* name32, const char* name64, llvm::ArrayRef<Value*> args) {
    llvm::Type* type = args.front()->getType();
    llvm::Type* scalar = type->getScalarType();
    const std::vector<llvm::Type*> parameters(args.size(), scalar);
    llvm::Module& module = *ir_.GetInsertBlock()->getModule();
    llvm::FunctionCallee function = module.getOrInsertFunction(scalar->isFloatTy() ? name32 : name64,
                                                               llvm::FunctionType::get(scalar, parameters, false));
    const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(type);
    if (vector == nullptr) return ir_.CreateCall(function, args);
    Value* result = llvm::PoisonValue::get(type);
    for (unsigned lane = 0; lane < vector->getNumElements(); ++lane) {
        std::vector<Value*> lane_args;
        for (Value* arg : args) lane_args.push_back(ir_.CreateExtractElement(arg, lane));
        result = ir_.CreateInsertElement(result, ir_.CreateCall(function, lane_args), lane);
    }
    return result;
}

Value* ScalarEmitter::widen(Value* memory, DType type) {
    if (type == DType::boolean) return ir_.CreateICmpNE(memory, llvm::Constant::getNullValue(memory->getType()));
    return is_half(type) ? from_bits16(memory, type) : memory;
}

Value* ScalarEmitter::narrow(Value* value, DType type) {
    if (type == DType::boolean) return ir_.CreateZExt(value, with_lanes(ir_.getInt8Ty(), value));
    return is_half(type) ? to_bits16(value, type) : value;
}

// --- Reductions.

llvm::Constant* ScalarEmitter::identity(Combiner combiner, DType type) {
    llvm::Type* scalar = compute_type(type);
    const unsigned bits = scalar->getScalarSizeInBits();
    const bool is_float = is_floating(type);
    const auto number = [&](double value) -> llvm::Constant* {
        if (is_float) return llvm::ConstantFP::get(scalar, value);
        return integer(scalar, static_cast<std::uint64_t>(value));
    };
    const auto extreme = [&](bool highest) -> llvm::Constant* {
        if (is_float) return llvm::ConstantFP::getInfinity(scalar, !highest);
        const llvm::APInt value =
            is_signed_integer(type)
                ? (highest ? llvm::APInt::getSignedMaxValue(bits) : llvm::APInt::getSignedMinValue(bits))
                : (highest ? llvm::APInt::getMaxValue(bits) : llvm::APInt::getMinValue(bits));
        return llvm::ConstantInt::get(scalar, value);
    };
    switch (combiner) {
        case Combiner::sum:
        case Combiner::logical_or:
            return number(0);
        case Combiner::product:
        case Combiner::logical_and:
            return number(1);
        case Combiner::min:
        case Combiner::argmin:
            return extreme(true);
        case Combiner::max:
        case Combiner::argmax:
            return extreme(false);
        case Combiner::fmin:
            return is_float ? llvm::ConstantFP::getQNaN(scalar) : extreme(true);
        case Combiner::fmax:
            return is_float ? llvm::ConstantFP::getQNaN(scalar) : extreme(false);
    }
    throw InternalError("LLVM: unknown combiner");
}

Value* ScalarEmitter::combine(Combiner combiner, DType type, Value* a, Value* b) {
    switch (combiner) {
        case Combiner::sum:
            return arithmetic(ScalarOp::add, type, {a, b});
        case Combiner::product:
            return arithmetic(ScalarOp::mul, type, {a, b});
        case Combiner::min:
            return arithmetic(ScalarOp::min, type, {a, b});
        case Combiner::max:
            return arithmetic(ScalarOp::max, type, {a, b});
        case Combiner::fmin:
            return arithmetic(ScalarOp::fmin, type, {a, b});
        case Combiner::fmax:
            return arithmetic(ScalarOp::fmax, type, {a, b});
        case Combiner::logical_and:
            return ir_.CreateAnd(a, b);
        case Combiner::logical_or:
            return ir_.CreateOr(a, b);
        case Combiner::argmin:
        case Combiner::argmax:
            break;
    }
    throw InternalError("LLVM: argmin and argmax are combined with their positions");
}

Value* ScalarEmitter::replaces(Combiner combiner, DType type, Value* value, Value* best) {
    Value* smaller = combiner == Combiner::argmin ? value : best;
    Value* larger = combiner == Combiner::argmin ? best : value;
    Value* better = compare(ScalarOp::lt, type, smaller, larger);
    if (!is_floating(type)) return better;
    Value* first_nan = ir_.CreateAnd(ir_.CreateFCmpUNO(value, value), ir_.CreateFCmpORD(best, best));
    return ir_.CreateOr(better, first_nan);
}

}  // namespace topstitch::cpu
