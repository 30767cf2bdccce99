// Tensors put together and taken apart along an axis: concat, stack, split, tile.
// A part is found by comparing the position with the parts' offsets, so that every part may have a symbolic length.
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

Tensor window(const Tensor& x, int axis, const Dim& offset, const Dim& length) {
    return apply("axis_window", {x}, {{"axis", std::int64_t{axis}}, {"window", Shape{offset, length}}});
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
        return std::vector{window(c.input(0), axis, offset, c.op.in_shape(part + 1)[axis])};
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

// --- split

// The lengths of the parts, for an axis of length `extent` (which may be unknown).
std::vector<Dim> split_lengths(const OpView& v, const Dim& extent) {
    if (v.has("sizes") == v.has("num_splits")) v.fail("give either num_splits or sizes");
    if (v.has("sizes")) {
        std::vector<Dim> lengths;
        Dim total = 0;
        for (const std::int64_t size : v.integers("sizes")) {
            if (size < 0) v.fail(concat("a size is ", size, "; sizes must be 0 or more"));
            lengths.emplace_back(size);
            total = total + Dim(size);
        }
        if (lengths.empty()) v.fail("sizes is empty; give the length of each part");
        if (!dims_agree(total, extent)) {
            v.fail(concat("the sizes add up to ", total.str(), ", but the axis has length ", extent.str(),
                          "; they must be equal"));
        }
        return lengths;
    }
    const std::int64_t count = v.integer("num_splits");
    if (count < 1) v.fail(concat("num_splits is ", count, "; it must be 1 or more"));
    const Dim exact = exact_div(extent, count);
    const Dim length = exact.is_unknown() ? floor_div(extent, count) : exact;
    if (!dims_agree(length * Dim(count), extent)) {
        v.fail(concat("an axis of length ", extent.str(), " cannot be split into ", count,
                      " equal parts; give the parts' sizes instead"));
    }
    return std::vector<Dim>(static_cast<std::size_t>(count), length);
}

OpDef split() {
    OpDef def;
    def.name = "split";
    def.family = "slicing";
    def.doc =
        "A tensor cut along an axis into num_splits equal parts, or into parts of the given sizes, which add up to the "
        "axis's length. One result for each part.";
    def.args = {{"x", "any tensor"}};
    def.attributes = {optional_attr("num_splits", AttributeKind::integer, Attribute(), "the number of equal parts"),
                      optional_attr("sizes", AttributeKind::integers, Attribute(), "the length of each part"),
                      axis_attr(0)};
    def.results = {"parts"};
    def.many_results = true;
    def.infer = [](const OpView& v) {
        const Shape& shape = v.in_shape(0);
        std::vector<TensorType> types;
        if (!shape.has_rank()) {
            types.assign(split_lengths(v, Dim::unknown()).size(), {v.input(0).dtype, Shape::unranked()});
            return types;
        }
        const int axis = normalized_axis(v, "axis", shape.rank());
        std::vector<Dim> dims = shape.dims();
        for (Dim& length : split_lengths(v, shape[axis])) {
            dims[static_cast<std::size_t>(axis)] = std::move(length);
            types.push_back({v.input(0).dtype, Shape(dims)});
        }
        return types;
    };
    def.body = CompositeBody{[](CompositeContext& c) {
        const Tensor& x = c.input(0);
        const int axis = normalized_axis(c.op, "axis", c.op.in_shape(0).rank());
        std::vector<Tensor> parts;
        Dim offset = 0;
        for (const Dim& length : split_lengths(c.op, c.op.in_shape(0)[axis])) {
            parts.push_back(window(x, axis, offset, length));
            offset = offset + length;
        }
        return parts;
    }};
    def.gradient = GradientRule{[](GradientContext& g) {
        std::vector<Tensor> parts;
        const auto count = static_cast<int>(split_lengths(g.op, Dim::unknown()).size());
        for (int part = 0; part < count; ++part) {
            parts.push_back(g.grad(part) ? g.grad(part) : expr::zeros_like(g.output(part)));
        }
        return std::vector{apply("concat", parts, {{"axis", g.op.attribute("axis")}})};
    }};
    def.mpsgraph = {"split"};
    def.onnx = "Split";
    return def;
}

// A slice whose bounds may be symbolic, as slice's integer attributes cannot be.
OpDef axis_window() {
    OpDef def;
    def.name = "axis_window";
    def.internal = true;
    def.family = "slicing";
    def.doc =
        "`length` elements from `offset` on along an axis, with window = (offset, length) given as dims, which may be "
        "symbols. It is what split and concat_part become when shapes are decided; use slice in a graph of your own.";
    def.args = {{"x", "any tensor"}};
    def.attributes = {axis_attr(0), required_attr("window", AttributeKind::shape, "the offset and the length")};
    def.results = {"y"};
    def.infer = [](const OpView& v) {
        const Shape& window = v.shape("window");
        if (!window.has_rank() || window.rank() != 2 || window[0].is_unknown() || window[1].is_unknown()) {
            v.fail(concat("window is ", window.str(), ", but two dims are needed: the offset and the length"));
        }
        const Shape& shape = v.in_shape(0);
        if (!shape.has_rank()) return std::vector{TensorType{v.input(0).dtype, Shape::unranked()}};
        const int axis = normalized_axis(v, "axis", shape.rank());
        const Dim rest = shape[axis] - window[0] - window[1];
        if (rest.is_known() && rest.value() < 0) {
            v.fail(concat("a window of ", window[1].str(), " elements from ", window[0].str(),
                          " on does not fit an axis of length ", shape[axis].str()));
        }
        std::vector<Dim> dims = shape.dims();
        dims[static_cast<std::size_t>(axis)] = window[1];
        return std::vector{TensorType{v.input(0).dtype, Shape(std::move(dims))}};
    };
    def.body = ElementBody{[](ElementContext& c, const Indices& at) {
        Indices index = at;
        Index& along = index[static_cast<std::size_t>(normalized_axis(c.op, "axis", c.op.in_shape(0).rank()))];
        along = along + Index(c.op.shape("window")[0]);
        return c.operand(0, index);
    }};
    def.gradient = GradientRule{[](GradientContext& g) {
        const Shape& window = g.op.shape("window");
        if (!window.is_known()) g.op.fail("its gradient needs a window of numbers; use split, or concat_part");
        const std::int64_t offset = window[0].value();
        return std::vector{apply("slice_update", {expr::zeros_like(g.input()), g.grad()},
                                 {{"starts", Axes{offset}},
                                  {"stops", Axes{offset + window[1].value()}},
                                  {"axes", Axes{g.op.integer("axis")}}})};
    }};
    def.view = true;
    return def;
}

// --- stack

OpDef stack() {
    OpDef def = joining_op("stack", "Tensors of equal shape put side by side along a new axis of the result.");
    def.infer = [](const OpView& v) {
        require_same_dtype(v);
        Shape shape = v.in_shape(0);
        for (int k = 1; k < v.num_inputs(); ++k) {
            const Shape pair = require_same_shape(v, 0, k);
            if (!shape.has_rank()) shape = pair;
            if (!pair.has_rank()) continue;
            std::vector<Dim> dims;
            for (int axis = 0; axis < pair.rank(); ++axis) dims.push_back(unify_dims(shape[axis], pair[axis]));
            shape = Shape(std::move(dims));
        }
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

// --- tile

std::vector<Dim> tile_factors(const OpView& v, int rank) {
    const std::vector<std::int64_t>& multiples = v.integers("multiples");
    if (multiples.size() != static_cast<std::size_t>(rank)) {
        v.fail(
            concat(multiples.size(), " multiples were given for a tensor of rank ", rank, "; give one for each axis"));
    }
    std::vector<Dim> factors;
    for (const std::int64_t multiple : multiples) {
        if (multiple < 0) v.fail(concat("a multiple is ", multiple, "; multiples must be 0 or more"));
        factors.emplace_back(multiple);
    }
    return factors;
}

AttrDef multiples_attribute() {
    return required_attr("multiples", AttributeKind::integers, "how often to repeat along each axis");
}

OpDef tile() {
    OpDef def;
    def.name = "tile";
    def.family = "slicing";
    def.doc = "The tensor repeated along each axis: result[i] is x[i mod the length of x], axis by axis.";
    def.args = {{"x", "any tensor"}};
    def.attributes = {multiples_attribute()};
    def.results = {"y"};
    def.infer = [](const OpView& v) {
        const Shape& shape = v.in_shape(0);
        const int rank = shape.has_rank() ? shape.rank() : static_cast<int>(v.integers("multiples").size());
        std::vector<Dim> dims = tile_factors(v, rank);
        for (int axis = 0; axis < rank; ++axis) {
            Dim& dim = dims[static_cast<std::size_t>(axis)];
            if (!is_zero(dim)) dim = shape.has_rank() ? shape[axis] * dim : Dim::unknown();
        }
        return std::vector{TensorType{v.input(0).dtype, Shape(std::move(dims))}};
    };
    def.body = ElementBody{[](ElementContext& c, const Indices& at) {
        const Shape& shape = c.op.in_shape(0);
        Indices index;
        for (int axis = 0; axis < shape.rank(); ++axis) {
            const Index& along = at[static_cast<std::size_t>(axis)];
            index.push_back(is_zero(shape[axis]) ? Index(0) : mod(along, shape[axis]));
        }
        return c.operand(0, index);
    }};
    def.gradient = GradientRule{[](GradientContext& g) {
        for (const std::int64_t multiple : g.op.integers("multiples")) {
            if (multiple == 0) return std::vector{expr::zeros_like(g.input())};
        }
        return std::vector{apply("tile_gradient", {g.grad()}, {{"multiples", g.op.attribute("multiples")}})};
    }};
    def.view = true;
    def.mpsgraph = {"tile"};
    def.onnx = "Tile";
    return def;
}

OpDef tile_gradient() {
    OpDef def;
    def.name = "tile_gradient";
    def.internal = true;
    def.family = "slicing";
    def.doc = "The adjoint of tile: the sum of the repetitions. Multiples must be 1 or more.";
    def.args = {{"gradient", "numbers, of the shape that tile gives"}};
    def.attributes = {multiples_attribute()};
    def.results = {"y"};
    def.infer = [](const OpView& v) {
        require_numeric(v, 0);
        const Shape& tiled = v.in_shape(0);
        const int rank = tiled.has_rank() ? tiled.rank() : static_cast<int>(v.integers("multiples").size());
        std::vector<Dim> dims;
        for (const Dim& factor : tile_factors(v, rank)) {
            if (is_zero(factor)) v.fail("a multiple is 0; the repetitions of nothing have no sum");
            const auto axis = static_cast<int>(dims.size());
            const Dim length = tiled.has_rank() ? exact_div(tiled[axis], factor) : Dim::unknown();
            if (length.is_unknown() && tiled.has_rank() && tiled[axis].is_known()) {
                v.fail(concat("dim ", axis, " of the input of shape ", tiled.str(), " is not a multiple of ",
                              factor.str()));
            }
            dims.push_back(length);
        }
        return std::vector{TensorType{v.input(0).dtype, Shape(std::move(dims))}};
    };
    ReduceBody body;
    body.combiner = [](const OpView&) { return Combiner::sum; };
    body.domain = [](const OpView& v) { return tile_factors(v, v.in_shape(0).rank()); };
    body.element = [](ElementContext& c, const Indices& at, const Indices& repetition) {
        Indices index;
        for (std::size_t axis = 0; axis < at.size(); ++axis) {
            index.push_back(at[axis] + repetition[axis] * c.op.out_shape()[static_cast<int>(axis)]);
        }
        return c.operand(0, index);
    };
    def.body = std::move(body);
    def.gradient = GradientRule{[](GradientContext& g) {
        return std::vector{apply("tile", {g.grad()}, {{"multiples", g.op.attribute("multiples")}})};
    }};
    def.mpsgraph = {"tileGradient"};
    return def;
}

}  // namespace

std::vector<OpDef> joining_ops() {
    return {concat_op(), concat_part(), split(), axis_window(), stack(), tile(), tile_gradient()};
}

}  // namespace topstitch::ops
