// pad, in seven modes and any rank, and its adjoint along one axis.
// A mode is a map from positions of the padded axis to positions of the input, periodic where the padding is wider.
#include <limits>

#include "ops/expr.h"
#include "ops/families.h"
#include "ops/indexing_rules.h"
#include "ops/rules.h"

namespace topstitch::ops {

namespace {

using loopir::ScalarOp;
using loopir::ValueId;
using Axes = std::vector<std::int64_t>;

enum class Mode { constant, edge, reflect, symmetric, wrap, antiwrap };

Mode mode_of(const OpView& v) {
    const std::string& name = v.string("mode");
    if (name == "edge") return Mode::edge;
    if (name == "reflect") return Mode::reflect;
    if (name == "symmetric") return Mode::symmetric;
    if (name == "wrap") return Mode::wrap;
    if (name == "antiwrap") return Mode::antiwrap;
    return Mode::constant;
}

AttrDef mode_attribute(std::string fallback, std::vector<std::string> choices) {
    return choice_attr(
        "mode", std::move(fallback), std::move(choices),
        "what the new elements are: \"constant\" value; the \"edge\" element repeated; the input mirrored "
        "without (\"reflect\") or with (\"symmetric\") the edge itself; the input repeated (\"wrap\"), with "
        "the sign changed every other time (\"antiwrap\")");
}

// The position in [0, extent) that `at`, counted from the first element of the input, is a copy of.
struct Source {
    Index position;
    ValueId negated = loopir::no_value;  // antiwrap: where the sign is changed
};

Index smaller_of(loopir::Builder& b, const Index& x, const Index& y) {
    return Index::value(b.op(ScalarOp::min, b.index_value(x), b.index_value(y)));
}

// `at` modulo `period`, for an `at` of at least -before.
Index periodic(const Index& at, const Dim& before, const Dim& period) {
    // A whole number of periods is added, so that the dividend is never negative.
    return mod(at + Index(ceil_div(before, period) * period), period);
}

Source source_of(loopir::Builder& b, Mode mode, const Index& at, const Dim& extent, const Dim& before) {
    Source source;
    switch (mode) {
        case Mode::constant:
            source.position = at;
            break;
        case Mode::edge: {
            const ValueId zero = b.constant_int(0, DType::int64);
            const ValueId clamped = b.op(ScalarOp::max, b.index_value(at), zero);
            source.position = Index::value(b.op(ScalarOp::min, clamped, b.index_value(extent - 1)));
            break;
        }
        case Mode::reflect: {
            // One element is its own mirror image: the period is then 1.
            const Dim period = max((extent - 1) * 2, 1);
            const Index phase = periodic(at, before, period);
            source.position = smaller_of(b, phase, Index((extent - 1) * 2) - phase);
            break;
        }
        case Mode::symmetric: {
            const Dim period = extent * 2;
            const Index phase = periodic(at, before, period);
            source.position = smaller_of(b, phase, Index(period - 1) - phase);
            break;
        }
        case Mode::wrap:
            source.position = periodic(at, before, extent);
            break;
        case Mode::antiwrap: {
            const Index phase = periodic(at, before, extent * 2);
            source.position = mod(phase, extent);
            source.negated = b.op(ScalarOp::le, b.index_value(extent), b.index_value(phase));
            break;
        }
    }
    return source;
}

Value negated_where(ElementContext& c, ValueId predicate, const Value& x) {
    if (predicate == loopir::no_value) return x;
    Value negative{c.b.op(ScalarOp::neg, x.re)};
    if (x.is_complex()) negative.im = c.b.op(ScalarOp::neg, x.im);
    return c.select(predicate, negative, x);
}

bool is_zero(const Dim& dim) {
    return dim.is_known() && dim.value() == 0;
}

void check_padding(const OpView& v, const char* name, std::int64_t amount) {
    if (amount >= 0) return;
    v.fail(concat(name, " has a padding of ", amount, "; paddings must be 0 or more, and slice removes elements"));
}

void check_sign(const OpView& v) {
    if (mode_of(v) == Mode::antiwrap) {
        require(v, 0, numbers, "use mode=\"wrap\", since bools have no sign, or cast to a number");
    }
}

// The extent after padding, with checks.
Dim padded_extent(const OpView& v, const Dim& extent, std::int64_t left, std::int64_t right) {
    if (is_zero(extent) && left + right > 0 && mode_of(v) != Mode::constant) {
        v.fail(concat("mode \"", v.string("mode"),
                      "\" copies elements, but the axis to pad has none; use mode=\"constant\""));
    }
    return extent + Dim(left) + Dim(right);
}

Shape padded_shape(const OpView& v) {
    const Shape& shape = v.in_shape(0);
    const Axes& left = v.integers("left");
    const Axes& right = v.integers("right");
    if (left.size() != right.size() || (shape.has_rank() && left.size() != static_cast<std::size_t>(shape.rank()))) {
        v.fail(concat("left has ", left.size(), " entries and right ", right.size(), ", but ",
                      shape.has_rank() ? concat("the input of shape ", shape.str(), " has ", shape.rank(), " axes")
                                       : std::string("both must have one for each axis"),
                      "; give two paddings for each axis, 0 for none"));
    }
    std::vector<Dim> dims;
    for (std::size_t axis = 0; axis < left.size(); ++axis) {
        check_padding(v, "left", left[axis]);
        check_padding(v, "right", right[axis]);
        const Dim extent = shape.has_rank() ? shape[static_cast<int>(axis)] : Dim::unknown();
        dims.push_back(padded_extent(v, extent, left[axis], right[axis]));
    }
    return Shape(std::move(dims));
}

// A mode other than constant is the same map along one axis after the other, and so is the adjoint.
Tensor pad_gradient(GradientContext& g) {
    const Axes& left = g.op.integers("left");
    const Axes& right = g.op.integers("right");
    if (mode_of(g.op) == Mode::constant) {
        Axes stops;
        for (const std::int64_t amount : right) {
            stops.push_back(amount == 0 ? std::numeric_limits<std::int64_t>::max() : -amount);
        }
        return apply("slice", {g.grad()}, {{"starts", left}, {"stops", stops}});
    }
    Tensor gradient = g.grad();
    for (std::size_t axis = 0; axis < left.size(); ++axis) {
        if (left[axis] == 0 && right[axis] == 0) continue;
        gradient = apply("pad_gradient", {gradient},
                         {{"axis", static_cast<std::int64_t>(axis)},
                          {"left", left[axis]},
                          {"right", right[axis]},
                          {"mode", g.op.attribute("mode")}});
    }
    return gradient;
}

OpDef pad() {
    OpDef def;
    def.name = "pad";
    def.family = "slicing";
    def.doc =
        "The input with elements added before and after it along each axis. The modes are those of NumPy's pad; "
        "paddings "
        "wider than the input repeat the pattern. \"antiwrap\" is MPSGraph's anti-periodic mode. An axis of length 1 "
        "is "
        "its own reflection.";
    def.args = {{"x", "any tensor"}};
    def.attributes = {required_attr("left", AttributeKind::integers, "how many elements to add before each axis"),
                      required_attr("right", AttributeKind::integers, "how many elements to add after each axis"),
                      mode_attribute("constant", {"constant", "edge", "reflect", "symmetric", "wrap", "antiwrap"}),
                      real_attr("value", 0.0, "the new elements of mode \"constant\", converted to the input's dtype")};
    def.results = {"y"};
    def.infer = [](const OpView& v) {
        check_sign(v);
        return std::vector{TensorType{v.input(0).dtype, padded_shape(v)}};
    };
    def.body = ElementBody{[](ElementContext& c, const Indices& at) {
        const Shape& shape = c.op.in_shape(0);
        const Axes& left = c.op.integers("left");
        const Axes& right = c.op.integers("right");
        const Mode mode = mode_of(c.op);
        if (mode != Mode::constant && surely_empty(shape)) return c.constant_int(0, c.op.output().dtype);
        Indices index = at;
        ValueId inside = loopir::no_value;
        ValueId negated = loopir::no_value;
        for (std::size_t axis = 0; axis < left.size(); ++axis) {
            if (left[axis] == 0 && right[axis] == 0) continue;
            const Dim& extent = shape[static_cast<int>(axis)];
            index[axis] = at[axis] - Index(left[axis]);
            if (mode == Mode::constant) {
                inside = both(c.b, inside, within(c.b, index[axis], extent));
                continue;
            }
            Source source = source_of(c.b, mode, index[axis], extent, left[axis]);
            index[axis] = std::move(source.position);
            if (source.negated == loopir::no_value) continue;
            negated = negated == loopir::no_value ? source.negated : c.b.op(ScalarOp::bit_xor, negated, source.negated);
        }
        if (inside == loopir::no_value) return negated_where(c, negated, c.operand(0, index));
        const DType dtype = c.op.output().dtype;
        const NDArray value = NDArray::scalar(c.op.real("value"), dtype);
        const bool whole = is_integer(dtype) || dtype == DType::boolean;
        return c.guarded(
            inside, [&] { return c.operand(0, index); },
            whole ? c.constant_int(static_cast<std::int64_t>(value.at(0)), dtype) : c.constant(value.at(0), dtype));
    }};
    def.gradient = GradientRule{[](GradientContext& g) { return std::vector{pad_gradient(g)}; }};
    def.mpsgraph = {"padTensor"};
    def.onnx = "Pad";
    return def;
}

// --- The adjoint along one axis: each element of the input gathers its copies.

// The copies lie in blocks: block number `block` of the padded axis, counted from the input itself, holds one copy of
// each element, straight or mirrored.
struct Blocks {
    Dim length = 1;  // the distance of the blocks
    Dim first = 0;   // how many lie before the input
    Dim count = 1;
    bool alternating = false;  // every other one is mirrored (reflect, symmetric) or negated (antiwrap)
};

Blocks blocks_of(Mode mode, const Dim& extent, std::int64_t left, std::int64_t right) {
    Blocks blocks;
    // Mirror images share their edge in mode reflect, and those of a single element lie side by side.
    blocks.length = mode == Mode::reflect ? max(extent - 1, 1) : extent;
    if (is_zero(blocks.length)) return blocks;  // there is no element
    blocks.first = ceil_div(left, blocks.length);
    Dim last = ceil_div(right, blocks.length);
    if (mode == Mode::reflect) {
        // The shared edges are counted with the straight blocks, of which one more may reach in on both sides.
        blocks.first = blocks.first + 1;
        last = last + 1;
    }
    blocks.count = blocks.first + last + 1;
    blocks.alternating = mode != Mode::wrap;
    return blocks;
}

struct Copy {
    Index position;  // in the padded axis
    ValueId exists = loopir::no_value;
    ValueId negated = loopir::no_value;
};

Copy copy_in_block(loopir::Builder& b, Mode mode, const Blocks& blocks, const Index& block, const Index& at,
                   const Dim& extent, const Dim& padded, std::int64_t left) {
    const Index start = Index(left) + (block - Index(blocks.first)) * blocks.length;
    Copy copy;
    copy.position = start + at;
    if (blocks.alternating) {
        const Index parity = mod(block + Index(blocks.first), 2);
        const ValueId is_odd = b.op(ScalarOp::eq, b.index_value(parity), b.constant_int(1, DType::int64));
        if (mode == Mode::antiwrap) {
            copy.negated = is_odd;
        } else {
            const ValueId mirrored = b.index_value(start + Index(extent - 1) - at);
            copy.position = Index::value(b.select(is_odd, mirrored, b.index_value(copy.position)));
        }
        if (mode == Mode::reflect) {
            // An edge belongs to the straight block, unless it is the only element.
            const ValueId at_value = b.index_value(at);
            const ValueId inner = b.op(ScalarOp::bit_and, b.op(ScalarOp::lt, b.constant_int(0, DType::int64), at_value),
                                       b.op(ScalarOp::lt, at_value, b.index_value(extent - 1)));
            const ValueId single = b.op(ScalarOp::eq, b.index_value(extent), b.constant_int(1, DType::int64));
            const ValueId straight = b.op(ScalarOp::bit_not, is_odd);
            copy.exists = b.op(ScalarOp::bit_or, straight, b.op(ScalarOp::bit_or, inner, single));
        }
    }
    copy.exists = both(b, copy.exists, within(b, copy.position, padded));
    return copy;
}

// The edge elements gather the padding: offset `shift` from the element's own place, of which the place itself is
// number `left`.
Copy copy_of_edge(loopir::Builder& b, const Index& shift, const Index& at, const Dim& extent, std::int64_t left) {
    const ValueId own = b.constant_int(left, DType::int64);
    const ValueId shift_value = b.index_value(shift);
    const ValueId at_value = b.index_value(at);
    const ValueId before = b.op(ScalarOp::bit_and, b.op(ScalarOp::lt, shift_value, own),
                                b.op(ScalarOp::eq, at_value, b.constant_int(0, DType::int64)));
    const ValueId after = b.op(ScalarOp::bit_and, b.op(ScalarOp::lt, own, shift_value),
                               b.op(ScalarOp::eq, at_value, b.index_value(extent - 1)));
    Copy copy;
    copy.position = at + shift;
    copy.exists = b.op(ScalarOp::bit_or, b.op(ScalarOp::eq, shift_value, own), b.op(ScalarOp::bit_or, before, after));
    return copy;
}

OpDef pad_gradient() {
    OpDef def;
    def.name = "pad_gradient";
    def.internal = true;
    def.family = "slicing";
    def.doc =
        "The adjoint of pad along one axis, for the modes that copy elements: for each element of the unpadded axis "
        "the "
        "sum over its copies.";
    def.args = {{"gradient", "numbers, of the padded shape"}};
    def.attributes = {axis_attr(-1), required_attr("left", AttributeKind::integer, "the padding before the axis"),
                      required_attr("right", AttributeKind::integer, "the padding after it"),
                      mode_attribute("edge", {"edge", "reflect", "symmetric", "wrap", "antiwrap"})};
    def.results = {"y"};
    def.infer = [](const OpView& v) {
        require_numeric(v, 0);
        const std::int64_t left = v.integer("left");
        const std::int64_t right = v.integer("right");
        check_padding(v, "left", left);
        check_padding(v, "right", right);
        const Shape& shape = v.in_shape(0);
        if (!shape.has_rank()) return same_type(v);
        const int axis = normalized_axis(v, "axis", shape.rank());
        std::vector<Dim> dims = shape.dims();
        Dim& extent = dims[static_cast<std::size_t>(axis)];
        extent = extent - Dim(left) - Dim(right);
        if (extent.is_known() && extent.value() < (left + right > 0 ? 1 : 0)) {
            v.fail(concat("axis ", axis, " of the input of shape ", shape.str(), " is too short for paddings of ", left,
                          " and ", right));
        }
        return std::vector{TensorType{v.input(0).dtype, Shape(std::move(dims))}};
    };
    const auto axis_of = [](const OpView& v) { return normalized_axis(v, "axis", v.in_shape(0).rank()); };
    ReduceBody body;
    body.combiner = [](const OpView&) { return Combiner::sum; };
    body.domain = [axis_of](const OpView& v) {
        if (mode_of(v) == Mode::edge) return std::vector<Dim>{Dim(v.integer("left")) + Dim(v.integer("right")) + 1};
        return std::vector<Dim>{
            blocks_of(mode_of(v), v.out_shape()[axis_of(v)], v.integer("left"), v.integer("right")).count};
    };
    body.element = [axis_of](ElementContext& c, const Indices& at, const Indices& domain) {
        if (surely_empty(c.op.out_shape())) return c.constant_int(0, c.op.output().dtype);
        const int axis = axis_of(c.op);
        const Dim& extent = c.op.out_shape()[axis];
        const Dim& padded = c.op.in_shape(0)[axis];
        const std::int64_t left = c.op.integer("left");
        const Mode mode = mode_of(c.op);
        Indices index = at;
        Index& along = index[static_cast<std::size_t>(axis)];
        const Blocks blocks = blocks_of(mode, extent, left, c.op.integer("right"));
        const Copy copy = mode == Mode::edge ? copy_of_edge(c.b, domain[0], along, extent, left)
                                             : copy_in_block(c.b, mode, blocks, domain[0], along, extent, padded, left);
        along = copy.position;
        return guarded_or_zero(c, copy.exists, c.op.output().dtype,
                               [&] { return negated_where(c, copy.negated, c.operand(0, index)); });
    };
    def.body = std::move(body);
    def.gradient = GradientRule{[](GradientContext& g) {
        const std::int64_t axis = g.op.integer("axis");
        if (!g.grad().shape().has_rank()) {
            g.op.fail(
                "its gradient needs a tensor of known rank; give the placeholder a shape, with -1 for unknown dims");
        }
        const int rank = g.grad().rank();
        const auto place = static_cast<std::size_t>(normalized_axis(g.op, axis, rank));
        Axes left(static_cast<std::size_t>(rank), 0);
        Axes right = left;
        left[place] = g.op.integer("left");
        right[place] = g.op.integer("right");
        return std::vector{
            apply("pad", {g.grad()}, {{"left", left}, {"right", right}, {"mode", g.op.attribute("mode")}})};
    }};
    def.mpsgraph = {"padGradient"};
    return def;
}

}  // namespace

std::vector<OpDef> padding_ops() {
    return {pad(), pad_gradient()};
}

}  // namespace topstitch::ops
