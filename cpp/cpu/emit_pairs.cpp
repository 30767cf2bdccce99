// Sums of products of pairs: two factors of 16 bits side by side in each lane of 32.
// x86 has instructions for whole vectors; anything else unpacks the halves.
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>

#include "cpu/scalar_emitter.h"

namespace topstitch::cpu {

using llvm::Value;

namespace {

unsigned lanes_of(Value* value) {
    const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(value->getType());
    return vector == nullptr ? 1 : vector->getNumElements();
}

llvm::Intrinsic::ID int16_instruction(unsigned lanes) {
    switch (lanes) {
        case 4:
            return llvm::Intrinsic::x86_sse2_pmadd_wd;
        case 8:
            return llvm::Intrinsic::x86_avx2_pmadd_wd;
        case 16:
            return llvm::Intrinsic::x86_avx512_pmaddw_d_512;
        default:
            return llvm::Intrinsic::not_intrinsic;
    }
}

llvm::Intrinsic::ID bfloat16_instruction(unsigned lanes) {
    switch (lanes) {
        case 4:
            return llvm::Intrinsic::x86_avx512bf16_dpbf16ps_128;
        case 8:
            return llvm::Intrinsic::x86_avx512bf16_dpbf16ps_256;
        case 16:
            return llvm::Intrinsic::x86_avx512bf16_dpbf16ps_512;
        default:
            return llvm::Intrinsic::not_intrinsic;
    }
}

}  // namespace

Value* ScalarEmitter::add_pairs(Value* sum, Value* a, Value* b, DType memory) {
    if (memory == DType::int16) return ir_.CreateAdd(sum, dot_pairs(a, b, memory));
    const unsigned lanes = lanes_of(a);
    const llvm::Intrinsic::ID id = bfloat16_instruction(lanes);
    if (!features_.bfloat16_pairs || id == llvm::Intrinsic::not_intrinsic)
        return ir_.CreateFAdd(sum, dot_pairs(a, b, memory));
    llvm::Type* pairs = llvm::FixedVectorType::get(ir_.getBFloatTy(), 2 * lanes);
    return ir_.CreateIntrinsic(sum->getType(), id, {sum, ir_.CreateBitCast(a, pairs), ir_.CreateBitCast(b, pairs)});
}

Value* ScalarEmitter::dot_pairs(Value* a, Value* b, DType memory) {
    const unsigned lanes = lanes_of(a);
    if (memory == DType::bfloat16) {
        if (!features_.bfloat16_pairs || bfloat16_instruction(lanes) == llvm::Intrinsic::not_intrinsic)
            return dot_of_halves(a, b, memory);
        return add_pairs(llvm::ConstantFP::get(with_lanes(ir_.getFloatTy(), a), 0.0), a, b, memory);
    }
    const llvm::Intrinsic::ID id = int16_instruction(lanes);
    if (!features_.int16_pairs || lanes > features_.vector_lanes || id == llvm::Intrinsic::not_intrinsic)
        return dot_of_halves(a, b, memory);
    // Added to a sum, it becomes one instruction where the target has it (VNNI).
    llvm::Type* pairs = llvm::FixedVectorType::get(ir_.getInt16Ty(), 2 * lanes);
    return ir_.CreateIntrinsic(a->getType(), id, {ir_.CreateBitCast(a, pairs), ir_.CreateBitCast(b, pairs)});
}

Value* ScalarEmitter::dot_of_halves(Value* a, Value* b, DType memory) {
    Value* sixteen = integer(a->getType(), 16);
    if (memory == DType::int16) {
        const auto low = [&](Value* word) { return ir_.CreateAShr(ir_.CreateShl(word, sixteen), sixteen); };
        const auto high = [&](Value* word) { return ir_.CreateAShr(word, sixteen); };
        return ir_.CreateAdd(ir_.CreateMul(low(a), low(b)), ir_.CreateMul(high(a), high(b)));
    }
    llvm::Type* real = with_lanes(ir_.getFloatTy(), a);
    Value* mask = integer(a->getType(), 0xffff0000);
    const auto low = [&](Value* word) { return ir_.CreateBitCast(ir_.CreateShl(word, sixteen), real); };
    const auto high = [&](Value* word) { return ir_.CreateBitCast(ir_.CreateAnd(word, mask), real); };
    return ir_.CreateFAdd(ir_.CreateFMul(low(a), low(b)), ir_.CreateFMul(high(a), high(b)));
}

}  // namespace topstitch::cpu
