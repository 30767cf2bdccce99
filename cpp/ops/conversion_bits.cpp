// Operations that move bits or parts between elements: bitcast, and complex numbers as planes of real ones.
// Bytes are little-endian on every device.
#include <utility>

#include "core/element_bits.h"
#include "ops/elementwise.h"
#include "ops/expr.h"
#include "ops/families.h"

namespace topstitch::ops {

using namespace expr;
using loopir::Builder;
using loopir::ScalarOp;
using loopir::ValueId;

namespace {

// The bytes of an element in memory as an unsigned integer, and back.
ValueId to_bits(Builder& b, const Value& x, DType dtype) {
    if (is_half(dtype)) return b.to_bits16(x.re, dtype);
    if (!is_complex(dtype))
        return dtype == DType::boolean ? b.cast(x.re, DType::uint8) : b.bitcast(x.re, bits_type(dtype));
    const auto wide = [&](ValueId part) { return b.cast(b.bitcast(part, DType::uint32), DType::uint64); };
    return b.op(ScalarOp::bit_or, wide(x.re), b.op(ScalarOp::shl, wide(x.im), b.constant_int(32, DType::uint64)));
}

Value from_bits(Builder& b, ValueId bits, DType dtype) {
    if (is_half(dtype)) return Value{b.from_bits16(bits, dtype)};
    if (!is_complex(dtype)) return Value{b.bitcast(bits, dtype)};
    const auto part = [&](ValueId word) { return b.bitcast(b.cast(word, DType::uint32), DType::float32); };
    return {part(bits), part(b.op(ScalarOp::shr, bits, b.constant_int(32, DType::uint64)))};
}

std::int64_t size_ratio(DType larger, DType smaller) {
    return static_cast<std::int64_t>(size_of(larger) / size_of(smaller));
}

// Element `at` is one of the pieces of a larger element.
Value piece(ElementContext& c, Indices at, DType from, DType to) {
    Builder& b = c.b;
    const std::int64_t ratio = size_ratio(from, to);
    const Index position = at.back();
    at.back() = floor_div(position, Dim(ratio));
    const ValueId bits = to_bits(b, c.operand(0, at), from);
    const Index first_bit = mod(position, Dim(ratio)) * Dim(static_cast<std::int64_t>(size_of(to)) * 8);
    const ValueId count = b.cast(b.index_value(first_bit), b.type(bits));
    return from_bits(b, b.cast(b.op(ScalarOp::shr, bits, count), bits_type(to)), to);
}

// Element `at` is made of several smaller elements.
Value assembled(ElementContext& c, Indices at, DType from, DType to) {
    Builder& b = c.b;
    const std::int64_t ratio = size_ratio(to, from);
    const Index first = at.back() * Dim(ratio);
    const DType type = bits_type(to);
    ValueId bits = b.constant_int(0, type);
    for (std::int64_t k = 0; k < ratio; ++k) {
        at.back() = first + Index(k);
        const ValueId part = b.cast(to_bits(b, c.operand(0, at), from), type);
        const auto first_bit = k * static_cast<std::int64_t>(size_of(from)) * 8;
        bits = b.op(ScalarOp::bit_or, bits, b.op(ScalarOp::shl, part, b.constant_int(first_bit, type)));
    }
    return from_bits(b, bits, to);
}

Shape reinterpreted_shape(const OpView& view, DType from, DType to) {
    const Shape& shape = view.in_shape(0);
    if (size_of(from) == size_of(to) || !shape.has_rank()) return shape;
    if (shape.rank() == 0) {
        view.fail(concat("the input is a scalar, but ", name_of(from), " and ", name_of(to),
                         " differ in size, and only a last dim could take the difference; use reshape to give it the "
                         "shape (1,)"));
    }
    std::vector<Dim> dims = shape.dims();
    Dim& last = dims.back();
    if (size_of(from) > size_of(to)) {
        last = last * Dim(size_ratio(from, to));
        return Shape(std::move(dims));
    }
    const std::int64_t ratio = size_ratio(to, from);
    if (last.is_known() && last.value() % ratio != 0) {
        view.fail(concat("the last dim of the input, of shape ", shape.str(), ", must be a multiple of ", ratio,
                         " to form elements of ", name_of(to), " from ", name_of(from), "; use pad or slice first"));
    }
    last = exact_div(last, Dim(ratio));
    return Shape(std::move(dims));
}

OpDef bitcast_op() {
    OpDef def;
    def.name = "bitcast";
    def.family = "conversion";
    def.doc =
        "The bytes of the elements read as another dtype, little-endian. Between dtypes of one size the shape stays; "
        "otherwise the last dim grows or shrinks by the ratio of the sizes. A result of bool is refused, because most "
        "bytes are no bool. The bits of a NaN in float16 or bfloat16 may come out quiet.";
    def.args = {{"x", "any tensor"}};
    def.attributes = {required_attr("dtype", AttributeKind::dtype, "the dtype to read the bytes as; not bool")};
    def.results = {"y"};
    def.infer = [](const OpView& view) {
        const DType to = view.dtype("dtype");
        if (to == DType::boolean) {
            view.fail_type("dtype is bool, but the bytes of other dtypes are no bools; use not_equal(x, 0) or cast");
        }
        return std::vector<TensorType>{{to, reinterpreted_shape(view, view.input(0).dtype, to)}};
    };
    def.body = ElementBody{[](ElementContext& c, const Indices& at) {
        const DType from = c.op.input(0).dtype;
        const DType to = c.op.output().dtype;
        if (from == to) return c.operand(0, at);
        if (size_of(from) > size_of(to)) return piece(c, at, from, to);
        if (size_of(from) < size_of(to)) return assembled(c, at, from, to);
        return from_bits(c.b, to_bits(c.b, c.operand(0, at), from), to);
    }};
    def.gradient = NotDifferentiable{"its result depends on the bits of its input, not continuously on the value"};
    def.mpsgraph = {"reinterpretCast"};
    return def;
}

// --- Planes of real and imaginary parts.

void require_last_dim(const OpView& view) {
    if (view.in_shape(0).has_rank() && view.in_shape(0).rank() == 0) {
        view.fail(
            "the input is a scalar, but a last dim is needed to hold the parts; use reshape to give it the shape (1,)");
    }
}

OpDef planar_from_complex_op() {
    OpDef def;
    def.name = "planar_from_complex";
    def.family = "conversion";
    def.doc =
        "A float32 tensor whose last dim is doubled: first all real parts, then all imaginary parts of a complex64 "
        "tensor. A real floating-point tensor is returned as it is.";
    def.args = {{"x", "complex64 or floating-point tensor"}};
    def.results = {"y"};
    def.infer = [](const OpView& view) {
        require(view, 0, floats | complexes);
        if (!is_complex(view.input(0).dtype)) return same_type(view);
        require_last_dim(view);
        const Shape& shape = view.in_shape(0);
        if (!shape.has_rank()) return std::vector<TensorType>{{DType::float32, shape}};
        std::vector<Dim> dims = shape.dims();
        dims.back() = dims.back() * Dim(2);
        return std::vector<TensorType>{{DType::float32, Shape(std::move(dims))}};
    };
    def.body = ElementBody{[](ElementContext& c, const Indices& at) {
        const Shape& shape = c.op.in_shape(0);
        if (!is_complex(c.op.input(0).dtype)) return c.operand(0, at);
        const Dim& length = shape[shape.rank() - 1];
        if (length == Dim(0)) return c.constant(0.0, DType::float32);  // no element is ever asked for
        Indices source = at;
        source.back() = mod(at.back(), length);
        const Value z = c.operand(0, source);
        const ValueId first = c.b.op(ScalarOp::lt, c.b.index_value(at.back()), c.b.index_value(Index(length)));
        return Value{c.b.select(first, z.re, z.im)};
    }};
    def.gradient = unary_rule([](GradientContext& g) {
        return is_complex(g.input().dtype()) ? unary("complex_from_planar", g.grad()) : g.grad();
    });
    def.mpsgraph = {"planarTensor"};
    return def;
}

OpDef complex_from_planar_op() {
    OpDef def;
    def.name = "complex_from_planar";
    def.family = "conversion";
    def.doc =
        "The complex64 tensor whose real parts are the first half of the last dim of a float32 tensor, and whose "
        "imaginary "
        "parts are the second half: the inverse of planar_from_complex.";
    def.args = {{"x", "float32 tensor with an even last dim"}};
    def.results = {"y"};
    def.infer = [](const OpView& view) {
        if (view.input(0).dtype != DType::float32) {
            view.fail_type(concat("input `x` has dtype ", name_of(view.input(0).dtype),
                                  ", but complex64 has float32 parts; use cast to convert it to float32"));
        }
        require_last_dim(view);
        const Shape& shape = view.in_shape(0);
        if (!shape.has_rank()) return std::vector<TensorType>{{DType::complex64, shape}};
        std::vector<Dim> dims = shape.dims();
        if (dims.back().is_known() && dims.back().value() % 2 != 0) {
            view.fail(concat("the last dim of the input, of shape ", shape.str(),
                             ", must be even: real parts and as many imaginary parts"));
        }
        dims.back() = exact_div(dims.back(), Dim(2));
        return std::vector<TensorType>{{DType::complex64, Shape(std::move(dims))}};
    };
    def.body = ElementBody{[](ElementContext& c, const Indices& at) {
        const Shape& shape = c.op.out_shape();
        Indices imaginary = at;
        imaginary.back() = at.back() + Index(shape[shape.rank() - 1]);
        return Value{c.operand(0, at).re, c.operand(0, imaginary).re};
    }};
    def.gradient = unary_rule([](GradientContext& g) { return unary("planar_from_complex", g.grad()); });
    return def;
}

}  // namespace

std::vector<OpDef> conversion_bits_ops() {
    return {bitcast_op(), planar_from_complex_op(), complex_from_planar_op()};
}

}  // namespace topstitch::ops
