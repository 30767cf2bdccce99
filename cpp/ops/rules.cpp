// Shared parts of operation declarations: the checks and their messages.
// See rules.h for what each is for.
#include "ops/rules.h"

#include <algorithm>
#include <utility>

#include "ops/expr.h"

namespace topstitch::ops {

bool DTypes::contains(DType dtype) const {
    const auto has = [this](DTypes other) { return (bits_ & other.bits_) != 0; };
    if (dtype == DType::boolean) return has(bools);
    if (is_integer(dtype)) return has(integers);
    if (is_floating(dtype)) return has(floats);
    return has(complexes);
}

std::string DTypes::str() const {
    const std::pair<DTypes, const char*> classes[] = {
        {bools, "bool"}, {integers, "integer"}, {floats, "floating-point"}, {complexes, "complex64"}};
    std::vector<std::string> names;
    for (const auto& [member, name] : classes) {
        if ((bits_ & member.bits_) != 0) names.emplace_back(name);
    }
    std::string text;
    for (std::size_t k = 0; k < names.size(); ++k) {
        if (k > 0) text += k + 1 == names.size() ? " or " : ", ";
        text += names[k];
    }
    return text;
}

std::string input_name(const OpView& view, int k) {
    const auto& args = view.def().args;
    const auto index = static_cast<std::size_t>(k);
    if (!args.empty() && args.back().variadic && index + 1 >= args.size()) {
        return concat("input `", args.back().name, "[", index + 1 - args.size(), "]`");
    }
    if (index < args.size()) return concat("input `", args[index].name, "`");
    return concat("input ", k);
}

void require(const OpView& view, int input, DTypes allowed, std::string_view hint) {
    const DType dtype = view.input(input).dtype;
    if (allowed.contains(dtype)) return;
    std::string advice(hint);
    if (advice.empty()) {
        // Suggest the nearest type that is allowed.
        const DType better = allowed.contains(DType::float32)   ? DType::float32
                             : allowed.contains(DType::int32)   ? DType::int32
                             : allowed.contains(DType::boolean) ? DType::boolean
                                                                : DType::complex64;
        advice = dtype == DType::complex64 && better != DType::complex64
                     ? "use real, imag or absolute to get a real tensor"
                     : concat("use cast to convert it, for example to ", name_of(better));
    }
    view.fail_type(concat(input_name(view, input), " has dtype ", name_of(dtype), ", but ", allowed.str(),
                          " is needed; ", advice));
}

void require_floating(const OpView& view, int input) {
    require(view, input, floats);
}
void require_integer(const OpView& view, int input) {
    require(view, input, integers);
}
void require_numeric(const OpView& view, int input) {
    require(view, input, numbers);
}
void require_bool(const OpView& view, int input) {
    require(view, input, bools, "compare it, for example with not_equal(x, 0), or use cast to convert it to bool");
}

void require_same_dtype(const OpView& view, int first, int last) {
    if (last < 0) last = view.num_inputs() - 1;
    const DType dtype = view.input(first).dtype;
    for (int k = first + 1; k <= last; ++k) {
        if (view.input(k).dtype == dtype) continue;
        view.fail_type(concat(input_name(view, first), " has dtype ", name_of(dtype), ", but ", input_name(view, k),
                              " has ", name_of(view.input(k).dtype),
                              "; the dtypes must be equal, so use cast to convert one of them"));
    }
}

void require_scalar(const OpView& view, int k) {
    const Shape& shape = view.in_shape(k);
    if (!shape.has_rank() || shape.rank() == 0) return;
    view.fail(concat(input_name(view, k), " has shape ", shape.str(),
                     ", but a scalar is needed; use reshape to give it the shape ()"));
}

Shape require_same_shape(const OpView& view, int a, int b) {
    const Shape& first = view.in_shape(a);
    const Shape& second = view.in_shape(b);
    if (!first.has_rank()) return second;
    if (!second.has_rank()) return first;
    bool agree = first.rank() == second.rank();
    std::vector<Dim> dims;
    for (int axis = 0; agree && axis < first.rank(); ++axis) {
        agree = dims_agree(first[axis], second[axis]);
        if (agree) dims.push_back(unify_dims(first[axis], second[axis]));
    }
    if (!agree) {
        view.fail(concat(input_name(view, a), " has shape ", first.str(), ", but ", input_name(view, b), " has ",
                         second.str(), "; the shapes must be equal, so use reshape or broadcast_to on one of them"));
    }
    return Shape(std::move(dims));
}

std::vector<TensorType> same_type(const OpView& view) {
    return {view.input(0)};
}

TensorType broadcast_type(const OpView& view, DType dtype) {
    Shape shape = view.in_shape(0);
    for (int k = 1; k < view.num_inputs(); ++k) shape = broadcast_shapes(view, shape, view.in_shape(k));
    return {dtype, std::move(shape)};
}

Shape without_axis(const Shape& shape, std::int64_t axis, const OpView& view) {
    if (!shape.has_rank()) return shape;
    std::vector<Dim> dims = shape.dims();
    dims.erase(dims.begin() + normalized_axis(view, axis, shape.rank()));
    return Shape(std::move(dims));
}

int normalized_axis(const OpView& view, std::int64_t axis, int rank) {
    if (axis >= -rank && axis < rank) return static_cast<int>(axis < 0 ? axis + rank : axis);
    if (rank == 0) view.fail(concat("axis ", axis, " was given, but the tensor is a scalar, which has no axes"));
    view.fail(concat("axis ", axis, " is out of range for a tensor of rank ", rank, "; allowed are ", -rank, " to ",
                     rank - 1));
}

std::vector<int> normalized_axes(const OpView& view, const std::vector<std::int64_t>& axes, int rank) {
    std::vector<int> result;
    for (const std::int64_t axis : axes) {
        const int normal = normalized_axis(view, axis, rank);
        if (std::find(result.begin(), result.end(), normal) != result.end()) {
            view.fail(concat("axis ", axis, " was given twice (negative axes count from the end of the ", rank,
                             " axes); leave one out"));
        }
        result.push_back(normal);
    }
    return result;
}

int normalized_axis(const OpView& view, std::string_view attribute, int rank) {
    return normalized_axis(view, view.integer(attribute), rank);
}

std::vector<int> normalized_axes(const OpView& view, std::string_view attribute, int rank) {
    if (view.has(attribute)) return normalized_axes(view, view.integers(attribute), rank);
    std::vector<int> all(static_cast<std::size_t>(rank));
    for (int axis = 0; axis < rank; ++axis) all[static_cast<std::size_t>(axis)] = axis;
    return all;
}

AttrDef required_attr(std::string name, AttributeKind kind, std::string doc) {
    AttrDef attr;
    attr.name = std::move(name);
    attr.kind = kind;
    attr.doc = std::move(doc);
    return attr;
}

AttrDef optional_attr(std::string name, AttributeKind kind, Attribute fallback, std::string doc) {
    AttrDef attr = required_attr(std::move(name), kind, std::move(doc));
    attr.required = false;
    attr.fallback = std::move(fallback);
    return attr;
}

AttrDef flag_attr(std::string name, bool fallback, std::string doc) {
    return optional_attr(std::move(name), AttributeKind::boolean, fallback, std::move(doc));
}

AttrDef real_attr(std::string name, double fallback, std::string doc) {
    return optional_attr(std::move(name), AttributeKind::real, fallback, std::move(doc));
}

AttrDef choice_attr(std::string name, std::string fallback, std::vector<std::string> choices, std::string doc) {
    AttrDef attr = optional_attr(std::move(name), AttributeKind::string, std::move(fallback), std::move(doc));
    attr.choices = std::move(choices);
    return attr;
}

AttrDef axis_attr(std::int64_t fallback, std::string doc) {
    return optional_attr("axis", AttributeKind::integer, fallback, std::move(doc));
}

AttrDef axes_attr(std::string doc) {
    return optional_attr("axes", AttributeKind::integers, Attribute(), std::move(doc));
}

NamedAttributes shared_attributes(const OpView& view, const OpDef& def) {
    NamedAttributes attributes;
    for (const AttrDef& attribute : def.attributes) {
        if (view.def().attribute_index(attribute.name) >= 0)
            attributes.emplace_back(attribute.name, view.attribute(attribute.name));
    }
    return attributes;
}

Value product(ElementContext& c, const Value& x, const Value& y) {
    loopir::Builder& b = c.b;
    if (!x.is_complex()) return Value{b.mul(x.re, y.re)};
    return Value{b.sub(b.mul(x.re, y.re), b.mul(x.im, y.im)), b.add(b.mul(x.re, y.im), b.mul(x.im, y.re))};
}

Tensor conj_if_complex(const Tensor& x) {
    return is_complex(x.dtype()) ? expr::unary("conj", x) : x;
}

Tensor chain(const Tensor& gradient, const Tensor& derivative) {
    return expr::binary("multiply", gradient, conj_if_complex(derivative));
}

GradientRule zero_gradient() {
    return [](GradientContext& g) {
        std::vector<Tensor> gradients;
        for (std::size_t k = 0; k < g.inputs().size(); ++k) {
            const int input = static_cast<int>(k);
            gradients.push_back(g.needs(input) ? expr::zeros_like(g.input(input)) : Tensor());
        }
        return gradients;
    };
}

Tensor widened(const Tensor& x) {
    return is_half(x.dtype()) ? expr::cast(x, DType::float32) : x;
}

Tensor narrowed(const Tensor& x, DType dtype) {
    return x.dtype() == dtype ? x : expr::cast(x, dtype);
}

}  // namespace topstitch::ops
