// The contractions behind convolution and its two gradients, over any number of spatial axes.
// Data are [batch, group, channel, position...], weights [group, output channel, channel, tap...].
#include "ops/families.h"
#include "ops/indexing_rules.h"
#include "ops/window_rules.h"

namespace topstitch::ops {

namespace {

using loopir::ValueId;

constexpr int leading = 3;  // axes before the spatial ones

std::vector<Dim> spatial_dims(const Shape& shape) {
    return {shape.dims().begin() + leading, shape.dims().end()};
}

Indices spatial_part(const Indices& at) {
    return {at.begin() + leading, at.end()};
}

Shape with_spatial(const Dim& a, const Dim& b, const Dim& c, const std::vector<Dim>& dims) {
    std::vector<Dim> all{a, b, c};
    all.insert(all.end(), dims.begin(), dims.end());
    return Shape(std::move(all));
}

Indices with_spatial(const Index& a, const Index& b, const Index& c, const Indices& positions) {
    Indices all{a, b, c};
    all.insert(all.end(), positions.begin(), positions.end());
    return all;
}

// --- Checks: a graph that was read from text may hold anything.

// All inputs have one dtype of numbers and one known rank, with a spatial axis at least.
void require_forms(const OpView& v) {
    require_numeric(v, 0);
    require_same_dtype(v);
    const Shape& first = v.in_shape(0);
    for (int k = 0; k < v.num_inputs(); ++k) {
        const Shape& shape = v.in_shape(k);
        if (shape.has_rank() && shape.rank() > leading && first.has_rank() && shape.rank() == first.rank()) continue;
        v.fail(concat(input_name(v, k), " has shape ", shape.str(), ", but all inputs need one known rank above ",
                      leading));
    }
}

void require_equal(const OpView& v, const char* what, const Dim& a, const Dim& b) {
    if (!dims_agree(a, b)) v.fail(concat("the ", what, " of its inputs differ: ", a.str(), " and ", b.str()));
}

// The windows of a gradient are those of the convolution.
void require_windows(const OpView& v, const Shape& gradient, const std::vector<WindowAxis>& axes) {
    for (std::size_t k = 0; k < axes.size(); ++k) {
        require_equal(v, "windows", gradient[leading + static_cast<int>(k)], axes[k].output);
    }
}

// Input `k` at a place that may lie outside of it, where it is zero.
Value padded_operand(ElementContext& c, int k, const Index& a, const Index& b, const Index& channel,
                     const Indices& positions) {
    ValueId valid = loopir::no_value;
    const Shape& shape = c.op.in_shape(k);
    for (std::size_t axis = 0; axis < positions.size(); ++axis) {
        const Dim& extent = shape[leading + static_cast<int>(axis)];
        valid = both(c.b, valid, within(c.b, positions[axis], extent));
    }
    const Indices at = with_spatial(a, b, channel, positions);
    return guarded_or_zero(c, valid, c.op.input(k).dtype, [&] { return c.operand(k, at); });
}

using Exists = std::function<ValueId(ElementContext&, const Indices& at, const Indices& reduce)>;

// A sum of products of a factor behind a window and another one.
ReduceBody window_contraction(std::function<std::vector<Dim>(const OpView&)> domain, ReduceBody::Window window,
                              ReduceBody::Factor other, Exists exists = nullptr) {
    ReduceBody body;
    body.combiner = [](const OpView&) { return Combiner::sum; };
    body.domain = std::move(domain);
    const ReduceBody::Factor first = [window](ElementContext& c, const Indices& at, const Indices& reduce) {
        return window.element(c, at, reduce, window.positions(c.op, at, reduce));
    };
    body.element = [first, other, exists](ElementContext& c, const Indices& at, const Indices& reduce) {
        const ValueId here = exists ? exists(c, at, reduce) : loopir::no_value;
        return guarded_or_zero(c, here, c.op.output().dtype,
                               [&] { return product(c, first(c, at, reduce), other(c, at, reduce)); });
    };
    body.factors = {first, other};
    body.exists = std::move(exists);
    body.window = std::move(window);
    return body;
}

OpDef internal_op(std::string name, std::string doc) {
    OpDef def;
    def.name = std::move(name);
    def.family = "convolution";
    def.doc = std::move(doc);
    def.internal = true;
    def.attributes = window_attributes();
    def.results = {"y"};
    // Made when a program is compiled, from operations that have rules of their own.
    def.gradient = NotDifferentiable{"convolutions are differentiated as a whole"};
    return def;
}

// --- y[n, g, o, t] = sum over c, k of x[n, g, c, position(t, k)] * w[g, o, c, k]

std::vector<WindowAxis> forward_axes(const OpView& v) {
    return window_axes(v, spatial_dims(v.in_shape(0)), spatial_dims(v.in_shape(1)));
}

// For each spatial axis, the position of a tap.
Indices positions_of(const std::vector<WindowAxis>& axes, const Indices& at, const Indices& taps) {
    Indices positions;
    for (std::size_t k = 0; k < axes.size(); ++k) positions.push_back(axes[k].position(at[k], taps[k]));
    return positions;
}

OpDef convolution() {
    OpDef def = internal_op("convolution_forward", "The convolution of data and weights.");
    def.args = {{"x", "data"}, {"w", "weights"}};
    def.infer = [](const OpView& v) {
        require_forms(v);
        const Shape& x = v.in_shape(0);
        require_equal(v, "groups", x[1], v.in_shape(1)[0]);
        require_equal(v, "channels", x[2], v.in_shape(1)[2]);
        const std::vector<Dim> outputs = outputs_of(forward_axes(v));
        return std::vector{TensorType{v.input(0).dtype, with_spatial(x[0], x[1], v.in_shape(1)[1], outputs)}};
    };
    const auto taps = [](const Indices& reduce) { return Indices(reduce.begin() + 1, reduce.end()); };
    def.body = window_contraction(
        [](const OpView& v) {
            std::vector<Dim> domain = spatial_dims(v.in_shape(1));
            domain.insert(domain.begin(), v.in_shape(0)[2]);
            return domain;
        },
        {[taps](const OpView& v, const Indices& at, const Indices& reduce) {
             return positions_of(forward_axes(v), spatial_part(at), taps(reduce));
         },
         [](ElementContext& c, const Indices& at, const Indices& reduce, const Indices& positions) {
             return padded_operand(c, 0, at[0], at[1], reduce[0], positions);
         }},
        [taps](ElementContext& c, const Indices& at, const Indices& reduce) {
            return c.operand(1, with_spatial(at[1], at[2], reduce[0], taps(reduce)));
        });
    return def;
}

// --- dw[g, o, c, k] = sum over n, t of x[n, g, c, position(t, k)] * dy[n, g, o, t]

OpDef weights_gradient() {
    OpDef def = internal_op("convolution_weights", "The gradient of a convolution with respect to its weights.");
    def.args = {{"x", "data"}, {"gradient", "of the result"}, {"like", "weights, of which only the shape matters"}};
    def.infer = [](const OpView& v) {
        require_forms(v);
        const Shape& x = v.in_shape(0);
        const Shape& gradient = v.in_shape(1);
        const Shape& w = v.in_shape(2);
        require_equal(v, "batches", x[0], gradient[0]);
        require_equal(v, "groups", x[1], gradient[1]);
        require_equal(v, "groups", x[1], w[0]);
        require_equal(v, "output channels", gradient[2], w[1]);
        require_equal(v, "channels", x[2], w[2]);
        require_windows(v, gradient, window_axes(v, spatial_dims(x), spatial_dims(w)));
        return std::vector{TensorType{v.input(0).dtype, w}};
    };
    const auto windows = [](const Indices& reduce) { return Indices(reduce.begin() + 1, reduce.end()); };
    def.body = window_contraction(
        [](const OpView& v) {
            std::vector<Dim> domain = spatial_dims(v.in_shape(1));
            domain.insert(domain.begin(), v.in_shape(0)[0]);
            return domain;
        },
        {[windows](const OpView& v, const Indices& at, const Indices& reduce) {
             const auto axes = window_axes(v, spatial_dims(v.in_shape(0)), spatial_dims(v.in_shape(2)));
             return positions_of(axes, windows(reduce), spatial_part(at));
         },
         [](ElementContext& c, const Indices& at, const Indices& reduce, const Indices& positions) {
             return padded_operand(c, 0, reduce[0], at[0], at[2], positions);
         }},
        [windows](ElementContext& c, const Indices& at, const Indices& reduce) {
            return c.operand(1, with_spatial(reduce[0], at[0], at[1], windows(reduce)));
        });
    return def;
}

// --- dx[n, g, c, p] = sum over o, k of dy[n, g, o, t] * w[g, o, c, k], where tap k of window t reads position p.
// A stride meets every stride-th tap only: the positions are cut into `phases` that meet the same taps, and the result
// has two axes for each spatial one, p = quotient * phases + phase.

struct DataAxis {
    WindowAxis window;
    std::int64_t phases = 1;

    Dim quotients() const { return ceil_div(window.input, phases); }
    Dim taps() const { return ceil_div(window.kernel, phases); }  // that one phase may meet
};

std::vector<DataAxis> data_axes(const OpView& v) {
    std::vector<DataAxis> axes;
    for (WindowAxis& window : window_axes(v, v.shape("input").dims(), spatial_dims(v.in_shape(1)))) {
        // Taps further apart than their windows are sought one by one.
        const std::int64_t phases = window.dilation == 1 ? window.stride : 1;
        axes.push_back({std::move(window), phases});
    }
    return axes;
}

// Which window meets a position with a tap: step `step` of those that may.
struct Meeting {
    Index window, tap;
    // Numerator of the window when it must be a multiple of the stride.
    std::optional<Index> multiple;
};

Meeting meeting(const DataAxis& axis, const Index& quotient, const Index& phase, const Index& step) {
    const std::int64_t stride = axis.window.stride;
    const Index padded = quotient * Dim(axis.phases) + phase + Index(axis.window.before);
    if (axis.phases == stride) {
        return {floor_div(padded, stride) - step * Dim(axis.window.dilation), step * Dim(stride) + mod(padded, stride),
                std::nullopt};
    }
    const Index numerator = padded - step * Dim(axis.window.dilation);
    return {floor_div(numerator, stride), step, numerator};
}

std::vector<Meeting> meetings(const OpView& v, const Indices& at, const Indices& reduce) {
    const std::vector<DataAxis> axes = data_axes(v);
    std::vector<Meeting> result;
    for (std::size_t k = 0; k < axes.size(); ++k) {
        result.push_back(meeting(axes[k], at[leading + 2 * k], at[leading + 2 * k + 1], reduce[1 + k]));
    }
    return result;
}

// Phases differ in the number of their taps.
ValueId tap_exists(ElementContext& c, const Indices& at, const Indices& reduce) {
    const std::vector<DataAxis> axes = data_axes(c.op);
    const std::vector<Meeting> met = meetings(c.op, at, reduce);
    ValueId exists = loopir::no_value;
    for (std::size_t k = 0; k < axes.size(); ++k) {
        exists = both(c.b, exists, within(c.b, met[k].tap, axes[k].window.kernel));
        if (met[k].multiple) exists = both(c.b, exists, equals(c.b, mod(*met[k].multiple, axes[k].window.stride), 0));
    }
    return exists;
}

// Zero at taps that do not exist, since it may be packed for all.
Value met_weights(ElementContext& c, const Indices& at, const Indices& reduce) {
    Indices taps;
    for (const Meeting& m : meetings(c.op, at, reduce)) taps.push_back(m.tap);
    return padded_operand(c, 1, at[1], reduce[0], at[2], taps);
}

OpDef data_gradient() {
    OpDef def = internal_op("convolution_data",
                            "The gradient of a convolution with respect to its data, with each spatial axis cut in "
                            "phases: [batch, group, channel, quotient, phase, quotient, phase, ...].");
    def.args = {{"gradient", "of the result"}, {"w", "weights"}};
    def.attributes.push_back(required_attr("input", AttributeKind::shape, "the spatial extents of the data"));
    def.infer = [](const OpView& v) {
        require_forms(v);
        const Shape& gradient = v.in_shape(0);
        const Shape& w = v.in_shape(1);
        const Shape& input = v.shape("input");
        if (!input.has_rank() || input.rank() + leading != w.rank())
            v.fail(concat("input is ", input.str(), "; it needs ", w.rank() - leading, " extents"));
        require_equal(v, "groups", gradient[1], w[0]);
        require_equal(v, "output channels", gradient[2], w[1]);
        std::vector<WindowAxis> windows;
        std::vector<Dim> dims;
        for (const DataAxis& axis : data_axes(v)) {
            windows.push_back(axis.window);
            dims.push_back(axis.quotients());
            dims.emplace_back(axis.phases);
        }
        require_windows(v, gradient, windows);
        return std::vector{TensorType{v.input(0).dtype, with_spatial(gradient[0], gradient[1], w[2], dims)}};
    };
    def.body = window_contraction(
        [](const OpView& v) {
            std::vector<Dim> domain{v.in_shape(0)[2]};
            for (const DataAxis& axis : data_axes(v)) domain.push_back(axis.taps());
            return domain;
        },
        {[](const OpView& v, const Indices& at, const Indices& reduce) {
             Indices windows;
             for (const Meeting& m : meetings(v, at, reduce)) windows.push_back(m.window);
             return windows;
         },
         [](ElementContext& c, const Indices& at, const Indices& reduce, const Indices& windows) {
             return padded_operand(c, 0, at[0], at[1], reduce[0], windows);
         }},
        met_weights, tap_exists);
    return def;
}

}  // namespace

std::vector<OpDef> window_contraction_ops() {
    return {convolution(), weights_gradient(), data_gradient()};
}

}  // namespace topstitch::ops
