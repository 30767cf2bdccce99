// Tensors put together along an axis: concat, stack, interleave.
// A part is found by comparing the position with the parts' offsets, so that every part may have a symbolic length.
#include <limits>

#include "ops/expr.h"
#include "ops/families.h"
#include "ops/indexing_rules.h"
#include "ops/rules.h"

namespace topstitch::ops {

namespace {

using Axes = std::vector<std::int64_t>;

bool is_zero(const Dim& dim) {
    return dim.is_known() && dim.value() == 0;
}

// --- concat

Shape joined_shape(const OpView& v) {
    Shape joined = Shape::unranked();
    int first = 0;
    for (int k = 0; k < v.num_inputs(); ++k) {
        const Shape& part = v.in_shape(k);
        if (!part.has_rank()) continue;
        if (!joined.has_rank()) {
            joined = part;
            first = k;
            continue;
        }
        const auto mismatch = [&] {
            v.fail(concat(input_name(v, first), " has shape ", v.in_shape(first).str(), ", but ", input_name(v, k),
                          " has ", part.str(), "; all dims but the one of axis ", v.integer("axis"), " must be equal"));
        };
        if (part.rank() != joined.rank()) mismatch();
        const int along = normalized_axis(v, "axis", joined.rank());
        std::vector<Dim> dims = joined.dims();
        for (int axis = 0; axis < joined.rank(); ++axis) {
            Dim& dim = dims[static_cast<std::size_t>(axis)];
            if (axis == along) {
                dim = dim + part[axis];
            } else if (dims_agree(dim, part[axis])) {
                dim = unify_dims(dim, part[axis]);
            } else {
                mismatch();
            }
        }
        joined = Shape(std::move(dims));
    }
    return joined;
}

OpDef joining_op(std::string name, std::string doc) {
    OpDef def;
    def.name = std::move(name);
    def.family = "slicing";
    def.doc = std::move(doc);
    ArgDef parts;
    parts.name = "parts";
    parts.doc = "tensors of one dtype";
    parts.variadic = true;
    def.args = {std::move(parts)};
    def.attributes = {axis_attr(0)};
    def.results = {"y"};
    return def;
}

OpDef concat_op() {
    OpDef def =
        joining_op("concat",
                   "The tensors one after the other along an axis; their other dims must be equal. Tensors without "
                   "elements are allowed.");
    def.infer = [](const OpView& v) {
        require_same_dtype(v);
        Shape shape = joined_shape(v);
        bool all_ranked = true;
        for (int k = 0; k < v.num_inputs(); ++k) all_ranked = all_ranked && v.in_shape(k).has_rank();
        if (shape.has_rank()) {
            const int axis = normalized_axis(v, "axis", shape.rank());
            std::vector<Dim> dims = shape.dims();
            if (!all_ranked) dims[static_cast<std::size_t>(axis)] = Dim::unknown();
            shape = Shape(std::move(dims));
        }
        return std::vector{TensorType{v.input(0).dtype, std::move(shape)}};
    };
    def.body = ElementBody{[](ElementContext& c, const Indices& at) {
        const auto axis = static_cast<std::size_t>(normalized_axis(c.op, "axis", c.op.out_shape().rank()));
        Value value = c.constant_int(0, c.op.output().dtype);
        Index offset = 0;
        for (int k = 0; k < c.op.num_inputs(); ++k) {
            const Dim& length = c.op.in_shape(k)[static_cast<int>(axis)];
            if (is_zero(length)) continue;
            Indices index = at;
            index[axis] = at[axis] - offset;
            const auto predicate = within(c.b, index[axis], length);
            if (predicate == loopir::no_value) return c.operand(k, index);  // the only part with elements
            value = c.guarded(predicate, [&] { return c.operand(k, index); }, value);
            offset = offset + Index(length);
        }
        return value;
    }};
    def.gradient = GradientRule{[](GradientContext& g) {
        std::vector<Tensor> inputs = {g.grad()};
        inputs.insert(inputs.end(), g.inputs().begin(), g.inputs().end());
        std::vector<Tensor> gradients;
        for (std::size_t k = 0; k < g.inputs().size(); ++k) {
            gradients.push_back(if_needed(g, static_cast<int>(k), [&] {
                return apply("concat_part", inputs,
                             {{"axis", g.op.attribute("axis")}, {"part", static_cast<std::int64_t>(k)}});
            }));
        }
        return gradients;
    }};
    def.mpsgraph = {"concatTensor", "concatTensors"};
    def.onnx = "Concat";
    return def;
}

// The way back from concat. The parts' lengths, and so the offset, may be known at run time only.
OpDef concat_part() {
    OpDef def;
    def.name = "concat_part";
    def.internal = true;
    def.family = "slicing";
    def.doc =
        "One of the tensors that were put together by concat: the slice of the first input where part number `part` of "
        "the others lies, of which only the shapes matter.";
    ArgDef likes;
    likes.name = "likes";
    likes.doc = "tensors with the shapes of the parts, in order";
    likes.variadic = true;
    def.args = {{"x", "the joined tensor"}, std::move(likes)};
    def.attributes = {axis_attr(0), required_attr("part", AttributeKind::integer, "which part, counted from 0")};
    def.results = {"y"};
    def.infer = [](const OpView& v) {
        const std::int64_t part = v.integer("part");
        if (part < 0 || part >= v.num_inputs() - 1) {
            v.fail(concat("part ", part, " was asked for, but there are ", v.num_inputs() - 1,
                          " parts; they are counted from 0"));
        }
        const Shape& shape = v.in_shape(static_cast<int>(part) + 1);
        if (shape.has_rank()) normalized_axis(v, "axis", shape.rank());
        return std::vector{TensorType{v.input(0).dtype, shape}};
    };
    def.body = CompositeBody{[](CompositeContext& c) {
        const int axis = normalized_axis(c.op, "axis", c.op.out_shape().rank());
        const int part = static_cast<int>(c.op.integer("part"));
        Dim offset = 0;
        for (int k = 0; k < part; ++k) offset = offset + c.op.in_shape(k + 1)[axis];
        return std::vector{axis_window(c.input(0), axis, offset, c.op.in_shape(part + 1)[axis])};
    }};
    def.gradient = GradientRule{[](GradientContext& g) {
        std::vector<Tensor> parts;
        for (std::size_t k = 1; k < g.inputs().size(); ++k) {
            const bool here = static_cast<std::int64_t>(k) == g.op.integer("part") + 1;
            const Tensor& like = g.input(static_cast<int>(k));
            parts.push_back(here ? g.grad()
                                 : apply("full_like", {like}, {{"value", 0.0}, {"dtype", g.grad().dtype()}}));
        }
        std::vector<Tensor> gradients(g.inputs().size());
        gradients[0] = apply("concat", parts, {{"axis", g.op.attribute("axis")}});
        return gradients;
    }};
    return def;
}

// --- stack

// The dims that all inputs agree on.
Shape common_shape(const OpView& v) {
    Shape shape = v.in_shape(0);
    for (int k = 1; k < v.num_inputs(); ++k) {
        const Shape pair = require_same_shape(v, 0, k);
        if (!shape.has_rank()) shape = pair;
        if (!pair.has_rank()) continue;
        std::vector<Dim> dims;
        for (int axis = 0; axis < pair.rank(); ++axis) dims.push_back(unify_dims(shape[axis], pair[axis]));
        shape = Shape(std::move(dims));
    }
    return shape;
}

OpDef stack() {
    OpDef def = joining_op("stack", "Tensors of equal shape put side by side along a new axis of the result.");
    def.infer = [](const OpView& v) {
        require_same_dtype(v);
        Shape shape = common_shape(v);
        if (shape.has_rank()) {
            std::vector<Dim> dims = shape.dims();
            const int axis = normalized_axis(v, "axis", shape.rank() + 1);
            dims.insert(dims.begin() + axis, Dim(v.num_inputs()));
            shape = Shape(std::move(dims));
        }
        return std::vector{TensorType{v.input(0).dtype, std::move(shape)}};
    };
    def.body = CompositeBody{[](CompositeContext& c) {
        const Axes axes = {c.op.integer("axis")};
        std::vector<Tensor> parts;
        for (const Tensor& part : c.inputs()) parts.push_back(expr::expand_dims(part, axes));
        return std::vector{apply("concat", parts, {{"axis", axes[0]}})};
    }};
    def.gradient = FromExpansion{};
    def.mpsgraph = {"stackTensors"};
    return def;
}

// --- interleave

Shape interleaved_shape(const OpView& v) {
    const Shape shape = common_shape(v);
    if (!shape.has_rank()) return shape;
    std::vector<Dim> dims = shape.dims();
    Dim& along = dims[static_cast<std::size_t>(normalized_axis(v, "axis", shape.rank()))];
    along = along * Dim(v.num_inputs());
    return Shape(std::move(dims));
}

OpDef interleave() {
    OpDef def = joining_op("interleave",
                           "Tensors of equal shape taken in turn along an axis: the first elements of all, then the "
                           "second ones, and so on.");
    def.infer = [](const OpView& v) {
        require_same_dtype(v);
        return std::vector{TensorType{v.input(0).dtype, interleaved_shape(v)}};
    };
    def.body = CompositeBody{[](CompositeContext& c) {
        const std::int64_t axis = normalized_axis(c.op, "axis", c.op.in_shape(0).rank());
        return std::vector{expr::reshape(apply("stack", c.inputs(), {{"axis", axis + 1}}), interleaved_shape(c.op))};
    }};
    def.gradient = GradientRule{[](GradientContext& g) {
        const auto count = static_cast<std::int64_t>(g.inputs().size());
        std::vector<Tensor> gradients;
        for (std::int64_t k = 0; k < count; ++k) {
            gradients.push_back(if_needed(g, static_cast<int>(k), [&] {
                return apply("slice", {g.grad()},
                             {{"starts", Axes{k}},
                              {"stops", Axes{std::numeric_limits<std::int64_t>::max()}},
                              {"steps", Axes{count}},
                              {"axes", Axes{g.op.integer("axis")}}});
            }));
        }
        return gradients;
    }};
    def.mpsgraph = {"concatTensors"};
    return def;
}

}  // namespace

std::vector<OpDef> joining_ops() {
    return {concat_op(), concat_part(), stack(), interleave()};
}

}  // namespace topstitch::ops
