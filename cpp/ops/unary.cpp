// Unary arithmetic, rounding, signs, tests of floats, logic and bits.
// Transcendental functions are in unary_math.cpp, complex parts in conversion.cpp.
#include <limits>

#include "ops/complex_math.h"
#include "ops/elementwise.h"
#include "ops/expr.h"
#include "ops/families.h"

namespace topstitch::ops {

using namespace expr;
using loopir::ScalarOp;
using loopir::ValueId;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// --- Arithmetic.

Value scalar_square(ElementContext& c, DType, const Value& x) {
    return x.is_complex() ? complex_square(c.b, x) : Value{c.b.mul(x.re, x.re)};
}

Value scalar_negative(ElementContext& c, DType, const Value& x) {
    Value y{c.b.op(ScalarOp::neg, x.re)};
    if (x.is_complex()) y.im = c.b.op(ScalarOp::neg, x.im);
    return y;
}

Value scalar_reciprocal(ElementContext& c, DType dtype, const Value& x) {
    const Value one = c.constant(1.0, dtype);
    return x.is_complex() ? complex_div(c.b, one, x) : Value{c.b.div(one.re, x.re)};
}

Value scalar_absolute(ElementContext& c, DType dtype, const Value& x) {
    if (x.is_complex()) return Value{scalar_hypot(c.b, x.re, x.im)};
    return is_unsigned_integer(dtype) ? x : Value{c.b.op(ScalarOp::abs, x.re)};
}

Value scalar_sign(ElementContext& c, DType dtype, const Value& x) {
    const ValueId zero = c.constant_int(0, dtype).re;
    const ValueId one = c.constant_int(1, dtype).re;
    // What is neither above nor below zero is returned as it is: zeros with their sign, and NaN.
    ValueId y = c.b.select(c.b.op(ScalarOp::lt, zero, x.re), one, x.re);
    if (!is_unsigned_integer(dtype)) {
        y = c.b.select(c.b.op(ScalarOp::lt, x.re, zero), c.constant_int(-1, dtype).re, y);
    }
    return Value{y};
}

Tensor absolute_gradient(GradientContext& g) {
    if (!is_complex(g.input().dtype())) return g.grad() * sign(g.input());
    // g * x / |x|, and 0 at 0, where the quotient would be 0 / 0.
    const Tensor at_zero = equal(g.output(), zeros_like(g.output()));
    const Tensor length = where(at_zero, ones_like(g.output()), g.output());
    return g.input() * cast(g.grad() / length, DType::complex64);
}

void add_arithmetic(std::vector<OpDef>& ops) {
    ops.push_back(unary_op(
        {.name = "identity",
         .mpsgraph = {"identity"},
         .onnx = "Identity",
         .dtypes = anything,
         .view = true,
         .doc = "The input itself, of every dtype."},
        [](ElementContext&, DType, const Value& x) { return x; },
        unary_rule([](GradientContext& g) { return g.grad(); })));
    ops.push_back(unary_op(
        {.name = "square",
         .mpsgraph = {"square"},
         .dtypes = numbers,
         .doc =
             "x * x; integers wrap. For complex64 the complex square (see absolute_square for the squared modulus)."},
        scalar_square, unary_rule([](GradientContext& g) { return chain(g.grad(), 2.0 * g.input()); })));
    ops.push_back(unary_op({.name = "negative",
                            .mpsgraph = {"negative"},
                            .onnx = "Neg",
                            .dtypes = numbers,
                            .doc = "-x. Integers wrap: the lowest signed value is its own negative, and unsigned "
                                   "values are negated modulo 2^bits."},
                           scalar_negative, unary_rule([](GradientContext& g) { return -g.grad(); })));
    ops.push_back(unary_op({.name = "reciprocal",
                            .mpsgraph = {"reciprocal"},
                            .onnx = "Reciprocal",
                            .dtypes = floats | complexes,
                            .doc = "1 / x; +-inf at +-0."},
                           scalar_reciprocal,
                           unary_rule([](GradientContext& g) { return chain(g.grad(), -square(g.output())); })));
    ops.push_back(unary_op({.name = "absolute",
                            .mpsgraph = {"absolute"},
                            .onnx = "Abs",
                            .dtypes = numbers,
                            .result = ResultType::real,
                            .doc = "Magnitude. Integers wrap: the lowest signed value stays what it is. For complex64 "
                                   "the modulus as float32, without overflow on the way and inf when either part is. "
                                   "The derivative at 0 is taken as 0."},
                           scalar_absolute, unary_rule(absolute_gradient)));
    ops.push_back(unary_op({.name = "sign",
                            .mpsgraph = {"sign"},
                            .onnx = "Sign",
                            .dtypes = reals,
                            .doc = "-1 below zero and 1 above; a zero is returned with its sign, NaN as NaN. "
                                   "The derivative is 0 everywhere."},
                           scalar_sign, zero_gradient()));
}

// --- Rounding.

// Integers are whole already.
UnaryScalar rounding(ScalarOp op) {
    return [op](ElementContext& c, DType dtype, const Value& x) {
        return is_integer(dtype) ? x : Value{c.b.op(op, x.re)};
    };
}

Value scalar_round(ElementContext& c, DType dtype, const Value& x) {
    if (is_integer(dtype)) return x;
    // x - trunc(x) is exact, so the comparison decides ties rightly; adding 0.5 first would not.
    const ValueId whole = c.b.op(ScalarOp::trunc, x.re);
    const ValueId fraction = c.b.op(ScalarOp::abs, c.b.sub(x.re, whole));
    const ValueId away = c.b.add(whole, c.b.op(ScalarOp::copysign, number(c, 1.0, x.re), x.re));
    return Value{c.b.select(c.b.op(ScalarOp::le, number(c, 0.5, x.re), fraction), away, whole)};
}

void add_rounding(std::vector<OpDef>& ops) {
    const auto add = [&ops](const char* name, const char* mpsgraph, const char* onnx, const std::string& doc,
                            UnaryScalar scalar) {
        ops.push_back(unary_op(
            {.name = name,
             .mpsgraph = {mpsgraph},
             .onnx = onnx,
             .dtypes = reals,
             .doc = doc + " Keeps the sign of zero, infinities and NaN; integers are returned as they are. The "
                          "derivative is 0 everywhere."},
            std::move(scalar), zero_gradient()));
    };
    add("ceil", "ceil", "Ceil", "The smallest whole number that is not less than x.", rounding(ScalarOp::ceil));
    add("floor", "floor", "Floor", "The largest whole number that is not greater than x.", rounding(ScalarOp::floor));
    add("trunc", "truncate", "", "The whole number next to x toward zero.", rounding(ScalarOp::trunc));
    add("rint", "rint", "Round", "The nearest whole number; ties go to the even one, as NumPy's round does.",
        rounding(ScalarOp::round_even));
    add("round", "round", "",
        "The nearest whole number; ties go away from zero, as C's round does (rint takes ties to even).", scalar_round);
}

// --- Tests.

Value scalar_signbit(ElementContext& c, DType dtype, const Value& x) {
    if (is_unsigned_integer(dtype)) return Value{c.b.constant_int(0, DType::boolean)};
    if (is_integer(dtype)) return Value{c.b.op(ScalarOp::lt, x.re, c.constant_int(0, dtype).re)};
    const ValueId unit = c.b.op(ScalarOp::copysign, number(c, 1.0, x.re), x.re);
    return Value{c.b.op(ScalarOp::lt, unit, number(c, 0.0, x.re))};
}

ValueId part_is_nan(ElementContext& c, ValueId x) {
    return c.b.op(ScalarOp::ne, x, x);
}
ValueId part_is_inf(ElementContext& c, ValueId x) {
    return c.b.op(ScalarOp::eq, c.b.op(ScalarOp::abs, x), number(c, infinity, x));
}
ValueId part_is_finite(ElementContext& c, ValueId x) {
    return c.b.op(ScalarOp::lt, c.b.op(ScalarOp::abs, x), number(c, infinity, x));
}

// Tests each part with `test` and combines the two of a complex number; `integers_are` is the answer for integers.
UnaryScalar float_test(ValueId (*test)(ElementContext&, ValueId), ScalarOp combine, bool integers_are) {
    return [=](ElementContext& c, DType dtype, const Value& x) {
        if (is_integer(dtype)) return Value{c.b.constant_int(integers_are ? 1 : 0, DType::boolean)};
        const ValueId re = test(c, x.re);
        return Value{x.is_complex() ? c.b.op(combine, re, test(c, x.im)) : re};
    };
}

void add_tests(std::vector<OpDef>& ops) {
    const auto add = [&ops](const char* name, const char* mpsgraph, const char* onnx, DTypes dtypes, const char* doc,
                            UnaryScalar scalar) {
        ops.push_back(unary_op({.name = name,
                                .mpsgraph = {mpsgraph},
                                .onnx = onnx,
                                .dtypes = dtypes,
                                .result = ResultType::boolean,
                                .doc = doc},
                               std::move(scalar), NotDifferentiable{"its result is bool"}));
    };
    add("signbit", "signbit", "", reals, "True where the sign bit is set: below zero, at -0 and for a NaN with a sign.",
        scalar_signbit);
    add("is_nan", "isNaN", "IsNaN", numbers, "True where x is not a number (complex64: where either part is not).",
        float_test(part_is_nan, ScalarOp::bit_or, false));
    add("is_inf", "isInfinite", "IsInf", numbers, "True where x is infinite (complex64: where either part is).",
        float_test(part_is_inf, ScalarOp::bit_or, false));
    add("is_finite", "isFinite", "", numbers,
        "True where x is neither infinite nor NaN (complex64: where both parts are finite).",
        float_test(part_is_finite, ScalarOp::bit_and, true));
    add("logical_not", "not", "Not", anything, "True where x is zero or false; NaN counts as true.",
        [](ElementContext& c, DType, const Value& x) { return Value{negated(c, truth(c, x))}; });
}

// --- Bits.

void add_bits(std::vector<OpDef>& ops) {
    ops.push_back(unary_op({.name = "bitwise_not",
                            .mpsgraph = {"bitwiseNOT"},
                            .onnx = "BitwiseNot",
                            .dtypes = bools | integers,
                            .doc = "Every bit inverted; for bool the logical negation."},
                           instruction1(ScalarOp::bit_not),
                           NotDifferentiable{"it works on the bits of integers, which do not vary continuously"}));
    ops.push_back(unary_op({.name = "popcount",
                            .mpsgraph = {"bitwisePopulationCount"},
                            .dtypes = integers,
                            .doc = "The number of bits that are set (of the two's complement for negative numbers), in "
                                   "the dtype of x."},
                           instruction1(ScalarOp::popcount),
                           NotDifferentiable{"it counts the bits of integers, which do not vary continuously"}));
}

}  // namespace

std::vector<OpDef> unary_ops() {
    std::vector<OpDef> ops;
    add_arithmetic(ops);
    add_rounding(ops);
    add_tests(ops);
    add_bits(ops);
    return ops;
}

}  // namespace topstitch::ops
