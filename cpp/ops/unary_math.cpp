// Exponentials, logarithms, roots, trigonometric and hyperbolic functions, error functions.
// Called by unary.cpp; formulas of derivatives: Abramowitz and Stegun, chapters 3, 4 and 7.
#include <numbers>

#include "ops/complex_math.h"
#include "ops/elementwise.h"
#include "ops/expr.h"

namespace topstitch::ops {

using namespace expr;
using loopir::Builder;
using loopir::ScalarOp;

namespace {

constexpr double ln2 = std::numbers::ln2;
constexpr double ln10 = std::numbers::ln10;

// Real functions are one instruction; complex64 takes `complex`.
UnaryScalar with_complex(ScalarOp op, Value (*complex)(Builder&, const Value&)) {
    return [op, complex](ElementContext& c, DType, const Value& x) {
        return x.is_complex() ? complex(c.b, x) : Value{c.b.op(op, x.re)};
    };
}

// A function of real floating-point numbers that is one instruction, with its derivative as a tensor.
OpDef real_function(const char* name, std::vector<std::string> mpsgraph, const char* onnx, ScalarOp op, const char* doc,
                    Partial partial) {
    return unary_op({.name = name, .mpsgraph = std::move(mpsgraph), .onnx = onnx, .doc = doc}, instruction1(op),
                    unary_rule(std::move(partial)));
}

OpDef complex_function(const char* name, std::vector<std::string> mpsgraph, const char* onnx, ScalarOp op,
                       Value (*complex)(Builder&, const Value&), const char* doc, Partial partial) {
    return unary_op(
        {.name = name, .mpsgraph = std::move(mpsgraph), .onnx = onnx, .dtypes = floats | complexes, .doc = doc},
        with_complex(op, complex), unary_rule(std::move(partial)));
}

// 1 - x*x without the cancellation near 1.
Tensor one_minus_square(const Tensor& x) {
    return (1.0 - x) * (1.0 + x);
}

void add_exponentials(std::vector<OpDef>& ops) {
    ops.push_back(
        complex_function("exp", {"exponent"}, "Exp", ScalarOp::exp, complex_exp,
                         "e to the power of each element. Overflows to inf and underflows to 0. For complex64 "
                         "exp(re) * (cos(im) + i sin(im)).",
                         [](GradientContext& g) { return chain(g.grad(), g.output()); }));
    ops.push_back(real_function("exp2", {"exponentBase2"}, "", ScalarOp::exp2,
                                "2 to the power of each element; exact for integers in range.",
                                [](GradientContext& g) { return g.grad() * g.output() * ln2; }));
    ops.push_back(real_function("exp10", {"exponentBase10"}, "", ScalarOp::exp10, "10 to the power of each element.",
                                [](GradientContext& g) { return g.grad() * g.output() * ln10; }));
    ops.push_back(real_function("expm1", {}, "", ScalarOp::expm1,
                                "exp(x) - 1, accurate also where x is near 0. Keeps the sign of zero.",
                                [](GradientContext& g) { return g.grad() * (g.output() + 1.0); }));
    ops.push_back(
        complex_function("log", {"logarithm"}, "Log", ScalarOp::log, complex_log,
                         "Natural logarithm: -inf at 0, NaN for negative numbers. For complex64 the principal value "
                         "log|x| + i atan2(im, re), with the cut along the negative real axis.",
                         [](GradientContext& g) { return chain(g.grad(), 1.0 / g.input()); }));
    ops.push_back(real_function("log2", {"logarithmBase2"}, "", ScalarOp::log2,
                                "Logarithm to base 2: -inf at 0, NaN for negative numbers; exact for powers of 2.",
                                [](GradientContext& g) { return g.grad() / (g.input() * ln2); }));
    ops.push_back(real_function("log10", {"logarithmBase10"}, "", ScalarOp::log10,
                                "Logarithm to base 10: -inf at 0, NaN for negative numbers.",
                                [](GradientContext& g) { return g.grad() / (g.input() * ln10); }));
    ops.push_back(real_function("log1p", {}, "", ScalarOp::log1p,
                                "log(1 + x), accurate also where x is near 0: -inf at -1, NaN below. Keeps the sign "
                                "of zero.",
                                [](GradientContext& g) { return g.grad() / (g.input() + 1.0); }));
}

void add_roots(std::vector<OpDef>& ops) {
    ops.push_back(complex_function(
        "sqrt", {"squareRoot"}, "Sqrt", ScalarOp::sqrt, complex_sqrt,
        "Square root, correctly rounded for real tensors: NaN below 0, and -0 gives -0. For complex64 the root whose "
        "real part is not negative. The derivative at 0 is inf.",
        [](GradientContext& g) { return chain(g.grad(), 0.5 / g.output()); }));
    ops.push_back(real_function("rsqrt", {"reciprocalSquareRoot", "reverseSquareRoot"}, "", ScalarOp::rsqrt,
                                "1 / sqrt(x): +-inf at +-0, NaN below, 0 at inf.", [](GradientContext& g) {
                                    return g.grad() * (-0.5 * g.output() * square(g.output()));
                                }));
    ops.push_back(real_function("cbrt", {}, "", ScalarOp::cbrt,
                                "Cube root, of the sign of x. The derivative at 0 is inf.",
                                [](GradientContext& g) { return g.grad() / (3.0 * square(g.output())); }));
}

void add_trigonometric(std::vector<OpDef>& ops) {
    ops.push_back(complex_function(
        "sin", {"sin"}, "Sin", ScalarOp::sin, complex_sin,
        "Sine of an angle in radians, with full range reduction; NaN at infinities. Also of complex numbers.",
        [](GradientContext& g) { return chain(g.grad(), cos(g.input())); }));
    ops.push_back(complex_function(
        "cos", {"cos"}, "Cos", ScalarOp::cos, complex_cos,
        "Cosine of an angle in radians, with full range reduction; NaN at infinities. Also of complex numbers.",
        [](GradientContext& g) { return chain(g.grad(), -sin(g.input())); }));
    ops.push_back(real_function("tan", {"tan"}, "Tan", ScalarOp::tan,
                                "Tangent of an angle in radians, with full range reduction; NaN at infinities.",
                                [](GradientContext& g) { return g.grad() * (square(g.output()) + 1.0); }));
    ops.push_back(real_function("asin", {"asin"}, "Asin", ScalarOp::asin,
                                "Inverse sine, in [-pi/2, pi/2]; NaN outside [-1, 1].",
                                [](GradientContext& g) { return g.grad() * rsqrt(one_minus_square(g.input())); }));
    ops.push_back(real_function("acos", {"acos"}, "Acos", ScalarOp::acos,
                                "Inverse cosine, in [0, pi]; NaN outside [-1, 1].",
                                [](GradientContext& g) { return -(g.grad() * rsqrt(one_minus_square(g.input()))); }));
    ops.push_back(real_function("atan", {"atan"}, "Atan", ScalarOp::atan, "Inverse tangent, in [-pi/2, pi/2].",
                                [](GradientContext& g) { return g.grad() / (square(g.input()) + 1.0); }));
}

void add_hyperbolic(std::vector<OpDef>& ops) {
    ops.push_back(real_function("sinh", {"sinh"}, "Sinh", ScalarOp::sinh, "Hyperbolic sine.",
                                [](GradientContext& g) { return g.grad() * unary("cosh", g.input()); }));
    ops.push_back(real_function("cosh", {"cosh"}, "Cosh", ScalarOp::cosh, "Hyperbolic cosine.",
                                [](GradientContext& g) { return g.grad() * unary("sinh", g.input()); }));
    ops.push_back(real_function("tanh", {"tanh"}, "Tanh", ScalarOp::tanh, "Hyperbolic tangent.",
                                [](GradientContext& g) { return g.grad() * one_minus_square(g.output()); }));
    // 1/sqrt(x*x + 1) by hypot, so that x*x does not overflow.
    ops.push_back(real_function(
        "asinh", {"asinh"}, "Asinh", ScalarOp::asinh, "Inverse hyperbolic sine.",
        [](GradientContext& g) { return g.grad() / binary("hypot", g.input(), constant_like(1.0, g.input())); }));
    // Factors of x*x - 1 keep the precision near 1 and do not overflow.
    ops.push_back(real_function(
        "acosh", {"acosh"}, "Acosh", ScalarOp::acosh, "Inverse hyperbolic cosine, not negative; NaN below 1.",
        [](GradientContext& g) { return g.grad() * rsqrt(g.input() - 1.0) * rsqrt(g.input() + 1.0); }));
    ops.push_back(real_function("atanh", {"atanh"}, "Atanh", ScalarOp::atanh,
                                "Inverse hyperbolic tangent: +-inf at +-1, NaN beyond.",
                                [](GradientContext& g) { return g.grad() / one_minus_square(g.input()); }));
}

void add_error_functions(std::vector<OpDef>& ops) {
    constexpr double slope = 2.0 * std::numbers::inv_sqrtpi;  // of erf at 0
    ops.push_back(real_function("erf", {"erf"}, "Erf", ScalarOp::erf,
                                "Error function, 2/sqrt(pi) times the integral of exp(-t*t) from 0 to x.",
                                [](GradientContext& g) { return g.grad() * (slope * exp(-square(g.input()))); }));
    ops.push_back(real_function("erfc", {}, "", ScalarOp::erfc,
                                "Complementary error function, 1 - erf(x) without its cancellation for large x.",
                                [](GradientContext& g) { return g.grad() * (-slope * exp(-square(g.input()))); }));
}

}  // namespace

std::vector<OpDef> unary_math_ops() {
    std::vector<OpDef> ops;
    add_exponentials(ops);
    add_roots(ops);
    add_trigonometric(ops);
    add_hyperbolic(ops);
    add_error_functions(ops);
    return ops;
}

}  // namespace topstitch::ops
