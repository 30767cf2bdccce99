// Operations that take their shape from another tensor: broadcast_like, sum_like, reshape_like, and shape_of.
// They become operations on decided dims when the program is compiled, so that gradient rules work with unknown dims.
#include "ops/expr.h"
#include "ops/families.h"
#include "ops/rules.h"

namespace topstitch::ops {

namespace {

using Axes = std::vector<std::int64_t>;

std::vector<ArgDef> like_arguments(std::string doc) {
    return {{"x", std::move(doc)}, {"like", "a tensor of which only the shape matters"}};
}

bool is_number_above_one(const Dim& dim) {
    return dim.is_known() && dim.value() != 1;
}

// `from` broadcast to `to`: the dims of `to`, as precisely as both tell.
Shape broadcast_to_shape(const OpView& v, const Shape& from, const Shape& to) {
    if (!to.has_rank() || !from.has_rank()) return to;
    const int missing = to.rank() - from.rank();
    std::vector<Dim> dims = to.dims();
    bool fits = missing >= 0;
    for (int axis = 0; fits && axis < from.rank(); ++axis) {
        Dim& target = dims[static_cast<std::size_t>(axis + missing)];
        Dim both;
        fits = broadcast_dims(from[axis], target, both) && dims_agree(both, target);
        if (target.is_unknown() && is_number_above_one(from[axis])) target = from[axis];
    }
    if (!fits) {
        v.fail(concat("the shape ", from.str(), " does not broadcast to ", to.str(),
                      ": counted from the end, a dim must be equal to the target's or 1; use reshape or expand_dims "
                      "first, or another target"));
    }
    return Shape(std::move(dims));
}

OpDef broadcast_to() {
    OpDef def;
    def.name = "broadcast_to";
    def.family = "movement";
    def.doc =
        "The input repeated along dims of length 1 and along new leading dims, as NumPy's broadcasting does; nothing "
        "is "
        "copied. A dim given as -1 keeps the input's.";
    def.args = {{"x", "any tensor"}};
    def.attributes = {required_attr("shape", AttributeKind::shape, "the shape of the result; -1 keeps a dim")};
    def.results = {"y"};
    def.infer = [](const OpView& v) {
        const Shape& from = v.in_shape(0);
        const Shape& target = v.shape("shape");
        if (!target.has_rank()) v.fail("the target shape has no rank; list its dims, with -1 to keep one");
        std::vector<Dim> dims = target.dims();
        const int missing = from.has_rank() ? target.rank() - from.rank() : 0;
        for (int axis = 0; from.has_rank() && axis < target.rank(); ++axis) {
            if (!target[axis].is_unknown()) continue;
            if (axis < missing) {
                v.fail(concat("the target shape ", target.str(), " leaves dim ", axis, " open, but the input of shape ",
                              from.str(), " has no such dim to keep; give its length"));
            }
            if (axis >= missing) dims[static_cast<std::size_t>(axis)] = from[axis - missing];
        }
        return std::vector{TensorType{v.input(0).dtype, broadcast_to_shape(v, from, Shape(std::move(dims)))}};
    };
    def.body = ElementBody{[](ElementContext& c, const Indices& at) { return c.broadcast_operand(0, at); }};
    def.gradient = GradientRule{[](GradientContext& g) { return std::vector{expr::sum_like(g.grad(), g.input())}; }};
    def.view = true;
    def.mpsgraph = {"broadcast"};
    def.onnx = "Expand";
    return def;
}

OpDef broadcast_like() {
    OpDef def;
    def.name = "broadcast_like";
    def.family = "movement";
    def.doc = "broadcast_to with the shape of another tensor, which may be unknown until run time.";
    def.args = like_arguments("any tensor whose shape broadcasts to the other's");
    def.results = {"y"};
    def.infer = [](const OpView& v) {
        return std::vector{TensorType{v.input(0).dtype, broadcast_to_shape(v, v.in_shape(0), v.in_shape(1))}};
    };
    def.body = CompositeBody{[](CompositeContext& c) {
        return std::vector{apply("broadcast_to", {c.input(0)}, {{"shape", c.op.in_shape(1)}})};
    }};
    def.gradient =
        GradientRule{[](GradientContext& g) { return std::vector{expr::sum_like(g.grad(), g.input()), Tensor()}; }};
    return def;
}

OpDef sum_like() {
    OpDef def;
    def.name = "sum_like";
    def.family = "movement";
    def.doc =
        "The sum over the axes along which the other tensor would be broadcast to the shape of this one, in the other "
        "tensor's shape: the adjoint of broadcast_like.";
    def.args = like_arguments("numbers, of a shape that the other's broadcasts to");
    def.results = {"y"};
    def.infer = [](const OpView& v) {
        require_numeric(v, 0);
        broadcast_to_shape(v, v.in_shape(1), v.in_shape(0));
        return std::vector{TensorType{v.input(0).dtype, v.in_shape(1)}};
    };
    def.body = CompositeBody{[](CompositeContext& c) {
        const Shape& from = c.op.in_shape(0);
        const Shape& to = c.op.in_shape(1);
        const int extra = from.rank() - to.rank();
        Axes summed;
        Axes leading;
        for (int axis = 0; axis < from.rank(); ++axis) {
            if (axis < extra) {
                leading.push_back(axis);
                summed.push_back(axis);
            } else if (dim_is_one(to[axis - extra]) && !dim_is_one(from[axis])) {
                summed.push_back(axis);
            }
        }
        Tensor y = c.input(0);
        if (!summed.empty()) y = expr::sum(y, summed, true);
        if (!leading.empty()) y = apply("squeeze", {y}, {{"axes", leading}});
        return std::vector{y};
    }};
    def.gradient = GradientRule{
        [](GradientContext& g) { return std::vector{expr::broadcast_like(g.grad(), g.input()), Tensor()}; }};
    return def;
}

OpDef reshape_like() {
    OpDef def;
    def.name = "reshape_like";
    def.family = "movement";
    def.doc = "reshape to the shape of another tensor, which may be unknown until run time.";
    def.args = like_arguments("any tensor with as many elements as the other");
    def.results = {"y"};
    def.infer = [](const OpView& v) {
        const Shape& from = v.in_shape(0);
        const Shape& to = v.in_shape(1);
        if (!dims_agree(from.num_elements(), to.num_elements())) {
            v.fail(concat("input `x` of shape ", from.str(), " has ", from.num_elements().str(), " elements, but ",
                          to.str(), " has ", to.num_elements().str(), "; the numbers must be equal"));
        }
        return std::vector{TensorType{v.input(0).dtype, to}};
    };
    def.body =
        CompositeBody{[](CompositeContext& c) { return std::vector{expr::reshape(c.input(0), c.op.in_shape(1))}; }};
    def.gradient =
        GradientRule{[](GradientContext& g) { return std::vector{expr::reshape_like(g.grad(), g.input()), Tensor()}; }};
    return def;
}

OpDef shape_of() {
    OpDef def;
    def.name = "shape_of";
    def.family = "movement";
    def.doc =
        "The shape of a tensor as a tensor of rank 1. The elements are not read, and dims that are known at run time "
        "only have their value then.";
    def.args = {{"x", "any tensor; only its shape matters"}};
    def.attributes = {optional_attr("dtype", AttributeKind::dtype, DType::int32, "int32 or int64")};
    def.results = {"shape"};
    def.infer = [](const OpView& v) {
        const DType dtype = v.dtype("dtype");
        if (dtype != DType::int32 && dtype != DType::int64) {
            v.fail_type(concat("dtype is ", name_of(dtype), ", but a shape is int32 or int64; use cast afterwards"));
        }
        const Shape& shape = v.in_shape(0);
        return std::vector{TensorType{dtype, Shape{shape.has_rank() ? Dim(shape.rank()) : Dim::unknown()}}};
    };
    def.body = ElementBody{[](ElementContext& c, const Indices& at) {
        const Shape& shape = c.op.in_shape(0);
        Value extent = c.constant_int(0, DType::int64);
        for (int axis = 0; axis < shape.rank(); ++axis) {
            const auto here =
                c.b.op(loopir::ScalarOp::eq, c.b.index_value(at[0]), c.b.constant_int(axis, DType::int64));
            extent = c.select(here, Value{c.b.index_value(shape[axis])}, extent);
        }
        return Value{c.b.cast(extent.re, c.op.dtype("dtype"))};
    }};
    def.gradient = NotDifferentiable{"its result depends on the shape only, not on the elements"};
    def.mpsgraph = {"shapeOf"};
    def.onnx = "Shape";
    return def;
}

}  // namespace

std::vector<OpDef> like_ops() {
    return {broadcast_to(), broadcast_like(), sum_like(), reshape_like(), shape_of()};
}

}  // namespace topstitch::ops
