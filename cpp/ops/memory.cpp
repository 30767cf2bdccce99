// How arrays that are fed lie in memory: an operation that compiling puts before those which are not packed.
// Internal; users have views for what they mean.
#include "ops/memory.h"

#include <algorithm>

#include "ops/families.h"
#include "ops/rules.h"

namespace topstitch::ops {

namespace {

// How an array that is fed lies in memory. The program sees its memory as one line, from the lowest address on.
OpDef strided_view() {
    OpDef def;
    def.name = "strided_view";
    def.family = "movement";
    def.doc = "The elements of a line of memory at given steps along each axis.";
    def.results = {"y"};
    def.view = true;
    def.args = {{"memory", "a vector: all that lies between the first and the last element"}};
    def.attributes = {
        required_attr("shape", AttributeKind::shape, "the shape of the result"),
        required_attr("strides", AttributeKind::shape, "the distance in elements from one position to the next"),
        required_attr("reversed", AttributeKind::integers, "the axes that run towards lower addresses")};
    def.infer = [](const OpView& v) {
        const Shape& shape = v.shape("shape");
        const Shape& strides = v.shape("strides");
        const Shape& memory = v.in_shape(0);
        if (!shape.has_rank() || !strides.has_rank() || shape.rank() != strides.rank())
            v.fail(concat("a stride is needed for each axis of ", shape.str(), ", but got ", strides.str()));
        for (const std::int64_t axis : v.integers("reversed")) {
            if (axis < 0 || axis >= shape.rank()) v.fail(concat("there is no axis ", axis, " to be reversed"));
        }
        if (!memory.has_rank() || memory.rank() != 1) v.fail(concat("the memory is no vector, but ", memory.str()));
        if (!dims_agree(spanned(shape, strides), memory[0]))
            v.fail(concat("the view spans ", spanned(shape, strides).str(), " elements of ", memory[0].str()));
        return std::vector{TensorType{v.input(0).dtype, shape}};
    };
    def.body = ElementBody{[](ElementContext& c, const Indices& at) {
        return c.operand(0,
                         {strided_offset(c.op.shape("shape"), c.op.shape("strides"), c.op.integers("reversed"), at)});
    }};
    def.gradient = NotDifferentiable{"it is made when a program is compiled, after differentiation"};
    def.internal = true;
    return def;
}

}  // namespace

Dim spanned(const Shape& shape, const Shape& strides) {
    Dim last = 0;
    for (int axis = 0; axis < shape.rank(); ++axis) last = last + strides[axis] * (shape[axis] - 1);
    return last + 1;
}

Index strided_offset(const Shape& shape, const Shape& strides, const std::vector<std::int64_t>& reversed,
                     const Indices& at) {
    Index place = 0;
    for (int axis = 0; axis < shape.rank(); ++axis) {
        const Index& along = at[static_cast<std::size_t>(axis)];
        const bool back = std::find(reversed.begin(), reversed.end(), axis) != reversed.end();
        place = place + (back ? Index(shape[axis] - 1) - along : along) * strides[axis];
    }
    return place;
}

std::vector<OpDef> memory_ops() {
    return {strided_view()};
}

}  // namespace topstitch::ops
