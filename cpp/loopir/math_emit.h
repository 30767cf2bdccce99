// A small notation for writing arithmetic as loop IR: operators on V append instructions to a kernel.
// The math functions are written in it (math_functions.h); only expand_math uses it.
#pragma once

#include <concepts>
#include <initializer_list>
#include <map>
#include <tuple>
#include <type_traits>
#include <vector>

#include "loopir/kernel.h"
#include "loopir/math_expand.h"

namespace topstitch::loopir::math {

class Emit;

template <typename N>
concept Number = std::is_arithmetic_v<N>;

// A value under construction.
struct V {
    Emit* emit = nullptr;
    ValueId id = no_value;

    DType type() const;
    // The number as a constant of this value's type.
    template <Number N>
    V like(N number) const;
};

// Appends instructions, each with its Let, at a place that moves along with the pass. Equal ones are shared.
class Emit {
public:
    Emit(Kernel& kernel, const MathTarget& target) : kernel_(kernel), target_(target) {}

    bool has_fma() const { return target_.fma; }
    bool has_float64() const { return target_.float64; }
    V value(ValueId id) { return {this, id}; }
    const Instr& instr(ValueId id) const { return kernel_.instrs[static_cast<std::size_t>(id)]; }

    V constant(double number, DType type);
    V constant_int(std::int64_t number, DType type);
    V op(ScalarOp op, DType type, V a, V b = {}, V c = {});

    // Turns the instruction of `target`, which the statements do not evaluate yet, into the one that computes `result`.
    void finish(ValueId target, V result);

    // Statements go to `stmts` until the matching pop; what was shared inside is forgotten then.
    void push(std::vector<Stmt>& stmts);
    void pop();
    // The constants: to be evaluated before everything else.
    std::vector<Stmt>& prologue() { return prologue_; }

private:
    using Key = std::tuple<ScalarOp, DType, ValueId, ValueId, ValueId>;
    struct Scope {
        std::vector<Stmt>* stmts;
        std::map<Key, ValueId> seen;
    };
    ValueId append(Instr instr, std::vector<Stmt>& stmts);

    Kernel& kernel_;
    MathTarget target_;
    std::vector<Scope> scopes_;
    std::vector<Stmt> prologue_;
    std::map<std::tuple<DType, std::int64_t>, ValueId> constants_;  // by type and bits
};

inline DType V::type() const {
    return emit->instr(id).type;
}

template <Number N>
V V::like(N number) const {
    if (is_floating(type())) return emit->constant(static_cast<double>(number), type());
    return emit->constant_int(static_cast<std::int64_t>(number), type());
}

// A number beside a value takes the value's type.
inline V lift(V, V value) {
    return value;
}
template <Number N>
V lift(V beside, N number) {
    return beside.like(number);
}

template <typename T>
concept Operand = Number<T> || std::same_as<T, V>;

template <Operand A, Operand B>
V binary(ScalarOp op, A a, B b) {
    if constexpr (std::same_as<A, V>) {
        return a.emit->op(op, a.type(), a, lift(a, b));
    } else {
        return b.emit->op(op, b.type(), lift(b, a), b);
    }
}
template <Operand A, Operand B>
V compare(ScalarOp op, A a, B b) {
    if constexpr (std::same_as<A, V>) {
        return a.emit->op(op, DType::boolean, a, lift(a, b));
    } else {
        return b.emit->op(op, DType::boolean, lift(b, a), b);
    }
}
inline V unary(ScalarOp op, V a) {
    return a.emit->op(op, a.type(), a);
}

template <typename A, typename B>
concept Operands = Operand<A> && Operand<B> && (std::same_as<A, V> || std::same_as<B, V>);

template <typename A, typename B>
    requires Operands<A, B>
V operator+(A a, B b) {
    return binary(ScalarOp::add, a, b);
}
template <typename A, typename B>
    requires Operands<A, B>
V operator-(A a, B b) {
    return binary(ScalarOp::sub, a, b);
}
template <typename A, typename B>
    requires Operands<A, B>
V operator*(A a, B b) {
    return binary(ScalarOp::mul, a, b);
}
template <typename A, typename B>
    requires Operands<A, B>
V operator/(A a, B b) {
    return binary(ScalarOp::div, a, b);
}
template <typename A, typename B>
    requires Operands<A, B>
V operator&(A a, B b) {
    return binary(ScalarOp::bit_and, a, b);
}
template <typename A, typename B>
    requires Operands<A, B>
V operator|(A a, B b) {
    return binary(ScalarOp::bit_or, a, b);
}
template <typename A, typename B>
    requires Operands<A, B>
V operator^(A a, B b) {
    return binary(ScalarOp::bit_xor, a, b);
}
template <typename A, typename B>
    requires Operands<A, B>
V operator<<(A a, B b) {
    return binary(ScalarOp::shl, a, b);
}
template <typename A, typename B>
    requires Operands<A, B>
V operator>>(A a, B b) {
    return binary(ScalarOp::shr, a, b);
}
template <typename A, typename B>
    requires Operands<A, B>
V operator<(A a, B b) {
    return compare(ScalarOp::lt, a, b);
}
template <typename A, typename B>
    requires Operands<A, B>
V operator<=(A a, B b) {
    return compare(ScalarOp::le, a, b);
}
template <typename A, typename B>
    requires Operands<A, B>
V equal(A a, B b) {
    return compare(ScalarOp::eq, a, b);
}
template <typename A, typename B>
    requires Operands<A, B>
V not_equal(A a, B b) {
    return compare(ScalarOp::ne, a, b);
}

inline V operator-(V a) {
    return unary(ScalarOp::neg, a);
}
inline V abs(V a) {
    return unary(ScalarOp::abs, a);
}
inline V sqrt(V a) {
    return unary(ScalarOp::sqrt, a);
}
inline V floor(V a) {
    return unary(ScalarOp::floor, a);
}
inline V round_even(V a) {
    return unary(ScalarOp::round_even, a);
}
inline V trunc(V a) {
    return unary(ScalarOp::trunc, a);
}
inline V logical_not(V a) {
    return unary(ScalarOp::bit_not, a);
}
inline V copysign(V magnitude, V sign) {
    return binary(ScalarOp::copysign, magnitude, sign);
}

template <Operand A, Operand B>
V select(V condition, A a, B b) {
    if constexpr (std::same_as<A, V>) {
        return condition.emit->op(ScalarOp::select, a.type(), condition, a, lift(a, b));
    } else {
        return condition.emit->op(ScalarOp::select, b.type(), condition, lift(b, a), b);
    }
}
inline V cast(V a, DType type) {
    return a.type() == type ? a : a.emit->op(ScalarOp::cast, type, a);
}
inline V bitcast(V a, DType type) {
    return a.emit->op(ScalarOp::bitcast, type, a);
}

// a * b + c: fused where the target can, else with two roundings.
template <Operand B, Operand C>
V fma(V a, B b, C c) {
    if (!a.emit->has_fma()) return a * lift(a, b) + lift(a, c);
    return a.emit->op(ScalarOp::fma, a.type(), a, lift(a, b), lift(a, c));
}

// Bounds that let NaN pass (as the native minimum and maximum of x86 do, in this order of operands).
template <Number N>
V at_least(V x, N low) {
    return select(x < low, low, x);
}
template <Number N>
V at_most(V x, N high) {
    return select(high < x, high, x);
}

// c0 + c1 x + c2 x^2 + ..., by Horner's rule.
inline V polynomial(V x, std::initializer_list<double> coefficients) {
    auto c = std::rbegin(coefficients);
    V sum = x.like(*c);
    while (++c != std::rend(coefficients)) sum = fma(sum, x, *c);
    return sum;
}

}  // namespace topstitch::loopir::math
