// Shared parts of operation declarations: dtype and shape checks, axis handling, attribute shorthand.
// Every check throws through OpView::fail, so that messages name the operation and the user's line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "graph/apply.h"
#include "graph/op_def.h"

namespace topstitch::ops {

// --- Classes of dtypes that an argument may have; combined with |.
class DTypes {
public:
    constexpr explicit DTypes(unsigned bits) : bits_(bits) {}
    bool contains(DType dtype) const;
    std::string str() const;  // "floating-point or complex64"
    friend constexpr DTypes operator|(DTypes a, DTypes b) { return DTypes(a.bits_ | b.bits_); }
    friend constexpr bool operator==(DTypes a, DTypes b) = default;

private:
    unsigned bits_;
};
inline constexpr DTypes bools{1};
inline constexpr DTypes integers{2};
inline constexpr DTypes floats{4};
inline constexpr DTypes complexes{8};
inline constexpr DTypes reals = integers | floats;
inline constexpr DTypes numbers = reals | complexes;
inline constexpr DTypes anything = bools | numbers;

// --- Checks of inputs; `hint` replaces the usual advice ("use cast").
void require(const OpView& view, int input, DTypes allowed, std::string_view hint = "");
void require_floating(const OpView& view, int input);
void require_integer(const OpView& view, int input);
void require_numeric(const OpView& view, int input);  // integer, floating-point or complex
void require_bool(const OpView& view, int input);
// All inputs in [first, last] have the dtype of `first`; by default all inputs.
void require_same_dtype(const OpView& view, int first = 0, int last = -1);
// Input `k` is a scalar, as far as known.
void require_scalar(const OpView& view, int k);
// The shapes of the inputs `a` and `b` agree dim by dim (no broadcasting); the more precise of the two.
Shape require_same_shape(const OpView& view, int a, int b);

// "input `x`", with the name that the OpDef gives (variadic arguments are numbered).
std::string input_name(const OpView& view, int k);

// --- Results.
std::vector<TensorType> same_type(const OpView& view);       // one output, as input 0
TensorType broadcast_type(const OpView& view, DType dtype);  // all inputs broadcast together
Shape without_axis(const Shape& shape, std::int64_t axis, const OpView& view);

// --- Axes. Counted from the front, checked for range and duplicates, in the given order; "none" means all axes.
int normalized_axis(const OpView& view, std::string_view attribute, int rank);
std::vector<int> normalized_axes(const OpView& view, std::string_view attribute, int rank);
int normalized_axis(const OpView& view, std::int64_t axis, int rank);
std::vector<int> normalized_axes(const OpView& view, const std::vector<std::int64_t>& axes, int rank);

// --- Attribute shorthand.
AttrDef required_attr(std::string name, AttributeKind kind, std::string doc);
AttrDef optional_attr(std::string name, AttributeKind kind, Attribute fallback, std::string doc);
AttrDef flag_attr(std::string name, bool fallback, std::string doc);
AttrDef real_attr(std::string name, double fallback, std::string doc);
AttrDef choice_attr(std::string name, std::string fallback, std::vector<std::string> choices, std::string doc);
AttrDef axis_attr(std::int64_t fallback, std::string doc = "axis; negative counts from the end");
AttrDef axes_attr(std::string doc = "axes; negative ones count from the end, none means all");

// The attributes of `view` that `def` has too.
NamedAttributes shared_attributes(const OpView& view, const OpDef& def);

// --- Bodies.
Value product(ElementContext& c, const Value& x, const Value& y);  // real or complex

// --- Gradient shorthand.
// The gradient of a complex tensor z is dL/d(re z) + i dL/d(im z), so that it points where the objective grows and a
// holomorphic function contributes the conjugate of its derivative.
Tensor conj_if_complex(const Tensor& x);
Tensor chain(const Tensor& gradient, const Tensor& derivative);  // gradient * conj_if_complex(derivative)
// For rules that ask which inputs want a gradient: `make` runs only when input `k` does.
template <typename Make>
Tensor if_needed(const GradientContext& g, int k, const Make& make) {
    return g.needs(k) ? make() : Tensor();
}
// Zeros for every input that wants a gradient: the rule of piecewise-constant functions.
GradientRule zero_gradient();
// A half tensor as float32 (others unchanged), and the way back: composites compute 16-bit floats in float32.
Tensor widened(const Tensor& x);
Tensor narrowed(const Tensor& x, DType dtype);

}  // namespace topstitch::ops
