// Optimizer steps as pure functions: from values, gradients and state to the new values and state.
// Assigning them to variables is the caller's business.
#include <algorithm>
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

// Inputs 0 to `tensors` - 1, and the last one when it is listed in `outputs`, are alike in shape and floating-point;
// the rest are scalars. `value` and `gradient` share a dtype; the state may have another, say float32 beside bfloat16
// values. One output for each of `outputs`.
std::vector<TensorType> infer_step(const OpView& view, int tensors, const std::vector<int>& outputs) {
    Shape shape = view.in_shape(0);
    for (int k = 0; k < view.num_inputs(); ++k) {
        if (k < tensors || std::find(outputs.begin(), outputs.end(), k) != outputs.end()) {
            require_floating(view, k);
            const Shape agreed = require_same_shape(view, 0, k);
            if (!shape.has_rank()) shape = agreed;
        } else {
            require(view, k, reals);
            require_scalar(view, k);
        }
    }
    require_same_dtype(view, 0, 1);
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

AttrDef decay_attr() {
    return real_attr("weight_decay", 0.0, "weight_decay * value is added to the gradient (an L2 penalty)");
}

// The gradient with that of the penalty.
Tensor penalized_gradient(const CompositeContext& c) {
    const Tensor gradient = working(c, 1);
    const double decay = c.op.real("weight_decay");
    return decay == 0.0 ? gradient : gradient + decay * working(c, 0);
}

OpDef sgd_op() {
    OpDef def = optimizer_frame("sgd",
                                "A step of gradient descent: value - learning_rate * gradient. Computed in float32 for "
                                "16-bit floats, and rounded "
                                "once.");
    def.args = {value_arg, gradient_arg, rate_arg};
    def.attributes = {decay_attr()};
    def.results = {"value"};
    def.infer = [](const OpView& view) { return infer_step(view, 2, {0}); };
    def.body = CompositeBody{[](CompositeContext& c) {
        const Tensor stepped = working(c, 0) - working(c, 2) * penalized_gradient(c);
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
                      flag_attr("nesterov", false, "look ahead along the velocity"), decay_attr()};
    def.results = {"value", "velocity"};
    def.infer = [](const OpView& view) { return infer_step(view, 3, {0, 2}); };
    def.body = CompositeBody{[](CompositeContext& c) {
        const double momentum = c.op.real("momentum");
        const Tensor gradient = penalized_gradient(c);
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

struct AdamForm {
    bool decoupled = false;  // weight decay shrinks the value instead of adding to the gradient
    int value = 0, gradient = 1, momentum = 2, velocity = 3;
    int largest = -1;  // only for amsgrad
    int step = 4, rate = 5;
};

std::vector<Tensor> adam_step(CompositeContext& c, const AdamForm& in) {
    const double beta1 = c.op.real("beta1");
    const double beta2 = c.op.real("beta2");
    const Tensor gradient = in.decoupled ? working(c, in.gradient) : penalized_gradient(c);
    const Tensor momentum = beta1 * working(c, in.momentum) + (1.0 - beta1) * gradient;
    const Tensor velocity = beta2 * working(c, in.velocity) + (1.0 - beta2) * square(gradient);
    const Tensor largest = in.largest < 0 ? velocity : maximum(working(c, in.largest), velocity);

    const Tensor step = working(c, in.step);
    const Tensor rate = working(c, in.rate);
    const Tensor corrected = rate * sqrt(bias_correction(beta2, step)) / bias_correction(beta1, step);
    Tensor value = working(c, in.value);
    const double decay = c.op.real("weight_decay");
    if (in.decoupled && decay != 0.0) value = value - (rate * decay) * value;
    value = value - corrected * momentum / (sqrt(largest) + c.op.real("epsilon"));

    std::vector<Tensor> results = {narrowed(value, c.input(in.value).dtype()),
                                   narrowed(momentum, c.input(in.momentum).dtype()),
                                   narrowed(velocity, c.input(in.velocity).dtype())};
    if (in.largest >= 0) results.push_back(narrowed(largest, c.input(in.largest).dtype()));
    return results;
}

OpDef adam_frame(const char* name, const char* doc, AdamForm in) {
    OpDef def = optimizer_frame(name, doc);
    def.args = {value_arg, gradient_arg, {"momentum", "state; zeros at first"}, {"velocity", "state; zeros at first"}};
    def.results = {"value", "momentum", "velocity"};
    if (in.largest >= 0) {
        def.args.push_back({"maximum_velocity", "state; zeros at first"});
        def.results.push_back("maximum_velocity");
    }
    def.args.push_back({"step", "scalar, 1 in the first step; an integer or floating-point"});
    def.args.push_back(rate_arg);
    def.attributes = {real_attr("beta1", 0.9, "decay of the momentum; at least 0, less than 1"),
                      real_attr("beta2", 0.999, "decay of the velocity; at least 0, less than 1"),
                      real_attr("epsilon", 1e-8, "added to the root of the velocity"),
                      in.decoupled
                          ? real_attr("weight_decay", 0.01, "value loses learning_rate * weight_decay * value first")
                          : decay_attr()};
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
        "- learning_rate * sqrt(1 - beta2^step) / (1 - beta1^step) * momentum' / (sqrt(velocity') + epsilon). (PyTorch "
        "multiplies the epsilon by sqrt(1 - beta2^step) too.) Computed in float32 for 16-bit floats; the state may be "
        "float32 then.",
        {});
    def.mpsgraph = {"adam", "adamWithLearningRateTensor", "adamWithCurrentLearningRateTensor"};
    return def;
}

OpDef adamw_op() {
    return adam_frame("adamw",
                      "A step of Adam (see adam) with decoupled weight decay (I. Loshchilov and F. Hutter, ICLR 2019): "
                      "value is first multiplied by 1 - learning_rate * weight_decay, and the gradient is left alone.",
                      {.decoupled = true});
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

// --- RMSprop.

// Inputs: value, gradient, mean of squares, (mean of gradients,) rate, (velocity).
OpDef rmsprop_frame(const char* name, const char* doc, bool centered) {
    const int rate = centered ? 4 : 3;
    OpDef def = optimizer_frame(name, doc);
    def.args = {value_arg, gradient_arg, {"mean_square", "state; zeros at first"}};
    def.results = {"value", "mean_square"};
    if (centered) {
        def.args.push_back({"mean_gradient", "state; zeros at first"});
        def.results.push_back("mean_gradient");
    }
    def.args.push_back(rate_arg);
    def.args.push_back({"velocity", "state, zeros at first; needed with momentum", false, true});
    def.results.push_back("velocity");
    def.attributes = {real_attr("alpha", 0.99, "decay of the means; at least 0, less than 1"),
                      real_attr("epsilon", 1e-8, "added to the root"),
                      real_attr("momentum", 0.0, "the share of the velocity that is kept"), decay_attr()};
    def.infer = [centered, rate](const OpView& view) {
        require_between_0_and_1(view, "alpha");
        const bool has_velocity = view.num_inputs() > rate + 1;
        if (view.real("momentum") != 0.0 && !has_velocity) {
            view.fail(concat("momentum is ", view.real("momentum"),
                             ", which needs the velocity of the step before; give `velocity`, zeros at first"));
        }
        std::vector<int> outputs = centered ? std::vector{0, 2, 3} : std::vector{0, 2};
        outputs.push_back(has_velocity ? rate + 1 : 0);
        return infer_step(view, rate, outputs);
    };
    def.body = CompositeBody{[centered, rate](CompositeContext& c) {
        const double alpha = c.op.real("alpha");
        const Tensor gradient = penalized_gradient(c);
        const Tensor squares = alpha * working(c, 2) + (1.0 - alpha) * square(gradient);
        Tensor variance = squares;
        std::vector<Tensor> states = {narrowed(squares, c.input(2).dtype())};
        if (centered) {
            const Tensor center = alpha * working(c, 3) + (1.0 - alpha) * gradient;
            variance = squares - square(center);
            states.push_back(narrowed(center, c.input(3).dtype()));
        }
        Tensor velocity = gradient / (sqrt(variance) + c.op.real("epsilon"));
        const bool has_velocity = c.has_input(rate + 1);
        if (has_velocity) velocity = c.op.real("momentum") * working(c, rate + 1) + velocity;
        const Tensor value = working(c, 0) - working(c, rate) * velocity;
        std::vector<Tensor> results = {narrowed(value, c.input(0).dtype())};
        results.insert(results.end(), states.begin(), states.end());
        results.push_back(narrowed(velocity, c.input(has_velocity ? rate + 1 : 0).dtype()));
        return results;
    }};
    return def;
}

OpDef rmsprop_op() {
    return rmsprop_frame(
        "rmsprop",
        "A step of RMSprop (T. Tieleman and G. Hinton, 2012; as PyTorch formulates it): mean_square' = "
        "alpha * mean_square + (1 - alpha) * gradient^2, velocity' = momentum * velocity + gradient / "
        "(sqrt(mean_square') + epsilon), value' = value - learning_rate * velocity'. Computed in "
        "float32 for 16-bit floats.",
        false);
}

OpDef rmsprop_centered_op() {
    return rmsprop_frame("rmsprop_centered",
                         "A step of RMSprop (see rmsprop) that divides by the root of the gradient's variance: "
                         "mean_gradient' = alpha * mean_gradient + (1 - alpha) * gradient, and mean_square' - "
                         "mean_gradient'^2 in place of mean_square'.",
                         true);
}

// --- Clipping.

OpDef clip_by_global_norm_op() {
    OpDef def = optimizer_frame(
        "clip_by_global_norm",
        "Tensors, say all gradients of a model, scaled by one factor so that the root of the sum of all squares is "
        "max_norm at most (R. Pascanu et al., ICML 2013), and that norm as it was before, a scalar, as the last "
        "result. What is short enough is unchanged. The norm is computed in float64, so that squares neither overflow "
        "nor vanish in float32. With a NaN anywhere all results are NaN; with an infinite element the finite ones "
        "become 0 and the infinite ones NaN.");
    ArgDef tensors{"tensors", "floating-point tensors of any shapes", true};
    def.args = {tensors};
    def.attributes = {required_attr("max_norm", AttributeKind::real, "the norm that is allowed; positive")};
    def.results = {"clipped"};
    def.many_results = true;
    def.infer = [](const OpView& view) {
        const double limit = view.real("max_norm");
        if (!(limit > 0.0)) view.fail(concat("max_norm is ", limit, ", but must be positive"));
        DType norm = DType::float32;
        std::vector<TensorType> types;
        for (int k = 0; k < view.num_inputs(); ++k) {
            require_floating(view, k);
            types.push_back(view.input(k));
            if (view.input(k).dtype == DType::float64) norm = DType::float64;
        }
        types.push_back({norm, Shape()});
        return types;
    };
    def.body = CompositeBody{[](CompositeContext& c) {
        Tensor total;
        for (const Tensor& x : c.inputs()) {
            const Tensor squares = apply("sum", {square(cast(x, DType::float64))});
            total = total ? total + squares : squares;
        }
        // The derivative of the root of 0 would be infinite.
        const Tensor zero = constant_like(0.0, total);
        const Tensor is_zero = equal(total, zero);
        const Tensor norm = where(is_zero, zero, sqrt(where(is_zero, constant_like(1.0, total), total)));
        const Tensor limit = constant_like(c.op.real("max_norm"), total);
        const Tensor factor = limit / maximum(norm, limit);
        std::vector<Tensor> results;
        for (const Tensor& x : c.inputs()) {
            const Tensor wide = widened(x);
            results.push_back(narrowed(wide * narrowed(factor, wide.dtype()), x.dtype()));
        }
        results.push_back(narrowed(norm, c.op.output(c.op.num_inputs()).dtype));
        return results;
    }};
    return def;
}

}  // namespace

std::vector<OpDef> optimizer_ops() {
    return {sgd_op(),
            sgd_momentum_op(),
            adam_op(),
            adamw_op(),
            amsgrad_op(),
            rmsprop_op(),
            rmsprop_centered_op(),
            clip_by_global_norm_op()};
}

}  // namespace topstitch::ops
