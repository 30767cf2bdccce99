// Parts of tensors: slice and slice_update, with Python's rules for positions.
// The arithmetic of positions is in indexing_rules.cpp.
#include <limits>

#include "ops/expr.h"
#include "ops/families.h"
#include "ops/indexing_rules.h"
#include "ops/rules.h"

namespace topstitch::ops {

namespace {

std::vector<AttrDef> slice_attributes() {
    return {
        required_attr("starts", AttributeKind::integers,
                      "the first position of each axis; negative counts from the end, out of range is clamped"),
        required_attr("stops", AttributeKind::integers,
                      "the position before which each axis ends, in the order of the step; the largest int64 stands "
                      "for \"up to the last\" and the lowest, with a negative step, for \"down to the first\""),
        optional_attr("steps", AttributeKind::integers, Attribute(), "the distances, not 0; none means 1"),
        optional_attr("axes", AttributeKind::integers, Attribute(),
                      "the axis of each entry; none means the leading ones")};
}

NamedAttributes slice_attributes_of(const OpView& v) {
    NamedAttributes attributes;
    for (const char* name : {"starts", "stops", "steps", "axes"}) attributes.emplace_back(name, v.attribute(name));
    return attributes;
}

void check_slice_lists(const OpView& v) {
    const std::size_t count = v.integers("starts").size();
    const auto check = [&](const char* name) {
        if (!v.has(name) || v.integers(name).size() == count) return;
        v.fail(concat("starts has ", count, " entries, but ", name, " has ", v.integers(name).size(),
                      "; give one for each sliced axis"));
    };
    check("stops");
    check("steps");
    check("axes");
    if (!v.has("steps")) return;
    for (const std::int64_t step : v.integers("steps")) {
        if (step == 0) v.fail("a step is 0; use a positive step to go forward, or a negative one to go back");
    }
}

// One range for each axis of `shape`; axes that are not sliced are taken whole.
std::vector<SliceRange> slice_ranges(const OpView& v, const Shape& shape) {
    const std::vector<std::int64_t>& starts = v.integers("starts");
    const std::vector<std::int64_t>& stops = v.integers("stops");
    std::vector<SliceRange> ranges;
    for (const Dim& extent : shape.dims()) ranges.push_back({0, 1, extent});
    std::vector<int> axes;
    if (v.has("axes")) {
        axes = normalized_axes(v, "axes", shape.rank());
    } else {
        if (starts.size() > ranges.size()) {
            v.fail(
                concat(starts.size(), " axes are sliced, but the input of shape ", shape.str(), " has ", shape.rank()));
        }
        for (std::size_t k = 0; k < starts.size(); ++k) axes.push_back(static_cast<int>(k));
    }
    for (std::size_t k = 0; k < axes.size(); ++k) {
        const std::int64_t step = v.has("steps") ? v.integers("steps")[k] : 1;
        ranges[static_cast<std::size_t>(axes[k])] = slice_range(shape[axes[k]], starts[k], stops[k], step);
    }
    return ranges;
}

Shape sliced_shape(const OpView& v, const Shape& shape) {
    check_slice_lists(v);
    if (!shape.has_rank()) return Shape::unranked();
    std::vector<Dim> dims;
    for (SliceRange& range : slice_ranges(v, shape)) dims.push_back(std::move(range.length));
    return Shape(std::move(dims));
}

OpDef slice() {
    OpDef def;
    def.name = "slice";
    def.family = "slicing";
    def.doc =
        "The elements at start, start + step, ... before stop, along each listed axis, with the rules of Python's "
        "slices: "
        "negative positions count from the end, positions out of range are clamped, and a negative step goes back.";
    def.args = {{"x", "any tensor"}};
    def.attributes = slice_attributes();
    def.results = {"y"};
    def.infer = [](const OpView& v) {
        return std::vector{TensorType{v.input(0).dtype, sliced_shape(v, v.in_shape(0))}};
    };
    def.body = ElementBody{[](ElementContext& c, const Indices& at) {
        const std::vector<SliceRange> ranges = slice_ranges(c.op, c.op.in_shape(0));
        Indices index;
        for (std::size_t axis = 0; axis < at.size(); ++axis) {
            index.push_back(Index(ranges[axis].start) + at[axis] * Dim(ranges[axis].step));
        }
        return c.operand(0, index);
    }};
    def.gradient = GradientRule{[](GradientContext& g) {
        return std::vector{apply("slice_update", {expr::zeros_like(g.input()), g.grad()}, slice_attributes_of(g.op))};
    }};
    def.view = true;
    def.mpsgraph = {"slice"};
    def.onnx = "Slice";
    return def;
}

OpDef slice_update() {
    OpDef def;
    def.name = "slice_update";
    def.family = "slicing";
    def.doc =
        "The first tensor with a slice of it replaced by the second, which broadcasts to the slice's shape: NumPy's "
        "data[start:stop:step] = update, as a new tensor. Positions follow the rules of slice.";
    def.args = {{"data", "any tensor"}, {"update", "what the slice becomes, of the same dtype"}};
    def.attributes = slice_attributes();
    def.results = {"y"};
    def.infer = [](const OpView& v) {
        require_same_dtype(v);
        const Shape slice = sliced_shape(v, v.in_shape(0));
        const Shape& update = v.in_shape(1);
        const bool ranked = slice.has_rank() && update.has_rank();
        bool fits = !ranked || update.rank() <= slice.rank();
        for (int k = 1; ranked && fits && k <= update.rank(); ++k) {
            Dim together;
            const Dim& target = slice[slice.rank() - k];
            fits = broadcast_dims(update[update.rank() - k], target, together) && dims_agree(together, target);
        }
        if (!fits) {
            v.fail(concat("input `update` has shape ", update.str(), ", but the slice of `data` has ", slice.str(),
                          "; the update must broadcast to it"));
        }
        return std::vector{v.input(0)};
    };
    def.body = ElementBody{[](ElementContext& c, const Indices& at) {
        const std::vector<SliceRange> ranges = slice_ranges(c.op, c.op.in_shape(0));
        std::vector<Dim> slice_dims;
        Indices in_slice;
        loopir::ValueId taken = loopir::no_value;
        for (std::size_t axis = 0; axis < at.size(); ++axis) {
            SlicePosition position = position_in_slice(c.b, ranges[axis], at[axis]);
            taken = both(c.b, taken, position.taken);
            in_slice.push_back(std::move(position.position));
            slice_dims.push_back(ranges[axis].length);
        }
        const Indices index = broadcast_index(c.op.in_shape(1), Shape(std::move(slice_dims)), in_slice);
        if (taken == loopir::no_value) return c.operand(1, index);
        const Value data = c.operand(0, at);
        return c.guarded(taken, [&] { return c.operand(1, index); }, data);
    }};
    def.gradient = GradientRule{[](GradientContext& g) {
        const NamedAttributes attributes = slice_attributes_of(g.op);
        return std::vector{
            if_needed(g, 0,
                      [&] { return apply("slice_update", {g.grad(), expr::zeros_like(g.input(1))}, attributes); }),
            if_needed(g, 1, [&] { return expr::sum_like(apply("slice", {g.grad()}, attributes), g.input(1)); })};
    }};
    def.mpsgraph = {"sliceUpdateDataTensor", "sliceGradient"};
    return def;
}

}  // namespace

std::vector<OpDef> slicing_ops() {
    return {slice(), slice_update()};
}

}  // namespace topstitch::ops
