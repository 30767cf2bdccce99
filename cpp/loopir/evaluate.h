// What each scalar instruction computes, on numbers: the meaning that every back end has to match.
// Shared by the constant folder of the builder and the interpreter.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "loopir/kernel.h"

namespace topstitch::loopir {

// A value of any compute type as bits: integers extended to 64 bits by their sign, floats as they are.
struct Scalar {
    std::uint64_t bits = 0;

    template <typename T>
    static Scalar of(T value) {
        if constexpr (std::is_same_v<T, float>) {
            return {std::bit_cast<std::uint32_t>(value)};
        } else if constexpr (std::is_same_v<T, double>) {
            return {std::bit_cast<std::uint64_t>(value)};
        } else {
            return {static_cast<std::uint64_t>(value)};  // extends the sign of a signed value
        }
    }

    template <typename T>
    T as() const {
        if constexpr (std::is_same_v<T, float>) {
            return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
        } else if constexpr (std::is_same_v<T, double>) {
            return std::bit_cast<double>(bits);
        } else {
            return static_cast<T>(bits);  // bool: bits is 0 or 1
        }
    }

    friend bool operator==(const Scalar& a, const Scalar& b) = default;
};

// The value of a constant instruction.
Scalar constant_scalar(const Instr& constant);
// The constant instruction with this value.
Instr constant_instr(Scalar value, DType type);

// Conversions between numbers and scalars of `type`, as the op `cast` converts.
Scalar scalar_from_double(double value, DType type);
Scalar scalar_from_int(std::int64_t value, DType type);  // integers wrap
double scalar_to_double(Scalar value, DType type);

// The result of `instr` (any op but the sources) on `args`; `operand` is the type of the first argument,
// which for select is not looked at.
Scalar evaluate_scalar(const Instr& instr, DType operand, const std::array<Scalar, 3>& args);

// What an accumulator starts from. The maximum of nothing is the lowest value, a fmin or fmax of nothing is NaN.
Scalar initial_scalar(Combiner combiner, DType type);
// One step of a reduction (not argmin and argmax, see replaces).
Scalar combine(Combiner combiner, DType type, Scalar accumulated, Scalar value);
// argmin, argmax: is `value` better than `best`, or NaN where best is not? Equals do not replace each other.
bool replaces(Combiner combiner, DType type, Scalar value, Scalar best);

}  // namespace topstitch::loopir
