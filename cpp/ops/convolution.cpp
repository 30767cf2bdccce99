// Convolution over one, two or three spatial axes, transposed and depthwise convolution, and their gradients.
// Layouts and groups are views of the contractions in convolution_body.cpp.
#include "ops/expr.h"
#include "ops/families.h"
#include "ops/indexing_rules.h"
#include "ops/window_rules.h"

namespace topstitch::ops {

namespace {

// The operations for a number of spatial axes.
class Family {
public:
    explicit Family(int axes) : axes_(axes) {}

    OpDef forward() const;
    OpDef data_gradient() const;
    OpDef weights_gradient() const;
    OpDef transposed() const;
    OpDef depthwise() const;

private:
    // --- Names and layouts.
    std::string name(const std::string& kind) const { return concat(kind, axes_, "d"); }
    std::string gradient_name(const std::string& of) const { return name("conv") + "_" + of + "_gradient"; }
    std::string spatial() const { return channels_first(axes_).substr(2); }
    std::string weights_first() const { return "OI" + spatial(); }
    AttrDef weights_layout_attr() const {
        const std::string last = spatial() + "IO";
        return choice_attr("weights_layout", weights_first(), {weights_first(), last},
                           "the order of the axes of the weights: output channels, input channels, and spatial axes");
    }
    std::vector<AttrDef> attributes(bool with_groups = true) const;
    // What all five declarations begin with.
    OpDef declared(std::string name, std::string doc, std::vector<ArgDef> args, bool with_groups = true) const;
    NamedAttributes same_attributes(const OpView& v) const;

    Shape data_shape(const OpView& v, int k) const {
        require_layout(v, k, v.string("data_layout"));
        return arranged(v.in_shape(k), v.string("data_layout"), channels_first(axes_));
    }
    Shape weights_shape(const OpView& v, int k) const {
        require_layout(v, k, v.string("weights_layout"));
        return arranged(v.in_shape(k), v.string("weights_layout"), weights_first());
    }
    static std::vector<Dim> spatial_dims(const Shape& shape) { return {shape.dims().begin() + 2, shape.dims().end()}; }

    // [batch, channels, ...] and [output channels, channels, ...] with an axis for the groups, as convolution_body.cpp
    // wants them, and the way back.
    Tensor data(const OpView& v, const Tensor& x) const;
    Tensor weights(const OpView& v, const Tensor& w) const;
    Tensor data_back(const OpView& v, const Tensor& x) const;
    Tensor weights_back(const OpView& v, const Tensor& w) const;
    Tensor data_of_windows(const OpView& v, const Tensor& gradient, const Tensor& w,
                           const std::vector<Dim>& input) const;

    // --- Checks.
    std::int64_t groups(const OpView& v) const;
    // The data (input `x`), the weights (input `w`) and, where it is given, the result (input `y`) of one convolution.
    void check_channels(const OpView& v, const Shape& x, const Shape& w) const;
    TensorType data_type(const OpView& v, const Dim& batch, const Dim& channels, const std::vector<Dim>& dims) const;
    void check_result(const OpView& v, int k, const Shape& x, const Shape& w) const;
    Shape transposed_shape(const OpView& v) const;

    int axes_;
};

std::vector<AttrDef> Family::attributes(bool with_groups) const {
    std::vector<AttrDef> result = window_attributes();
    if (with_groups) {
        result.push_back(optional_attr(
            "groups", AttributeKind::integer, std::int64_t{1},
            "into how many groups the channels are divided, each with weights of its own; it must divide the input "
            "and the output channels, and the weights have input channels / groups"));
    }
    result.push_back(data_layout_attr(axes_));
    result.push_back(weights_layout_attr());
    return result;
}

NamedAttributes Family::same_attributes(const OpView& v) const {
    NamedAttributes same = same_window(v);
    for (const char* name : {"groups", "data_layout", "weights_layout"}) same.emplace_back(name, v.attribute(name));
    return same;
}

// --- Groups and layouts.

Shape with_dims(std::vector<Dim> dims, const std::vector<Dim>& more) {
    dims.insert(dims.end(), more.begin(), more.end());
    return Shape(std::move(dims));
}

Tensor Family::data(const OpView& v, const Tensor& x) const {
    const Tensor y = arranged(x, v.string("data_layout"), channels_first(axes_));
    const Dim groups = this->groups(v);
    return expr::reshape(y,
                         with_dims({y.shape()[0], groups, floor_div(y.shape()[1], groups)}, spatial_dims(y.shape())));
}

Tensor Family::weights(const OpView& v, const Tensor& w) const {
    const Tensor y = arranged(w, v.string("weights_layout"), weights_first());
    const Dim groups = this->groups(v);
    return expr::reshape(y,
                         with_dims({groups, floor_div(y.shape()[0], groups), y.shape()[1]}, spatial_dims(y.shape())));
}

Tensor Family::data_back(const OpView& v, const Tensor& x) const {
    const std::vector<Dim>& dims = x.shape().dims();
    const Tensor y = expr::reshape(x, with_dims({dims[0], dims[1] * dims[2]}, {dims.begin() + 3, dims.end()}));
    return arranged(y, channels_first(axes_), v.string("data_layout"));
}

Tensor Family::weights_back(const OpView& v, const Tensor& w) const {
    const std::vector<Dim>& dims = w.shape().dims();
    const Tensor y = expr::reshape(w, with_dims({dims[0] * dims[1], dims[2]}, {dims.begin() + 3, dims.end()}));
    return arranged(y, weights_first(), v.string("weights_layout"));
}

// The gradient with respect to data of spatial extents `input`.
Tensor Family::data_of_windows(const OpView& v, const Tensor& gradient, const Tensor& w,
                               const std::vector<Dim>& input) const {
    NamedAttributes attributes = same_window(v);
    attributes.emplace_back("input", Shape(input));
    const Tensor phases = apply("convolution_data", {data(v, gradient), weights(v, w)}, attributes);
    // [..., quotient, phase, quotient, phase] -> [..., position, position], of which the last ones may be too many.
    const std::vector<Dim>& dims = phases.shape().dims();
    std::vector<Dim> positions;
    for (std::size_t k = 0; k < input.size(); ++k) positions.push_back(dims[3 + 2 * k] * dims[4 + 2 * k]);
    Tensor x = expr::reshape(phases, with_dims({dims[0], dims[1], dims[2]}, positions));
    for (std::size_t k = 0; k < input.size(); ++k) {
        if (!(positions[k] == input[k])) x = axis_window(x, static_cast<int>(3 + k), 0, input[k]);
    }
    return data_back(v, x);
}

// --- Checks.

std::int64_t Family::groups(const OpView& v) const {
    const std::int64_t groups = v.integer("groups");
    if (groups < 1) v.fail(concat("groups is ", groups, "; it must be 1 or more"));
    return groups;
}

void Family::check_channels(const OpView& v, const Shape& x, const Shape& w) const {
    const std::int64_t groups = this->groups(v);
    const auto divides = [groups](const Dim& channels) {
        return !channels.is_known() || channels.value() % groups == 0;
    };
    if (!divides(x[1]))
        v.fail(concat("the data have ", x[1].str(), " channels, which ", groups, " groups do not divide"));
    if (!divides(w[0]))
        v.fail(concat("the weights give ", w[0].str(), " output channels, which ", groups, " groups do not divide"));
    if (!dims_agree(x[1], w[1] * Dim(groups))) {
        v.fail(concat("the data have ", x[1].str(), " channels, but the weights are for ", w[1].str(), " in ", groups,
                      groups == 1 ? " group" : " groups", ": ", (w[1] * Dim(groups)).str(),
                      "; check data_layout, weights_layout and groups"));
    }
}

TensorType Family::data_type(const OpView& v, const Dim& batch, const Dim& channels,
                             const std::vector<Dim>& dims) const {
    const Shape shape = with_dims({batch, channels}, dims);
    return {v.input(0).dtype, arranged(shape, channels_first(axes_), v.string("data_layout"))};
}

// Input `k` must have the shape of the convolution of data `x` and weights `w`.
void Family::check_result(const OpView& v, int k, const Shape& x, const Shape& w) const {
    check_channels(v, x, w);
    const Shape expected = with_dims({x[0], w[0]}, outputs_of(window_axes(v, spatial_dims(x), spatial_dims(w))));
    const Shape given = data_shape(v, k);
    bool fits = true;
    for (int axis = 0; axis < given.rank(); ++axis) fits = fits && dims_agree(given[axis], expected[axis]);
    if (fits) return;
    v.fail(concat(input_name(v, k), " has shape ", v.in_shape(k).str(), ", but data of shape ", x.str(),
                  " and weights of shape ", w.str(), " give ", expected.str(), " (in the layouts ",
                  channels_first(axes_), " and ", weights_first(), ")"));
}

bool any_unranked(const OpView& v) {
    for (int k = 0; k < v.num_inputs(); ++k) {
        if (!v.in_shape(k).has_rank()) return true;
    }
    return false;
}

std::vector<TensorType> unranked(const OpView& v) {
    return {TensorType{v.input(0).dtype, Shape::unranked()}};
}

// --- The operations.

constexpr const char* windows_doc =
    " Windows are read without flipping the weights (a cross-correlation, as in all of machine learning), and padding "
    "is zeros. float16 and bfloat16 are accumulated in float32.";

std::vector<ArgDef> data_and_weights() {
    return {{"x", "numbers: data in the order of data_layout"},
            {"weights", "of the same dtype, in the order of weights_layout"}};
}

OpDef Family::declared(std::string name, std::string doc, std::vector<ArgDef> args, bool with_groups) const {
    OpDef def;
    def.name = std::move(name);
    def.family = "convolution";
    def.doc = std::move(doc);
    def.args = std::move(args);
    def.attributes = attributes(with_groups);
    def.results = {"y"};
    return def;
}

OpDef Family::forward() const {
    std::string doc =
        concat("The convolution over ", axes_, " spatial ", axes_ == 1 ? "axis" : "axes",
               ": each output channel is the sum of the input channels of its group under windows that slide "
               "over them, times the weights.",
               windows_doc,
               " Along each spatial axis the result has floor((input + padding - span) / stride) + "
               "1 windows, where span = (kernel - 1) * dilation + 1.");
    OpDef def = declared(name("conv"), std::move(doc), data_and_weights());
    def.infer = [self = *this](const OpView& v) {
        require_numeric(v, 0);
        require_same_dtype(v);
        if (any_unranked(v)) return unranked(v);
        const Shape x = self.data_shape(v, 0);
        const Shape w = self.weights_shape(v, 1);
        self.check_channels(v, x, w);
        const std::vector<Dim> outputs = outputs_of(window_axes(v, spatial_dims(x), spatial_dims(w)));
        return std::vector{self.data_type(v, x[0], w[0], outputs)};
    };
    def.body = CompositeBody{[self = *this](CompositeContext& c) {
        const Tensor y = apply("convolution_forward", {self.data(c.op, c.input(0)), self.weights(c.op, c.input(1))},
                               same_window(c.op));
        return std::vector{self.data_back(c.op, y)};
    }};
    def.gradient = GradientRule{[self = *this](GradientContext& g) {
        const NamedAttributes same = self.same_attributes(g.op);
        const Tensor& x = g.input(0);
        const Tensor& w = g.input(1);
        return std::vector{
            if_needed(g, 0, [&] { return apply(self.gradient_name("data"), {g.grad(), conj_if_complex(w), x}, same); }),
            if_needed(g, 1,
                      [&] { return apply(self.gradient_name("weights"), {g.grad(), conj_if_complex(x), w}, same); })};
    }};
    if (axes_ > 1) def.mpsgraph = {concat("convolution", axes_, "D")};
    def.onnx = "Conv";
    return def;
}

OpDef Family::data_gradient() const {
    std::string doc = concat("The gradient of ", name("conv"),
                             " with respect to its data, from that of its result: the sum over all windows that read a "
                             "position of gradient times weight. The attributes are those of the convolution.");
    OpDef def = declared(gradient_name("data"), std::move(doc),
                         {{"gradient", "of the convolution's result"},
                          {"weights", "of the convolution"},
                          {"like", "the convolution's data, of which only the shape matters"}});
    def.infer = [self = *this](const OpView& v) {
        require_numeric(v, 0);
        require_same_dtype(v);
        if (!any_unranked(v)) self.check_result(v, 0, self.data_shape(v, 2), self.weights_shape(v, 1));
        return std::vector{TensorType{v.input(0).dtype, v.in_shape(2)}};
    };
    def.body = CompositeBody{[self = *this](CompositeContext& c) {
        const std::vector<Dim> input = spatial_dims(self.data_shape(c.op, 2));
        return std::vector{self.data_of_windows(c.op, c.input(0), c.input(1), input)};
    }};
    def.gradient = GradientRule{[self = *this](GradientContext& g) {
        const NamedAttributes same = self.same_attributes(g.op);
        return std::vector{
            if_needed(g, 0, [&] { return apply(self.name("conv"), {g.grad(), conj_if_complex(g.input(1))}, same); }),
            if_needed(g, 1,
                      [&] {
                          return apply(self.gradient_name("weights"),
                                       {conj_if_complex(g.input(0)), g.grad(), g.input(1)}, same);
                      }),
            Tensor()};
    }};
    if (axes_ > 1) def.mpsgraph = {concat("convolution", axes_, "DDataGradient")};
    return def;
}

OpDef Family::weights_gradient() const {
    std::string doc =
        concat("The gradient of ", name("conv"),
               " with respect to its weights, from that of its result: for each tap the sum over all windows of "
               "gradient times what the tap reads. The attributes are those of the convolution.");
    OpDef def = declared(gradient_name("weights"), std::move(doc),
                         {{"gradient", "of the convolution's result"},
                          {"x", "the convolution's data"},
                          {"like", "the convolution's weights, of which only the shape matters"}});
    def.infer = [self = *this](const OpView& v) {
        require_numeric(v, 0);
        require_same_dtype(v);
        if (!any_unranked(v)) self.check_result(v, 0, self.data_shape(v, 1), self.weights_shape(v, 2));
        return std::vector{TensorType{v.input(0).dtype, v.in_shape(2)}};
    };
    def.body = CompositeBody{[self = *this](CompositeContext& c) {
        const Tensor w =
            apply("convolution_weights",
                  {self.data(c.op, c.input(1)), self.data(c.op, c.input(0)), self.weights(c.op, c.input(2))},
                  same_window(c.op));
        return std::vector{self.weights_back(c.op, w)};
    }};
    def.gradient = GradientRule{[self = *this](GradientContext& g) {
        const NamedAttributes same = self.same_attributes(g.op);
        return std::vector{
            if_needed(g, 0, [&] { return apply(self.name("conv"), {conj_if_complex(g.input(1)), g.grad()}, same); }),
            if_needed(g, 1,
                      [&] {
                          return apply(self.gradient_name("data"), {conj_if_complex(g.input(0)), g.grad(), g.input(1)},
                                       same);
                      }),
            Tensor()};
    }};
    if (axes_ > 1) def.mpsgraph = {concat("convolution", axes_, "DWeightsGradient")};
    return def;
}

// In the layouts of attributes; checks that the convolution of the result with the weights has the shape of `x`.
Shape Family::transposed_shape(const OpView& v) const {
    const Shape x = data_shape(v, 0);
    const Shape w = weights_shape(v, 1);
    const std::int64_t groups = this->groups(v);
    if (!dims_agree(x[1], w[0])) {
        v.fail(concat("the data have ", x[1].str(), " channels, but the weights are for ", w[0].str(),
                      ": a transposed convolution reads the output channels of its weights; check data_layout and "
                      "weights_layout"));
    }
    const std::vector<std::int64_t> strides = numbers_for_axes(v, "stride", axes_, 1);
    const std::vector<std::int64_t> more = numbers_for_axes(v, "output_padding", axes_, 0);
    std::vector<Dim> dims = smallest_inputs(v, spatial_dims(x), spatial_dims(w));
    for (std::size_t k = 0; k < dims.size(); ++k) {
        if (more[k] >= strides[k]) {
            v.fail(concat("output_padding is ", more[k], " along spatial axis ", k, ", but must be below the stride, ",
                          strides[k], ", since the convolution back would have more windows otherwise"));
        }
        if (more[k] > 0 && is_same_padding(v)) {
            v.fail(concat("output_padding is ", more[k],
                          ", but with padding \"same\" the result is input * stride, the "
                          "largest that has so many windows; give output_shape for a smaller one"));
        }
        dims[k] = dims[k] + Dim(more[k]);
        if (dims[k].is_known() && dims[k].value() < 0) {
            v.fail(concat("the result would have ", dims[k].value(), " positions along spatial axis ", k,
                          "; use less padding"));
        }
    }
    if (v.has("output_shape")) {
        if (std::any_of(more.begin(), more.end(), [](std::int64_t amount) { return amount > 0; }))
            v.fail("both output_padding and output_shape are given; leave one out");
        const Shape& wanted = v.shape("output_shape");
        if (!wanted.has_rank() || wanted.rank() != axes_)
            v.fail(concat("output_shape is ", wanted.str(), "; give the ", axes_, " spatial extents of the result"));
        for (const Dim& dim : wanted.dims()) {
            if (dim.is_unknown()) v.fail(concat("output_shape is ", wanted.str(), "; its extents must be numbers"));
        }
        dims = wanted.dims();
        std::vector<WindowAxis> axes = window_axes(v, dims, spatial_dims(w));
        for (std::size_t k = 0; k < axes.size(); ++k) {
            const Dim& windows = x[static_cast<int>(2 + k)];
            if (dims_agree(axes[k].output, windows)) continue;
            const Dim usual = smallest_inputs(v, spatial_dims(x), spatial_dims(w))[k];
            v.fail(concat("output_shape is ", wanted.str(), ", whose spatial axis ", k, " has ", axes[k].output.str(),
                          " windows, but the data have ", windows.str(), "; without output_shape the axis has ",
                          usual.str()));
        }
    }
    const Shape result = with_dims({x[0], w[1] * Dim(groups)}, dims);
    check_channels(v, result, w);
    return result;
}

OpDef Family::transposed() const {
    std::string doc =
        concat("The transposed convolution over ", axes_, " spatial ", axes_ == 1 ? "axis" : "axes",
               ": the gradient of ", name("conv"),
               " with respect to its data. The weights are those of that "
               "convolution, so that their output channels are the channels of `x`, and so are stride, dilation "
               "and padding. Of the extents that the convolution would bring to that of `x` the smallest is "
               "taken, (input - 1) * stride + span - padding, plus output_padding; for padding \"same\" it is "
               "input * stride.");
    OpDef def = declared(name("conv_transpose"), std::move(doc), data_and_weights());
    def.attributes.push_back(optional_attr("output_padding", AttributeKind::integers, std::vector<std::int64_t>{0},
                                           "added to the spatial extents of the result, at the end; below the "
                                           "stride; one number for all axes or one for each"));
    def.attributes.push_back(optional_attr("output_shape", AttributeKind::shape, {},
                                           "the spatial extents of the result, in place of output_padding"));
    def.infer = [self = *this](const OpView& v) {
        require_numeric(v, 0);
        require_same_dtype(v);
        if (any_unranked(v)) return unranked(v);
        const Shape y = self.transposed_shape(v);
        return std::vector{self.data_type(v, y[0], y[1], spatial_dims(y))};
    };
    def.body = CompositeBody{[self = *this](CompositeContext& c) {
        const std::vector<Dim> extents = spatial_dims(self.transposed_shape(c.op));
        return std::vector{self.data_of_windows(c.op, c.input(0), c.input(1), extents)};
    }};
    def.gradient = GradientRule{[self = *this](GradientContext& g) {
        const NamedAttributes same = self.same_attributes(g.op);
        return std::vector{
            if_needed(g, 0, [&] { return apply(self.name("conv"), {g.grad(), conj_if_complex(g.input(1))}, same); }),
            if_needed(g, 1, [&] {
                return apply(self.gradient_name("weights"), {conj_if_complex(g.input(0)), g.grad(), g.input(1)}, same);
            })};
    }};
    if (axes_ == 2) def.mpsgraph = {"convolutionTranspose2D"};
    def.onnx = "ConvTranspose";
    return def;
}

OpDef Family::depthwise() const {
    std::string doc =
        concat("The convolution of each channel by itself: ", name("conv"),
               " with as many groups as channels. The weights have as many input channels as the data, and their "
               "output channels are the channel multiplier m: output channel c*m + j is channel c under "
               "weights j.",
               windows_doc);
    OpDef def = declared(name("depthwise_conv"), std::move(doc), data_and_weights(), false);
    def.infer = [self = *this](const OpView& v) {
        require_numeric(v, 0);
        require_same_dtype(v);
        if (any_unranked(v)) return unranked(v);
        const Shape x = self.data_shape(v, 0);
        const Shape w = self.weights_shape(v, 1);
        if (!dims_agree(x[1], w[1])) {
            v.fail(concat("the data have ", x[1].str(), " channels, but the weights are for ", w[1].str(),
                          "; they must be equal (the weights' output channels are the multiplier)"));
        }
        const std::vector<Dim> outputs = outputs_of(window_axes(v, spatial_dims(x), spatial_dims(w)));
        return std::vector{self.data_type(v, x[0], w[0] * w[1], outputs)};
    };
    def.body = CompositeBody{[self = *this](CompositeContext& c) {
        const Tensor& x = c.input(0);
        const Tensor w = arranged(c.input(1), c.op.string("weights_layout"), self.weights_first());
        // Whichever of the two tells.
        const Dim given = self.data_shape(c.op, 0)[1];
        const Dim channels = given.is_known() ? given : w.shape()[1];
        if (!channels.is_known()) {
            c.op.fail(
                "the number of channels must be known before its gradient is taken; give it in the shape of the "
                "data or of the weights");
        }
        std::string order = self.weights_first();
        std::swap(order[0], order[1]);
        const Tensor by_channel = arranged(w, self.weights_first(), order);
        const Shape grouped = with_dims({w.shape()[0] * channels, Dim(1)}, spatial_dims(w.shape()));
        NamedAttributes attributes = same_window(c.op);
        attributes.emplace_back("groups", channels.value());
        attributes.emplace_back("data_layout", c.op.attribute("data_layout"));
        return std::vector{apply(self.name("conv"), {x, expr::reshape(by_channel, grouped)}, attributes)};
    }};
    def.gradient = FromExpansion{};
    if (axes_ > 1) def.mpsgraph = {concat("depthwiseConvolution", axes_, "D")};
    return def;
}

}  // namespace

std::vector<OpDef> convolution_ops() {
    std::vector<OpDef> ops;
    for (int axes = 1; axes <= 3; ++axes) {
        const Family family(axes);
        for (OpDef& def : std::vector{family.forward(), family.data_gradient(), family.weights_gradient(),
                                      family.transposed(), family.depthwise()}) {
            ops.push_back(std::move(def));
        }
    }
    return ops;
}

}  // namespace topstitch::ops
