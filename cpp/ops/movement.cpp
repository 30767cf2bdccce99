// Operations that only rearrange elements: reshape, transpose, swap_axes, squeeze, expand_dims, flatten2d, reverse,
// roll. Each is a rewriting of the index, so that it costs nothing where it is used.
#include <algorithm>
#include <limits>

#include "ops/expr.h"
#include "ops/families.h"
#include "ops/indexing_rules.h"
#include "ops/rules.h"

namespace topstitch::ops {

namespace {

using Axes = std::vector<std::int64_t>;

OpDef movement_op(std::string name, std::string doc) {
    OpDef def;
    def.name = std::move(name);
    def.family = "movement";
    def.doc = std::move(doc);
    def.args = {{"x", "any tensor"}};
    def.results = {"y"};
    def.view = true;
    return def;
}

// The same elements in another shape: the body, and the gradient that takes the way back.
void reshapes(OpDef& def) {
    def.body = ElementBody{[](ElementContext& c, const Indices& at) {
        if (surely_empty(c.op.out_shape())) return c.constant_int(0, c.op.output().dtype);
        return c.operand(0, reshaped_index(c.op.in_shape(0), c.op.out_shape(), at));
    }};
    def.gradient =
        GradientRule{[](GradientContext& g) { return std::vector{expr::reshape_like(g.grad(), g.input())}; }};
}

// --- reshape

[[noreturn]] void fail_count(const OpView& v, const Dim& count) {
    v.fail(concat("a tensor of shape ", v.in_shape(0).str(), " has ", count.str(),
                  " elements, which do not fit the shape ", v.shape("shape").str(),
                  "; the numbers of elements must be equal (-1 infers one dim)"));
}

// The dim that `count` elements leave when the others have `others` elements; unknown when that is not decided.
Dim inferred_dim(const OpView& v, const Dim& count, const Dim& others) {
    if (others.is_known() && others.value() == 0) {
        v.fail(concat("the shape ", v.shape("shape").str(),
                      " has a dim of 0, so that any length would do for the dim given as -1; give its length"));
    }
    if (count.is_unknown()) return Dim::unknown();
    if (const Dim exact = exact_div(count, others); !exact.is_unknown()) return exact;
    const Dim quotient = floor_div(count, others);
    if (!dims_agree(quotient * others, count)) fail_count(v, count);
    return quotient;
}

Shape reshaped(const OpView& v) {
    const Shape& target = v.shape("shape");
    if (!target.has_rank()) v.fail("the target shape has no rank; list its dims, with -1 for one to infer");
    const Dim count = v.in_shape(0).num_elements();
    std::vector<Dim> dims = target.dims();
    const auto is_open = [](const Dim& dim) { return dim.is_unknown(); };
    const auto open = std::count_if(dims.begin(), dims.end(), is_open);
    if (open > 1) {
        v.fail(concat("the shape ", target.str(), " leaves ", open,
                      " dims open, but one at most can be inferred; give the others, or name them"));
    }
    if (open == 1) {
        Dim& inferred = *std::find_if(dims.begin(), dims.end(), is_open);
        inferred = 1;
        inferred = inferred_dim(v, count, Shape(dims).num_elements());
        return Shape(std::move(dims));
    }
    if (!dims_agree(target.num_elements(), count)) fail_count(v, count);
    // A single symbol may be known better from the input.
    const auto is_symbolic = [](const Dim& dim) { return !dim.is_known(); };
    if (std::count_if(dims.begin(), dims.end(), is_symbolic) == 1) {
        Dim& symbolic = *std::find_if(dims.begin(), dims.end(), is_symbolic);
        const Dim given = symbolic;
        symbolic = 1;
        const Dim implied = exact_div(count, Shape(dims).num_elements());
        symbolic = implied.is_known() ? implied : given;
    }
    return Shape(std::move(dims));
}

OpDef reshape() {
    OpDef def =
        movement_op("reshape",
                    "The same elements, in row-major order, in another shape. One dim may be -1: it is inferred "
                    "from the number of elements. To reshape to the shape of another tensor, use reshape_like.");
    def.attributes = {required_attr("shape", AttributeKind::shape, "the shape of the result; one dim may be -1")};
    def.infer = [](const OpView& v) { return std::vector{TensorType{v.input(0).dtype, reshaped(v)}}; };
    reshapes(def);
    def.mpsgraph = {"reshape"};
    def.onnx = "Reshape";
    return def;
}

OpDef flatten2d() {
    OpDef def =
        movement_op("flatten2d",
                    "A matrix of the same elements: the axes before `axis` make the rows, the others the columns. "
                    "An axis equal to the rank gives one column.");
    def.attributes = {optional_attr("axis", AttributeKind::integer, std::int64_t{1},
                                    "the first axis of the columns; negative counts from the end")};
    def.infer = [](const OpView& v) {
        const Shape& shape = v.in_shape(0);
        if (!shape.has_rank()) return std::vector{TensorType{v.input(0).dtype, {Dim::unknown(), Dim::unknown()}}};
        const int rank = shape.rank();
        const std::int64_t given = v.integer("axis");
        const std::int64_t axis = given < 0 ? given + rank : given;
        if (axis < 0 || axis > rank) {
            v.fail(concat("axis ", given, " is out of range for a tensor of rank ", rank, "; allowed are ", -rank,
                          " to ", rank));
        }
        const auto middle = shape.dims().begin() + axis;
        return std::vector{TensorType{v.input(0).dtype,
                                      {Shape(std::vector<Dim>(shape.dims().begin(), middle)).num_elements(),
                                       Shape(std::vector<Dim>(middle, shape.dims().end())).num_elements()}}};
    };
    reshapes(def);
    def.mpsgraph = {"flatten2D"};
    def.onnx = "Flatten";
    return def;
}

OpDef squeeze() {
    OpDef def =
        movement_op("squeeze",
                    "The input without dims of length 1: those listed, which must have length 1, or all of them. "
                    "When axes are not listed and a dim is not known before run time, the rank of the result is "
                    "not known before either.");
    def.attributes = {axes_attr("the axes to leave out; negative ones count from the end, none means all of length 1")};
    def.infer = [](const OpView& v) {
        const Shape& shape = v.in_shape(0);
        const DType dtype = v.input(0).dtype;
        if (!shape.has_rank()) return std::vector{TensorType{dtype, Shape::unranked()}};
        std::vector<bool> dropped(static_cast<std::size_t>(shape.rank()), false);
        if (v.has("axes")) {
            for (const int axis : normalized_axes(v, "axes", shape.rank())) {
                if (!dims_agree(shape[axis], 1)) {
                    v.fail(concat("axis ", axis, " of the input of shape ", shape.str(), " has length ",
                                  shape[axis].str(), ", but only dims of length 1 can be left out"));
                }
                dropped[static_cast<std::size_t>(axis)] = true;
            }
        } else {
            for (int axis = 0; axis < shape.rank(); ++axis) {
                const bool one = dim_is_one(shape[axis]);
                // What may turn out to be 1 leaves the rank open; during specialisation every dim is decided.
                if (!one && dims_agree(shape[axis], 1)) return std::vector{TensorType{dtype, Shape::unranked()}};
                dropped[static_cast<std::size_t>(axis)] = one;
            }
        }
        std::vector<Dim> dims;
        for (int axis = 0; axis < shape.rank(); ++axis) {
            if (!dropped[static_cast<std::size_t>(axis)]) dims.push_back(shape[axis]);
        }
        return std::vector{TensorType{dtype, Shape(std::move(dims))}};
    };
    reshapes(def);
    def.mpsgraph = {"squeeze"};
    def.onnx = "Squeeze";
    return def;
}

OpDef expand_dims() {
    OpDef def = movement_op("expand_dims",
                            "The input with new dims of length 1 at the listed positions of the result's shape.");
    def.attributes = {required_attr("axes", AttributeKind::integers,
                                    "the new axes, counted in the result; negative ones count from its end")};
    def.infer = [](const OpView& v) {
        const Shape& shape = v.in_shape(0);
        if (!shape.has_rank()) return std::vector{TensorType{v.input(0).dtype, Shape::unranked()}};
        const auto rank = static_cast<std::size_t>(shape.rank()) + v.integers("axes").size();
        if (rank > static_cast<std::size_t>(max_rank)) {
            v.fail(concat("the result would have ", rank, " dims, but at most ", max_rank, " are possible"));
        }
        std::vector<Dim> dims(rank, Dim(1));
        std::vector<bool> is_new(rank, false);
        for (const int axis : normalized_axes(v, "axes", static_cast<int>(rank))) {
            is_new[static_cast<std::size_t>(axis)] = true;
        }
        int next = 0;
        for (std::size_t axis = 0; axis < rank; ++axis) {
            if (!is_new[axis]) dims[axis] = shape[next++];
        }
        return std::vector{TensorType{v.input(0).dtype, Shape(std::move(dims))}};
    };
    reshapes(def);
    def.mpsgraph = {"expandDims"};
    def.onnx = "Unsqueeze";
    return def;
}

// --- transpose

// Axis `permutation[k]` of the input is axis k of the result.
std::vector<int> permutation_of(const OpView& v, int rank) {
    if (v.has("permutation")) return normalized_axes(v, "permutation", rank);
    std::vector<int> reversed;
    for (int axis = rank - 1; axis >= 0; --axis) reversed.push_back(axis);
    return reversed;
}

Value permuted(ElementContext& c, const std::vector<int>& permutation, const Indices& at) {
    Indices index(at.size(), Index(0));
    for (std::size_t k = 0; k < at.size(); ++k) index[static_cast<std::size_t>(permutation[k])] = at[k];
    return c.operand(0, index);
}

Shape permuted(const Shape& shape, const std::vector<int>& permutation) {
    std::vector<Dim> dims;
    for (const int axis : permutation) dims.push_back(shape[axis]);
    return Shape(std::move(dims));
}

OpDef transpose() {
    OpDef def =
        movement_op("transpose",
                    "The input with its axes permuted: axis k of the result is axis permutation[k] of the input. "
                    "Without a permutation their order is reversed.");
    def.attributes = {optional_attr("permutation", AttributeKind::integers, Attribute(),
                                    "a permutation of the axes; negative ones count from the end, none reverses")};
    def.infer = [](const OpView& v) {
        const Shape& shape = v.in_shape(0);
        const DType dtype = v.input(0).dtype;
        if (!shape.has_rank()) {
            if (!v.has("permutation")) return std::vector{TensorType{dtype, Shape::unranked()}};
            const auto count = static_cast<int>(v.integers("permutation").size());
            normalized_axes(v, "permutation", count);
            return std::vector{
                TensorType{dtype, Shape(std::vector<Dim>(static_cast<std::size_t>(count), Dim::unknown()))}};
        }
        const std::vector<int> permutation = permutation_of(v, shape.rank());
        if (permutation.size() != static_cast<std::size_t>(shape.rank())) {
            v.fail(concat(permutation.size(), " axes were given, but the input of shape ", shape.str(), " has ",
                          shape.rank(), "; list each axis once"));
        }
        return std::vector{TensorType{dtype, permuted(shape, permutation)}};
    };
    def.body = ElementBody{[](ElementContext& c, const Indices& at) {
        return permuted(c, permutation_of(c.op, c.op.in_shape(0).rank()), at);
    }};
    def.gradient = GradientRule{[](GradientContext& g) {
        if (!g.op.has("permutation")) return std::vector{apply("transpose", {g.grad()})};
        const auto rank = static_cast<int>(g.op.integers("permutation").size());
        const std::vector<int> permutation = permutation_of(g.op, rank);
        Axes inverse(permutation.size());
        for (std::size_t k = 0; k < permutation.size(); ++k) {
            inverse[static_cast<std::size_t>(permutation[k])] = static_cast<std::int64_t>(k);
        }
        return std::vector{expr::transpose(g.grad(), inverse)};
    }};
    def.mpsgraph = {"transpose"};
    def.onnx = "Transpose";
    return def;
}

OpDef swap_axes() {
    OpDef def = movement_op("swap_axes", "The input with two axes exchanged.");
    def.attributes = {required_attr("axis1", AttributeKind::integer, "an axis; negative counts from the end"),
                      required_attr("axis2", AttributeKind::integer, "the axis to exchange it with")};
    const auto permutation_of_swap = [](const OpView& v, int rank) {
        std::vector<int> permutation;
        for (int axis = 0; axis < rank; ++axis) permutation.push_back(axis);
        std::swap(permutation[static_cast<std::size_t>(normalized_axis(v, "axis1", rank))],
                  permutation[static_cast<std::size_t>(normalized_axis(v, "axis2", rank))]);
        return permutation;
    };
    def.infer = [permutation_of_swap](const OpView& v) {
        const Shape& shape = v.in_shape(0);
        if (!shape.has_rank()) return std::vector{v.input(0)};
        return std::vector{TensorType{v.input(0).dtype, permuted(shape, permutation_of_swap(v, shape.rank()))}};
    };
    def.body = ElementBody{[permutation_of_swap](ElementContext& c, const Indices& at) {
        return permuted(c, permutation_of_swap(c.op, c.op.in_shape(0).rank()), at);
    }};
    def.gradient = GradientRule{[](GradientContext& g) {
        return std::vector{
            apply("swap_axes", {g.grad()}, {{"axis1", g.op.attribute("axis1")}, {"axis2", g.op.attribute("axis2")}})};
    }};
    def.mpsgraph = {"transpose"};
    return def;
}

// --- reverse, roll

OpDef reverse() {
    OpDef def = movement_op("reverse", "The elements in the opposite order along the listed axes, or along all.");
    def.attributes = {axes_attr("the axes to reverse; negative ones count from the end, none means all")};
    def.infer = [](const OpView& v) {
        if (v.in_shape(0).has_rank()) normalized_axes(v, "axes", v.in_shape(0).rank());
        return same_type(v);
    };
    def.body = ElementBody{[](ElementContext& c, const Indices& at) {
        const Shape& shape = c.op.in_shape(0);
        Indices index = at;
        for (const int axis : normalized_axes(c.op, "axes", shape.rank())) {
            Index& along = index[static_cast<std::size_t>(axis)];
            along = Index(shape[axis] - 1) - along;
        }
        return c.operand(0, index);
    }};
    def.gradient = GradientRule{[](GradientContext& g) {
        return std::vector{apply("reverse", {g.grad()}, {{"axes", g.op.attribute("axes")}})};
    }};
    def.mpsgraph = {"reverse"};
    return def;
}

OpDef roll() {
    OpDef def =
        movement_op("roll",
                    "The elements moved along axes by a number of positions; what leaves at one end comes in at the "
                    "other. Shifts may be negative or larger than the dim.");
    def.attributes = {required_attr("shifts", AttributeKind::integers, "how far to move, toward higher positions"),
                      required_attr("axes", AttributeKind::integers, "the axis of each shift; each axis once")};
    def.infer = [](const OpView& v) {
        if (v.integers("shifts").size() != v.integers("axes").size()) {
            v.fail(concat(v.integers("shifts").size(), " shifts were given for ", v.integers("axes").size(),
                          " axes; give one shift for each axis"));
        }
        for (const std::int64_t shift : v.integers("shifts")) {
            if (shift == std::numeric_limits<std::int64_t>::min())
                v.fail(concat("a shift of ", shift, " is too large"));
        }
        if (v.in_shape(0).has_rank()) normalized_axes(v, "axes", v.in_shape(0).rank());
        return same_type(v);
    };
    def.body = ElementBody{[](ElementContext& c, const Indices& at) {
        const Shape& shape = c.op.in_shape(0);
        if (surely_empty(shape)) return c.constant_int(0, c.op.output().dtype);
        const std::vector<int> axes = normalized_axes(c.op, "axes", shape.rank());
        Indices index = at;
        for (std::size_t k = 0; k < axes.size(); ++k) {
            const Dim& extent = shape[axes[k]];
            Index& along = index[static_cast<std::size_t>(axes[k])];
            along = mod(along + Index(mod(Dim(0) - Dim(c.op.integers("shifts")[k]), extent)), extent);
        }
        return c.operand(0, index);
    }};
    def.gradient = GradientRule{[](GradientContext& g) {
        Axes back;
        for (const std::int64_t shift : g.op.integers("shifts")) back.push_back(-shift);
        return std::vector{apply("roll", {g.grad()}, {{"shifts", std::move(back)}, {"axes", g.op.attribute("axes")}})};
    }};
    return def;
}

}  // namespace

std::vector<OpDef> movement_ops() {
    return {reshape(), transpose(), swap_axes(), squeeze(), expand_dims(), flatten2d(), reverse(), roll()};
}

}  // namespace topstitch::ops
