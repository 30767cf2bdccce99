// Declares element-by-element operations from a scalar function and a gradient: the frame that the tables of
// unary, binary and activation operations fill in.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ops/rules.h"

namespace topstitch::ops {

// The dtype of the result: the input's; bool; or the input's without its imaginary part.
enum class ResultType { same, boolean, real };

struct ElementFacts {
    std::string name;
    std::vector<std::string> mpsgraph;
    std::string onnx;
    DTypes dtypes = floats;
    ResultType result = ResultType::same;
    bool commutative = false;
    bool view = false;
    std::string family = "elementwise";
    std::vector<AttrDef> attributes;
    std::string hint;  // what to do about a dtype that is not allowed; empty: the usual advice
    std::string doc;
};

// The value of one element from those of the inputs; `dtype` is that of the inputs.
using UnaryScalar = std::function<Value(ElementContext& c, DType dtype, const Value& x)>;
using BinaryScalar = std::function<Value(ElementContext& c, DType dtype, const Value& a, const Value& b)>;

OpDef unary_op(ElementFacts facts, UnaryScalar scalar, Gradient gradient);
// Two inputs of one dtype that broadcast.
OpDef binary_op(ElementFacts facts, BinaryScalar scalar, Gradient gradient);

// One instruction on real values.
UnaryScalar instruction1(loopir::ScalarOp op);
BinaryScalar instruction2(loopir::ScalarOp op);

// A rule from the partial gradients, each of the shape of the output; they are made only when needed and summed
// down to the shapes of their inputs.
using Partial = std::function<Tensor(GradientContext& g)>;
Gradient unary_rule(Partial partial);
Gradient binary_rule(Partial first, Partial second);

// The dtype of the real and imaginary parts: float32 for complex64, else `dtype`.
DType real_type(DType dtype);

// A number of the type of `like`.
inline loopir::ValueId number(ElementContext& c, double value, loopir::ValueId like) {
    return c.b.constant(value, c.b.type(like));
}
// false, or true where the value differs from zero (NaN does).
loopir::ValueId truth(ElementContext& c, const Value& x);
inline loopir::ValueId negated(ElementContext& c, loopir::ValueId predicate) {
    return c.b.op(loopir::ScalarOp::bit_not, predicate);
}

}  // namespace topstitch::ops
