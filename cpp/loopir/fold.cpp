// The builder's folding: constants, and identities that hold for every bit of the result.
// What might change a value (x + 0.0 turns -0 into +0, x * 0 hides a NaN) stays as it is.
#include <cmath>

#include "loopir/builder.h"
#include "loopir/evaluate.h"

namespace topstitch::loopir {

namespace {

bool is_rounding(ScalarOp op) {
    return op == ScalarOp::floor || op == ScalarOp::ceil || op == ScalarOp::trunc || op == ScalarOp::round_even;
}

bool is_float(DType type) {
    return type == DType::float32 || type == DType::float64;
}

int significant_bits(DType type) {
    return type == DType::float32 ? 24 : 53;
}

// Does `to` hold every value of `from`?
bool holds_all(DType from, DType to) {
    if (from == to || from == DType::boolean) return true;
    if (to == DType::boolean) return false;
    if (is_float(from)) return from == DType::float32 && to == DType::float64;
    const int bits = 8 * static_cast<int>(size_of(from)) - (is_signed_integer(from) ? 1 : 0);
    if (is_float(to)) return bits <= significant_bits(to);
    if (is_signed_integer(from) && !is_signed_integer(to)) return false;
    return bits <= 8 * static_cast<int>(size_of(to)) - (is_signed_integer(to) ? 1 : 0);
}

// Is a cast by way of `through` the same as one step?
bool is_one_cast(DType from, DType through, DType to) {
    // Integers wrap: only the low bits count.
    if (is_integer(from) && is_integer(through) && is_integer(to)) {
        return size_of(through) >= size_of(to) || holds_all(from, through);
    }
    if (!holds_all(from, through)) return false;
    // A float saturates where an integer wraps.
    return !(is_integer(from) && is_float(through) && is_integer(to)) || from == to;
}

// Dim's own proof takes sizes to be at least 1, but a loop over n = 0 leaves what was moved out of it.
bool provably_nonnegative_at_zero(const Dim& dim) {
    if (dim.is_known() || dim.is_unknown()) return provably_nonnegative(dim);
    return provably_nonnegative(dim.substitute([](std::string_view name) { return Dim::symbol(name) - 1; }));
}

// 1 / divisor, when multiplying by it is the same as dividing.
double exact_reciprocal(double divisor, DType type) {
    int exponent = 0;
    if (std::fabs(std::frexp(divisor, &exponent)) != 0.5) return 0;
    const double reciprocal = 1 / divisor;
    const double held = type == DType::float32 ? static_cast<double>(static_cast<float>(reciprocal)) : reciprocal;
    return held == reciprocal && std::isfinite(held) ? held : 0;
}

}  // namespace

bool Builder::is_number(ValueId id, double value) const {
    const std::optional<double> constant = constant_value(id);
    return constant && *constant == value && std::signbit(*constant) == std::signbit(value);
}

ValueId Builder::fold(const Instr& instr) {
    if (ValueId known = fold_constants(instr); known != no_value) return known;
    switch (instr.op) {
        case ScalarOp::bit_and:
        case ScalarOp::bit_or:
        case ScalarOp::bit_xor:
        case ScalarOp::bit_not:
        case ScalarOp::shl:
        case ScalarOp::shr:
            return fold_bits(instr);
        case ScalarOp::eq:
        case ScalarOp::ne:
        case ScalarOp::lt:
        case ScalarOp::le:
            return fold_comparison(instr);
        case ScalarOp::select:
            return fold_select(instr);
        case ScalarOp::cast:
        case ScalarOp::bitcast:
        case ScalarOp::round_to:
        case ScalarOp::from_bits16:
            return fold_conversion(instr);
        default:
            return fold_arithmetic(instr);
    }
}

ValueId Builder::fold_constants(const Instr& instr) {
    std::array<Scalar, 3> args;
    for (std::size_t k = 0; k < args.size(); ++k) {
        const ValueId arg = instr.args[k];
        if (arg == no_value) continue;
        if (!is_constant(arg)) return no_value;
        args[k] = constant_scalar(this->instr(arg));
    }
    const Scalar result = evaluate_scalar(instr, type(instr.args[0]), args);
    // A constant does not hold the payload of a NaN.
    if (instr.op == ScalarOp::bitcast && std::isnan(scalar_to_double(result, instr.type))) return no_value;
    return constant(constant_instr(result, instr.type));
}

ValueId Builder::fold_arithmetic(const Instr& instr) {
    const ValueId a = instr.args[0];
    const ValueId b = instr.args[1];
    const bool floating = is_float(instr.type);
    const Instr source = this->instr(a);
    switch (instr.op) {
        case ScalarOp::add:
            // x + -0.0 is x, whereas -0.0 + 0.0 is 0.0.
            if (is_number(b, floating ? -0.0 : 0.0)) return a;
            if (is_number(a, floating ? -0.0 : 0.0)) return b;
            return no_value;
        case ScalarOp::sub:
            if (is_number(b, 0.0)) return a;
            return !floating && a == b ? constant_int(0, instr.type) : no_value;
        case ScalarOp::mul:
            if (is_number(b, 1.0)) return a;
            return is_number(a, 1.0) ? b : no_value;
        case ScalarOp::div:
            if (is_number(b, 1.0)) return a;
            if (floating && is_constant(b)) {
                const double reciprocal = exact_reciprocal(*constant_value(b), instr.type);
                if (reciprocal != 0) return mul(a, constant(reciprocal, instr.type));
            }
            return no_value;
        case ScalarOp::neg:
            return source.op == ScalarOp::neg ? source.args[0] : no_value;
        case ScalarOp::abs:
            if (source.op == ScalarOp::abs || is_unsigned_integer(instr.type)) return a;
            return source.op == ScalarOp::neg ? op(ScalarOp::abs, source.args[0]) : no_value;
        case ScalarOp::min:
        case ScalarOp::max:
        case ScalarOp::fmin:
        case ScalarOp::fmax: {
            if (a == b) return a;
            const bool minimum = instr.op == ScalarOp::min || instr.op == ScalarOp::fmin;
            if (is_provable(ScalarOp::le, a, b)) return minimum ? a : b;
            if (is_provable(ScalarOp::le, b, a)) return minimum ? b : a;
            return no_value;
        }
        case ScalarOp::floor:
        case ScalarOp::ceil:
        case ScalarOp::trunc:
        case ScalarOp::round_even:
            return is_rounding(source.op) ? a : no_value;
        default:
            return no_value;
    }
}

ValueId Builder::fold_bits(const Instr& instr) {
    const ValueId a = instr.args[0];
    const ValueId b = instr.args[1];
    if (instr.op == ScalarOp::bit_not) {
        return this->instr(a).op == ScalarOp::bit_not ? this->instr(a).args[0] : no_value;
    }
    if (instr.op == ScalarOp::shl || instr.op == ScalarOp::shr) return is_number(b, 0.0) ? a : no_value;

    const Scalar none = scalar_from_int(0, instr.type);
    const Scalar all = instr.type == DType::boolean ? Scalar::of(true) : scalar_from_int(-1, instr.type);
    // The constant operand, if there is one, and the other.
    const bool constant_first = is_constant(a);
    const bool any_constant = constant_first || is_constant(b);
    const ValueId other = constant_first ? b : a;
    const Scalar value = any_constant ? constant_scalar(this->instr(constant_first ? a : b)) : Scalar{};
    const bool is_none = any_constant && value == none;
    const bool is_all = any_constant && value == all;
    switch (instr.op) {
        case ScalarOp::bit_and:
            if (a == b || is_all) return other;
            return is_none ? constant(constant_instr(none, instr.type)) : no_value;
        case ScalarOp::bit_or:
            if (a == b || is_none) return other;
            return is_all ? constant(constant_instr(all, instr.type)) : no_value;
        default:
            if (a == b) return constant(constant_instr(none, instr.type));
            if (is_none) return other;
            return is_all ? op(ScalarOp::bit_not, other) : no_value;
    }
}

std::optional<Index> Builder::as_index(ValueId id) const {
    if (type(id) != DType::int64) return std::nullopt;
    if (is_constant(id)) {
        // Differences of positions must not overflow; a constant beyond any array is no position.
        constexpr std::int64_t limit = std::int64_t{1} << 60;
        const std::int64_t number = instr(id).integer;
        return number > -limit && number < limit ? std::optional<Index>(number) : std::nullopt;
    }
    if (instr(id).op == ScalarOp::index_value) return instr(id).index;
    return std::nullopt;
}

bool Builder::is_provable(ScalarOp comparison, ValueId a, ValueId b) const {
    const std::optional<Index> x = as_index(a);
    const std::optional<Index> y = as_index(b);
    if (!x || !y) return false;
    if (comparison == ScalarOp::lt) return provably_nonnegative_at_zero((*y - *x).lower_bound() - 1);
    return provably_nonnegative_at_zero((*y - *x).lower_bound());
}

// Guards of padding, slices and concatenations often hold for the whole loop.
ValueId Builder::fold_index_comparison(const Instr& instr) {
    const ValueId a = instr.args[0];
    const ValueId b = instr.args[1];
    const auto boolean = [this](bool value) { return constant_int(value ? 1 : 0, DType::boolean); };
    switch (instr.op) {
        case ScalarOp::lt:
        case ScalarOp::le: {
            if (is_provable(instr.op, a, b)) return boolean(true);
            const ScalarOp converse = instr.op == ScalarOp::lt ? ScalarOp::le : ScalarOp::lt;
            return is_provable(converse, b, a) ? boolean(false) : no_value;
        }
        case ScalarOp::eq:
        case ScalarOp::ne:
            if (!is_provable(ScalarOp::lt, a, b) && !is_provable(ScalarOp::lt, b, a)) return no_value;
            return boolean(instr.op == ScalarOp::ne);
        default:
            return no_value;
    }
}

ValueId Builder::fold_comparison(const Instr& instr) {
    const ValueId a = instr.args[0];
    if (a != instr.args[1]) return fold_index_comparison(instr);
    // A float may be NaN, which is not equal to itself, and never less.
    if (is_float(type(a)) && instr.op != ScalarOp::lt) return no_value;
    return constant_int(instr.op == ScalarOp::eq || instr.op == ScalarOp::le ? 1 : 0, DType::boolean);
}

ValueId Builder::fold_select(const Instr& instr) {
    const auto [predicate, a, b] = instr.args;
    if (a == b) return a;
    if (is_constant(predicate)) return this->instr(predicate).integer != 0 ? a : b;
    if (this->instr(predicate).op == ScalarOp::bit_not) return select(this->instr(predicate).args[0], b, a);
    // A load gives zero where its guard is false.
    const Instr& source = this->instr(a);
    if (source.op == ScalarOp::load && source.args[0] == predicate && is_number(b, 0.0)) return a;
    if (instr.type == DType::boolean && is_constant(a) && is_constant(b)) {
        return is_number(a, 1.0) ? predicate : op(ScalarOp::bit_not, predicate);
    }
    return no_value;
}

ValueId Builder::fold_conversion(const Instr& instr) {
    const ValueId a = instr.args[0];
    const Instr source = this->instr(a);
    switch (instr.op) {
        case ScalarOp::cast:
            if (type(a) == instr.type) return a;
            if (source.op == ScalarOp::cast && is_one_cast(type(source.args[0]), type(a), instr.type)) {
                return cast(source.args[0], instr.type);
            }
            return no_value;
        case ScalarOp::bitcast:
            if (type(a) == instr.type) return a;
            return source.op == ScalarOp::bitcast ? bitcast(source.args[0], instr.type) : no_value;
        case ScalarOp::round_to: {
            // Values that have this precision already.
            const bool rounded = source.op == ScalarOp::round_to || source.op == ScalarOp::from_bits16;
            if (rounded && source.memory == instr.memory) return a;
            const bool loaded = source.op == ScalarOp::load &&
                                kernel_.buffers[static_cast<std::size_t>(source.slot)].dtype == instr.memory;
            return loaded ? a : no_value;
        }
        case ScalarOp::from_bits16:
            if (source.op == ScalarOp::to_bits16 && source.memory == instr.memory) {
                return round_to(source.args[0], instr.memory);
            }
            return no_value;
        default:
            return no_value;
    }
}

}  // namespace topstitch::loopir
