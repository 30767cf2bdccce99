// The table of scalar instructions and their typing rules.
// A new instruction needs its row here, a case in type_class and one in evaluate.cpp.
#include "loopir/scalar_op.h"

#include <array>

#include "loopir/builder.h"
#include "topstitch/error.h"

namespace topstitch::loopir {

namespace {

constexpr ScalarOpInfo op_table[] = {
    {"constant", 0, false}, {"index", 0, false},     {"load", 1, false},        {"acc_read", 0, false},
    {"add", 2, false},      {"sub", 2, false},       {"mul", 2, false},         {"div", 2, false},
    {"rem", 2, false},      {"neg", 1, false},       {"abs", 1, false},         {"fma", 3, false},
    {"min", 2, false},      {"max", 2, false},       {"fmin", 2, false},        {"fmax", 2, false},
    {"floor", 1, false},    {"ceil", 1, false},      {"trunc", 1, false},       {"round_even", 1, false},
    {"sqrt", 1, false},     {"copysign", 2, false},  {"and", 2, false},         {"or", 2, false},
    {"xor", 2, false},      {"not", 1, false},       {"shl", 2, false},         {"shr", 2, false},
    {"popcount", 1, false}, {"eq", 2, false},        {"ne", 2, false},          {"lt", 2, false},
    {"le", 2, false},       {"select", 3, false},    {"cast", 1, false},        {"round_to", 1, false},
    {"bitcast", 1, false},  {"to_bits16", 1, false}, {"from_bits16", 1, false}, {"dot_pairs", 2, false},
    {"exp", 1, true},       {"exp2", 1, true},       {"exp10", 1, true},        {"expm1", 1, true},
    {"log", 1, true},       {"log2", 1, true},       {"log10", 1, true},        {"log1p", 1, true},
    {"sin", 1, true},       {"cos", 1, true},        {"tan", 1, true},          {"asin", 1, true},
    {"acos", 1, true},      {"atan", 1, true},       {"sinh", 1, true},         {"cosh", 1, true},
    {"tanh", 1, true},      {"asinh", 1, true},      {"acosh", 1, true},        {"atanh", 1, true},
    {"erf", 1, true},       {"erfc", 1, true},       {"rsqrt", 1, true},        {"cbrt", 1, true},
    {"pow", 2, true},       {"atan2", 2, true},
};
static_assert(std::size(op_table) == static_cast<std::size_t>(ScalarOp::atan2) + 1, "one row for each ScalarOp");

// Which operands an instruction takes; its result follows.
enum class TypeClass {
    source,
    number,  // integers and floats
    floating,
    bits,  // bool and integers
    integer,
    comparison,  // bool, integers and floats; gives bool
    select,
    conversion,  // each has a rule of its own
};

TypeClass type_class(ScalarOp op) {
    switch (op) {
        case ScalarOp::constant:
        case ScalarOp::index_value:
        case ScalarOp::load:
        case ScalarOp::acc_read:
            return TypeClass::source;
        case ScalarOp::add:
        case ScalarOp::sub:
        case ScalarOp::mul:
        case ScalarOp::div:
        case ScalarOp::rem:
        case ScalarOp::neg:
        case ScalarOp::abs:
        case ScalarOp::min:
        case ScalarOp::max:
        case ScalarOp::fmin:
        case ScalarOp::fmax:
            return TypeClass::number;
        case ScalarOp::fma:
        case ScalarOp::floor:
        case ScalarOp::ceil:
        case ScalarOp::trunc:
        case ScalarOp::round_even:
        case ScalarOp::sqrt:
        case ScalarOp::copysign:
        case ScalarOp::exp:
        case ScalarOp::exp2:
        case ScalarOp::exp10:
        case ScalarOp::expm1:
        case ScalarOp::log:
        case ScalarOp::log2:
        case ScalarOp::log10:
        case ScalarOp::log1p:
        case ScalarOp::sin:
        case ScalarOp::cos:
        case ScalarOp::tan:
        case ScalarOp::asin:
        case ScalarOp::acos:
        case ScalarOp::atan:
        case ScalarOp::sinh:
        case ScalarOp::cosh:
        case ScalarOp::tanh:
        case ScalarOp::asinh:
        case ScalarOp::acosh:
        case ScalarOp::atanh:
        case ScalarOp::erf:
        case ScalarOp::erfc:
        case ScalarOp::rsqrt:
        case ScalarOp::cbrt:
        case ScalarOp::pow:
        case ScalarOp::atan2:
            return TypeClass::floating;
        case ScalarOp::bit_and:
        case ScalarOp::bit_or:
        case ScalarOp::bit_xor:
        case ScalarOp::bit_not:
            return TypeClass::bits;
        case ScalarOp::shl:
        case ScalarOp::shr:
        case ScalarOp::popcount:
            return TypeClass::integer;
        case ScalarOp::eq:
        case ScalarOp::ne:
        case ScalarOp::lt:
        case ScalarOp::le:
            return TypeClass::comparison;
        case ScalarOp::select:
            return TypeClass::select;
        case ScalarOp::cast:
        case ScalarOp::round_to:
        case ScalarOp::bitcast:
        case ScalarOp::to_bits16:
        case ScalarOp::from_bits16:
        case ScalarOp::dot_pairs:
            return TypeClass::conversion;
    }
    return TypeClass::source;
}

bool allows(TypeClass type_class, DType type) {
    switch (type_class) {
        case TypeClass::number:
            return is_integer(type) || type == DType::float32 || type == DType::float64;
        case TypeClass::floating:
            return type == DType::float32 || type == DType::float64;
        case TypeClass::bits:
            return is_integer(type) || type == DType::boolean;
        case TypeClass::integer:
            return is_integer(type);
        case TypeClass::source:
        case TypeClass::comparison:
        case TypeClass::select:
        case TypeClass::conversion:
            break;
    }
    return is_value_type(type);
}

const char* allowed_text(TypeClass type_class) {
    switch (type_class) {
        case TypeClass::number:
            return "an integer or float type";
        case TypeClass::floating:
            return "float32 or float64";
        case TypeClass::bits:
            return "bool or an integer type";
        case TypeClass::integer:
            return "an integer type";
        case TypeClass::source:
        case TypeClass::comparison:
        case TypeClass::select:
        case TypeClass::conversion:
            break;
    }
    return "bool, an integer type, float32 or float64";
}

std::string expected(const char* what, DType received, std::string_view allowed) {
    return concat(what, " is ", name_of(received), ", but must be ", allowed);
}

std::string source_error(const Kernel& kernel, const Instr& instr) {
    switch (instr.op) {
        case ScalarOp::index_value:
            return instr.type == DType::int64 ? "" : expected("an index", instr.type, "int64");
        case ScalarOp::load: {
            const DType memory = kernel.buffers[static_cast<std::size_t>(instr.slot)].dtype;
            if (instr.type != compute_type(memory)) {
                return expected("the value loaded", instr.type, name_of(compute_type(memory)));
            }
            if (instr.args[0] == no_value) return "";
            const DType guard = kernel.instrs[static_cast<std::size_t>(instr.args[0])].type;
            return guard == DType::boolean ? "" : expected("the guard", guard, "bool");
        }
        case ScalarOp::acc_read: {
            const Accumulator& acc = kernel.accumulators[static_cast<std::size_t>(instr.slot)];
            if (instr.integer == 0) {
                return instr.type == acc.type ? "" : expected("the value read", instr.type, name_of(acc.type));
            }
            if (instr.integer != 1 || !is_arg_reduction(acc.combiner)) {
                return concat("component ", instr.integer, " of a ", name_of(acc.combiner), " does not exist");
            }
            return instr.type == DType::int64 ? "" : expected("the position read", instr.type, "int64");
        }
        default:
            return "";
    }
}

std::string pairs_error(const Kernel& kernel, const Instr& instr) {
    if (instr.memory != DType::int16 && instr.memory != DType::bfloat16)
        return expected("the format", instr.memory, "int16 or bfloat16");
    for (int k = 0; k < 2; ++k) {
        const DType operand = kernel.instrs[static_cast<std::size_t>(instr.args[k])].type;
        if (operand != DType::uint32) return expected("the operand", operand, "uint32");
    }
    const DType result = instr.memory == DType::int16 ? DType::int32 : DType::float32;
    return instr.type == result ? "" : expected("the result", instr.type, name_of(result));
}

std::string conversion_error(const Instr& instr, DType operand) {
    const bool half = is_half(instr.memory);
    switch (instr.op) {
        case ScalarOp::bitcast:
            if (operand == DType::boolean || instr.type == DType::boolean) return "bool has no bits to reinterpret";
            if (size_of(operand) == size_of(instr.type)) return "";
            return concat("from ", name_of(operand), " to ", name_of(instr.type), ": the sizes differ");
        case ScalarOp::round_to:
            if (!half) return expected("the precision", instr.memory, "float16 or bfloat16");
            if (operand != DType::float32) return expected("the operand", operand, "float32");
            return instr.type == DType::float32 ? "" : expected("the result", instr.type, "float32");
        case ScalarOp::to_bits16:
            if (!half) return expected("the format", instr.memory, "float16 or bfloat16");
            if (operand != DType::float32) return expected("the operand", operand, "float32");
            return instr.type == DType::uint16 ? "" : expected("the result", instr.type, "uint16");
        case ScalarOp::from_bits16:
            if (!half) return expected("the format", instr.memory, "float16 or bfloat16");
            if (operand != DType::uint16) return expected("the operand", operand, "uint16");
            return instr.type == DType::float32 ? "" : expected("the result", instr.type, "float32");
        default:
            return "";
    }
}

}  // namespace

const ScalarOpInfo& info(ScalarOp op) {
    return op_table[static_cast<std::size_t>(op)];
}

const char* name_of(Combiner combiner) {
    switch (combiner) {
        case Combiner::sum:
            return "sum";
        case Combiner::product:
            return "product";
        case Combiner::min:
            return "min";
        case Combiner::max:
            return "max";
        case Combiner::fmin:
            return "fmin";
        case Combiner::fmax:
            return "fmax";
        case Combiner::logical_and:
            return "logical_and";
        case Combiner::logical_or:
            return "logical_or";
        case Combiner::argmin:
            return "argmin";
        case Combiner::argmax:
            return "argmax";
    }
    return "?";
}

bool is_arg_reduction(Combiner combiner) {
    return combiner == Combiner::argmin || combiner == Combiner::argmax;
}

bool is_commutative(ScalarOp op) {
    switch (op) {
        case ScalarOp::add:
        case ScalarOp::mul:
        case ScalarOp::fma:
        case ScalarOp::min:
        case ScalarOp::max:
        case ScalarOp::fmin:
        case ScalarOp::fmax:
        case ScalarOp::bit_and:
        case ScalarOp::bit_or:
        case ScalarOp::bit_xor:
        case ScalarOp::eq:
        case ScalarOp::ne:
            return true;
        default:
            return false;
    }
}

bool is_value_type(DType type) {
    return compute_type(type) == type && !is_complex(type);
}

DType result_type(ScalarOp op, DType operand) {
    switch (type_class(op)) {
        case TypeClass::number:
        case TypeClass::floating:
        case TypeClass::bits:
        case TypeClass::integer:
        case TypeClass::select:
            return operand;
        case TypeClass::comparison:
            return DType::boolean;
        case TypeClass::source:
        case TypeClass::conversion:
            break;
    }
    switch (op) {
        case ScalarOp::index_value:
            return DType::int64;
        case ScalarOp::round_to:
        case ScalarOp::from_bits16:
            return DType::float32;
        case ScalarOp::to_bits16:
            return DType::uint16;
        default:
            throw InternalError(concat(info(op).name, ": the result type does not follow from the operands; name it"));
    }
}

std::string type_error(Combiner combiner, DType type) {
    const bool logical = combiner == Combiner::logical_and || combiner == Combiner::logical_or;
    if (logical) return type == DType::boolean ? "" : expected("the accumulator", type, "bool");
    return allows(TypeClass::number, type) ? "" : expected("the accumulator", type, allowed_text(TypeClass::number));
}

std::string type_error(const Kernel& kernel, const Instr& instr) {
    if (!is_value_type(instr.type)) return expected("the result", instr.type, allowed_text(TypeClass::source));
    const TypeClass rule = type_class(instr.op);
    if (rule == TypeClass::source) return source_error(kernel, instr);

    auto operand = [&](int k) { return kernel.instrs[static_cast<std::size_t>(instr.args[k])].type; };
    if (instr.op == ScalarOp::dot_pairs) return pairs_error(kernel, instr);
    if (rule == TypeClass::conversion) return conversion_error(instr, operand(0));

    const int first = rule == TypeClass::select ? 1 : 0;
    if (first == 1 && operand(0) != DType::boolean) return expected("the predicate", operand(0), "bool");
    if (!allows(rule, operand(first))) return expected("the operand", operand(first), allowed_text(rule));
    for (int k = first + 1; k < info(instr.op).arity; ++k) {
        if (operand(k) != operand(first)) {
            return concat("the operands are ", name_of(operand(first)), " and ", name_of(operand(k)),
                          ", but must be of one type");
        }
    }
    const DType result = result_type(instr.op, operand(first));
    return instr.type == result ? "" : expected("the result", instr.type, name_of(result));
}

}  // namespace topstitch::loopir
