// Scalar instructions on floats, comparisons, selections and conversions, as expressions.
// Every rounding is kept: the source forbids the compiler to fuse, and we fuse where the loop IR says so.
#include "codegen/scalar_emitter.h"
#include "topstitch/error.h"

namespace topstitch::codegen {

using loopir::Instr;
using loopir::ScalarOp;

namespace {

std::string infix(const ScalarEmitter::Operands& args, const char* op) {
    return concat(args[0].text, " ", op, " ", args[1].text);
}

std::string call(const std::string& function, const ScalarEmitter::Operands& args) {
    std::string list;
    for (const ScalarEmitter::Operand& arg : args) list += (list.empty() ? "" : ", ") + arg.text;
    return concat(function, "(", list, ")");
}

}  // namespace

std::string ScalarEmitter::constant(const Instr& i) const {
    return is_floating(i.type) ? dialect_.real(static_cast<float>(i.real)) : dialect_.integer(i.integer, i.type);
}

std::string ScalarEmitter::emit(const Instr& i, DType operand, const Operands& args) {
    if (loopir::info(i.op).is_math) return math(i.op, operand, args);
    const std::string& first = args[0].text;
    switch (i.op) {
        case ScalarOp::eq:
            return infix(args, "==");
        case ScalarOp::ne:
            return infix(args, "!=");
        case ScalarOp::lt:
            return infix(args, "<");
        case ScalarOp::le:
            return infix(args, "<=");
        case ScalarOp::select:
            return concat(first, " ? ", args[1].text, " : ", args[2].text);
        case ScalarOp::cast:
            return cast(first, operand, i.type);
        case ScalarOp::bitcast:
            return dialect_.bits_as(type(i.type), first);
        case ScalarOp::round_to:
            return from_bits16(to_bits16(first, i.memory), i.memory);
        case ScalarOp::to_bits16: {
            const std::string bits = to_bits16(first, i.memory);
            return i.memory == DType::float16 ? dialect_.bits_as(type(DType::uint16), bits) : bits;
        }
        case ScalarOp::from_bits16:
            if (i.memory == DType::bfloat16) return from_bits16(first, i.memory);
            return from_bits16(dialect_.bits_as(type(DType::float16), first), i.memory);
        default:
            break;
    }
    if (operand == DType::boolean) return bool_arithmetic(i.op, args);
    return is_floating(operand) ? float_arithmetic(i.op, args) : integer_arithmetic(i.op, operand, args);
}

// By a function of our own, written before the kernel: none of the language's is accurate enough.
std::string ScalarEmitter::math(ScalarOp op, DType type, const Operands& args) {
    return call(helpers_.use({.helper = Helper::math, .type = type, .op = op}), args);
}

std::string ScalarEmitter::float_arithmetic(ScalarOp op, const Operands& args) {
    switch (op) {
        case ScalarOp::add:
            return infix(args, "+");
        case ScalarOp::sub:
            return infix(args, "-");
        case ScalarOp::mul:
            return infix(args, "*");
        case ScalarOp::div:
            return infix(args, "/");
        case ScalarOp::rem:
            return call(helpers_.use({Helper::remainder}), args);
        case ScalarOp::neg:
            return args[0].text.front() == '-' ? concat("-(", args[0].text, ")") : "-" + args[0].text;
        case ScalarOp::abs:
            return call(dialect_.call(BuiltIn::abs), args);
        case ScalarOp::fma:
            return call(dialect_.call(BuiltIn::fma), args);
        case ScalarOp::min:
            return call(helpers_.use({Helper::minimum}), args);
        case ScalarOp::max:
            return call(helpers_.use({Helper::maximum}), args);
        case ScalarOp::fmin:
            return call(helpers_.use({Helper::minimum_number}), args);
        case ScalarOp::fmax:
            return call(helpers_.use({Helper::maximum_number}), args);
        case ScalarOp::floor:
            return call(dialect_.call(BuiltIn::floor), args);
        case ScalarOp::ceil:
            return call(dialect_.call(BuiltIn::ceil), args);
        case ScalarOp::trunc:
            return call(dialect_.call(BuiltIn::trunc), args);
        case ScalarOp::round_even:
            return call(dialect_.call(BuiltIn::round_even), args);
        case ScalarOp::sqrt:
            return call(dialect_.call(BuiltIn::sqrt), args);
        case ScalarOp::copysign:
            return call(dialect_.call(BuiltIn::copysign), args);
        default:
            break;
    }
    throw InternalError(concat("codegen: ", loopir::info(op).name, " is not defined on floats"));
}

std::string ScalarEmitter::cast(const std::string& value, DType from, DType to) {
    if (from == to) return value;
    if (to == DType::boolean) return concat(value, " != ", is_floating(from) ? dialect_.real(0) : "0");
    if (is_floating(from) && !is_floating(to)) return concat(helpers_.use({Helper::saturate, to}), "(", value, ")");
    return concat(type(to), "(", value, ")");
}

// A half for float16, the bits for bfloat16: as memory has them.
std::string ScalarEmitter::to_bits16(const std::string& value, DType memory) {
    if (memory == DType::float16) return concat(type(memory), "(", value, ")");
    return concat(helpers_.use({Helper::bfloat_bits}), "(", value, ")");
}

std::string ScalarEmitter::from_bits16(const std::string& bits, DType memory) const {
    const std::string real = type(DType::float32);
    if (memory == DType::float16) return concat(real, "(", bits, ")");
    return dialect_.bits_as(real, concat(type(DType::uint32), "(", bits, ") << 16"));
}

std::string ScalarEmitter::widened(const std::string& element, DType memory) const {
    if (memory == DType::boolean) return concat(element, " != 0");
    return is_half(memory) ? from_bits16(element, memory) : element;
}

std::string ScalarEmitter::narrowed(const std::string& value, DType memory) {
    if (memory == DType::boolean) return concat(dialect_.memory_type(memory), "(", value, ")");
    return is_half(memory) ? to_bits16(value, memory) : value;
}

}  // namespace topstitch::codegen
