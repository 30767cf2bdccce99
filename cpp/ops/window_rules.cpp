// The geometry of sliding windows.
// See window_rules.h.
#include "ops/window_rules.h"

#include "ops/expr.h"
#include "ops/indexing_rules.h"

namespace topstitch::ops {

namespace {

constexpr std::string_view spatial_names = "DHW";
constexpr std::int64_t highest = (std::int64_t{1} << 31) - 1;  // of an attribute

std::string spatial(int axes) {
    return std::string(spatial_names.substr(spatial_names.size() - static_cast<std::size_t>(axes)));
}

struct Padding {
    Dim before, after;
};

// As many windows as positions divided by the stride; "same" puts the odd element of the padding at the end.
Padding same_padding(const WindowAxis& axis, bool lower) {
    const Dim windows = ceil_div(axis.input, axis.stride);
    Dim total = axis.span() - Dim(axis.stride);
    if (axis.stride != 1) total = max((windows - 1) * Dim(axis.stride) + axis.span() - axis.input, 0);
    const Dim less = floor_div(total, 2);
    return lower ? Padding{total - less, less} : Padding{less, total - less};
}

// Before and after each axis in turn; 0 when a name stands for the numbers.
std::vector<std::int64_t> explicit_padding(const OpView& view, int axes) {
    const auto count = static_cast<std::size_t>(axes);
    if (std::holds_alternative<std::string>(view.attribute("padding"))) return std::vector<std::int64_t>(2 * count, 0);
    const auto& given = view.integers("padding");
    if (given.size() != 1 && given.size() != count && given.size() != 2 * count) {
        view.fail(concat("padding has ", given.size(), " numbers; give one for all ", axes, " spatial axes, ", count,
                         " (one for each axis), ", 2 * count,
                         " (before and after each axis in turn), or \"same\" or \"valid\""));
    }
    std::vector<std::int64_t> padding;
    for (std::size_t k = 0; k < count; ++k) {
        for (std::size_t side = 0; side < 2; ++side) {
            const std::int64_t amount = given[given.size() == 2 * count ? 2 * k + side : given.size() == 1 ? 0 : k];
            if (amount < 0)
                view.fail(concat("padding has ", amount, "; it must be 0 or more, and slice removes elements"));
            if (amount > highest) view.fail(concat("padding has ", amount, "; it must be at most ", highest));
            padding.push_back(amount);
        }
    }
    return padding;
}

std::vector<std::int64_t> numbers_of(const std::vector<Dim>& dims) {
    std::vector<std::int64_t> numbers;
    for (const Dim& dim : dims) numbers.push_back(dim.value());
    return numbers;
}

}  // namespace

loopir::ValueId inside(loopir::Builder& b, const WindowAxis& axis, const Index& position) {
    // What the geometry says spares the proof, which symbols may not allow.
    const auto is_zero = [](const Dim& dim) { return dim.is_known() && dim.value() == 0; };
    if (is_zero(axis.before) && is_zero(axis.after) && !axis.beyond) return loopir::no_value;
    return within(b, position, axis.input);
}

std::vector<AttrDef> window_attributes(DefaultStride stride) {
    const Attribute one = std::vector<std::int64_t>{1};
    const bool by_kernel = stride == DefaultStride::kernel;
    AttrDef padding = optional_attr(
        "padding", AttributeKind::integers, std::vector<std::int64_t>{0},
        "how many elements are added around each spatial axis: one number for all, one for each, or before and after "
        "each in turn; \"same\" gives as many windows as positions divided by the stride, with the odd one at the end "
        "(\"same_lower\": at the start), and \"valid\" adds none");
    padding.choices = {"valid", "same", "same_lower"};
    return {optional_attr("stride", AttributeKind::integers, by_kernel ? Attribute() : one,
                          concat("the distance of windows along each spatial axis; one number for all or one for each",
                                 by_kernel ? "; none means that of the kernel" : "")),
            optional_attr("dilation", AttributeKind::integers, one,
                          "the distance of elements within a window; one number for all or one for each"),
            std::move(padding)};
}

std::vector<std::int64_t> numbers_for_axes(const OpView& view, std::string_view attribute, int axes,
                                           std::int64_t lowest) {
    std::vector<std::int64_t> values = view.integers(attribute);
    if (values.size() == 1) values.assign(static_cast<std::size_t>(axes), values[0]);
    if (values.size() != static_cast<std::size_t>(axes)) {
        view.fail(concat(attribute, " has ", values.size(), " numbers; give one for all spatial axes or ", axes,
                         ", one for each"));
    }
    for (const std::int64_t value : values) {
        if (value < lowest || value > highest) {
            view.fail(concat(attribute, " is ", value, "; it must be at least ", lowest, " and at most ", highest));
        }
    }
    return values;
}

std::vector<WindowAxis> window_axes(const OpView& view, const std::vector<Dim>& input, const std::vector<Dim>& kernel,
                                    bool ceil) {
    const int count = static_cast<int>(input.size());
    const std::vector<std::int64_t> strides =
        view.has("stride") ? numbers_for_axes(view, "stride", count, 1) : numbers_of(kernel);
    const std::vector<std::int64_t> dilations = numbers_for_axes(view, "dilation", count, 1);
    const bool is_same = is_same_padding(view);
    const std::vector<std::int64_t> padding = explicit_padding(view, count);
    std::vector<WindowAxis> axes;
    for (std::size_t k = 0; k < input.size(); ++k) {
        WindowAxis axis{input[k], {}, kernel[k], strides[k], dilations[k]};
        const Dim stride = axis.stride;
        Padding around{padding[2 * k], padding[2 * k + 1]};
        if (is_same) around = same_padding(axis, view.string("padding") == "same_lower");
        axis.before = around.before;
        axis.after = around.after;
        const Dim free = input[k] + around.before + around.after - axis.span();
        if (axis.span().is_known() && axis.span().value() < 1)
            view.fail(concat("the window has ", kernel[k].str(), " elements along spatial axis ", k, "; it needs 1"));
        if (!is_same && free.is_known() && free.value() < 0) {
            const Dim padded = input[k] + around.before + around.after;
            view.fail(concat("the window spans ", axis.span().str(), " positions along spatial axis ", k, ", but the ",
                             "input has ", input[k].str(),
                             padded == input[k] ? "" : concat(", with padding ", padded.str()),
                             "; use a smaller window or dilation, or more padding"));
        }
        if (is_same) {
            axis.output = ceil_div(input[k], stride);
        } else {
            axis.output = floor_div(free, stride) + 1;
            if (ceil) {
                // One more for what is left over, unless it would begin in the padding after the input.
                const Dim more = min(ceil_div(free, stride) + 1, ceil_div(input[k] + around.before, stride));
                axis.output = max(axis.output, more);
                axis.beyond = true;
            }
        }
        axes.push_back(std::move(axis));
    }
    return axes;
}

std::vector<Dim> outputs_of(const std::vector<WindowAxis>& axes) {
    std::vector<Dim> outputs;
    for (const WindowAxis& axis : axes) outputs.push_back(axis.output);
    return outputs;
}

bool is_same_padding(const OpView& view) {
    const auto* style = std::get_if<std::string>(&view.attribute("padding"));
    return style != nullptr && *style != "valid";
}

std::vector<Dim> smallest_inputs(const OpView& view, const std::vector<Dim>& windows, const std::vector<Dim>& kernel) {
    const int count = static_cast<int>(windows.size());
    const std::vector<std::int64_t> strides = numbers_for_axes(view, "stride", count, 1);
    const std::vector<std::int64_t> dilations = numbers_for_axes(view, "dilation", count, 1);
    const std::vector<std::int64_t> padding = explicit_padding(view, count);
    const bool is_same = is_same_padding(view);
    std::vector<Dim> inputs;
    for (std::size_t k = 0; k < windows.size(); ++k) {
        if (is_same) {
            inputs.push_back(windows[k] * Dim(strides[k]));
            continue;
        }
        const Dim span = (kernel[k] - 1) * Dim(dilations[k]) + 1;
        inputs.push_back((windows[k] - 1) * Dim(strides[k]) + span - Dim(padding[2 * k] + padding[2 * k + 1]));
    }
    return inputs;
}

NamedAttributes same_window(const OpView& view) {
    return {{"stride", view.attribute("stride")},
            {"dilation", view.attribute("dilation")},
            {"padding", view.attribute("padding")}};
}

std::string channels_first(int axes) {
    return "NC" + spatial(axes);
}

std::string channels_last(int axes) {
    return "N" + spatial(axes) + "C";
}

AttrDef data_layout_attr(int axes) {
    return choice_attr("data_layout", channels_first(axes), {channels_first(axes), channels_last(axes)},
                       "the order of the axes of the data: batch, channels, and spatial axes");
}

std::vector<std::int64_t> axis_order(const std::string& layout, const std::string& wanted) {
    std::vector<std::int64_t> order;
    for (const char name : wanted) order.push_back(static_cast<std::int64_t>(layout.find(name)));
    return order;
}

Tensor arranged(const Tensor& x, const std::string& layout, const std::string& wanted) {
    return layout == wanted ? x : expr::transpose(x, axis_order(layout, wanted));
}

Shape arranged(const Shape& shape, const std::string& layout, const std::string& wanted) {
    std::vector<Dim> dims;
    for (const std::int64_t axis : axis_order(layout, wanted)) dims.push_back(shape[static_cast<int>(axis)]);
    return Shape(std::move(dims));
}

void require_layout(const OpView& view, int k, const std::string& layout) {
    const Shape& shape = view.in_shape(k);
    if (!shape.has_rank() || shape.rank() == static_cast<int>(layout.size())) return;
    view.fail(concat(input_name(view, k), " has shape ", shape.str(), ", but the layout \"", layout, "\" needs ",
                     layout.size(), " axes; use expand_dims or reshape"));
}

}  // namespace topstitch::ops
