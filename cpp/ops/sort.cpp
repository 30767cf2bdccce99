// Sorting along an axis: sort, argsort, top_k, bottom_k.
// Values that are asked for along with their positions are gathered from there.
#include "ops/expr.h"
#include "ops/families.h"
#include "ops/rules.h"

namespace topstitch::ops {

namespace {

const std::string order_doc =
    " Equal elements stay in their order (the sort is stable), and zeros of both signs are equal. NaN counts as larger "
    "than any number, infinity included, as in NumPy and PyTorch: ";

int sorted_axis(const OpView& v) {
    return normalized_axis(v, "axis", v.in_shape(0).rank());
}

void require_order(const OpView& v) {
    require(v, 0, bools | reals,
            is_complex(v.input(0).dtype) ? "complex numbers have no order; sort absolute or real parts" : "");
    if (v.in_shape(0).has_rank()) sorted_axis(v);
}

AttrDef sort_axis_attr() {
    return axis_attr(-1, "the axis to sort along; negative counts from the end");
}

SortBody sort_body(bool positions, std::function<bool(const OpView&)> descending) {
    SortBody body;
    body.axis = sorted_axis;
    body.descending = std::move(descending);
    body.positions = positions;
    body.element = [](ElementContext& c, const Indices& at) { return c.operand(0, at); };
    return body;
}

bool descends(const OpView& v) {
    return v.flag("descending");
}

OpDef ordering(const std::string& name, std::string doc) {
    OpDef def;
    def.name = name;
    def.family = "sorting";
    def.doc = std::move(doc);
    def.args = {{"x", "bools, integers or floats, with one axis at least"}};
    def.attributes = {sort_axis_attr(), flag_attr("descending", false, "the largest first")};
    return def;
}

OpDef sort() {
    OpDef def = ordering("sort", "The elements along an axis in ascending order, or in descending order." + order_doc +
                                     "it comes last in ascending order and first in descending order. The gradient "
                                     "goes to where each element came from.");
    def.results = {"y"};
    def.infer = [](const OpView& v) {
        require_order(v);
        return same_type(v);
    };
    def.body = sort_body(false, descends);
    def.gradient = GradientRule{[](GradientContext& g) {
        const Tensor order = apply("argsort", {g.input()}, shared_attributes(g.op, g.op.def()));
        return std::vector{apply("scatter_along_axis", {expr::zeros_like(g.grad()), order, g.grad()},
                                 {{"axis", g.op.attribute("axis")}})};
    }};
    def.mpsgraph = {"sort"};
    return def;
}

OpDef argsort() {
    OpDef def = ordering("argsort",
                         "The int32 positions that sort along an axis: gather_along_axis(x, argsort(x)) is sort(x)." +
                             order_doc + "it comes last in ascending order and first in descending order.");
    def.results = {"order"};
    def.infer = [](const OpView& v) {
        require_order(v);
        return std::vector{TensorType{DType::int32, v.in_shape(0)}};
    };
    def.body = sort_body(true, descends);
    def.gradient = NotDifferentiable{"its result is a position, which jumps from one integer to another"};
    def.mpsgraph = {"argSort"};
    return def;
}

// --- The first few.

AttrDef k_attr() {
    return required_attr("k", AttributeKind::integer, "how many; at most the length of the axis");
}

// The input's shape with k elements along the axis.
Shape first_few(const OpView& v) {
    require_order(v);
    const std::int64_t k = v.integer("k");
    if (k < 0) v.fail(concat("k is ", k, ", but must be 0 or more"));
    const Shape& shape = v.in_shape(0);
    if (!shape.has_rank()) return Shape::unranked();
    const int axis = sorted_axis(v);
    const Dim& length = shape[axis];
    if (length.is_known() && k > length.value()) {
        v.fail(concat("k is ", k, ", but axis ", axis, " of ", input_name(v, 0), " (shape ", shape.str(), ") has ",
                      length.str(), " elements only; ask for as many, or pad the input"));
    }
    std::vector<Dim> dims = shape.dims();
    dims[static_cast<std::size_t>(axis)] = Dim(k);
    return Shape(std::move(dims));
}

OpDef first_positions() {
    OpDef def = ordering("first_positions", "The first k of argsort: the indices of top_k and bottom_k.");
    def.internal = true;
    def.attributes.push_back(k_attr());
    def.results = {"indices"};
    def.infer = [](const OpView& v) { return std::vector{TensorType{DType::int32, first_few(v)}}; };
    def.body = sort_body(true, descends);
    def.gradient = NotDifferentiable{"its result is a position, which jumps from one integer to another"};
    return def;
}

OpDef first_few_op(bool largest) {
    const std::string which = largest ? "largest" : "smallest";
    OpDef def;
    def.name = largest ? "top_k" : "bottom_k";
    def.family = "sorting";
    def.doc = concat("The k ", which, " elements along an axis, the ", which,
                     " first, and their int32 positions. k may be anything from 0 to the length of the axis.",
                     order_doc, largest ? "it comes first." : "it comes last.",
                     " For up to 64 of them, long rows are not sorted as a whole. The gradient of the values goes to "
                     "where they came from; the "
                     "positions have none.");
    def.args = {{"x", "bools, integers or floats, with one axis at least"}};
    def.attributes = {k_attr(), sort_axis_attr()};
    def.results = {"values", "indices"};
    def.infer = [](const OpView& v) {
        const Shape shape = first_few(v);
        return std::vector{TensorType{v.input(0).dtype, shape}, TensorType{DType::int32, shape}};
    };
    def.body = CompositeBody{[largest](CompositeContext& c) {
        const Tensor indices =
            apply("first_positions", {c.input(0)},
                  {{"k", c.op.attribute("k")}, {"axis", c.op.attribute("axis")}, {"descending", largest}});
        const Tensor values = apply("gather_along_axis", {c.input(0), indices}, {{"axis", c.op.attribute("axis")}});
        return std::vector{values, indices};
    }};
    def.gradient = FromExpansion{};
    def.mpsgraph = {largest ? "topK" : "bottomK"};
    if (largest) def.onnx = "TopK";
    return def;
}

}  // namespace

std::vector<OpDef> sort_ops() {
    return {sort(), argsort(), first_few_op(true), first_few_op(false), first_positions()};
}

}  // namespace topstitch::ops
