// Optimizer steps as pure functions: from values, gradients and state to the new values and state.
// Assigning them to variables is the caller's business.
#include <cmath>

#include "ops/elementwise.h"
#include "ops/expr.h"
#include "ops/families.h"

namespace topstitch::ops {

using namespace expr;

namespace {

// The arithmetic is done in float64 for float64 values, else in float32, whatever the dtypes of the rest.
DType working_dtype(const Tensor& value) {
    return compute_type(value.dtype());
}

Tensor working(const CompositeContext& c, int k) {
    return narrowed(c.input(k), working_dtype(c.input(0)));
}

// Inputs 0 to `tensors` - 1 are alike in shape and floating-point; the rest are scalars. `value` and `gradient` share
// a dtype; the state may have another, say float32 beside bfloat16 values. One output for each of `outputs`.
std::vector<TensorType> infer_step(const OpView& view, int tensors, const std::vector<int>& outputs) {
    for (int k = 0; k < tensors; ++k) require_floating(view, k);
    require_same_dtype(view, 0, 1);
    Shape shape = view.in_shape(0);
    for (int k = 1; k < tensors; ++k) {
        const Shape agreed = require_same_shape(view, 0, k);
        if (!shape.has_rank()) shape = agreed;
    }
    for (int k = tensors; k < view.num_inputs(); ++k) {
        require(view, k, reals);
        require_scalar(view, k);
    }
    std::vector<TensorType> types;
    for (const int k : outputs) types.push_back({view.input(k).dtype, shape});
    return types;
}

const ArgDef value_arg{"value", "the parameters; floating-point"};
const ArgDef gradient_arg{"gradient", "of the objective; as `value`"};
const ArgDef rate_arg{"learning_rate", "scalar"};

OpDef optimizer_frame(const char* name, const char* doc) {
    OpDef def;
    def.name = name;
    def.family = "optimizer";
    def.doc = doc;
    def.gradient = FromExpansion{};
    return def;
}

OpDef sgd_op() {
    OpDef def = optimizer_frame("sgd",
                                "A step of gradient descent: value - learning_rate * gradient. Computed in float32 for "
                                "16-bit floats, and rounded "
                                "once.");
    def.args = {value_arg, gradient_arg, rate_arg};
    def.results = {"value"};
    def.infer = [](const OpView& view) { return infer_step(view, 2, {0}); };
    def.body = CompositeBody{[](CompositeContext& c) {
        const Tensor stepped = working(c, 0) - working(c, 2) * working(c, 1);
        return std::vector<Tensor>{narrowed(stepped, c.input(0).dtype())};
    }};
    def.mpsgraph = {"stochasticGradientDescent", "applyStochasticGradientDescent"};
    return def;
}

OpDef sgd_momentum_op() {
    OpDef def = optimizer_frame(
        "sgd_momentum",
        "A step of gradient descent with momentum: velocity' = momentum * velocity + gradient, and value' = value - "
        "learning_rate * velocity', or with nesterov value - learning_rate * (gradient + momentum * velocity'), as "
        "PyTorch "
        "formulates it (I. Sutskever et al., ICML 2013). Computed in float32 for 16-bit floats.");
    def.args = {value_arg, gradient_arg, {"velocity", "the state; zeros at first"}, rate_arg};
    def.attributes = {real_attr("momentum", 0.9, "the share of the velocity that is kept"),
                      flag_attr("nesterov", false, "look ahead along the velocity")};
    def.results = {"value", "velocity"};
    def.infer = [](const OpView& view) { return infer_step(view, 3, {0, 2}); };
    def.body = CompositeBody{[](CompositeContext& c) {
        const double momentum = c.op.real("momentum");
        const Tensor gradient = working(c, 1);
        const Tensor velocity = momentum * working(c, 2) + gradient;
        const Tensor direction = c.op.flag("nesterov") ? gradient + momentum * velocity : velocity;
        const Tensor stepped = working(c, 0) - working(c, 3) * direction;
        return std::vector<Tensor>{narrowed(stepped, c.input(0).dtype()), narrowed(velocity, c.input(2).dtype())};
    }};
    return def;
}

// --- Adam.

void require_between_0_and_1(const OpView& view, const char* name) {
    const double value = view.real(name);
    if (value >= 0.0 && value < 1.0) return;
    view.fail(concat(name, " is ", value, ", but must be at least 0 and less than 1"));
}

// 1 - beta^step, by expm1 because beta is near 1 (and 1 for a beta of 0).
Tensor bias_correction(double beta, const Tensor& step) {
    if (beta == 0.0) return constant_like(1.0, step);
    return -unary("expm1", step * std::log(beta));
}

struct AdamInputs {
    int value = 0, gradient = 1, momentum = 2, velocity = 3;
    int largest = -1;  // only for amsgrad
    int step, rate;
};

std::vector<Tensor> adam_step(CompositeContext& c, const AdamInputs& in) {
    const double beta1 = c.op.real("beta1");
    const double beta2 = c.op.real("beta2");
    const Tensor gradient = working(c, in.gradient);
    const Tensor momentum = beta1 * working(c, in.momentum) + (1.0 - beta1) * gradient;
    const Tensor velocity = beta2 * working(c, in.velocity) + (1.0 - beta2) * square(gradient);
    const Tensor largest = in.largest < 0 ? velocity : maximum(working(c, in.largest), velocity);

    const Tensor step = working(c, in.step);
    const Tensor rate = working(c, in.rate);
    const Tensor corrected = rate * sqrt(bias_correction(beta2, step)) / bias_correction(beta1, step);
    Tensor value = working(c, in.value);
    const double decay = c.op.real("weight_decay");
    if (decay != 0.0) value = value - (rate * decay) * value;
    value = value - corrected * momentum / (sqrt(largest) + c.op.real("epsilon"));

    std::vector<Tensor> results = {narrowed(value, c.input(in.value).dtype()),
                                   narrowed(momentum, c.input(in.momentum).dtype()),
                                   narrowed(velocity, c.input(in.velocity).dtype())};
    if (in.largest >= 0) results.push_back(narrowed(largest, c.input(in.largest).dtype()));
    return results;
}

OpDef adam_frame(const char* name, const char* doc, AdamInputs in) {
    OpDef def = optimizer_frame(name, doc);
    def.args = {value_arg, gradient_arg, {"momentum", "state; zeros at first"}, {"velocity", "state; zeros at first"}};
    def.results = {"value", "momentum", "velocity"};
    if (in.largest >= 0) {
        def.args.push_back({"maximum_velocity", "state; zeros at first"});
        def.results.push_back("maximum_velocity");
    }
    def.args.push_back({"step", "scalar, 1 in the first step; an integer or floating-point"});
    def.args.push_back(rate_arg);
    def.attributes = {
        real_attr("beta1", 0.9, "decay of the momentum; at least 0, less than 1"),
        real_attr("beta2", 0.999, "decay of the velocity; at least 0, less than 1"),
        real_attr("epsilon", 1e-8, "added to the root of the velocity"),
        real_attr("weight_decay", 0.0, "decoupled weight decay: value shrinks by learning_rate * weight_decay first")};
    def.infer = [in](const OpView& view) {
        require_between_0_and_1(view, "beta1");
        require_between_0_and_1(view, "beta2");
        std::vector<int> outputs = {in.value, in.momentum, in.velocity};
        if (in.largest >= 0) outputs.push_back(in.largest);
        return infer_step(view, in.step, outputs);
    };
    def.body = CompositeBody{[in](CompositeContext& c) { return adam_step(c, in); }};
    return def;
}

OpDef adam_op() {
    OpDef def = adam_frame(
        "adam",
        "A step of Adam (D. P. Kingma and J. Ba, ICLR 2015), with the bias correction folded into the rate: momentum' "
        "= "
        "beta1 * momentum + (1 - beta1) * gradient, velocity' = beta2 * velocity + (1 - beta2) * gradient^2, value' = "
        "value "
        "- learning_rate * sqrt(1 - beta2^step) / (1 - beta1^step) * momentum' / (sqrt(velocity') + epsilon). With "
        "weight_decay it is AdamW (I. Loshchilov and F. Hutter, ICLR 2019). Computed in float32 for 16-bit floats; the "
        "state may be float32 then.",
        {.step = 4, .rate = 5});
    def.mpsgraph = {"adam", "adamWithLearningRateTensor", "adamWithCurrentLearningRateTensor"};
    return def;
}

OpDef amsgrad_op() {
    OpDef def = adam_frame("amsgrad",
                           "A step of Adam (see adam) that divides by the root of the largest velocity so far (S. J. "
                           "Reddi et al., ICLR 2018): "
                           "maximum_velocity' = max(maximum_velocity, velocity').",
                           {.largest = 4, .step = 5, .rate = 6});
    def.mpsgraph = {"adam"};
    return def;
}

}  // namespace

std::vector<OpDef> optimizer_ops() {
    return {sgd_op(), sgd_momentum_op(), adam_op(), amsgrad_op()};
}

}  // namespace topstitch::ops
