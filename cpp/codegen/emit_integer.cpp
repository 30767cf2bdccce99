// Scalar instructions on integers and bool.
// Everything wraps: signed numbers are added as unsigned ones, and small ones as those of 32 bits.
#include "codegen/scalar_emitter.h"
#include "topstitch/error.h"

namespace topstitch::codegen {

using loopir::ScalarOp;

std::string ScalarEmitter::integer_arithmetic(ScalarOp op, DType dtype, const Operands& operands) {
    std::vector<std::string> args;
    for (const Operand& operand : operands) args.push_back(operand.text);
    const std::string name = type(dtype);
    const DType wide = wrapping_type(dtype);
    const auto widened = [&](const std::string& x) { return wide == dtype ? x : concat(type(wide), "(", x, ")"); };
    const auto narrowed = [&](const std::string& x) { return wide == dtype ? x : concat(name, "(", x, ")"); };
    const auto wrapped = [&](const char* op_text) {
        return narrowed(concat(widened(args[0]), op_text, widened(args[1])));
    };
    const auto bitwise = [&](const char* op_text) {
        const std::string text = concat(args[0], op_text, args[1]);
        return size_of(dtype) < 4 ? concat(name, "(", text, ")") : text;
    };
    const auto negated = [&] { return narrowed(concat(dialect_.integer(0, wide), " - ", widened(args[0]))); };
    const auto helper = [&](Helper h) { return concat(helpers_.use({h, dtype}), "(", args[0], ", ", args[1], ")"); };
    switch (op) {
        case ScalarOp::add:
            return wrapped(" + ");
        case ScalarOp::sub:
            return wrapped(" - ");
        case ScalarOp::mul:
            return wrapped(" * ");
        case ScalarOp::div:
            return helper(Helper::divide);
        case ScalarOp::rem:
            return helper(Helper::remainder);
        case ScalarOp::neg:
            return negated();
        case ScalarOp::abs:
            return is_signed_integer(dtype) ? concat(args[0], " < 0 ? ", negated(), " : ", args[0]) : args[0];
        case ScalarOp::fma:
            return narrowed(concat(widened(args[0]), " * ", widened(args[1]), " + ", widened(args[2])));
        case ScalarOp::min:
        case ScalarOp::fmin:
            return concat(args[1], " < ", args[0], " ? ", args[1], " : ", args[0]);
        case ScalarOp::max:
        case ScalarOp::fmax:
            return concat(args[0], " < ", args[1], " ? ", args[1], " : ", args[0]);
        case ScalarOp::bit_and:
            return bitwise(" & ");
        case ScalarOp::bit_or:
            return bitwise(" | ");
        case ScalarOp::bit_xor:
            return bitwise(" ^ ");
        case ScalarOp::bit_not:
            return size_of(dtype) < 4 ? concat(name, "(~", args[0], ")") : concat("~", args[0]);
        case ScalarOp::shl:
        case ScalarOp::shr:
            return shift(op == ScalarOp::shl, dtype, operands);
        case ScalarOp::popcount: {
            const std::string count = dialect_.call(BuiltIn::popcount);
            const std::string word = type(DType::uint32);
            if (size_of(dtype) == 8) {
                const std::string all =
                    dtype == DType::uint64 ? args[0] : concat(type(DType::uint64), "(", args[0], ")");
                return concat(name, "(", count, "(", word, "(", all, ")) + ", count, "(", word, "(", all, " >> 32)))");
            }
            // The sign of small numbers must not be extended.
            const DType same = size_of(dtype) == 1 ? DType::uint8 : size_of(dtype) == 2 ? DType::uint16 : DType::uint32;
            return concat(name, "(", count, "(", word, "(", type(same), "(", args[0], "))))");
        }
        default:
            break;
    }
    throw InternalError(concat("codegen: ", loopir::info(op).name, " is not defined on integers"));
}

// Counts outside of the width give 0, or what is left of a negative number: -1.
std::string ScalarEmitter::shift(bool left, DType dtype, const Operands& args) const {
    const DType wide = wrapping_type(dtype);
    const auto bits = static_cast<std::int64_t>(8 * size_of(dtype));
    const auto as = [&](DType other, const std::string& x) {
        return other == dtype ? x : concat(type(other), "(", x, ")");
    };
    const auto narrow = [&](const std::string& x) {
        return size_of(dtype) < 4 || wide != dtype ? concat(type(dtype), "(", x, ")") : x;
    };
    const auto shifted = [&](const std::string& count) {
        return left ? narrow(concat(as(wide, args[0].text), " << ", count))
                    : narrow(concat(args[0].text, " >> ", count));
    };
    const std::optional<std::int64_t> number = args[1].number;
    if (number && *number >= 0 && *number < bits) return shifted(std::to_string(*number));
    // A negative count is a large one when it is taken as unsigned.
    const std::string count = as(wide, args[1].text);
    const std::string inside = concat(count, " < ", dialect_.integer(bits, wide));
    if (left || !is_signed_integer(dtype)) {
        return concat(inside, " ? ", shifted(count), " : ", dialect_.integer(0, dtype));
    }
    return shifted(concat("(", inside, " ? ", count, " : ", dialect_.integer(bits - 1, wide), ")"));
}

std::string ScalarEmitter::bool_arithmetic(ScalarOp op, const Operands& operands) const {
    std::vector<std::string> args;
    for (const Operand& operand : operands) args.push_back(operand.text);
    switch (op) {
        case ScalarOp::bit_and:
            return concat(args[0], " && ", args[1]);
        case ScalarOp::bit_or:
            return concat(args[0], " || ", args[1]);
        case ScalarOp::bit_xor:
            return concat(args[0], " != ", args[1]);
        case ScalarOp::bit_not:
            return concat("!", args[0]);
        default:
            break;
    }
    throw InternalError(concat("codegen: ", loopir::info(op).name, " is not defined on bool"));
}

}  // namespace topstitch::codegen
