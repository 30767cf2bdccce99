// The operations gather, gather_nd and gather_along_axis, and their gradients.
// An index that is out of range gives 0, and nothing is read for it.
#include "ops/gather.h"

#include <algorithm>
#include <optional>

#include "ops/expr.h"
#include "ops/families.h"
#include "ops/indexing_rules.h"
#include "ops/rules.h"

namespace topstitch::ops {

namespace {

using loopir::ScalarOp;
using loopir::ValueId;

// As many gathered elements along an axis are compared with each of its elements, which stitches with what is around
// it; more are scattered.
constexpr std::int64_t max_compared = 8;

std::size_t position(std::int64_t k) {
    return static_cast<std::size_t>(k);
}

// --- The leading axes that the tensor and the indices have in common.

AttrDef batch_dims_attr() {
    return optional_attr("batch_dims", AttributeKind::integer, std::int64_t{0},
                         "so many leading axes belong to both the tensor and the indices");
}

int batch_dims(const OpView& v, const Shape& x, const Shape& indices) {
    const std::int64_t count = v.integer("batch_dims");
    const std::int64_t most = std::min(x.has_rank() ? x.rank() : 16, indices.has_rank() ? indices.rank() : 16);
    if (count < 0 || count > most) {
        v.fail(concat("batch_dims is ", count, "; it must be 0 or more, and no more than the rank of ",
                      input_name(v, 0), " (shape ", x.str(), ") and of ", input_name(v, 1), " (shape ", indices.str(),
                      ")"));
    }
    for (int k = 0; x.has_rank() && indices.has_rank() && k < count; ++k) {
        if (dims_agree(x[k], indices[k])) continue;
        v.fail(concat(input_name(v, 0), " has shape ", x.str(), " and ", input_name(v, 1), " has ", indices.str(),
                      "; their first ", count, " dims, the batch_dims, must be equal"));
    }
    return static_cast<int>(count);
}

// --- gather and scatter: slices along one axis.

int slice_axis(const OpView& v, const Shape& x, int batches) {
    const int axis = normalized_axis(v, "axis", x.rank());
    if (axis < batches) {
        v.fail(concat("axis is ", v.integer("axis"), ", one of the first ", batches,
                      " axes, which batch_dims takes; use an axis behind those"));
    }
    return axis;
}

Shape shape_of_slices(const OpView& v) {
    require_indices(v, 1);
    const Shape& x = v.in_shape(0);
    const Shape& indices = v.in_shape(1);
    const int batches = batch_dims(v, x, indices);
    if (!x.has_rank()) return Shape::unranked();
    const int axis = slice_axis(v, x, batches);
    if (!indices.has_rank()) return Shape::unranked();
    const int rank = x.rank() - 1 + indices.rank() - batches;
    if (rank > max_rank) v.fail(concat("the result would have ", rank, " dims; ", max_rank, " are allowed"));
    std::vector<Dim> dims(x.dims().begin(), x.dims().begin() + axis);
    for (int k = 0; k < batches; ++k) dims[position(k)] = unify_dims(x[k], indices[k]);
    dims.insert(dims.end(), indices.dims().begin() + batches, indices.dims().end());
    dims.insert(dims.end(), x.dims().begin() + axis + 1, x.dims().end());
    return Shape(std::move(dims));
}

ScatterBody::Place place_in_slices(ElementContext& c, const Indices& at) {
    const Shape& x = c.op.in_shape(0);
    const int batches = batch_dims(c.op, x, c.op.in_shape(1));
    const int axis = slice_axis(c.op, x, batches);
    const int inner = c.op.in_shape(1).rank() - batches;
    Indices which(at.begin(), at.begin() + batches);
    which.insert(which.end(), at.begin() + axis, at.begin() + axis + inner);
    const WrappedIndex index = wrapped_index(c.b, c.operand(1, which).re, x[axis]);
    Indices from(at.begin(), at.begin() + axis);
    from.push_back(Index::value(index.position));
    from.insert(from.end(), at.begin() + axis + inner, at.end());
    return {std::move(from), index.valid};
}

// --- gather_nd and scatter_nd: each vector along the last axis of the indices is a position.

int vector_length(const OpView& v, const Shape& x, const Shape& indices, int batches) {
    if (indices.rank() == batches || !indices[indices.rank() - 1].is_known()) {
        v.fail(concat(input_name(v, 1), " has shape ", indices.str(),
                      "; its last dim, behind the batch_dims, is the length of each position and must be known"));
    }
    const std::int64_t length = indices[indices.rank() - 1].value();
    if (x.has_rank() && batches + length > x.rank()) {
        v.fail(concat(input_name(v, 1), " has shape ", indices.str(), ": positions of ", length, " numbers, but ",
                      input_name(v, 0), " has shape ", x.str(), ", only ", x.rank() - batches, " axes to count along"));
    }
    return static_cast<int>(length);
}

Shape shape_of_nd(const OpView& v) {
    require_indices(v, 1);
    const Shape& x = v.in_shape(0);
    const Shape& indices = v.in_shape(1);
    const int batches = batch_dims(v, x, indices);
    if (!indices.has_rank()) return Shape::unranked();
    const int length = vector_length(v, x, indices, batches);
    if (!x.has_rank()) return Shape::unranked();
    const int rank = indices.rank() - 1 + x.rank() - batches - length;
    if (rank > max_rank) v.fail(concat("the result would have ", rank, " dims; ", max_rank, " are allowed"));
    std::vector<Dim> dims(indices.dims().begin(), indices.dims().end() - 1);
    for (int k = 0; k < batches; ++k) dims[position(k)] = unify_dims(x[k], indices[k]);
    dims.insert(dims.end(), x.dims().begin() + batches + length, x.dims().end());
    return Shape(std::move(dims));
}

ScatterBody::Place place_in_nd(ElementContext& c, const Indices& at) {
    const Shape& x = c.op.in_shape(0);
    const Shape& indices = c.op.in_shape(1);
    const int batches = batch_dims(c.op, x, indices);
    const int length = vector_length(c.op, x, indices, batches);
    Indices which(at.begin(), at.begin() + indices.rank() - 1);
    which.emplace_back(0);
    ScatterBody::Place place;
    place.at.assign(at.begin(), at.begin() + batches);
    for (int k = 0; k < length; ++k) {
        which.back() = k;
        const WrappedIndex index = wrapped_index(c.b, c.operand(1, which).re, x[batches + k]);
        place.at.push_back(Index::value(index.position));
        place.valid = both(c.b, place.valid, index.valid);
    }
    place.at.insert(place.at.end(), at.begin() + indices.rank() - 1, at.end());
    return place;
}

// --- gather_along_axis and scatter_along_axis: an index for each element.

// The shape that `x` and `indices` broadcast to on all axes but one, on which the result has `extent`.
Shape along_axis_shape(const OpView& v, int x, int indices, const std::optional<Dim>& extent) {
    const Shape& first = v.in_shape(x);
    const Shape& second = v.in_shape(indices);
    if (!first.has_rank() && !second.has_rank()) return Shape::unranked();
    const int rank = first.has_rank() ? first.rank() : second.rank();
    const int axis = normalized_axis(v, "axis", rank);
    std::vector<Dim> dims(position(rank), Dim::unknown());
    bool fits = !first.has_rank() || !second.has_rank() || first.rank() == second.rank();
    for (int k = 0; fits && k < rank; ++k) {
        Dim& dim = dims[position(k)];
        if (k == axis) {
            dim = extent ? *extent : second.has_rank() ? second[k] : Dim::unknown();
        } else if (first.has_rank() && second.has_rank()) {
            fits = broadcast_dims(first[k], second[k], dim);
        }
    }
    if (!fits) {
        v.fail(concat(input_name(v, x), " has shape ", first.str(), ", but ", input_name(v, indices), " has ",
                      second.str(), "; they need the same rank, and must broadcast together on every axis but axis ",
                      axis));
    }
    return Shape(std::move(dims));
}

Shape shape_along_axis(const OpView& v) {
    require_indices(v, 1);
    return along_axis_shape(v, 0, 1, std::nullopt);
}

ScatterBody::Place place_along_axis(ElementContext& c, const Indices& at) {
    const Shape& x = c.op.in_shape(0);
    const int axis = normalized_axis(c.op, "axis", x.rank());
    const Shape picked = shape_along_axis(c.op);
    const Value given = c.operand(1, broadcast_index(c.op.in_shape(1), picked, at));
    const WrappedIndex index = wrapped_index(c.b, given.re, x[axis]);
    Indices from = broadcast_index(x, picked, at);
    from[position(axis)] = Index::value(index.position);
    return {std::move(from), index.valid};
}

// --- The operations.

// What was gathered goes back to where it came from, and what came from one element is added up.
Tensor scattered_back(const Picking& picking, const GradientContext& g, const Tensor& like) {
    const std::string scatter = "scatter" + picking.suffix;
    NamedAttributes attributes = shared_attributes(g.op, *find_op(scatter));
    attributes.emplace_back("mode", std::string("add"));
    // Many may meet: their sum is not to be rounded to 16 bits each time.
    const Tensor zeros = widened(expr::zeros_like(like));
    return narrowed(apply(scatter, {zeros, g.input(1), widened(g.grad())}, attributes), like.dtype());
}

OpDef gather_op(const Picking& picking, std::string doc) {
    OpDef def;
    def.name = "gather" + picking.suffix;
    def.family = "indexing";
    def.doc = std::move(doc);
    def.args = {{"x", "any tensor"}, {"indices", "int32 or int64"}};
    def.attributes = picking.attributes;
    def.results = {"y"};
    def.infer = [picking](const OpView& v) { return std::vector{TensorType{v.input(0).dtype, picking.shape(v)}}; };
    def.body = ElementBody{[picking](ElementContext& c, const Indices& at) {
        const ScatterBody::Place place = picking.place(c, at);
        return guarded_or_zero(c, place.valid, c.op.output().dtype, [&] { return c.operand(0, place.at); });
    }};
    def.gradient = GradientRule{
        [picking](GradientContext& g) { return std::vector{scattered_back(picking, g, g.input(0)), Tensor()}; }};
    return def;
}

OpDef gather() {
    OpDef def = gather_op(
        pick_slices(),
        "The slices of x along an axis that the indices name: result[..., i, j, ...] = x[..., indices[i, j], ...], "
        "where "
        "the axes of the indices stand in the place of the axis: NumPy's take, the lookup in an embedding. The first "
        "batch_dims axes of x and indices are walked together. A negative index counts from the end; one that is still "
        "out of range gives 0. The gradient adds up what goes to the same slice.");
    def.mpsgraph = {"gatherWithUpdatesTensor"};
    def.onnx = "Gather";
    return def;
}

OpDef gather_nd() {
    OpDef def = gather_op(
        pick_nd(),
        "Elements or slices of x, each named by a vector of positions: result[i, ...] = x[indices[i, 0], indices[i, "
        "1], "
        "..., ...], where the last axis of the indices, whose length must be known, counts along the first axes of x "
        "behind the batch_dims. A negative position counts from the end; where one is still out of range the result is "
        "0. The gradient adds up what goes to the same element.");
    def.mpsgraph = {"gatherNDWithUpdatesTensor"};
    def.onnx = "GatherND";
    return def;
}

OpDef gather_along_axis() {
    const Picking picking = pick_along_axis();
    OpDef def = gather_op(
        picking,
        "result[i, j, k] = x[i, indices[i, j, k], k], here for axis 1: NumPy's take_along_axis. The other dims "
        "broadcast. A negative index counts from the end; one that is still out of range gives 0. The gradient adds up "
        "what goes to the same element.");
    def.gradient = GradientRule{[picking](GradientContext& g) {
        const Shape& indices = g.op.in_shape(1);
        const Dim gathered =
            indices.has_rank() ? indices[normalized_axis(g.op, "axis", indices.rank())] : Dim::unknown();
        Tensor spread;
        if (gathered.is_known() && gathered.value() <= max_compared) {
            spread = apply("gather_along_axis_gradient", {g.grad(), g.input(1), g.input(0)},
                           {{"axis", g.op.attribute("axis")}});
        } else {
            const Tensor like = apply("along_axis_like", {g.input(0), g.grad()}, {{"axis", g.op.attribute("axis")}});
            spread = scattered_back(picking, g, like);
        }
        return std::vector{expr::sum_like(spread, g.input(0)), Tensor()};
    }};
    def.mpsgraph = {"gatherAlongAxis"};
    def.onnx = "GatherElements";
    return def;
}

OpDef along_axis_like() {
    OpDef def;
    def.name = "along_axis_like";
    def.internal = true;
    def.family = "indexing";
    def.doc =
        "Zeros with the dims of the second tensor, and on one axis that of the first; nothing but their shapes "
        "matters.";
    def.args = {{"x", "the tensor with the length of the axis"}, {"like", "the tensor with the other dims"}};
    def.attributes = {axis_attr(-1)};
    def.results = {"y"};
    def.infer = [](const OpView& v) {
        const Shape& x = v.in_shape(0);
        const Dim extent = x.has_rank() ? x[normalized_axis(v, "axis", x.rank())] : Dim::unknown();
        return std::vector{TensorType{v.input(0).dtype, along_axis_shape(v, 0, 1, extent)}};
    };
    def.body = ElementBody{[](ElementContext& c, const Indices&) { return c.constant_int(0, c.op.output().dtype); }};
    def.gradient = NotDifferentiable{"only the shapes of its inputs matter"};
    return def;
}

OpDef gather_along_axis_gradient() {
    OpDef def;
    def.name = "gather_along_axis_gradient";
    def.internal = true;
    def.family = "indexing";
    def.doc =
        "The adjoint of gather_along_axis for few indices: along the axis, whose length is that of the third tensor, "
        "each element is the sum of the gradients whose index names it. Elements are compared with every index, in a "
        "fixed order.";
    def.args = {{"gradient", "numbers, of the shape that was gathered"},
                {"indices", "the indices that were used"},
                {"like", "a tensor with the length of the axis; only its shape matters"}};
    def.attributes = {axis_attr(-1)};
    def.results = {"y"};
    def.infer = [](const OpView& v) {
        require_numeric(v, 0);
        require_indices(v, 1);
        const Shape& like = v.in_shape(2);
        const Dim extent = like.has_rank() ? like[normalized_axis(v, "axis", like.rank())] : Dim::unknown();
        return std::vector{TensorType{v.input(0).dtype, along_axis_shape(v, 0, 1, extent)}};
    };
    const auto axis_of = [](const OpView& v) { return normalized_axis(v, "axis", v.in_shape(0).rank()); };
    ReduceBody body;
    body.combiner = [](const OpView&) { return Combiner::sum; };
    body.domain = [axis_of](const OpView& v) { return std::vector<Dim>{v.in_shape(0)[axis_of(v)]}; };
    body.element = [axis_of](ElementContext& c, const Indices& at, const Indices& gathered) {
        const int axis = axis_of(c.op);
        Indices from = at;
        from[position(axis)] = gathered[0];
        const Value index = c.operand(1, broadcast_index(c.op.in_shape(1), c.op.in_shape(0), from));
        const WrappedIndex target = wrapped_index(c.b, index.re, c.op.out_shape()[axis]);
        const ValueId here = c.b.op(ScalarOp::eq, target.position, c.b.index_value(at[position(axis)]));
        return guarded_or_zero(c, here, c.op.output().dtype, [&] { return c.operand(0, from); });
    };
    def.body = std::move(body);
    def.gradient = GradientRule{[](GradientContext& g) {
        return std::vector{apply("gather_along_axis", {g.grad(), g.input(1)}, {{"axis", g.op.attribute("axis")}}),
                           Tensor(), Tensor()};
    }};
    return def;
}

}  // namespace

Picking pick_slices() {
    return {"", {axis_attr(0), batch_dims_attr()}, shape_of_slices, place_in_slices};
}

Picking pick_nd() {
    return {"_nd", {batch_dims_attr()}, shape_of_nd, place_in_nd};
}

Picking pick_along_axis() {
    return {"_along_axis", {axis_attr(-1)}, shape_along_axis, place_along_axis};
}

std::vector<OpDef> gather_ops() {
    return {gather(), gather_nd(), gather_along_axis(), gather_along_axis_gradient(), along_axis_like()};
}

}  // namespace topstitch::ops
