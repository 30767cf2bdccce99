// Conversions between dtypes: cast, the parts of complex numbers, and constants of another tensor's shape.
// The reinterpretation of bits is in conversion_bits.cpp.
#include <utility>

#include "ops/complex_math.h"
#include "ops/elementwise.h"
#include "ops/expr.h"
#include "ops/families.h"

namespace topstitch::ops {

using namespace expr;
using loopir::Builder;
using loopir::ScalarOp;
using loopir::ValueId;

namespace {

// --- cast.

// float32 by rounding to odd: toward zero, with the last bit set when anything was lost. A second rounding, to 16
// bits, is then the same as one rounding of `x` (S. Boldo and G. Melquiond, IEEE Trans. Computers 57(4), 2008).
ValueId float_rounded_to_odd(Builder& b, ValueId x) {
    const DType type = b.type(x);
    const ValueId nearest = b.cast(x, DType::float32);
    const ValueId back = b.cast(nearest, type);
    const ValueId negative = b.op(ScalarOp::lt, x, b.constant(0.0, type));
    const ValueId too_far = b.select(negative, b.op(ScalarOp::lt, back, x), b.op(ScalarOp::lt, x, back));
    const ValueId bits = b.bitcast(nearest, DType::uint32);
    const ValueId one = b.constant_int(1, DType::uint32);
    const ValueId toward_zero = b.select(too_far, b.sub(bits, one), bits);
    const ValueId odd = b.op(ScalarOp::bit_or, toward_zero, one);
    return b.bitcast(b.select(b.op(ScalarOp::ne, back, x), odd, toward_zero), DType::float32);
}

// Whether float32 on the way to 16 bits would round visibly: float16 overflows long before integers are inexact.
bool rounds_twice(DType from, DType to) {
    if (from == DType::float64) return true;
    return to == DType::bfloat16 && is_integer(from) && size_of(from) >= 4;
}

ValueId real_cast(Builder& b, ValueId x, DType from, DType to) {
    if (from == to) return x;
    if (!is_half(to)) return b.cast(x, compute_type(to));
    const ValueId wide = rounds_twice(from, to) ? float_rounded_to_odd(b, x) : b.cast(x, DType::float32);
    return b.round_to(wide, to);
}

Value scalar_cast(ElementContext& c, DType from, const Value& x, DType to) {
    if (to == DType::boolean) return Value{truth(c, x)};
    if (!is_complex(to)) return Value{real_cast(c.b, x.re, real_type(from), to)};
    return x.is_complex() ? x : Value{c.b.cast(x.re, DType::float32), c.b.constant(0.0, DType::float32)};
}

OpDef cast_op() {
    OpDef def;
    def.name = "cast";
    def.family = "conversion";
    def.doc =
        "The elements converted to another dtype. To a float: the nearest value, ties to even, overflow to inf "
        "(float16, "
        "bfloat16: rounded once, also from 64 bits). Float to integer: toward zero, saturating at the limits, and NaN "
        "gives 0. Integer to integer: the low bits (wraps). To bool: whether it differs from 0 (NaN does); bool gives "
        "0 "
        "or 1. Complex to real: the real part. The gradient is cast back; integers and bools pass none.";
    def.args = {{"x", "any tensor"}};
    def.attributes = {required_attr("dtype", AttributeKind::dtype, "the dtype of the result")};
    def.results = {"y"};
    def.infer = [](const OpView& view) { return std::vector<TensorType>{{view.dtype("dtype"), view.in_shape(0)}}; };
    def.body = ElementBody{[](ElementContext& c, const Indices& at) {
        return scalar_cast(c, c.op.input(0).dtype, c.operand(0, at), c.op.dtype("dtype"));
    }};
    def.gradient = GradientRule{[](GradientContext& g) {
        const auto varies = [](DType dtype) { return is_floating(dtype) || is_complex(dtype); };
        const DType from = g.input().dtype();
        if (!varies(from) || !varies(g.output().dtype())) return std::vector<Tensor>(1);
        return std::vector<Tensor>{if_needed(g, 0, [&] { return narrowed(g.grad(), from); })};
    }};
    def.mpsgraph = {"cast"};
    def.onnx = "Cast";
    return def;
}

// --- Parts of complex numbers. Real tensors are their own real part.

Tensor as_imaginary(const Tensor& x) {
    return binary("complex", zeros_like(x), x);
}

void add_parts(std::vector<OpDef>& ops) {
    const auto add = [&ops](const char* name, const char* mpsgraph, ResultType result, const char* doc,
                            UnaryScalar scalar, Partial partial) {
        ops.push_back(unary_op({.name = name,
                                .mpsgraph = {mpsgraph},
                                .dtypes = numbers,
                                .result = result,
                                .family = "conversion",
                                .doc = doc},
                               std::move(scalar), unary_rule(std::move(partial))));
    };
    add(
        "real", "realPartOfTensor", ResultType::real, "The real part; a real tensor is returned as it is.",
        [](ElementContext&, DType, const Value& x) { return Value{x.re}; },
        [](GradientContext& g) { return narrowed(g.grad(), g.input().dtype()); });
    add(
        "imag", "imaginaryPartOfTensor", ResultType::real, "The imaginary part; of a real tensor zeros.",
        [](ElementContext& c, DType dtype, const Value& x) {
            return x.is_complex() ? Value{x.im} : c.constant_int(0, dtype);
        },
        [](GradientContext& g) {
            return is_complex(g.input().dtype()) ? as_imaginary(g.grad()) : zeros_like(g.input());
        });
    add(
        "conj", "conjugate", ResultType::same, "The complex conjugate; a real tensor is returned as it is.",
        [](ElementContext& c, DType, const Value& x) {
            return x.is_complex() ? Value{x.re, c.b.op(ScalarOp::neg, x.im)} : x;
        },
        [](GradientContext& g) { return conj_if_complex(g.grad()); });
    add(
        "absolute_square", "absoluteSquare", ResultType::real,
        "re*re + im*im, as float32 for complex64; of a real tensor x * x, integers wrapping.",
        [](ElementContext& c, DType, const Value& x) {
            const ValueId square = c.b.mul(x.re, x.re);
            return Value{x.is_complex() ? c.b.add(square, c.b.mul(x.im, x.im)) : square};
        },
        [](GradientContext& g) { return narrowed(2.0 * g.grad(), g.input().dtype()) * g.input(); });
}

// --- Constants of another tensor's shape.

OpDef full_like_op() {
    OpDef def;
    def.name = "full_like";
    def.family = "conversion";
    def.doc =
        "A tensor of the shape of x, every element the same value, converted as cast does. Only the shape of x is used "
        "(and its dtype, unless another is given), so no gradient flows to it.";
    def.args = {{"x", "any tensor"}};
    def.attributes = {
        required_attr("value", AttributeKind::real, "the value of every element"),
        optional_attr("dtype", AttributeKind::dtype, Attribute(), "dtype of the result; none: that of x")};
    def.results = {"y"};
    def.infer = [](const OpView& view) {
        const DType dtype = view.has("dtype") ? view.dtype("dtype") : view.input(0).dtype;
        return std::vector<TensorType>{{dtype, view.in_shape(0)}};
    };
    def.body = ElementBody{[](ElementContext& c, const Indices&) {
        const DType dtype = c.op.output().dtype;
        const double value = c.op.real("value");
        // A 16-bit constant is rounded here, so that it is the same whether or not it is stored in between.
        return c.constant(is_half(dtype) ? NDArray::scalar(value, dtype).at(0) : value, dtype);
    }};
    def.gradient = GradientRule{[](GradientContext&) { return std::vector<Tensor>(1); }};
    def.onnx = "ConstantOfShape";
    return def;
}

}  // namespace

std::vector<OpDef> conversion_ops() {
    std::vector<OpDef> ops = {cast_op()};
    add_parts(ops);
    ops.push_back(full_like_op());
    return ops;
}

}  // namespace topstitch::ops
