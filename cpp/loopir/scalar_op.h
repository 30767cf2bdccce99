// The typing rules of scalar instructions, shared by the builder and the verifier.
// Names and arities are in the table behind info().
#pragma once

#include <string>

#include "loopir/kernel.h"

namespace topstitch::loopir {

// Types that a value of the kernel can have: bool, the integers, float32 and float64.
bool is_value_type(DType type);

// What is wrong with the operands, payloads and type of `instr`; empty when nothing is. Operands must exist.
std::string type_error(const Kernel& kernel, const Instr& instr);

// What is wrong with a reduction of values of `type` by `combiner`; empty when nothing is.
std::string type_error(Combiner combiner, DType type);

bool is_arg_reduction(Combiner combiner);  // argmin, argmax: has a position

// True for the ops whose first two operands may be exchanged.
bool is_commutative(ScalarOp op);

}  // namespace topstitch::loopir
