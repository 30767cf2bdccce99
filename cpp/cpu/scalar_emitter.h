// Emits one scalar instruction, on a scalar or on all lanes of a vector alike.
// Must agree bit for bit with loopir/evaluate.h (math functions have been expanded before).
#pragma once

#include <llvm/ADT/ArrayRef.h>

#include "cpu/code_builder.h"
#include "cpu/target.h"
#include "loopir/kernel.h"

namespace topstitch::cpu {

class ScalarEmitter {
public:
    ScalarEmitter(CodeBuilder& code, const TargetInfo& target);

    llvm::Type* compute_type(DType type);  // bool is i1
    llvm::Type* memory_type(DType type);   // bool is i8, the 16-bit floats i16
    llvm::Constant* constant(const loopir::Instr& instr);
    // `instr` on `args`, which are all scalars or all vectors; `operand` is the type of the first argument
    // (of select: the second).
    llvm::Value* emit(const loopir::Instr& instr, DType operand, llvm::ArrayRef<llvm::Value*> args);

    // Between the form in memory (memory_type) and the form in registers (compute_type).
    llvm::Value* widen(llvm::Value* memory, DType type);
    llvm::Value* narrow(llvm::Value* value, DType type);

    // --- Reductions.
    llvm::Constant* identity(loopir::Combiner combiner, DType type);
    llvm::Value* combine(loopir::Combiner combiner, DType type, llvm::Value* a, llvm::Value* b);
    // argmin, argmax: is `value` better than `best` (loopir::replaces)?
    llvm::Value* replaces(loopir::Combiner combiner, DType type, llvm::Value* value, llvm::Value* best);
    llvm::Value* fma(llvm::Value* a, llvm::Value* b, llvm::Value* c);
    // sum + dot_pairs(a, b)
    llvm::Value* add_pairs(llvm::Value* sum, llvm::Value* a, llvm::Value* b, DType memory);

    const TargetFeatures& features() const { return features_; }

private:
    llvm::Value* arithmetic(loopir::ScalarOp op, DType type, llvm::ArrayRef<llvm::Value*> args);
    llvm::Value* float_arithmetic(loopir::ScalarOp op, llvm::ArrayRef<llvm::Value*> args);
    llvm::Value* compare(loopir::ScalarOp op, DType type, llvm::Value* a, llvm::Value* b);
    llvm::Value* round(loopir::ScalarOp op, llvm::Value* a);
    llvm::Value* float_remainder(llvm::Value* a, llvm::Value* b);
    // `name` of the C library, lane by lane.
    llvm::Value* call_library(const char* name32, const char* name64, llvm::ArrayRef<llvm::Value*> args);

    // emit_integer.cpp
    llvm::Value* integer_arithmetic(loopir::ScalarOp op, DType type, llvm::ArrayRef<llvm::Value*> args);
    llvm::Value* divide(bool remainder, bool is_signed, llvm::Value* a, llvm::Value* b);
    llvm::Value* divide_as_floats(bool is_signed, llvm::Value* a, llvm::Value* b);
    llvm::Value* shift(bool left, bool is_signed, llvm::Value* a, llvm::Value* count);
    llvm::Value* cast(llvm::Value* a, DType from, DType to);

    // emit_pairs.cpp
    llvm::Value* dot_pairs(llvm::Value* a, llvm::Value* b, DType memory);
    llvm::Value* dot_of_halves(llvm::Value* a, llvm::Value* b, DType memory);

    // emit_half.cpp: between 16 bits (i16) and float32.
    llvm::Value* to_bits16(llvm::Value* a, DType memory);
    llvm::Value* from_bits16(llvm::Value* a, DType memory);
    llvm::Value* half_to_float(llvm::Value* bits);
    llvm::Value* float_to_half(llvm::Value* a);
    llvm::Value* float_to_bfloat(llvm::Value* a);

    // `scalar`, or a vector of it with as many lanes as `shape`.
    static llvm::Type* with_lanes(llvm::Type* scalar, llvm::Value* shape);
    static llvm::Constant* integer(llvm::Type* type, std::uint64_t bits);
    llvm::Value* call(llvm::Intrinsic::ID id, llvm::ArrayRef<llvm::Value*> args);

    CodeBuilder& code_;
    llvm::IRBuilder<>& ir_;
    const TargetFeatures features_;
    const bool fma_;
};

}  // namespace topstitch::cpu
