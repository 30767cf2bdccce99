// Binary arithmetic with broadcasting: sums, products, quotients, remainders, extremes.
// power, atan2 and their like are in binary_math.cpp; comparison, logic and bits in binary_logic.cpp.
#include "ops/complex_math.h"
#include "ops/elementwise.h"
#include "ops/expr.h"
#include "ops/families.h"

namespace topstitch::ops {

using namespace expr;
using loopir::ScalarOp;
using loopir::ValueId;

namespace {

// --- Sums, products and quotients.

BinaryScalar by_parts(ScalarOp op) {
    return [op](ElementContext& c, DType, const Value& a, const Value& b) {
        Value y{c.b.op(op, a.re, b.re)};
        if (a.is_complex()) y.im = c.b.op(op, a.im, b.im);
        return y;
    };
}

Value scalar_multiply(ElementContext& c, DType, const Value& a, const Value& b) {
    return a.is_complex() ? complex_mul(c.b, a, b) : Value{c.b.mul(a.re, b.re)};
}

Value scalar_divide(ElementContext& c, DType, const Value& a, const Value& b) {
    return a.is_complex() ? complex_div(c.b, a, b) : Value{c.b.div(a.re, b.re)};
}

Value scalar_divide_no_nan(ElementContext& c, DType dtype, const Value& a, const Value& b) {
    return c.select(truth(c, b), scalar_divide(c, dtype, a, b), c.constant(0.0, dtype));
}

void add_basic(std::vector<OpDef>& ops) {
    ops.push_back(binary_op(
        {.name = "add",
         .mpsgraph = {"addition"},
         .onnx = "Add",
         .dtypes = numbers,
         .commutative = true,
         .doc = "a + b; integers wrap."},
        by_parts(ScalarOp::add),
        binary_rule([](GradientContext& g) { return g.grad(); }, [](GradientContext& g) { return g.grad(); })));
    ops.push_back(binary_op(
        {.name = "subtract",
         .mpsgraph = {"subtraction"},
         .onnx = "Sub",
         .dtypes = numbers,
         .doc = "a - b; integers wrap."},
        by_parts(ScalarOp::sub),
        binary_rule([](GradientContext& g) { return g.grad(); }, [](GradientContext& g) { return -g.grad(); })));
    ops.push_back(binary_op({.name = "multiply",
                             .mpsgraph = {"multiplication"},
                             .onnx = "Mul",
                             .dtypes = numbers,
                             .commutative = true,
                             .doc = "a * b; integers wrap."},
                            scalar_multiply,
                            binary_rule([](GradientContext& g) { return chain(g.grad(), g.input(1)); },
                                        [](GradientContext& g) { return chain(g.grad(), g.input(0)); })));
    ops.push_back(binary_op(
        {.name = "divide",
         .mpsgraph = {"division"},
         .onnx = "Div",
         .dtypes = floats | complexes,
         .hint = "use floor_divide or truncate_divide for a whole quotient, or cast both to a floating-point dtype",
         .doc = "a / b: x / 0 is +-inf, and 0 / 0 NaN. Integers are refused, because a quotient of integers is not an "
                "integer: see floor_divide and truncate_divide. For complex64 by Smith's method, which does not "
                "overflow on the way."},
        scalar_divide,
        binary_rule([](GradientContext& g) { return g.grad() / conj_if_complex(g.input(1)); },
                    [](GradientContext& g) { return -(g.grad() * conj_if_complex(g.output() / g.input(1))); })));
    ops.push_back(binary_op(
        {.name = "divide_no_nan",
         .mpsgraph = {"divisionNoNaN"},
         .dtypes = floats | complexes,
         .doc = "a / b, and 0 wherever b is 0, whatever a is. The gradients are 0 there too."},
        scalar_divide_no_nan,
        binary_rule([](GradientContext& g) { return binary("divide_no_nan", g.grad(), conj_if_complex(g.input(1))); },
                    [](GradientContext& g) {
                        const Tensor slope = binary("divide_no_nan", g.output(), g.input(1));
                        return -(g.grad() * conj_if_complex(slope));
                    })));
}

// --- Whole quotients and remainders.

// Bool: one of the signs of a and b is negative, and not the other's.
ValueId signs_differ(ElementContext& c, ValueId a, ValueId b) {
    const ValueId zero = number(c, 0.0, a);
    return c.b.op(ScalarOp::bit_xor, c.b.op(ScalarOp::lt, a, zero), c.b.op(ScalarOp::lt, b, zero));
}

// Bool: the remainder is not 0 and has not the sign of the divisor, so that floor and truncation differ.
ValueId floor_is_lower(ElementContext& c, ValueId remainder, ValueId divisor) {
    const ValueId inexact = c.b.op(ScalarOp::ne, remainder, number(c, 0.0, remainder));
    return c.b.op(ScalarOp::bit_and, inexact, signs_differ(c, remainder, divisor));
}

Value scalar_floor_divide(ElementContext& c, DType dtype, const Value& a, const Value& b) {
    const ValueId remainder = c.b.op(ScalarOp::rem, a.re, b.re);
    if (is_unsigned_integer(dtype)) return Value{c.b.div(a.re, b.re)};
    const ValueId one = number(c, 1.0, a.re);
    const ValueId lower = floor_is_lower(c, remainder, b.re);
    if (is_integer(dtype)) {
        const ValueId quotient = c.b.div(a.re, b.re);
        return Value{c.b.select(lower, c.b.sub(quotient, one), quotient)};
    }
    // As Python's float.__floordiv__: the exact remainder makes the quotient nearly whole, so that rounding it to the
    // nearest whole number is right where floor(a / b) would be off by one.
    const ValueId plain = c.b.div(a.re, b.re);
    const ValueId exact = c.b.div(c.b.sub(a.re, remainder), b.re);
    const ValueId nearly = c.b.select(lower, c.b.sub(exact, one), exact);
    const ValueId whole = c.b.op(ScalarOp::floor, nearly);
    const ValueId half = number(c, 0.5, a.re);
    const ValueId up = c.b.op(ScalarOp::lt, half, c.b.sub(nearly, whole));
    const ValueId rounded = c.b.select(up, c.b.add(whole, one), whole);
    const ValueId zero = number(c, 0.0, a.re);
    const ValueId quotient =
        c.b.select(c.b.op(ScalarOp::eq, nearly, zero), c.b.op(ScalarOp::copysign, zero, plain), rounded);
    return Value{c.b.select(c.b.op(ScalarOp::eq, b.re, zero), plain, quotient)};
}

Value scalar_truncate_divide(ElementContext& c, DType dtype, const Value& a, const Value& b) {
    const ValueId quotient = c.b.div(a.re, b.re);
    return Value{is_integer(dtype) ? quotient : c.b.op(ScalarOp::trunc, quotient)};
}

Value scalar_remainder(ElementContext& c, DType dtype, const Value& a, const Value& b) {
    const ValueId remainder = c.b.op(ScalarOp::rem, a.re, b.re);
    if (is_unsigned_integer(dtype)) return Value{remainder};
    const ValueId lower = floor_is_lower(c, remainder, b.re);
    const ValueId shifted = c.b.select(lower, c.b.add(remainder, b.re), remainder);
    if (is_integer(dtype)) return Value{shifted};
    const ValueId zero = number(c, 0.0, a.re);  // of the sign of b
    return Value{c.b.select(c.b.op(ScalarOp::eq, remainder, zero), c.b.op(ScalarOp::copysign, zero, b.re), shifted)};
}

// d(a - b*q)/db, where the whole quotient q does not vary.
Partial minus_quotient(const char* divide) {
    return [divide](GradientContext& g) { return -(g.grad() * binary(divide, g.input(0), g.input(1))); };
}

void add_whole_division(std::vector<OpDef>& ops) {
    ops.push_back(binary_op(
        {.name = "floor_divide",
         .dtypes = reals,
         .doc =
             "The largest whole number not above a / b, as Python's //. For integers x / 0 is 0, and the lowest "
             "value / -1 wraps; for floats x / 0 is +-inf or NaN. Consistent with remainder: a = b * floor_divide(a, "
             "b) + remainder(a, b) up to rounding. The derivative is 0 everywhere."},
        scalar_floor_divide, zero_gradient()));
    ops.push_back(binary_op(
        {.name = "truncate_divide",
         .dtypes = reals,
         .doc =
             "a / b without its fraction, as C divides integers (floats: trunc(a / b)). For integers x / 0 is 0, and "
             "the lowest value / -1 wraps; for floats x / 0 is +-inf or NaN. The derivative is 0 everywhere."},
        scalar_truncate_divide, zero_gradient()));
    ops.push_back(binary_op(
        {.name = "remainder",
         .mpsgraph = {"floorModulo"},
         .onnx = "Mod",
         .dtypes = reals,
         .doc = "The remainder that goes with floor_divide and has the sign of b, as Python's %. For integers x % 0 is "
                "0; for floats it is NaN. Exact for integers, and for floats of one sign."},
        scalar_remainder, binary_rule([](GradientContext& g) { return g.grad(); }, minus_quotient("floor_divide"))));
    ops.push_back(binary_op(
        {.name = "fmod",
         .mpsgraph = {"modulo"},
         .dtypes = reals,
         .doc = "The remainder that goes with truncate_divide and has the sign of a, as C's fmod and %. For integers "
                "x % 0 is 0; for floats it is NaN. Exact."},
        instruction2(ScalarOp::rem),
        binary_rule([](GradientContext& g) { return g.grad(); }, minus_quotient("truncate_divide"))));
}

// --- Extremes.

BinaryScalar extreme(ScalarOp op, ScalarOp for_bool) {
    return [=](ElementContext& c, DType dtype, const Value& a, const Value& b) {
        return Value{c.b.op(dtype == DType::boolean ? for_bool : op, a.re, b.re)};
    };
}

// The share of input `k`: all of the gradient where it is the extreme, half of it at ties. A NaN that makes the
// result NaN passes the gradient on to both inputs; with `ignore_nan` the other input takes all of it.
Tensor extreme_share(GradientContext& g, int k, bool largest, bool ignore_nan) {
    const Tensor& mine = g.input(k);
    const Tensor& other = g.input(1 - k);
    Tensor loses = largest ? less(mine, other) : greater(mine, other);
    if (ignore_nan) { loses = binary("logical_or", loses, logical_and(unary("is_nan", mine), equal(other, other))); }
    const Tensor zero = constant_like(0.0, g.grad());
    return where(equal(mine, other), 0.5 * g.grad(), where(loses, zero, g.grad()));
}

void add_extremes(std::vector<OpDef>& ops) {
    const auto add = [&ops](const char* name, std::vector<std::string> mpsgraph, const char* onnx, ScalarOp op,
                            bool largest, bool ignore_nan, const char* doc) {
        const auto share = [=](int k) -> Partial {
            return [=](GradientContext& g) { return extreme_share(g, k, largest, ignore_nan); };
        };
        ops.push_back(binary_op({.name = name,
                                 .mpsgraph = std::move(mpsgraph),
                                 .onnx = onnx,
                                 .dtypes = bools | reals,
                                 .commutative = true,
                                 .doc = doc},
                                extreme(op, largest ? ScalarOp::bit_or : ScalarOp::bit_and),
                                binary_rule(share(0), share(1))));
    };
    add("minimum", {"minimumWithNaNPropagation"}, "Min", ScalarOp::min, false, false,
        "The smaller element; NaN if either is NaN (fmin ignores NaN). Where the two are equal each gets half of the "
        "gradient.");
    add("maximum", {"maximumWithNaNPropagation"}, "Max", ScalarOp::max, true, false,
        "The larger element; NaN if either is NaN (fmax ignores NaN). Where the two are equal each gets half of the "
        "gradient.");
    add("fmin", {"minimum"}, "", ScalarOp::fmin, false, true,
        "The smaller element; of a number and a NaN the number (minimum propagates NaN). Where the two are equal each "
        "gets half of the gradient.");
    add("fmax", {"maximum"}, "", ScalarOp::fmax, true, true,
        "The larger element; of a number and a NaN the number (maximum propagates NaN). Where the two are equal each "
        "gets half of the gradient.");
}

}  // namespace

std::vector<OpDef> binary_ops() {
    std::vector<OpDef> ops;
    add_basic(ops);
    add_whole_division(ops);
    add_extremes(ops);
    return ops;
}

}  // namespace topstitch::ops
