// The scalar instructions on numbers: integers wrap in unsigned arithmetic, float32 is computed as float,
// and math functions come from the C++ library (for float32 in double, then rounded).
#include "loopir/evaluate.h"

#include <cmath>
#include <limits>

#include "loopir/scalar_op.h"
#include "topstitch/error.h"

namespace topstitch::loopir {

namespace {

// Calls `f` with a value of the C++ type that computes in `type`.
template <typename F>
Scalar with_type(DType type, F f) {
    switch (type) {
        case DType::boolean:
            return f(bool{});
        case DType::int8:
            return f(std::int8_t{});
        case DType::int16:
            return f(std::int16_t{});
        case DType::int32:
            return f(std::int32_t{});
        case DType::int64:
            return f(std::int64_t{});
        case DType::uint8:
            return f(std::uint8_t{});
        case DType::uint16:
            return f(std::uint16_t{});
        case DType::uint32:
            return f(std::uint32_t{});
        case DType::uint64:
            return f(std::uint64_t{});
        case DType::float32:
            return f(float{});
        case DType::float64:
            return f(double{});
        case DType::float16:
        case DType::bfloat16:
        case DType::complex64:
            break;
    }
    throw InternalError(concat("evaluate: ", name_of(type), " is not the type of a scalar"));
}

[[noreturn]] void unexpected(ScalarOp op, const char* type) {
    throw InternalError(concat("evaluate: ", info(op).name, " is not defined on ", type));
}

// --- Integers.

template <typename T>
T divide(T a, T b) {
    if (b == 0) return 0;
    if constexpr (std::is_signed_v<T>) {
        if (b == -1) return static_cast<T>(0 - static_cast<std::uint64_t>(a));
    }
    return static_cast<T>(a / b);
}

template <typename T>
T remainder(T a, T b) {
    if (b == 0) return 0;
    if constexpr (std::is_signed_v<T>) {
        if (b == -1) return 0;
    }
    return static_cast<T>(a % b);
}

template <typename T>
bool count_is_outside(T count) {
    constexpr auto bits = static_cast<T>(8 * sizeof(T));
    if constexpr (std::is_signed_v<T>) {
        if (count < 0) return true;
    }
    return count >= bits;
}

template <typename T>
T shift_left(T a, T count) {
    return count_is_outside(count) ? T{0} : static_cast<T>(static_cast<std::uint64_t>(a) << count);
}

template <typename T>
T shift_right(T a, T count) {
    if (!count_is_outside(count)) return static_cast<T>(a >> count);
    if constexpr (std::is_signed_v<T>) {
        if (a < 0) return -1;
    }
    return 0;
}

template <typename T>
Scalar integer_op(ScalarOp op, T a, T b) {
    // Unsigned 64-bit arithmetic has no overflow, and its low bits are those of every narrower type.
    const auto x = static_cast<std::uint64_t>(a);
    const auto y = static_cast<std::uint64_t>(b);
    switch (op) {
        case ScalarOp::add:
            return Scalar::of(static_cast<T>(x + y));
        case ScalarOp::sub:
            return Scalar::of(static_cast<T>(x - y));
        case ScalarOp::mul:
            return Scalar::of(static_cast<T>(x * y));
        case ScalarOp::div:
            return Scalar::of(divide(a, b));
        case ScalarOp::rem:
            return Scalar::of(remainder(a, b));
        case ScalarOp::neg:
            return Scalar::of(static_cast<T>(0 - x));
        case ScalarOp::abs:
            return Scalar::of(a < T{0} ? static_cast<T>(0 - x) : a);
        case ScalarOp::min:
        case ScalarOp::fmin:
            return Scalar::of(b < a ? b : a);
        case ScalarOp::max:
        case ScalarOp::fmax:
            return Scalar::of(a < b ? b : a);
        case ScalarOp::bit_and:
            return Scalar::of(static_cast<T>(x & y));
        case ScalarOp::bit_or:
            return Scalar::of(static_cast<T>(x | y));
        case ScalarOp::bit_xor:
            return Scalar::of(static_cast<T>(x ^ y));
        case ScalarOp::bit_not:
            return Scalar::of(static_cast<T>(~x));
        case ScalarOp::shl:
            return Scalar::of(shift_left(a, b));
        case ScalarOp::shr:
            return Scalar::of(shift_right(a, b));
        case ScalarOp::popcount:
            return Scalar::of(static_cast<T>(std::popcount(static_cast<std::make_unsigned_t<T>>(a))));
        default:
            unexpected(op, "integers");
    }
}

Scalar bool_op(ScalarOp op, bool a, bool b) {
    switch (op) {
        case ScalarOp::bit_and:
            return Scalar::of(a && b);
        case ScalarOp::bit_or:
            return Scalar::of(a || b);
        case ScalarOp::bit_xor:
            return Scalar::of(a != b);
        case ScalarOp::bit_not:
            return Scalar::of(!a);
        default:
            unexpected(op, "bool");
    }
}

// --- Floats.

// The lesser of two numbers; -0 is less than +0.
template <typename T>
T lesser(T a, T b) {
    if (a == b) return std::signbit(a) ? a : b;
    return a < b ? a : b;
}

template <typename T>
T greater(T a, T b) {
    if (a == b) return std::signbit(a) ? b : a;
    return a > b ? a : b;
}

// One of the operands is NaN: quiet, as arithmetic would make it.
template <typename T>
T either_nan(T a, T b) {
    return a + b;
}

template <typename T>
bool any_nan(T a, T b) {
    return std::isnan(a) || std::isnan(b);
}

double math(ScalarOp op, double x, double y) {
    switch (op) {
        case ScalarOp::exp:
            return std::exp(x);
        case ScalarOp::exp2:
            return std::exp2(x);
        case ScalarOp::exp10:
            return std::pow(10.0, x);
        case ScalarOp::expm1:
            return std::expm1(x);
        case ScalarOp::log:
            return std::log(x);
        case ScalarOp::log2:
            return std::log2(x);
        case ScalarOp::log10:
            return std::log10(x);
        case ScalarOp::log1p:
            return std::log1p(x);
        case ScalarOp::sin:
            return std::sin(x);
        case ScalarOp::cos:
            return std::cos(x);
        case ScalarOp::tan:
            return std::tan(x);
        case ScalarOp::asin:
            return std::asin(x);
        case ScalarOp::acos:
            return std::acos(x);
        case ScalarOp::atan:
            return std::atan(x);
        case ScalarOp::sinh:
            return std::sinh(x);
        case ScalarOp::cosh:
            return std::cosh(x);
        case ScalarOp::tanh:
            return std::tanh(x);
        case ScalarOp::asinh:
            return std::asinh(x);
        case ScalarOp::acosh:
            return std::acosh(x);
        case ScalarOp::atanh:
            return std::atanh(x);
        case ScalarOp::erf:
            return std::erf(x);
        case ScalarOp::erfc:
            return std::erfc(x);
        case ScalarOp::rsqrt:
            return 1 / std::sqrt(x);
        case ScalarOp::cbrt:
            return std::cbrt(x);
        case ScalarOp::pow:
            return std::pow(x, y);
        case ScalarOp::atan2:
            return std::atan2(x, y);
        default:
            unexpected(op, "floats");
    }
}

template <typename T>
T float_op(ScalarOp op, T a, T b, T c) {
    switch (op) {
        case ScalarOp::add:
            return a + b;
        case ScalarOp::sub:
            return a - b;
        case ScalarOp::mul:
            return a * b;
        case ScalarOp::div:
            return a / b;
        case ScalarOp::rem:
            return std::fmod(a, b);
        case ScalarOp::neg:
            return -a;
        case ScalarOp::abs:
            return std::fabs(a);
        case ScalarOp::fma:
            return std::fma(a, b, c);
        case ScalarOp::min:
            return any_nan(a, b) ? either_nan(a, b) : lesser(a, b);
        case ScalarOp::max:
            return any_nan(a, b) ? either_nan(a, b) : greater(a, b);
        case ScalarOp::fmin:
            return std::isnan(a) ? b : std::isnan(b) ? a : lesser(a, b);
        case ScalarOp::fmax:
            return std::isnan(a) ? b : std::isnan(b) ? a : greater(a, b);
        case ScalarOp::floor:
            return std::floor(a);
        case ScalarOp::ceil:
            return std::ceil(a);
        case ScalarOp::trunc:
            return std::trunc(a);
        case ScalarOp::round_even:
            return std::nearbyint(a);  // the rounding mode is never changed
        case ScalarOp::sqrt:
            return std::sqrt(a);
        case ScalarOp::copysign:
            return std::copysign(a, b);
        default:
            return static_cast<T>(math(op, static_cast<double>(a), static_cast<double>(b)));
    }
}

// --- Conversions.

template <typename To>
To saturate(double value) {
    const double limit = std::ldexp(1.0, std::numeric_limits<To>::digits);  // one past the highest value
    if (std::isnan(value)) return 0;
    if (value >= limit) return std::numeric_limits<To>::max();
    if (value <= (std::is_signed_v<To> ? -limit : 0.0)) return std::numeric_limits<To>::min();
    return static_cast<To>(value);
}

template <typename To, typename From>
To convert(From value) {
    if constexpr (std::is_same_v<To, bool>) {
        return value != From{0};
    } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
        return saturate<To>(static_cast<double>(value));
    } else {
        return static_cast<To>(value);
    }
}

Scalar cast(Scalar value, DType from, DType to) {
    return with_type(from, [&](auto source) {
        using From = decltype(source);
        return with_type(to, [&](auto target) {
            using To = decltype(target);
            return Scalar::of(convert<To>(value.as<From>()));
        });
    });
}

// The same bits in a type of the same size, extended as that type demands.
Scalar bitcast(Scalar value, DType to) {
    return with_type(to, [&](auto target) { return Scalar::of(value.as<decltype(target)>()); });
}

std::uint16_t to_bits16(float value, DType memory) {
    return memory == DType::float16 ? float_to_half(value) : float_to_bfloat(value);
}

float from_bits16(std::uint16_t bits, DType memory) {
    return memory == DType::float16 ? half_to_float(bits) : bfloat_to_float(bits);
}

Scalar dot_pairs(std::uint32_t a, std::uint32_t b, DType memory) {
    const auto low = [](std::uint32_t word) { return static_cast<std::uint16_t>(word); };
    const auto high = [](std::uint32_t word) { return static_cast<std::uint16_t>(word >> 16); };
    if (memory == DType::bfloat16) {
        return Scalar::of(bfloat_to_float(low(a)) * bfloat_to_float(low(b)) +
                          bfloat_to_float(high(a)) * bfloat_to_float(high(b)));
    }
    const auto product = [](std::uint16_t x, std::uint16_t y) {
        return std::int64_t{static_cast<std::int16_t>(x)} * static_cast<std::int16_t>(y);
    };
    return Scalar::of(static_cast<std::int32_t>(product(low(a), low(b)) + product(high(a), high(b))));
}

Scalar compare(ScalarOp op, DType type, Scalar a, Scalar b) {
    return with_type(type, [&](auto zero) {
        using T = decltype(zero);
        const T x = a.as<T>();
        const T y = b.as<T>();
        switch (op) {
            case ScalarOp::eq:
                return Scalar::of(x == y);
            case ScalarOp::ne:
                return Scalar::of(x != y);
            case ScalarOp::lt:
                return Scalar::of(x < y);
            default:
                return Scalar::of(x <= y);
        }
    });
}

}  // namespace

Scalar constant_scalar(const Instr& constant) {
    if (constant.type == DType::float32) return Scalar::of(static_cast<float>(constant.real));
    if (constant.type == DType::float64) return Scalar::of(constant.real);
    return scalar_from_int(constant.integer, constant.type);
}

Instr constant_instr(Scalar value, DType type) {
    Instr instr;
    instr.op = ScalarOp::constant;
    instr.type = type;
    if (is_floating(type)) {
        instr.real = scalar_to_double(value, type);
    } else {
        instr.integer = static_cast<std::int64_t>(value.bits);
    }
    return instr;
}

Scalar scalar_from_double(double value, DType type) {
    return cast(Scalar::of(value), DType::float64, type);
}

Scalar scalar_from_int(std::int64_t value, DType type) {
    return cast(Scalar::of(value), DType::int64, type);
}

double scalar_to_double(Scalar value, DType type) {
    return cast(value, type, DType::float64).as<double>();
}

Scalar evaluate_scalar(const Instr& instr, DType operand, const std::array<Scalar, 3>& args) {
    switch (instr.op) {
        case ScalarOp::constant:
        case ScalarOp::index_value:
        case ScalarOp::load:
        case ScalarOp::acc_read:
            throw InternalError(concat("evaluate: ", info(instr.op).name, " does not follow from operands alone"));
        case ScalarOp::eq:
        case ScalarOp::ne:
        case ScalarOp::lt:
        case ScalarOp::le:
            return compare(instr.op, operand, args[0], args[1]);
        case ScalarOp::select:
            return args[0].as<bool>() ? args[1] : args[2];
        case ScalarOp::cast:
            return cast(args[0], operand, instr.type);
        case ScalarOp::bitcast:
            return bitcast(args[0], instr.type);
        case ScalarOp::round_to:
            return Scalar::of(from_bits16(to_bits16(args[0].as<float>(), instr.memory), instr.memory));
        case ScalarOp::to_bits16:
            return Scalar::of(to_bits16(args[0].as<float>(), instr.memory));
        case ScalarOp::from_bits16:
            return Scalar::of(from_bits16(args[0].as<std::uint16_t>(), instr.memory));
        case ScalarOp::dot_pairs:
            return dot_pairs(args[0].as<std::uint32_t>(), args[1].as<std::uint32_t>(), instr.memory);
        default:
            break;
    }
    return with_type(operand, [&](auto zero) {
        using T = decltype(zero);
        const T a = args[0].as<T>();
        const T b = args[1].as<T>();
        if constexpr (std::is_same_v<T, bool>) {
            return bool_op(instr.op, a, b);
        } else if constexpr (std::is_floating_point_v<T>) {
            return Scalar::of(float_op(instr.op, a, b, args[2].as<T>()));
        } else {
            return integer_op(instr.op, a, b);
        }
    });
}

Scalar initial_scalar(Combiner combiner, DType type) {
    return with_type(type, [&](auto zero) {
        using T = decltype(zero);
        using Limits = std::numeric_limits<T>;
        switch (combiner) {
            case Combiner::sum:
            case Combiner::logical_or:
                return Scalar::of(T{0});
            case Combiner::product:
            case Combiner::logical_and:
                return Scalar::of(T{1});
            case Combiner::min:
            case Combiner::argmin:
                return Scalar::of(Limits::has_infinity ? Limits::infinity() : Limits::max());
            case Combiner::max:
            case Combiner::argmax:
                return Scalar::of(Limits::has_infinity ? static_cast<T>(-Limits::infinity()) : Limits::lowest());
            case Combiner::fmin:
                return Scalar::of(Limits::has_quiet_NaN ? Limits::quiet_NaN() : Limits::max());
            case Combiner::fmax:
                return Scalar::of(Limits::has_quiet_NaN ? Limits::quiet_NaN() : Limits::lowest());
        }
        return Scalar{};
    });
}

Scalar combine(Combiner combiner, DType type, Scalar accumulated, Scalar value) {
    Instr step;
    step.type = type;
    switch (combiner) {
        case Combiner::sum:
            step.op = ScalarOp::add;
            break;
        case Combiner::product:
            step.op = ScalarOp::mul;
            break;
        case Combiner::min:
            step.op = ScalarOp::min;
            break;
        case Combiner::max:
            step.op = ScalarOp::max;
            break;
        case Combiner::fmin:
            step.op = ScalarOp::fmin;
            break;
        case Combiner::fmax:
            step.op = ScalarOp::fmax;
            break;
        case Combiner::logical_and:
            step.op = ScalarOp::bit_and;
            break;
        case Combiner::logical_or:
            step.op = ScalarOp::bit_or;
            break;
        case Combiner::argmin:
        case Combiner::argmax:
            throw InternalError(concat("evaluate: ", name_of(combiner), " keeps a position, use replaces()"));
    }
    return evaluate_scalar(step, type, {accumulated, value, Scalar{}});
}

bool replaces(Combiner combiner, DType type, Scalar value, Scalar best) {
    const Scalar result = with_type(type, [&](auto zero) {
        using T = decltype(zero);
        const T x = value.as<T>();
        const T y = best.as<T>();
        const bool x_is_nan = x != x;
        const bool y_is_nan = y != y;
        if (x_is_nan || y_is_nan) return Scalar::of(x_is_nan && !y_is_nan);
        return Scalar::of(combiner == Combiner::argmin ? x < y : x > y);
    });
    return result.as<bool>();
}

}  // namespace topstitch::loopir
