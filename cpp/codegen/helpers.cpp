// The text of helper functions, with the words of the dialect put in.
// See helpers.h for what each is for.
#include "codegen/helpers.h"

#include <cmath>

#include "loopir/scalar_op.h"
#include "topstitch/error.h"

namespace topstitch::codegen {

using loopir::Combiner;

namespace {

const char* base_name(Helper helper) {
    switch (helper) {
        case Helper::divide:
            return "divide";
        case Helper::remainder:
            return "remainder";
        case Helper::minimum:
            return "minimum";
        case Helper::maximum:
            return "maximum";
        case Helper::minimum_number:
            return "minimum_number";
        case Helper::maximum_number:
            return "maximum_number";
        case Helper::saturate:
            return "saturate";
        case Helper::bfloat_bits:
            return "bfloat_bits";
        case Helper::floor_quotient:
            return "floor_quotient";
        case Helper::floor_remainder:
            return "floor_remainder";
        case Helper::replaces:
            return "replaces";
        case Helper::improve:
            return "improve";
        case Helper::add_to_pair:
            return "add_to_pair";
        case Helper::sum_of_pair:
            return "sum_of_pair";
        case Helper::join:
            return "join";
        case Helper::is_moderate:
            return "is_moderate";
        case Helper::prefix:
            return "prefix";
        case Helper::load_four:
            return "load_four";
        case Helper::store_four:
            return "store_four";
        case Helper::math:
            return "math";
    }
    return "?";
}

bool names_combiner(Helper helper) {
    return helper == Helper::replaces || helper == Helper::improve || helper == Helper::join ||
           helper == Helper::prefix;
}

// Two numbers of which neither is NaN: the lesser, or the greater, and of zeros the one of the right sign.
std::string select_number(const Dialect& dialect, bool lesser) {
    const std::string both = concat(dialect.bits_as("uint", "a"), lesser ? " | " : " & ", dialect.bits_as("uint", "b"));
    return concat("    if (a == b) return ", dialect.bits_as("float", both), ";\n    return a < b ? ",
                  lesser ? "a : b" : "b : a", ";\n");
}

}  // namespace

DType wrapping_type(DType type) {
    return size_of(type) == 8 ? DType::uint64 : DType::uint32;
}

std::string helper_name(const Dialect& dialect, const HelperKey& key) {
    std::string name = key.helper == Helper::math ? loopir::info(key.op).name : base_name(key.helper);
    if (names_combiner(key.helper)) name += concat("_", loopir::name_of(key.combiner));
    return concat(name, "_", key.paired ? std::string("pair") : dialect.type(key.type));
}

std::string Helpers::use(const HelperKey& key) {
    if (!used_.contains(key)) {
        std::string text = definition(key);
        used_[key] = std::move(text);
    }
    return helper_name(dialect_, key);
}

std::string Helpers::text() const {
    std::string text;
    for (const auto& [key, function] : used_) text += function + "\n";
    return text;
}

std::string Helpers::combined(Combiner combiner, DType type, const std::string& a, const std::string& b) {
    const std::string name = dialect_.type(type);
    const auto wrapped = [&](const char* op) {
        if (is_floating(type)) return concat(a, op, b);
        const std::string wide = dialect_.type(wrapping_type(type));
        return wide == name ? concat(a, op, b) : concat(name, "(", wide, "(", a, ")", op, wide, "(", b, "))");
    };
    const auto extreme = [&](Helper helper, bool lesser) {
        if (is_floating(type)) return concat(use({helper}), "(", a, ", ", b, ")");
        return concat(b, lesser ? " < " : " > ", a, " ? ", b, " : ", a);
    };
    switch (combiner) {
        case Combiner::sum:
            return wrapped(" + ");
        case Combiner::product:
            return wrapped(" * ");
        case Combiner::min:
            return extreme(Helper::minimum, true);
        case Combiner::max:
            return extreme(Helper::maximum, false);
        case Combiner::fmin:
            return extreme(Helper::minimum_number, true);
        case Combiner::fmax:
            return extreme(Helper::maximum_number, false);
        case Combiner::logical_and:
            return concat(a, " && ", b);
        case Combiner::logical_or:
            return concat(a, " || ", b);
        case Combiner::argmin:
        case Combiner::argmax:
            break;
    }
    throw InternalError("codegen: argmin and argmax are combined with their positions");
}

std::string Helpers::signature(const std::string& result, const HelperKey& key, const std::string& parameters) const {
    return concat(dialect_.function(), result, " ", helper_name(dialect_, key), "(", parameters, ") {\n");
}

std::string Helpers::definition(const HelperKey& key) {
    const DType type = key.type;
    const std::string name = dialect_.type(type);
    const std::string two = concat(name, " a, ", name, " b");
    const std::string zero = concat(name, "(0)");
    const std::string wide = dialect_.type(wrapping_type(type));
    switch (key.helper) {
        case Helper::divide:
            // The lowest number by -1 wraps.
            return signature(name, key, two) + concat("    if (b == 0) return ", zero, ";\n") +
                   (is_signed_integer(type)
                        ? concat("    if (b == -1) return ", name, "(", wide, "(0) - ", wide, "(a));\n")
                        : "") +
                   concat("    return ", name, "(a / b);\n}\n");
        case Helper::remainder:
            if (is_floating(type)) return remainder_of_floats();
            return signature(name, key, two) + concat("    if (b == 0", is_signed_integer(type) ? " || b == -1" : "",
                                                      ") return ", zero, ";\n    return ", name, "(a % b);\n}\n");
        case Helper::minimum:
        case Helper::maximum:
            return signature(name, key, two) + "    if (a != a || b != b) return a + b;\n" +
                   select_number(dialect_, key.helper == Helper::minimum) + "}\n";
        case Helper::minimum_number:
        case Helper::maximum_number:
            return signature(name, key, two) + "    if (a != a) return b;\n    if (b != b) return a;\n" +
                   select_number(dialect_, key.helper == Helper::minimum_number) + "}\n";
        case Helper::saturate: {
            const int bits = static_cast<int>(8 * size_of(type)) - (is_signed_integer(type) ? 1 : 0);
            const auto highest = static_cast<std::int64_t>(~std::uint64_t{0} >> (64 - bits));
            const std::int64_t lowest = is_signed_integer(type) ? -highest - 1 : 0;
            const std::string limit =
                dialect_.real(static_cast<float>(bits == 64   ? 0x1p64
                                                 : bits == 63 ? 0x1p63
                                                              : static_cast<double>(std::uint64_t{1} << bits)));
            return signature(name, key, "float x") + concat("    if (x != x) return ", zero, ";\n") +
                   concat("    if (x >= ", limit, ") return ", dialect_.integer(highest, type), ";\n") +
                   concat("    if (x <= ", is_signed_integer(type) ? "-" + limit : "0.0f", ") return ",
                          dialect_.integer(lowest, type), ";\n") +
                   concat("    return ", name, "(x);\n}\n");
        }
        case Helper::bfloat_bits:
            return signature("ushort", key, "float x") +
                   concat("    uint bits = ", dialect_.bits_as("uint", "x"), ";\n") +
                   "    if (x != x) return ushort((bits >> 16) | 0x40u);\n"
                   "    bits += 0x7fffu + ((bits >> 16) & 1u);\n"
                   "    return ushort(bits >> 16);\n}\n";
        case Helper::floor_quotient:
            return signature(name, key, two) + "    return a / b - (a % b < 0 ? 1 : 0);\n}\n";
        case Helper::floor_remainder:
            return signature(name, key, two) + concat("    const ", name, " rest = a % b;\n") +
                   "    return rest < 0 ? rest + b : rest;\n}\n";
        case Helper::replaces: {
            const bool least = key.combiner == Combiner::argmin;
            return signature("bool", key, concat(name, " value, ", name, " best")) +
                   (is_floating(type) ? "    if (value != value) return best == best;\n" : "") +
                   concat("    return ", least ? "value < best" : "value > best", ";\n}\n");
        }
        case Helper::improve: {
            const std::string better = use({Helper::replaces, type, key.combiner});
            const std::string position = dialect_.type(DType::int64);
            // The first of equals wins, in whatever order they come.
            return signature("void", key,
                             concat(dialect_.reference(name), " best, ", dialect_.reference(position), " where, ", name,
                                    " value, ", position, " position")) +
                   concat("    if (", better, "(value, best) || (!", better,
                          "(best, value) && position < where)) {\n        best = value;\n        where = position;\n"
                          "    }\n}\n");
        }
        case Helper::add_to_pair:
            // What the sum of the high parts loses in rounding goes to the low part, exactly.
            return signature(
                       "void", key,
                       concat(dialect_.reference(name), " high, ", dialect_.reference(name), " low, float value")) +
                   "    const float sum = high + value;\n"
                   "    const float part = sum - high;\n"
                   "    low += (high - (sum - part)) + (value - part);\n"
                   "    high = sum;\n}\n";
        case Helper::sum_of_pair:
            // Where the sum is infinite, the low part is NaN and says nothing.
            return signature(name, key, "float high, float low") + "    return low == low ? high + low : high;\n}\n";
        case Helper::join:
            return join(key);
        case Helper::is_moderate:
            return signature("bool", key, concat(name, " x, ", name, " most")) +
                   concat("    const ", name, " magnitude = ", dialect_.call(BuiltIn::abs), "(x);\n") +
                   "    return magnitude <= most && magnitude >= 1 / most;\n}\n";
        case Helper::prefix:
            return prefix(key);
        case Helper::load_four: {
            const std::string four = dialect_.wide_type(type);
            return signature(four, key, concat(dialect_.buffer_pointer(name, false), " from, int left")) +
                   concat("    if (left >= 4) return ", dialect_.wide_load(type, "from"), ";\n") +
                   concat("    ", four, " values = ", four, "(0);\n") +
                   "    for (int part = 0; part < left; ++part) values[part] = from[part];\n"
                   "    return values;\n}\n";
        }
        case Helper::store_four:
            return signature("void", key,
                             concat(dialect_.buffer_pointer(name, true), " to, ", dialect_.wide_type(type),
                                    " values, int left")) +
                   concat("    if (left >= 4) {\n        ", dialect_.wide_store(type, "to", "values"), "\n") +
                   "        return;\n    }\n"
                   "    for (int part = 0; part < left; ++part) to[part] = values[part];\n}\n";
        case Helper::math:
            return math_function(key);
    }
    throw InternalError("codegen: unknown helper");
}

// fmod, digit by digit of the quotient: exact for all numbers.
std::string Helpers::remainder_of_floats() const {
    const auto bits = [&](const std::string& x) { return dialect_.bits_as("uint", x); };
    return signature("float", {Helper::remainder}, "float a, float b") +
           concat("    uint x = ", bits("a"), " & 0x7fffffffu;\n") +
           concat("    uint y = ", bits("b"), " & 0x7fffffffu;\n") +
           concat("    const uint sign = ", bits("a"), " & 0x80000000u;\n") +
           concat("    if (x >= 0x7f800000u || y > 0x7f800000u || y == 0u) return ", dialect_.real(NAN), ";\n") +
           "    if (x < y) return a;\n"
           "    // As integers with an exponent; those of subnormals are brought to the same form.\n"
           "    int x_exponent = int(x >> 23);\n"
           "    int y_exponent = int(y >> 23);\n"
           "    x = x_exponent == 0 ? x << 1 : (x & 0x7fffffu) | 0x800000u;\n"
           "    y = y_exponent == 0 ? y << 1 : (y & 0x7fffffu) | 0x800000u;\n"
           "    for (; x < 0x800000u; x <<= 1) --x_exponent;\n"
           "    for (; y < 0x800000u; y <<= 1) --y_exponent;\n"
           "    for (; x_exponent > y_exponent; --x_exponent) {\n"
           "        if (x >= y) x -= y;\n"
           "        x <<= 1;\n"
           "    }\n"
           "    if (x >= y) x -= y;\n" +
           concat("    if (x == 0u) return ", dialect_.bits_as("float", "sign"), ";\n") +
           "    for (; x < 0x800000u; x <<= 1) --x_exponent;\n"
           "    x = x_exponent > 0 ? (x & 0x7fffffu) | (uint(x_exponent) << 23) : x >> (1 - x_exponent);\n" +
           concat("    return ", dialect_.bits_as("float", "x | sign"), ";\n}\n");
}

}  // namespace topstitch::codegen
