// Activation functions. All but softmax and log_softmax are one element each, so that 16-bit floats are computed in
// float32 throughout and one expression is stitched; their gradients are written for accuracy at both ends.
#include <limits>
#include <numbers>

#include "ops/elementwise.h"
#include "ops/expr.h"
#include "ops/families.h"

namespace topstitch::ops {

using namespace expr;
using loopir::ScalarOp;
using loopir::ValueId;

namespace {

ElementFacts activation_facts(std::string name, std::string doc) {
    return {.name = std::move(name), .family = "activation", .doc = std::move(doc)};
}

Tensor zero_of(const Tensor& x) {
    return constant_like(0.0, x);
}

// --- Scalars.

// 1 / (1 + exp(-x)) with the exponential of -|x|, which does not overflow.
ValueId scalar_sigmoid(ElementContext& c, ValueId x) {
    const ValueId one = number(c, 1.0, x);
    const ValueId e = c.b.op(ScalarOp::exp, c.b.op(ScalarOp::neg, c.b.op(ScalarOp::abs, x)));
    const ValueId positive = c.b.op(ScalarOp::le, number(c, 0.0, x), x);
    return c.b.div(c.b.select(positive, one, e), c.b.add(one, e));
}

// log(1 + exp(-|x|)).
ValueId scalar_log1p_exp_minus_abs(ElementContext& c, ValueId x) {
    const ValueId e = c.b.op(ScalarOp::exp, c.b.op(ScalarOp::neg, c.b.op(ScalarOp::abs, x)));
    return c.b.op(ScalarOp::log1p, e);
}

// -inf becomes the lowest finite number, so that its product with an underflown 0 is 0 and not NaN.
ValueId bounded_below(ElementContext& c, ValueId x) {
    const double lowest =
        c.b.type(x) == DType::float64 ? std::numeric_limits<double>::lowest() : std::numeric_limits<float>::lowest();
    return c.b.op(ScalarOp::max, x, number(c, lowest, x));
}

// --- Piecewise linear.

OpDef relu_op() {
    ElementFacts facts = activation_facts("relu", "maximum(x, 0); NaN stays NaN. The derivative at 0 is taken as 0.");
    facts.mpsgraph = {"reLU"};
    facts.onnx = "Relu";
    facts.dtypes = reals;
    return unary_op(
        std::move(facts),
        [](ElementContext& c, DType dtype, const Value& x) {
            return Value{c.b.op(ScalarOp::max, x.re, c.constant_int(0, dtype).re)};
        },
        unary_rule([](GradientContext& g) {
            return where(greater(g.input(), zero_of(g.input())), g.grad(), zero_of(g.grad()));
        }));
}

OpDef leaky_relu_op() {
    ElementFacts facts =
        activation_facts("leaky_relu", "x where x > 0, alpha * x elsewhere. The derivative at 0 is taken as alpha.");
    facts.attributes = {real_attr("alpha", 0.01, "the slope below 0")};
    facts.mpsgraph = {"leakyReLU"};
    facts.onnx = "LeakyRelu";
    return unary_op(
        std::move(facts),
        [](ElementContext& c, DType, const Value& x) {
            const ValueId positive = c.b.op(ScalarOp::lt, number(c, 0.0, x.re), x.re);
            const ValueId slope = number(c, c.op.real("alpha"), x.re);
            return Value{c.b.select(positive, x.re, c.b.mul(slope, x.re))};
        },
        unary_rule([](GradientContext& g) {
            return where(greater(g.input(), zero_of(g.input())), g.grad(), g.op.real("alpha") * g.grad());
        }));
}

OpDef prelu_op() {
    ElementFacts facts = activation_facts("prelu",
                                          "x where x > 0, alpha * x elsewhere, with the slopes as a tensor that "
                                          "broadcasts against x. The derivative at 0 is "
                                          "taken as alpha.");
    facts.mpsgraph = {"leakyReLU"};
    facts.onnx = "PRelu";
    const auto positive = [](GradientContext& g) { return greater(g.input(0), zero_of(g.input(0))); };
    OpDef def = binary_op(
        std::move(facts),
        [](ElementContext& c, DType, const Value& x, const Value& alpha) {
            const ValueId above = c.b.op(ScalarOp::lt, number(c, 0.0, x.re), x.re);
            return Value{c.b.select(above, x.re, c.b.mul(alpha.re, x.re))};
        },
        binary_rule(
            [positive](GradientContext& g) { return where(positive(g), g.grad(), g.input(1) * g.grad()); },
            [positive](GradientContext& g) { return where(positive(g), zero_of(g.grad()), g.input(0) * g.grad()); }));
    def.args = {{"x", "floating-point tensor"}, {"alpha", "slopes below 0; a tensor of the same dtype"}};
    return def;
}

OpDef hard_sigmoid_op() {
    ElementFacts facts = activation_facts("hard_sigmoid",
                                          "alpha * x + beta, limited to [0, 1]; NaN stays NaN. The defaults are "
                                          "PyTorch's (ONNX and Keras of old: alpha 0.2). "
                                          "The derivative at both ends is taken as 0.");
    facts.attributes = {real_attr("alpha", 1.0 / 6.0, "the slope"), real_attr("beta", 0.5, "the value at 0")};
    facts.onnx = "HardSigmoid";
    return unary_op(
        std::move(facts),
        [](ElementContext& c, DType, const Value& x) {
            const ValueId line =
                c.b.add(c.b.mul(number(c, c.op.real("alpha"), x.re), x.re), number(c, c.op.real("beta"), x.re));
            const ValueId raised = c.b.op(ScalarOp::max, line, number(c, 0.0, x.re));
            return Value{c.b.op(ScalarOp::min, raised, number(c, 1.0, x.re))};
        },
        unary_rule([](GradientContext& g) {
            const Tensor& y = g.output();
            const Tensor inside = logical_and(greater(y, zero_of(y)), less(y, constant_like(1.0, y)));
            return where(inside, g.op.real("alpha") * g.grad(), zero_of(g.grad()));
        }));
}

// --- Smooth.

OpDef sigmoid_op() {
    ElementFacts facts = activation_facts("sigmoid", "The logistic function 1 / (1 + exp(-x)), without overflow.");
    facts.mpsgraph = {"sigmoid"};
    facts.onnx = "Sigmoid";
    return unary_op(
        std::move(facts), [](ElementContext& c, DType, const Value& x) { return Value{scalar_sigmoid(c, x.re)}; },
        // y * sigmoid(-x): 1 - y would lose everything where y rounds to 1.
        unary_rule([](GradientContext& g) { return g.grad() * (g.output() * sigmoid(-g.input())); }));
}

OpDef log_sigmoid_op() {
    return unary_op(
        activation_facts("log_sigmoid", "log(sigmoid(x)) as minimum(x, 0) - log1p(exp(-|x|)), without overflow."),
        [](ElementContext& c, DType, const Value& x) {
            const ValueId lower = c.b.op(ScalarOp::min, x.re, number(c, 0.0, x.re));
            return Value{c.b.sub(lower, scalar_log1p_exp_minus_abs(c, x.re))};
        },
        unary_rule([](GradientContext& g) { return g.grad() * sigmoid(-g.input()); }));
}

OpDef softplus_op() {
    ElementFacts facts =
        activation_facts("softplus", "log(1 + exp(x)) as maximum(x, 0) + log1p(exp(-|x|)), without overflow.");
    facts.onnx = "Softplus";
    return unary_op(
        std::move(facts),
        [](ElementContext& c, DType, const Value& x) {
            const ValueId upper = c.b.op(ScalarOp::max, x.re, number(c, 0.0, x.re));
            return Value{c.b.add(upper, scalar_log1p_exp_minus_abs(c, x.re))};
        },
        unary_rule([](GradientContext& g) { return g.grad() * sigmoid(g.input()); }));
}

OpDef silu_op() {
    return unary_op(
        activation_facts("silu",
                         "x * sigmoid(x), also known as swish (S. Elfwing et al., Neural Networks 107, 2018). -inf "
                         "gives 0."),
        [](ElementContext& c, DType, const Value& x) {
            return Value{c.b.mul(bounded_below(c, x.re), scalar_sigmoid(c, x.re))};
        },
        unary_rule([](GradientContext& g) {
            const Tensor x = widened(g.input());
            return g.grad() * narrowed(sigmoid(x) * (1.0 + x * sigmoid(-x)), g.grad().dtype());
        }));
}

OpDef elu_op() {
    ElementFacts facts = activation_facts(
        "elu",
        "x where x > 0, alpha * expm1(x) elsewhere (D.-A. Clevert et al., ICLR 2016). The derivative at 0 is taken "
        "as alpha.");
    facts.attributes = {real_attr("alpha", 1.0, "minus the limit toward -inf")};
    facts.onnx = "Elu";
    return unary_op(
        std::move(facts),
        [](ElementContext& c, DType, const Value& x) {
            const ValueId positive = c.b.op(ScalarOp::lt, number(c, 0.0, x.re), x.re);
            const ValueId below = c.b.mul(number(c, c.op.real("alpha"), x.re), c.b.op(ScalarOp::expm1, x.re));
            return Value{c.b.select(positive, x.re, below)};
        },
        unary_rule([](GradientContext& g) {
            const Tensor positive = greater(g.input(), zero_of(g.input()));
            // The exponential of the positive ones is not used, and must not overflow.
            const Tensor slope = g.op.real("alpha") * exp(minimum(g.input(), zero_of(g.input())));
            return where(positive, g.grad(), g.grad() * slope);
        }));
}

// --- GELU.

constexpr double sqrt_half = 1.0 / std::numbers::sqrt2;
constexpr double tanh_scale = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;  // sqrt(2 / pi)
constexpr double tanh_cubic = 0.044715;

// The gradient by the normal distribution: its cumulative function Phi(x) plus x times its density.
Tensor gelu_slope_exact(const Tensor& x) {
    const Tensor cumulative = 0.5 * unary("erfc", -sqrt_half * x);
    const Tensor density = (sqrt_half * std::numbers::inv_sqrtpi) * exp(-0.5 * square(x));
    return cumulative + x * density;
}

// (1 + tanh(u)) / 2 is sigmoid(2u), so that y = x * sigmoid(2u).
Tensor gelu_slope_tanh(const Tensor& x) {
    const Tensor twice_u = (2.0 * tanh_scale) * (x * (1.0 + tanh_cubic * square(x)));
    const Tensor twice_du = (2.0 * tanh_scale) * (1.0 + (3.0 * tanh_cubic) * square(x));
    return sigmoid(twice_u) * (1.0 + x * (sigmoid(-twice_u) * twice_du));
}

Value scalar_gelu(ElementContext& c, DType, const Value& given) {
    const ValueId x = bounded_below(c, given.re);
    if (c.op.string("approximate") == "tanh") {
        const ValueId cubic = c.b.mul(number(c, tanh_cubic, x), c.b.mul(x, x));
        const ValueId inner = c.b.mul(x, c.b.add(number(c, 1.0, x), cubic));
        return Value{c.b.mul(x, scalar_sigmoid(c, c.b.mul(number(c, 2.0 * tanh_scale, x), inner)))};
    }
    const ValueId tail = c.b.op(ScalarOp::erfc, c.b.mul(number(c, -sqrt_half, x), x));
    return Value{c.b.mul(c.b.mul(number(c, 0.5, x), x), tail)};
}

OpDef gelu_op() {
    ElementFacts facts = activation_facts(
        "gelu",
        "x times the cumulative distribution function of the standard normal distribution (D. Hendrycks and K. Gimpel, "
        "arXiv:1606.08415): x/2 * erfc(-x/sqrt(2)), which keeps its relative accuracy for negative x; with "
        "approximate=\"tanh\" x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))). -inf gives 0.");
    facts.attributes = {choice_attr("approximate", "none", {"none", "tanh"}, "the formula")};
    facts.onnx = "Gelu";
    return unary_op(std::move(facts), scalar_gelu, unary_rule([](GradientContext& g) {
                        const Tensor x = widened(g.input());
                        const bool approximate = g.op.string("approximate") == "tanh";
                        const Tensor slope = approximate ? gelu_slope_tanh(x) : gelu_slope_exact(x);
                        return g.grad() * narrowed(slope, g.grad().dtype());
                    }));
}

// --- Softmax.

OpDef softmax_frame(const char* name, const char* doc) {
    OpDef def;
    def.name = name;
    def.family = "activation";
    def.doc = doc;
    def.args = {{"x", "floating-point tensor"}};
    def.attributes = {axis_attr(-1)};
    def.results = {"y"};
    def.infer = [](const OpView& view) {
        require_floating(view, 0);
        if (view.in_shape(0).has_rank()) normalized_axis(view, "axis", view.in_shape(0).rank());
        return same_type(view);
    };
    return def;
}

std::vector<std::int64_t> axis_list(const OpView& view) {
    return {view.integer("axis")};
}

// x minus its largest element along the axis, which changes neither softmax nor its derivative.
Tensor shifted(CompositeContext& c, const Tensor& x) {
    return x - stop_gradient(max(x, axis_list(c.op), true));
}

// The largest of nothing does not exist, and nothing is asked for either.
bool axis_is_empty(CompositeContext& c) {
    const Shape& shape = c.input(0).shape();
    return shape.has_rank() && shape[normalized_axis(c.op, "axis", shape.rank())] == Dim(0);
}

OpDef softmax_op() {
    OpDef def =
        softmax_frame("softmax",
                      "exp(x) / sum(exp(x)) along an axis. The maximum is subtracted first, so that nothing overflows; "
                      "16-bit floats are "
                      "computed in float32. A NaN or +inf anywhere, or -inf everywhere, makes the whole row NaN.");
    def.body = CompositeBody{[](CompositeContext& c) {
        if (axis_is_empty(c)) return std::vector<Tensor>{c.input(0)};
        const Tensor e = exp(shifted(c, widened(c.input(0))));
        return std::vector<Tensor>{narrowed(e / sum(e, axis_list(c.op), true), c.input(0).dtype())};
    }};
    def.gradient = unary_rule([](GradientContext& g) {
        const Tensor y = widened(g.output());
        const Tensor gradient = widened(g.grad());
        const Tensor inner = sum(gradient * y, axis_list(g.op), true);
        return narrowed(y * (gradient - inner), g.input().dtype());
    });
    def.mpsgraph = {"softMax"};
    def.onnx = "Softmax";
    return def;
}

OpDef log_softmax_op() {
    OpDef def = softmax_frame(
        "log_softmax",
        "log(softmax(x)) along an axis as x - max - log(sum(exp(x - max))), accurate also where softmax underflows; "
        "16-bit "
        "floats are computed in float32. A NaN or +inf anywhere, or -inf everywhere, makes the whole row NaN.");
    def.body = CompositeBody{[](CompositeContext& c) {
        if (axis_is_empty(c)) return std::vector<Tensor>{c.input(0)};
        const Tensor x = shifted(c, widened(c.input(0)));
        return std::vector<Tensor>{narrowed(x - log(sum(exp(x), axis_list(c.op), true)), c.input(0).dtype())};
    }};
    def.gradient = unary_rule([](GradientContext& g) {
        const Tensor gradient = widened(g.grad());
        const Tensor total = sum(gradient, axis_list(g.op), true);
        return narrowed(gradient - exp(widened(g.output())) * total, g.input().dtype());
    });
    def.onnx = "LogSoftmax";
    return def;
}

}  // namespace

std::vector<OpDef> activation_ops() {
    return {relu_op(),     leaky_relu_op(), prelu_op(), hard_sigmoid_op(), sigmoid_op(), log_sigmoid_op(),
            softplus_op(), silu_op(),       elu_op(),   gelu_op(),         softmax_op(), log_softmax_op()};
}

}  // namespace topstitch::ops
