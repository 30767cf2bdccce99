// The frame of element-by-element operations: dtype rule, broadcasting, body and gradient from a few facts.
// The operations themselves are in unary.cpp, binary.cpp, activation.cpp and their siblings.
#include "ops/elementwise.h"

#include "ops/expr.h"

namespace topstitch::ops {

using loopir::ScalarOp;
using loopir::ValueId;

namespace {

DType result_dtype(ResultType result, DType dtype) {
    switch (result) {
        case ResultType::same:
            return dtype;
        case ResultType::boolean:
            return DType::boolean;
        case ResultType::real:
            return real_type(dtype);
    }
    return dtype;
}

OpDef start(const ElementFacts& facts, Gradient gradient) {
    OpDef def;
    def.name = facts.name;
    def.family = facts.family;
    def.doc = facts.doc;
    def.attributes = facts.attributes;
    def.results = {"y"};
    def.gradient = std::move(gradient);
    def.commutative = facts.commutative;
    def.view = facts.view;
    def.mpsgraph = facts.mpsgraph;
    def.onnx = facts.onnx;
    return def;
}

std::string tensor_doc(const ElementFacts& facts) {
    return concat(facts.dtypes.str(), " tensor");
}

}  // namespace

DType real_type(DType dtype) {
    return is_complex(dtype) ? DType::float32 : dtype;
}

OpDef unary_op(ElementFacts facts, UnaryScalar scalar, Gradient gradient) {
    OpDef def = start(facts, std::move(gradient));
    def.args = {{"x", tensor_doc(facts)}};
    def.infer = [dtypes = facts.dtypes, result = facts.result, hint = facts.hint](const OpView& view) {
        require(view, 0, dtypes, hint);
        return std::vector<TensorType>{{result_dtype(result, view.input(0).dtype), view.in_shape(0)}};
    };
    def.body = ElementBody{[scalar = std::move(scalar)](ElementContext& c, const Indices& at) {
        return scalar(c, c.op.input(0).dtype, c.operand(0, at));
    }};
    return def;
}

OpDef binary_op(ElementFacts facts, BinaryScalar scalar, Gradient gradient) {
    OpDef def = start(facts, std::move(gradient));
    def.args = {{"a", tensor_doc(facts)}, {"b", "tensor of the same dtype; the shapes broadcast"}};
    def.infer = [dtypes = facts.dtypes, result = facts.result, hint = facts.hint](const OpView& view) {
        require(view, 0, dtypes, hint);
        require_same_dtype(view);
        return std::vector<TensorType>{broadcast_type(view, result_dtype(result, view.input(0).dtype))};
    };
    def.body = ElementBody{[scalar = std::move(scalar)](ElementContext& c, const Indices& at) {
        const Value a = c.broadcast_operand(0, at);
        const Value b = c.broadcast_operand(1, at);
        return scalar(c, c.op.input(0).dtype, a, b);
    }};
    return def;
}

UnaryScalar instruction1(ScalarOp op) {
    return [op](ElementContext& c, DType, const Value& x) { return Value{c.b.op(op, x.re)}; };
}

BinaryScalar instruction2(ScalarOp op) {
    return [op](ElementContext& c, DType, const Value& a, const Value& b) { return Value{c.b.op(op, a.re, b.re)}; };
}

Gradient unary_rule(Partial partial) {
    return GradientRule{[partial = std::move(partial)](GradientContext& g) {
        return std::vector<Tensor>{if_needed(g, 0, [&] { return partial(g); })};
    }};
}

Gradient binary_rule(Partial first, Partial second) {
    return GradientRule{[first = std::move(first), second = std::move(second)](GradientContext& g) {
        return std::vector<Tensor>{if_needed(g, 0, [&] { return expr::sum_like(first(g), g.input(0)); }),
                                   if_needed(g, 1, [&] { return expr::sum_like(second(g), g.input(1)); })};
    }};
}

ValueId truth(ElementContext& c, const Value& x) {
    const ValueId re = c.b.cast(x.re, DType::boolean);
    return x.is_complex() ? c.b.op(ScalarOp::bit_or, re, c.b.cast(x.im, DType::boolean)) : re;
}

}  // namespace topstitch::ops
