// float16 and bfloat16: conversions between their bits and float32, by instruction or by integer arithmetic.
// Rounds to nearest even; NaN stays NaN; no runtime library is needed on any target.
#include <llvm/IR/Intrinsics.h>

#include "cpu/scalar_emitter.h"
#include "topstitch/error.h"

namespace topstitch::cpu {

using llvm::Value;

Value* ScalarEmitter::to_bits16(Value* a, DType memory) {
    return memory == DType::float16 ? float_to_half(a) : float_to_bfloat(a);
}

Value* ScalarEmitter::from_bits16(Value* bits, DType memory) {
    if (memory == DType::float16) return half_to_float(bits);
    Value* wide = ir_.CreateZExt(bits, with_lanes(ir_.getInt32Ty(), bits));
    return ir_.CreateBitCast(ir_.CreateShl(wide, integer(wide->getType(), 16)), with_lanes(ir_.getFloatTy(), bits));
}

Value* ScalarEmitter::half_to_float(Value* bits) {
    llvm::Type* real = with_lanes(ir_.getFloatTy(), bits);
    if (features_.half) return ir_.CreateFPExt(ir_.CreateBitCast(bits, with_lanes(ir_.getHalfTy(), bits)), real);
    llvm::Type* word = with_lanes(ir_.getInt32Ty(), bits);
    const auto number = [&](std::uint64_t value) { return integer(word, value); };
    Value* wide = ir_.CreateZExt(bits, word);
    Value* sign = ir_.CreateShl(ir_.CreateAnd(wide, number(0x8000)), number(16));
    Value* magnitude = ir_.CreateAnd(wide, number(0x7fff));
    // Exponent and fraction in place, the bias mended by an exact multiplication, which also normalises subnormals.
    Value* shifted = ir_.CreateBitCast(ir_.CreateShl(magnitude, number(13)), real);
    Value* finite = ir_.CreateBitCast(ir_.CreateFMul(shifted, llvm::ConstantFP::get(real, 0x1p112)), word);
    Value* special = ir_.CreateOr(ir_.CreateShl(magnitude, number(13)), number(0x7f800000));
    Value* is_special = ir_.CreateICmpUGE(magnitude, number(0x7c00));
    return ir_.CreateBitCast(ir_.CreateOr(ir_.CreateSelect(is_special, special, finite), sign), real);
}

Value* ScalarEmitter::float_to_half(Value* a) {
    llvm::Type* half_bits = with_lanes(ir_.getInt16Ty(), a);
    if (features_.half) return ir_.CreateBitCast(ir_.CreateFPTrunc(a, with_lanes(ir_.getHalfTy(), a)), half_bits);
    llvm::Type* word = with_lanes(ir_.getInt32Ty(), a);
    const auto number = [&](std::uint64_t value) { return integer(word, value); };
    Value* bits = ir_.CreateBitCast(a, word);
    Value* sign = ir_.CreateAnd(ir_.CreateLShr(bits, number(16)), number(0x8000));
    Value* magnitude = ir_.CreateAnd(bits, number(0x7fffffff));
    // Normal: rebias the exponent, add half of the last place (with the tie going to even), and shift.
    Value* odd = ir_.CreateAnd(ir_.CreateLShr(magnitude, number(13)), number(1));
    Value* rebiased = ir_.CreateAdd(magnitude, number(0xc8000fff));
    Value* normal = ir_.CreateLShr(ir_.CreateAdd(rebiased, odd), number(13));
    // Subnormal: adding 0.5 puts the last place of the half at the last place of the sum.
    Value* absolute = ir_.CreateBitCast(magnitude, a->getType());
    Value* sum = ir_.CreateFAdd(absolute, llvm::ConstantFP::get(a->getType(), 0.5));
    Value* subnormal = ir_.CreateSub(ir_.CreateBitCast(sum, word), number(0x3f000000));
    Value* nan = ir_.CreateOr(ir_.CreateAnd(ir_.CreateLShr(magnitude, number(13)), number(0x3ff)), number(0x7e00));

    Value* result = ir_.CreateSelect(ir_.CreateICmpULT(magnitude, number(0x38800000)), subnormal, normal);
    result = ir_.CreateSelect(ir_.CreateICmpUGE(magnitude, number(0x47800000)), number(0x7c00), result);
    result = ir_.CreateSelect(ir_.CreateICmpUGT(magnitude, number(0x7f800000)), nan, result);
    return ir_.CreateTrunc(ir_.CreateOr(result, sign), half_bits);
}

Value* ScalarEmitter::float_to_bfloat(Value* a) {
    llvm::Type* word = with_lanes(ir_.getInt32Ty(), a);
    const auto number = [&](std::uint64_t value) { return integer(word, value); };
    Value* bits = ir_.CreateBitCast(a, word);
    Value* top = ir_.CreateLShr(bits, number(16));
    Value* odd = ir_.CreateAnd(top, number(1));
    Value* rounded = ir_.CreateLShr(ir_.CreateAdd(bits, ir_.CreateAdd(odd, number(0x7fff))), number(16));
    Value* quiet = ir_.CreateOr(top, number(0x40));
    Value* result = ir_.CreateSelect(ir_.CreateFCmpUNO(a, a), quiet, rounded);
    return ir_.CreateTrunc(result, with_lanes(ir_.getInt16Ty(), a));
}

}  // namespace topstitch::cpu
