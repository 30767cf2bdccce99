// power, atan2, hypot, copysign and complex: binary functions that need more than one instruction or a careful
// gradient. Formulas of derivatives: Abramowitz and Stegun, chapter 4.
#include "ops/complex_math.h"
#include "ops/elementwise.h"
#include "ops/expr.h"
#include "ops/families.h"

namespace topstitch::ops {

using namespace expr;
using loopir::ScalarOp;
using loopir::ValueId;

namespace {

int bits_of(DType dtype) {
    return static_cast<int>(size_of(dtype)) * 8;
}

// Repeated squaring over the bits of the exponent: exact modulo 2^bits.
ValueId integer_power(ElementContext& c, DType dtype, ValueId base, ValueId exponent) {
    const auto constant = [&](std::int64_t value) { return c.b.constant_int(value, dtype); };
    const ValueId zero = constant(0);
    const ValueId one = constant(1);
    const bool is_signed = is_signed_integer(dtype);
    const int steps = bits_of(dtype) - (is_signed ? 1 : 0);
    ValueId result = one;
    ValueId square = base;
    for (int bit = 0; bit < steps; ++bit) {
        const ValueId mask = c.b.op(ScalarOp::shl, one, constant(bit));
        const ValueId is_set = c.b.op(ScalarOp::ne, c.b.op(ScalarOp::bit_and, exponent, mask), zero);
        result = c.b.select(is_set, c.b.mul(result, square), result);
        if (bit + 1 < steps) square = c.b.mul(square, square);
    }
    if (!is_signed) return result;
    // 1 / base^n without its fraction: +-1 for a base of +-1, else 0 (also for a base of 0).
    const ValueId minus_one = constant(-1);
    const ValueId odd = c.b.op(ScalarOp::ne, c.b.op(ScalarOp::bit_and, exponent, one), zero);
    const ValueId of_minus_one = c.b.select(odd, minus_one, one);
    const ValueId inverse = c.b.select(c.b.op(ScalarOp::eq, base, one), one,
                                       c.b.select(c.b.op(ScalarOp::eq, base, minus_one), of_minus_one, zero));
    return c.b.select(c.b.op(ScalarOp::lt, exponent, zero), inverse, result);
}

Value scalar_power(ElementContext& c, DType dtype, const Value& a, const Value& b) {
    return Value{is_integer(dtype) ? integer_power(c, dtype, a.re, b.re) : c.b.op(ScalarOp::pow, a.re, b.re)};
}

// b * a^(b-1), and 0 where b is 0: there a^(b-1) may be infinite. The exponent is replaced before the power is taken,
// so that no infinity meets a zero, here or in the second derivative.
Tensor power_by_base(GradientContext& g) {
    const Tensor& exponent = g.input(1);
    const Tensor is_zero = equal(exponent, constant_like(0.0, exponent));
    const Tensor safe = where(is_zero, constant_like(1.0, exponent), exponent);
    return g.grad() * (exponent * power(g.input(0), safe - 1.0));
}

// a^b * log(a), and 0 where a is 0 and b not negative: there the power is flat (or steps from 1 to 0).
Tensor power_by_exponent(GradientContext& g) {
    const Tensor& base = g.input(0);
    const Tensor& exponent = g.input(1);
    const Tensor zero_base = equal(base, constant_like(0.0, base));
    const Tensor flat = logical_and(zero_base, binary("greater_equal", exponent, constant_like(0.0, exponent)));
    const Tensor safe = where(flat, constant_like(1.0, base), base);
    return g.grad() * (g.output() * log(safe));
}

// Gradients of functions of the direction of (a, b), by the unit vector, so that no square overflows; 0 at the origin.
Tensor unit(const Tensor& a, const Tensor& length) {
    return binary("divide_no_nan", a, length);
}

Tensor atan2_by(GradientContext& g, int k) {
    const Tensor length = binary("hypot", g.input(0), g.input(1));
    const Tensor direction = unit(g.input(1 - k), length);
    return g.grad() * unit(k == 0 ? direction : -direction, length);
}

Tensor copysign_by_magnitude(GradientContext& g) {
    const Tensor& a = g.input(0);
    const Tensor one = constant_like(1.0, a);
    const Tensor is_zero = equal(a, constant_like(0.0, a));
    const Tensor slope = binary("copysign", one, a) * binary("copysign", one, g.input(1));
    return g.grad() * where(is_zero, constant_like(0.0, a), slope);
}

OpDef complex_op() {
    OpDef def = binary_op(
        {.name = "complex",
         .mpsgraph = {"complexTensor"},
         .dtypes = floats,
         .doc = "The complex64 tensor with the given real and imaginary parts, both float32."},
        [](ElementContext&, DType, const Value& a, const Value& b) { return Value{a.re, b.re}; },
        binary_rule([](GradientContext& g) { return unary("real", g.grad()); },
                    [](GradientContext& g) { return unary("imag", g.grad()); }));
    def.args = {{"real", "float32 tensor"}, {"imag", "float32 tensor; the shapes broadcast"}};
    def.infer = [](const OpView& view) {
        for (int k = 0; k < 2; ++k) {
            if (view.input(k).dtype == DType::float32) continue;
            view.fail_type(concat(input_name(view, k), " has dtype ", name_of(view.input(k).dtype),
                                  ", but complex64 has float32 parts; use cast to convert it to float32"));
        }
        return std::vector<TensorType>{broadcast_type(view, DType::complex64)};
    };
    return def;
}

}  // namespace

std::vector<OpDef> binary_math_ops() {
    std::vector<OpDef> ops;
    ops.push_back(binary_op(
        {.name = "power",
         .mpsgraph = {"power"},
         .onnx = "Pow",
         .dtypes = reals,
         .doc =
             "a to the power of b. Floats follow C's pow: x^0 is 1 for every x, and a negative base with a fractional "
             "exponent gives NaN. Integers are exact and wrap; with a negative exponent a base of 1 or -1 gives 1 or "
             "-1, and every other base, 0 included, gives 0. The gradients are 0 where an exponent of 0 or a base "
             "of 0 makes the power flat."},
        scalar_power, binary_rule(power_by_base, power_by_exponent)));
    ops.push_back(binary_op(
        {.name = "atan2",
         .mpsgraph = {"atan2"},
         .doc =
             "The angle of the point with ordinate a and abscissa b, in [-pi, pi]; the signs of zeros tell the sides "
             "of the cut apart, as in C. The gradients are 0 at the origin."},
        instruction2(ScalarOp::atan2),
        binary_rule([](GradientContext& g) { return atan2_by(g, 0); },
                    [](GradientContext& g) { return atan2_by(g, 1); })));
    ops.push_back(binary_op(
        {.name = "hypot",
         .commutative = true,
         .doc =
             "sqrt(a*a + b*b) without overflow or underflow on the way; inf if either is infinite, even if the other "
             "is NaN. The gradients are 0 at the origin."},
        [](ElementContext& c, DType, const Value& a, const Value& b) { return Value{scalar_hypot(c.b, a.re, b.re)}; },
        binary_rule([](GradientContext& g) { return g.grad() * unit(g.input(0), g.output()); },
                    [](GradientContext& g) { return g.grad() * unit(g.input(1), g.output()); })));
    ops.push_back(binary_op(
        {.name = "copysign",
         .doc =
             "The magnitude of a with the sign bit of b, also for zeros and NaN. The gradient of a is 0 where a is 0; "
             "that of b is 0 everywhere."},
        instruction2(ScalarOp::copysign),
        binary_rule(copysign_by_magnitude, [](GradientContext& g) { return zeros_like(g.input(1)); })));
    ops.push_back(complex_op());
    return ops;
}

}  // namespace topstitch::ops
