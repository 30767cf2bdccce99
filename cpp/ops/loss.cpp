// Loss functions with a reduction over their rows or elements: cross entropies and the squared error.
// Written so that infinite logits and exact 0 or 1 labels give the limits, not NaN.
#include <limits>

#include "ops/elementwise.h"
#include "ops/expr.h"
#include "ops/families.h"

namespace topstitch::ops {

using namespace expr;
using loopir::ScalarOp;
using loopir::ValueId;

namespace {

// --- The reduction that a loss ends with.

AttrDef reduction_attr(const char* fallback) {
    return choice_attr("reduction", fallback, {"none", "sum", "mean"}, "how the losses are combined");
}

TensorType reduced_type(const OpView& view, DType dtype, Shape losses) {
    return {dtype, view.string("reduction") == "none" ? std::move(losses) : Shape()};
}

Tensor reduced(const OpView& view, const Tensor& losses) {
    const std::string& reduction = view.string("reduction");
    return reduction == "none" ? losses : apply(reduction, {losses});
}

Tensor count(const Tensor& x, const Attribute& axes, DType dtype) {
    return apply("size", {x}, {{"axes", axes}, {"dtype", dtype}});
}

// The gradient of each of `count` losses, as a tensor that broadcasts against them.
Tensor loss_gradient(GradientContext& g, const std::function<Tensor(DType)>& count) {
    const Tensor gradient = widened(g.grad());
    return g.op.string("reduction") == "mean" ? gradient / count(gradient.dtype()) : gradient;
}

// --- One-hot labels.

// Integer labels name one class for each row; the more precise of the two shapes.
Shape check_rows(const OpView& view, const Shape& rows, const Shape& labels) {
    if (!rows.has_rank()) return labels;
    if (!labels.has_rank()) return rows;
    bool agree = rows.rank() == labels.rank();
    std::vector<Dim> dims;
    for (int axis = 0; agree && axis < rows.rank(); ++axis) {
        agree = dims_agree(rows[axis], labels[axis]);
        if (agree) dims.push_back(unify_dims(rows[axis], labels[axis]));
    }
    if (!agree) {
        view.fail(concat("input `labels` has shape ", labels.str(), ", but integer labels need the shape ", rows.str(),
                         ", one class for each row; reshape them, or cast probabilities to a floating-point dtype"));
    }
    return Shape(std::move(dims));
}

OpDef one_hot_like_op() {
    OpDef def;
    def.name = "one_hot_like";
    def.internal = true;
    def.family = "loss";
    def.doc =
        "1 where the position along the axis is the label, else 0, in the shape and dtype of `like`, of which nothing "
        "else is used. A label outside of the axis gives a row of NaN.";
    def.args = {{"labels", "integer tensor of the shape of `like` without the axis"},
                {"like", "floating-point tensor"}};
    def.attributes = {axis_attr(-1)};
    def.results = {"y"};
    def.infer = [](const OpView& view) {
        require_integer(view, 0);
        require_floating(view, 1);
        check_rows(view, without_axis(view.in_shape(1), view.integer("axis"), view), view.in_shape(0));
        return std::vector<TensorType>{view.input(1)};
    };
    def.body = ElementBody{[](ElementContext& c, const Indices& at) {
        const DType dtype = c.op.output().dtype;
        const int axis = normalized_axis(c.op, "axis", c.op.out_shape().rank());
        Indices row = at;
        row.erase(row.begin() + axis);
        // Positions are compared as int64; a uint64 label beyond them becomes negative, which is outside too.
        const ValueId label = c.b.cast(c.operand(0, row).re, DType::int64);
        const ValueId hit = c.b.op(ScalarOp::eq, label, c.b.index_value(at[static_cast<std::size_t>(axis)]));
        const ValueId classes = c.b.index_value(Index(c.op.out_shape()[axis]));
        const ValueId inside = c.b.op(ScalarOp::bit_and, c.b.op(ScalarOp::le, c.b.constant_int(0, DType::int64), label),
                                      c.b.op(ScalarOp::lt, label, classes));
        const double nan = std::numeric_limits<double>::quiet_NaN();
        return c.select(hit, c.constant(1, dtype), c.select(inside, c.constant(0, dtype), c.constant(nan, dtype)));
    }};
    def.gradient = GradientRule{[](GradientContext&) { return std::vector<Tensor>(2); }};
    def.onnx = "OneHot";
    return def;
}

// --- Softmax cross entropy.

// The labels as probabilities of the shape of `logits`.
Tensor probabilities(const OpView& view, const Tensor& labels, const Tensor& logits) {
    if (is_floating(labels.dtype())) return widened(labels);
    return apply("one_hot_like", {labels, logits}, {{"axis", view.attribute("axis")}});
}

std::vector<TensorType> infer_softmax_cross_entropy(const OpView& view) {
    require_floating(view, 0);
    require(view, 1, floats | integers);
    const bool dense = is_floating(view.input(1).dtype);
    Shape logits = view.in_shape(0);
    if (dense) {
        require_same_dtype(view);
        logits = require_same_shape(view, 0, 1);
    }
    Shape rows = without_axis(logits, view.integer("axis"), view);
    if (!dense) rows = check_rows(view, rows, view.in_shape(1));
    return {reduced_type(view, view.input(0).dtype, std::move(rows))};
}

std::vector<Tensor> expand_softmax_cross_entropy(CompositeContext& c) {
    const Tensor logits = widened(c.input(0));
    const Tensor labels = probabilities(c.op, c.input(1), logits);
    const Tensor log_p = apply("log_softmax", {logits}, {{"axis", c.op.attribute("axis")}});
    // A label of 0 says nothing, also where the logit is -inf.
    const Tensor zero = constant_like(0.0, logits);
    const Tensor terms = where(equal(labels, zero), zero, labels * log_p);
    const Tensor losses = zero - sum(terms, {c.op.integer("axis")}, false);  // not -sum: a perfect loss is 0, not -0
    return {narrowed(reduced(c.op, losses), c.input(0).dtype())};
}

std::vector<Tensor> softmax_cross_entropy_gradient(GradientContext& g) {
    const std::int64_t axis = g.op.integer("axis");
    const bool dense = is_floating(g.input(1).dtype());
    const Tensor logits = widened(g.input(0));
    Tensor gradient = loss_gradient(g, [&](DType dtype) {
        if (!dense) return count(g.input(1), Attribute(), dtype);
        return count(logits, Attribute(), dtype) / count(logits, std::vector<std::int64_t>{axis}, dtype);
    });
    if (g.op.string("reduction") == "none") gradient = expand_dims(gradient, {axis});
    const NamedAttributes along = {{"axis", axis}};
    return {if_needed(g, 0,
                      [&] {
                          const Tensor labels = probabilities(g.op, g.input(1), logits);
                          const Tensor expected = apply("softmax", {logits}, along) * sum(labels, {axis}, true);
                          return narrowed(gradient * (expected - labels), g.input(0).dtype());
                      }),
            dense ? if_needed(g, 1,
                              [&] {
                                  const Tensor log_p = apply("log_softmax", {logits}, along);
                                  return narrowed(-(gradient * log_p), g.input(1).dtype());
                              })
                  : Tensor()};
}

OpDef softmax_cross_entropy_op() {
    OpDef def;
    def.name = "softmax_cross_entropy";
    def.family = "loss";
    def.doc =
        "-sum(labels * log_softmax(logits)) along the class axis, one loss for each row. Floating-point labels are "
        "probabilities in the shape of the logits; integer labels are class indices in that shape without the class "
        "axis, and an index that is no class (a negative one too) makes the loss of its row and its gradient NaN. "
        "`sum` and `mean` combine the losses of all rows to a scalar, `mean` dividing by the number of rows. A "
        "probability of 0 contributes 0 even where log_softmax is -inf. The gradient of the logits is softmax(logits) "
        "* sum(labels) - labels, which does not assume that labels sum to 1; "
        "that of dense labels is -log_softmax(logits). float16 and bfloat16 are computed in float32.";
    def.args = {{"logits", "floating-point tensor"}, {"labels", "probabilities of the same dtype, or integer classes"}};
    def.attributes = {axis_attr(-1, "the class axis; negative counts from the end"), reduction_attr("none")};
    def.results = {"loss"};
    def.infer = infer_softmax_cross_entropy;
    def.body = CompositeBody{expand_softmax_cross_entropy};
    def.gradient = GradientRule{softmax_cross_entropy_gradient};
    def.mpsgraph = {"softMaxCrossEntropy"};
    def.onnx = "SoftmaxCrossEntropyLoss";
    return def;
}

// --- Element-by-element losses.

OpDef elementwise_loss(const char* name, const char* first, const char* second, const char* reduction,
                       const char* doc) {
    OpDef def;
    def.name = name;
    def.family = "loss";
    def.doc = doc;
    def.args = {{first, "floating-point tensor"}, {second, "tensor of the same dtype and shape"}};
    def.attributes = {reduction_attr(reduction)};
    def.results = {"loss"};
    def.infer = [](const OpView& view) {
        require_floating(view, 0);
        require_same_dtype(view);
        return std::vector<TensorType>{reduced_type(view, view.input(0).dtype, require_same_shape(view, 0, 1))};
    };
    return def;
}

OpDef sigmoid_cross_entropy_op() {
    OpDef def = elementwise_loss("sigmoid_cross_entropy", "logits", "labels", "none",
                                 "-(labels * log(sigmoid(logits)) + (1 - labels) * log(sigmoid(-logits))), element by "
                                 "element, without overflow: "
                                 "(1 - labels) * max(logits, 0) + labels * max(-logits, 0) + log1p(exp(-|logits|)). "
                                 "Labels of 0 and 1 give the right "
                                 "limits at infinite logits. `sum` and `mean` combine all elements to a scalar. "
                                 "float16 and bfloat16 are computed in "
                                 "float32.");
    def.body = CompositeBody{[](CompositeContext& c) {
        const Tensor x = widened(c.input(0));
        const Tensor z = widened(c.input(1));
        const Tensor zero = constant_like(0.0, x);
        const auto weighted = [&](const Tensor& weight, const Tensor& x) {
            return where(equal(weight, zero), zero, weight * maximum(x, zero));
        };
        const Tensor losses = weighted(1.0 - z, x) + weighted(z, -x) + log1p(exp(-abs(x)));
        return std::vector<Tensor>{narrowed(reduced(c.op, losses), c.input(0).dtype())};
    }};
    def.gradient = GradientRule{[](GradientContext& g) {
        const Tensor x = widened(g.input(0));
        const Tensor z = widened(g.input(1));
        const Tensor gradient = loss_gradient(g, [&](DType dtype) { return count(x, Attribute(), dtype); });
        // sigmoid(x) - z, without the cancellation at labels of 1.
        return std::vector<Tensor>{if_needed(g, 0,
                                             [&] {
                                                 const Tensor slope = (1.0 - z) * sigmoid(x) - z * sigmoid(-x);
                                                 return narrowed(gradient * slope, g.input(0).dtype());
                                             }),
                                   if_needed(g, 1, [&] { return narrowed(-(gradient * x), g.input(1).dtype()); })};
    }};
    return def;
}

OpDef mean_squared_error_op() {
    OpDef def = elementwise_loss("mean_squared_error", "prediction", "target", "mean",
                                 "(prediction - target)^2, averaged over all elements, or summed, or element by "
                                 "element, as `reduction` says. The "
                                 "shapes must be equal: broadcasting here is nearly always a mistake. float16 and "
                                 "bfloat16 are computed in float32.");
    def.body = CompositeBody{[](CompositeContext& c) {
        const Tensor difference = widened(c.input(0)) - widened(c.input(1));
        return std::vector<Tensor>{narrowed(reduced(c.op, square(difference)), c.input(0).dtype())};
    }};
    def.gradient = FromExpansion{};
    return def;
}

}  // namespace

std::vector<OpDef> loss_ops() {
    return {one_hot_like_op(), softmax_cross_entropy_op(), sigmoid_cross_entropy_op(), mean_squared_error_op()};
}

}  // namespace topstitch::ops
