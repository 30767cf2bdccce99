// Normalisations: by given statistics, and batch, layer, instance and group norm by those of the input.
// Means and variances take two passes, so that nothing cancels; 16-bit floats are computed in float32.
#include <algorithm>

#include "ops/expr.h"
#include "ops/families.h"
#include "ops/rules.h"

namespace topstitch::ops {

using namespace expr;

namespace {

using Axes = std::vector<std::int64_t>;

const ArgDef gamma_arg{"gamma", "scales the result; ones when left out", false, true};
const ArgDef beta_arg{"beta", "added to the result; zeros when left out", false, true};
const ArgDef x_arg{"x", "floating-point tensor; its rank must be known for gradients"};

AttrDef epsilon_attr() {
    return real_attr("epsilon", 1e-5, "added to the variance; not negative");
}

AttrDef channel_attr() {
    return axis_attr(1, "the channels: 1 for NCHW, -1 for NHWC");
}

void check_epsilon(const OpView& v) {
    if (v.real("epsilon") >= 0.0) return;
    v.fail(concat("epsilon is ", v.real("epsilon"), ", but must not be negative"));
}

// Statistics, gamma and beta have the dtype of x; or float32 beside 16-bit floats.
void check_dtypes(const OpView& v) {
    require_floating(v, 0);
    for (int k = 1; k < v.num_inputs(); ++k) {
        const DType dtype = v.input(k).dtype;
        if (dtype == v.input(0).dtype || dtype == compute_type(v.input(0).dtype)) continue;
        v.fail_type(concat(input_name(v, k), " is ", name_of(dtype), ", but must have the dtype of x, ",
                           name_of(v.input(0).dtype), is_half(v.input(0).dtype) ? ", or float32" : "", "; use cast"));
    }
}

int rank_of_input(const OpView& v) {
    const Shape& shape = v.in_shape(0);
    if (!shape.has_rank()) {
        v.fail("x has an unknown rank, but its gradient needs it; give the placeholder a rank, with -1 for open dims");
    }
    return shape.rank();
}

int channel_axis(const OpView& v) {
    return normalized_axis(v, "axis", rank_of_input(v));
}

// The number of channels; unknown when the rank of x is.
Dim channels_of(const OpView& v) {
    return v.in_shape(0).has_rank() ? v.in_shape(0)[channel_axis(v)] : Dim::unknown();
}

// Inputs from `first` on have one element for each channel.
void require_per_channel(const OpView& v, int first) {
    const Dim channels = channels_of(v);
    for (int k = first; k < v.num_inputs(); ++k) {
        const Shape& shape = v.in_shape(k);
        if (!shape.has_rank() || (shape.rank() == 1 && dims_agree(shape[0], channels))) continue;
        v.fail(concat(input_name(v, k), " has shape ", shape.str(), ", but one number for each of the ", channels.str(),
                      " channels is needed: a shape of (", channels.str(), ")"));
    }
}

// A vector of channels as it broadcasts against a tensor of `rank` with the channels at `axis`.
Tensor along_channels(const Tensor& vector, int axis, int rank) {
    Axes trailing;
    for (int k = axis + 1; k < rank; ++k) trailing.push_back(k - axis);
    return trailing.empty() ? vector : expand_dims(vector, trailing);
}

Axes axes_without(int rank, std::initializer_list<int> kept) {
    Axes axes;
    for (int axis = 0; axis < rank; ++axis) {
        if (std::find(kept.begin(), kept.end(), axis) == kept.end()) axes.push_back(axis);
    }
    return axes;
}

struct Statistics {
    Tensor mean, variance;  // with the reduced axes kept
};

Statistics statistics(const Tensor& x, const Axes& axes) {
    const Tensor center = mean(x, axes, true);
    return {center, apply("variance", {x, center}, {{"axes", axes}, {"keepdims", true}})};
}

Tensor count_of(const Tensor& x, const Axes& axes) {
    return apply("size", {x}, {{"axes", axes}, {"dtype", x.dtype()}});
}

// x * gamma + beta, as far as they are inputs `first` and `first` + 1; per channel, or as they broadcast.
Tensor scaled_and_shifted(const CompositeContext& c, Tensor y, int first, int axis, int rank) {
    const auto input = [&](int k) {
        const Tensor vector = narrowed(c.input(k), y.dtype());
        return axis < 0 ? vector : along_channels(vector, axis, rank);
    };
    if (c.has_input(first)) y = y * input(first);
    if (c.has_input(first + 1)) y = y + input(first + 1);
    return y;
}

// --- By given statistics.

OpDef normalization_op() {
    OpDef def;
    def.name = "normalization";
    def.doc =
        "(x - mean) / sqrt(variance + epsilon) * gamma + beta; all broadcast against x. Which axes mean and variance "
        "have (of length 1 where reduced) makes it a batch, layer, instance or group norm.";
    def.args = {{"x", "floating-point tensor"},
                {"mean", "broadcasts against x"},
                {"variance", "broadcasts against x"},
                gamma_arg,
                beta_arg};
    def.attributes = {epsilon_attr()};
    def.results = {"y"};
    def.infer = [](const OpView& v) {
        check_dtypes(v);
        check_epsilon(v);
        for (int k = 1; k < v.num_inputs(); ++k) {
            const Shape& x = v.in_shape(0);
            const Shape& other = v.in_shape(k);
            if (!x.has_rank() || !other.has_rank()) continue;
            const Shape both = broadcast_shapes(v, x, other);
            bool grows = both.rank() > x.rank();
            for (int axis = 0; !grows && axis < x.rank(); ++axis) grows = !dims_agree(both[axis], x[axis]);
            if (grows) {
                v.fail(concat(input_name(v, k), " has shape ", other.str(), ", which does not broadcast to that of x, ",
                              x.str(), "; use reshape or expand_dims"));
            }
        }
        return std::vector{v.input(0)};
    };
    def.body = CompositeBody{[](CompositeContext& c) {
        const Tensor x = widened(c.input(0));
        const Tensor center = narrowed(c.input(1), x.dtype());
        const Tensor scale = rsqrt(narrowed(c.input(2), x.dtype()) + c.op.real("epsilon"));
        const Tensor y = scaled_and_shifted(c, (x - center) * scale, 3, -1, 0);
        return std::vector{narrowed(y, c.input(0).dtype())};
    }};
    def.gradient = FromExpansion{};
    def.mpsgraph = {"normalizationWithTensor:meanTensor:"};
    return def;
}

OpDef batch_norm_inference_op() {
    OpDef def;
    def.name = "batch_norm_inference";
    def.doc =
        "Batch norm by statistics that are known, as collected in training: (x - mean) / sqrt(variance + epsilon) * "
        "gamma + beta, each a vector over the channels.";
    def.args = {x_arg, {"mean", "one for each channel"}, {"variance", "one for each channel"}, gamma_arg, beta_arg};
    def.attributes = {channel_attr(), epsilon_attr()};
    def.results = {"y"};
    def.infer = [](const OpView& v) {
        check_dtypes(v);
        check_epsilon(v);
        require_per_channel(v, 1);
        return std::vector{v.input(0)};
    };
    def.body = CompositeBody{[](CompositeContext& c) {
        std::vector<Tensor> inputs = c.inputs();
        const int axis = channel_axis(c.op);
        for (std::size_t k = 1; k < inputs.size(); ++k) inputs[k] = along_channels(inputs[k], axis, inputs[0].rank());
        return std::vector{apply("normalization", inputs, {{"epsilon", c.op.real("epsilon")}})};
    }};
    def.gradient = FromExpansion{};
    def.onnx = "BatchNormalization";
    return def;
}

// --- By the statistics of the input.

OpDef standardize_op() {
    OpDef def;
    def.name = "standardize";
    def.internal = true;
    def.doc = "(x - mean(x)) / sqrt(variance(x) + epsilon), with mean and variance over axes.";
    def.args = {{"x", "float32 or float64 tensor"}};
    def.attributes = {required_attr("axes", AttributeKind::integers, "axes that are normalised"), epsilon_attr()};
    def.results = {"y"};
    def.infer = [](const OpView& v) {
        require_floating(v, 0);
        if (v.in_shape(0).has_rank()) normalized_axes(v, "axes", v.in_shape(0).rank());
        return same_type(v);
    };
    def.body = CompositeBody{[](CompositeContext& c) {
        const Tensor& x = c.input(0);
        const Statistics s = statistics(x, c.op.integers("axes"));
        return std::vector{(x - s.mean) * rsqrt(s.variance + c.op.real("epsilon"))};
    }};
    // Statistics depend on x too: the gradient loses its mean and its part along y.
    def.gradient = GradientRule{[](GradientContext& g) {
        const Axes& axes = g.op.integers("axes");
        const Statistics s = statistics(g.input(), axes);
        const Tensor scale = rsqrt(s.variance + g.op.real("epsilon"));
        const Tensor y = (g.input() - s.mean) * scale;
        const Tensor along = mean(g.grad() * y, axes, true);
        return std::vector{scale * (g.grad() - mean(g.grad(), axes, true) - y * along)};
    }};
    return def;
}

Tensor standardized(const Tensor& x, const Axes& axes, const OpView& view) {
    return apply("standardize", {x}, {{"axes", axes}, {"epsilon", view.real("epsilon")}});
}

Tensor per_channel(const Tensor& kept, int rank, int axis) {
    return apply("squeeze", {kept}, {{"axes", axes_without(rank, {axis})}});
}

// The gradient of batch norm. As gamma is the same over all that is averaged, the sums that its gradient and beta's
// are serve for x as well.
std::vector<Tensor> batch_norm_gradient(GradientContext& g) {
    const int rank = rank_of_input(g.op);
    const int axis = channel_axis(g.op);
    const Axes axes = axes_without(rank, {axis});
    const Tensor x = widened(g.input(0));
    const Statistics s = statistics(x, axes);
    const Tensor deviation = x - s.mean;
    const Tensor count = count_of(x, axes);
    std::vector<Tensor> gradients(g.inputs().size());
    const auto add_to_x = [&](const Tensor& term) { gradients[0] = gradients[0] ? gradients[0] + term : term; };
    if (g.grad(0)) {
        const Tensor dy = widened(g.grad(0));
        const Tensor scale = rsqrt(s.variance + g.op.real("epsilon"));
        const Tensor y = deviation * scale;
        const Tensor total = sum(dy, axes, true);
        const Tensor along = sum(dy * y, axes, true);
        Tensor factor = scale;
        if (g.inputs().size() > 1) factor = factor * along_channels(narrowed(g.input(1), x.dtype()), axis, rank);
        add_to_x(factor * (dy - total / count - y * (along / count)));
        const Tensor* sums[] = {&along, &total};
        for (std::size_t k = 1; k < gradients.size(); ++k)
            gradients[k] = narrowed(per_channel(*sums[k - 1], rank, axis), g.input(static_cast<int>(k)).dtype());
    } else {
        for (std::size_t k = 1; k < gradients.size(); ++k) gradients[k] = zeros_like(g.input(static_cast<int>(k)));
    }
    if (g.grad(1)) add_to_x(along_channels(g.grad(1), axis, rank) / count);
    if (g.grad(2)) add_to_x(along_channels(g.grad(2), axis, rank) * (2.0 * deviation / count));
    gradients[0] = narrowed(broadcast_like(gradients[0], x), g.input(0).dtype());
    return gradients;
}

OpDef batch_norm_op() {
    OpDef def;
    def.name = "batch_norm";
    def.doc =
        "Batch norm in training (S. Ioffe and C. Szegedy, ICML 2015): (x - mean) / sqrt(variance + epsilon) * gamma + "
        "beta, with mean and variance of each channel over all other axes. Also gives the mean and the variance (of "
        "the population; float32 for 16-bit floats), from which batch_norm_update makes running statistics for "
        "batch_norm_inference.";
    def.args = {x_arg, gamma_arg, beta_arg};
    def.attributes = {channel_attr(), epsilon_attr()};
    def.results = {"y", "mean", "variance"};
    def.infer = [](const OpView& v) {
        check_dtypes(v);
        check_epsilon(v);
        require_per_channel(v, 1);
        const TensorType channels{compute_type(v.input(0).dtype), Shape{channels_of(v)}};
        return std::vector{v.input(0), channels, channels};
    };
    def.body = CompositeBody{[](CompositeContext& c) {
        const int rank = rank_of_input(c.op);
        const int axis = channel_axis(c.op);
        const Tensor x = widened(c.input(0));
        const Statistics s = statistics(x, axes_without(rank, {axis}));
        const Tensor scale = rsqrt(s.variance + c.op.real("epsilon"));
        const Tensor y = scaled_and_shifted(c, (x - s.mean) * scale, 1, axis, rank);
        return std::vector{narrowed(y, c.input(0).dtype()), per_channel(s.mean, rank, axis),
                           per_channel(s.variance, rank, axis)};
    }};
    def.gradient = GradientRule{batch_norm_gradient};
    def.onnx = "BatchNormalization";
    return def;
}

OpDef batch_norm_update_op() {
    OpDef def;
    def.name = "batch_norm_update";
    def.doc =
        "Running statistics after a batch: running * (1 - momentum) + momentum * statistic, as PyTorch does, with the "
        "variance of the sample: that of batch_norm times n / (n - 1), where n numbers of x belong to each channel "
        "(unchanged where n is 1). Assign the results to the variables that batch_norm_inference reads.";
    def.args = {{"running_mean", "a variable; zeros at first"},
                {"running_variance", "a variable; ones at first"},
                {"mean", "of batch_norm"},
                {"variance", "of batch_norm"},
                {"x", "what batch_norm was given; only its shape matters"}};
    def.attributes = {real_attr("momentum", 0.1, "the share of the new batch, 0 to 1"), channel_attr()};
    def.results = {"running_mean", "running_variance"};
    def.infer = [](const OpView& v) {
        for (int k = 0; k < 4; ++k) require_floating(v, k);
        require_same_dtype(v, 0, 3);
        const double momentum = v.real("momentum");
        if (!(momentum >= 0.0 && momentum <= 1.0)) {
            v.fail(concat("momentum is ", momentum, ", but a share is at least 0 and at most 1"));
        }
        const Shape& x = v.in_shape(4);
        if (x.has_rank()) normalized_axis(v, "axis", x.rank());
        for (int k = 1; k < 4; ++k) require_same_shape(v, 0, k);
        return std::vector{v.input(0), v.input(1)};
    };
    def.body = CompositeBody{[](CompositeContext& c) {
        const double momentum = c.op.real("momentum");
        const DType dtype = c.input(0).dtype();
        const int rank = c.input(4).rank();
        const Axes axes = axes_without(rank, {normalized_axis(c.op, "axis", rank)});
        const Tensor count = apply("size", {c.input(4)}, {{"axes", axes}, {"dtype", compute_type(dtype)}});
        const Tensor others = maximum(count - 1.0, constant_like(1.0, count));
        const Tensor correction =
            where(greater(count, constant_like(1.0, count)), count / others, constant_like(1.0, count));
        const auto blended = [&](int running, const Tensor& now) {
            return narrowed(widened(c.input(running)) * (1.0 - momentum) + momentum * now, dtype);
        };
        return std::vector{blended(0, widened(c.input(2))), blended(1, widened(c.input(3)) * correction)};
    }};
    def.gradient = FromExpansion{};
    return def;
}

OpDef layer_norm_op() {
    OpDef def;
    def.name = "layer_norm";
    def.doc =
        "Layer norm (J. L. Ba et al., arXiv:1607.06450): (x - mean) / sqrt(variance + epsilon) * gamma + beta, with "
        "mean and variance over axes, by default the last one. gamma and beta broadcast against x: vectors over the "
        "last axis, or of the shape of the last axes.";
    def.args = {x_arg, gamma_arg, beta_arg};
    def.attributes = {optional_attr("axes", AttributeKind::integers, Axes{-1},
                                    "axes that are normalised; negative ones count from the end"),
                      epsilon_attr()};
    def.results = {"y"};
    def.infer = [](const OpView& v) {
        check_dtypes(v);
        check_epsilon(v);
        if (!v.in_shape(0).has_rank()) return std::vector{v.input(0)};
        normalized_axes(v, "axes", v.in_shape(0).rank());
        for (int k = 1; k < v.num_inputs(); ++k) {
            if (v.in_shape(k).has_rank() && v.in_shape(k).rank() > v.in_shape(0).rank()) {
                v.fail(concat(input_name(v, k), " has shape ", v.in_shape(k).str(), ", more dims than x of shape ",
                              v.in_shape(0).str(), "; it must broadcast against x"));
            }
            broadcast_shapes(v, v.in_shape(0), v.in_shape(k));
        }
        return std::vector{v.input(0)};
    };
    def.body = CompositeBody{[](CompositeContext& c) {
        const Tensor y = standardized(widened(c.input(0)), c.op.integers("axes"), c.op);
        return std::vector{narrowed(scaled_and_shifted(c, y, 1, -1, 0), c.input(0).dtype())};
    }};
    def.gradient = FromExpansion{};
    def.onnx = "LayerNormalization";
    return def;
}

// Axis 0 holds the samples, and must not be the channels.
void check_samples_and_channels(const OpView& v) {
    check_dtypes(v);
    check_epsilon(v);
    if (v.in_shape(0).has_rank() && channel_axis(v) == 0) {
        v.fail(concat("axis is ", v.integer("axis"), ", the first one of x of shape ", v.in_shape(0).str(),
                      ", but that holds the samples; the channels need an axis of their own"));
    }
    require_per_channel(v, 1);
}

OpDef instance_norm_op() {
    OpDef def;
    def.name = "instance_norm";
    def.doc =
        "Instance norm (D. Ulyanov et al., arXiv:1607.08022): (x - mean) / sqrt(variance + epsilon) * gamma + beta, "
        "with mean and variance of each channel of each sample (axis 0) over the remaining axes.";
    def.args = {x_arg, gamma_arg, beta_arg};
    def.attributes = {channel_attr(), epsilon_attr()};
    def.results = {"y"};
    def.infer = [](const OpView& v) {
        check_samples_and_channels(v);
        if (v.in_shape(0).has_rank() && v.in_shape(0).rank() < 3) {
            v.fail(concat("x has shape ", v.in_shape(0).str(),
                          ", but needs samples, channels, and at least one more axis to average over"));
        }
        return std::vector{v.input(0)};
    };
    def.body = CompositeBody{[](CompositeContext& c) {
        const int rank = rank_of_input(c.op);
        const int axis = channel_axis(c.op);
        const Tensor y = standardized(widened(c.input(0)), axes_without(rank, {0, axis}), c.op);
        return std::vector{narrowed(scaled_and_shifted(c, y, 1, axis, rank), c.input(0).dtype())};
    }};
    def.gradient = FromExpansion{};
    def.onnx = "InstanceNormalization";
    return def;
}

// --- Group norm.

OpDef split_axis_op() {
    OpDef def;
    def.name = "split_axis";
    def.internal = true;
    def.doc = "A reshape that makes two axes of one: `parts`, and what each part holds.";
    def.args = {{"x", "any tensor of known rank"}};
    def.attributes = {required_attr("axis", AttributeKind::integer, "the axis, counted from the front"),
                      required_attr("parts", AttributeKind::integer, "the length of the first of the two")};
    def.results = {"y"};
    def.infer = [](const OpView& v) {
        std::vector<Dim> dims(v.in_shape(0).has_rank() ? v.in_shape(0).dims() : std::vector<Dim>{});
        const std::int64_t axis = v.integer("axis");
        const Dim parts(v.integer("parts"));
        const bool exists = axis >= 0 && axis < static_cast<std::int64_t>(dims.size()) && parts.value() > 0;
        const auto at = static_cast<std::size_t>(exists ? axis : 0);
        if (!exists || (dims[at].is_known() && dims[at].value() % parts.value() != 0)) {
            v.fail(concat("x has shape ", v.in_shape(0).str(), ", whose axis ", axis, " is not divided into ",
                          parts.str(), " parts; give an axis, and a divisor of its length"));
        }
        const Dim inner = dims[at].is_unknown() ? Dim::unknown() : exact_div(dims[at], parts);
        dims[at] = parts;
        dims.insert(dims.begin() + static_cast<std::ptrdiff_t>(at) + 1, inner);
        return std::vector{TensorType{v.input(0).dtype, Shape(std::move(dims))}};
    };
    def.body = CompositeBody{[](CompositeContext& c) {
        const OpDef& self = c.op.def();
        const TensorType input{c.input(0).dtype(), c.op.in_shape(0)};
        const std::vector<Attribute> attributes = {c.op.attribute("axis"), c.op.attribute("parts")};
        return std::vector{reshape(c.input(0), infer_types(self, {&input, 1}, attributes).front().shape)};
    }};
    def.gradient = GradientRule{[](GradientContext& g) { return std::vector{reshape_like(g.grad(), g.input())}; }};
    return def;
}

OpDef group_norm_op() {
    OpDef def;
    def.name = "group_norm";
    def.doc =
        "Group norm (Y. Wu and K. He, ECCV 2018): the channels are divided into num_groups groups of neighbours; (x - "
        "mean) / sqrt(variance + epsilon) * gamma + beta, with mean and variance of each group of each sample (axis 0) "
        "over its channels and the remaining axes. gamma and beta are for each channel.";
    def.args = {x_arg, gamma_arg, beta_arg};
    def.attributes = {required_attr("num_groups", AttributeKind::integer, "divides the number of channels"),
                      channel_attr(), epsilon_attr()};
    def.results = {"y"};
    def.infer = [](const OpView& v) {
        check_samples_and_channels(v);
        const std::int64_t groups = v.integer("num_groups");
        const Dim channels = channels_of(v);
        if (groups < 1 || (channels.is_known() && channels.value() % groups != 0)) {
            v.fail(concat("num_groups is ", groups, ", but must be a positive number that divides the ", channels.str(),
                          " channels"));
        }
        return std::vector{v.input(0)};
    };
    def.body = CompositeBody{[](CompositeContext& c) {
        const int rank = rank_of_input(c.op);
        const int axis = channel_axis(c.op);
        const Tensor x = widened(c.input(0));
        const Tensor grouped =
            apply("split_axis", {x}, {{"axis", std::int64_t{axis}}, {"parts", c.op.attribute("num_groups")}});
        const Tensor y = reshape_like(standardized(grouped, axes_without(rank + 1, {0, axis}), c.op), x);
        return std::vector{narrowed(scaled_and_shifted(c, y, 1, axis, rank), c.input(0).dtype())};
    }};
    def.gradient = FromExpansion{};
    def.onnx = "GroupNormalization";
    return def;
}

}  // namespace

std::vector<OpDef> normalization_ops() {
    std::vector<OpDef> defs = {normalization_op(),     batch_norm_op(),  batch_norm_inference_op(),
                               batch_norm_update_op(), layer_norm_op(),  instance_norm_op(),
                               group_norm_op(),        standardize_op(), split_axis_op()};
    for (OpDef& def : defs) def.family = "normalization";
    return defs;
}

}  // namespace topstitch::ops
