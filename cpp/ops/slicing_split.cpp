// Tensors taken apart and repeated along axes: split, axis_window, tile.
// The lengths of parts may be symbolic.
#include "ops/expr.h"
#include "ops/families.h"
#include "ops/indexing_rules.h"
#include "ops/rules.h"

namespace topstitch::ops {

Tensor axis_window(const Tensor& x, int axis, const Dim& offset, const Dim& length) {
    return apply("axis_window", {x}, {{"axis", std::int64_t{axis}}, {"window", Shape{offset, length}}});
}

namespace {

using Axes = std::vector<std::int64_t>;

bool is_zero(const Dim& dim) {
    return dim.is_known() && dim.value() == 0;
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
            parts.push_back(axis_window(x, axis, offset, length));
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
OpDef axis_window_op() {
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
        if (surely_empty(shape)) return c.constant_int(0, c.op.output().dtype);
        Indices index;
        for (int axis = 0; axis < shape.rank(); ++axis) {
            index.push_back(mod(at[static_cast<std::size_t>(axis)], shape[axis]));
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

std::vector<OpDef> splitting_ops() {
    return {split(), axis_window_op(), tile(), tile_gradient()};
}

}  // namespace topstitch::ops
