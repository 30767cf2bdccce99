// Operations about positions: coordinates, one_hot, band_part, tril, triu.
// What lies outside is selected away, never multiplied by 0, so that NaN and infinity cannot leak.
#include <limits>
#include <optional>

#include "ops/expr.h"
#include "ops/families.h"
#include "ops/indexing_rules.h"
#include "ops/rules.h"

namespace topstitch::ops {

namespace {

using loopir::ScalarOp;
using loopir::ValueId;

// The position `index` as a value of dtype `dtype`.
Value position_value(ElementContext& c, const Index& index, DType dtype) {
    Value value{c.b.cast(c.b.index_value(index), compute_type(dtype))};
    if (is_complex(dtype)) value.im = c.b.constant(0.0, compute_type(dtype));
    return value;
}

OpDef coordinates() {
    OpDef def;
    def.name = "coordinates";
    def.family = "indexing";
    def.doc =
        "Each element's position along an axis: result[i, j, ...] is i for axis 0, j for axis 1, ... The shape is "
        "given, "
        "or is that of another tensor.";
    ArgDef like;
    like.name = "like";
    like.doc = "a tensor with the shape of the result; only its shape matters";
    like.optional = true;
    def.args = {std::move(like)};
    def.attributes = {axis_attr(0),
                      optional_attr("shape", AttributeKind::shape, Attribute(), "the shape, when no tensor is given"),
                      optional_attr("dtype", AttributeKind::dtype, DType::int32, "the dtype of the result")};
    def.results = {"position"};
    def.infer = [](const OpView& v) {
        const bool from_tensor = v.num_inputs() > 0;
        if (from_tensor == v.has("shape")) v.fail("give either a tensor `like` or a shape");
        const Shape& shape = from_tensor ? v.in_shape(0) : v.shape("shape");
        if (v.dtype("dtype") == DType::boolean)
            v.fail_type("dtype is bool, which holds no positions; use an integer dtype");
        if (shape.has_rank()) normalized_axis(v, "axis", shape.rank());
        for (const Dim& dim : shape.dims()) {
            if (!from_tensor && dim.is_unknown()) {
                v.fail(
                    concat("the shape ", shape.str(), " has an unknown dim; give its length or its name, or a tensor"));
            }
        }
        return std::vector{TensorType{v.dtype("dtype"), shape}};
    };
    def.body = ElementBody{[](ElementContext& c, const Indices& at) {
        const int axis = normalized_axis(c.op, "axis", c.op.out_shape().rank());
        return position_value(c, at[static_cast<std::size_t>(axis)], c.op.output().dtype);
    }};
    def.gradient = GradientRule{[](GradientContext& g) { return std::vector<Tensor>(g.inputs().size()); }};
    def.mpsgraph = {"coordinateAlongAxis"};
    return def;
}

OpDef one_hot() {
    OpDef def;
    def.name = "one_hot";
    def.family = "indexing";
    def.doc =
        "Along a new axis of length `depth`, on_value at the position that the index names, and off_value elsewhere. "
        "An "
        "index outside of [0, depth) gives off_value only.";
    def.args = {{"indices", "integers"}};
    def.attributes = {required_attr("depth", AttributeKind::integer, "the length of the new axis"),
                      axis_attr(-1, "where the new axis is in the result; negative counts from its end"),
                      optional_attr("dtype", AttributeKind::dtype, DType::float32, "the dtype of the result"),
                      real_attr("on_value", 1.0, "the value at the index"),
                      real_attr("off_value", 0.0, "the value elsewhere")};
    def.results = {"y"};
    def.infer = [](const OpView& v) {
        require_integer(v, 0);
        if (v.integer("depth") < 0) v.fail(concat("depth is ", v.integer("depth"), "; it must be 0 or more"));
        const Shape& shape = v.in_shape(0);
        if (!shape.has_rank()) return std::vector{TensorType{v.dtype("dtype"), Shape::unranked()}};
        std::vector<Dim> dims = shape.dims();
        dims.insert(dims.begin() + normalized_axis(v, "axis", shape.rank() + 1), Dim(v.integer("depth")));
        return std::vector{TensorType{v.dtype("dtype"), Shape(std::move(dims))}};
    };
    def.body = ElementBody{[](ElementContext& c, const Indices& at) {
        const int axis = normalized_axis(c.op, "axis", c.op.out_shape().rank());
        Indices index = at;
        index.erase(index.begin() + axis);
        const ValueId wanted = c.b.cast(c.operand(0, index).re, DType::int64);
        const ValueId here = c.b.op(ScalarOp::eq, wanted, c.b.index_value(at[static_cast<std::size_t>(axis)]));
        const DType dtype = c.op.output().dtype;
        const auto value_of = [&](const char* name) {
            const double value = NDArray::scalar(c.op.real(name), dtype).at(0);
            const bool whole = is_integer(dtype) || dtype == DType::boolean;
            return whole ? c.constant_int(static_cast<std::int64_t>(value), dtype) : c.constant(value, dtype);
        };
        return c.select(here, value_of("on_value"), value_of("off_value"));
    }};
    def.gradient = GradientRule{[](GradientContext&) { return std::vector<Tensor>(1); }};
    def.mpsgraph = {"oneHotWithIndicesTensor"};
    def.onnx = "OneHot";
    return def;
}

// --- Parts of matrices, in the last two axes

// Which of the diagonals j - i are kept; without a bound, all on that side.
struct Band {
    std::optional<std::int64_t> lowest;
    std::optional<std::int64_t> highest;
};

Value keep_band(ElementContext& c, const Indices& at, const Band& band) {
    const Index diagonal = at[at.size() - 1] - at[at.size() - 2];
    ValueId kept = loopir::no_value;
    if (band.lowest) {
        kept = c.b.op(ScalarOp::le, c.b.constant_int(*band.lowest, DType::int64), c.b.index_value(diagonal));
    }
    if (band.highest) {
        kept = both(c.b, kept,
                    c.b.op(ScalarOp::le, c.b.index_value(diagonal), c.b.constant_int(*band.highest, DType::int64)));
    }
    return guarded_or_zero(c, kept, c.op.output().dtype, [&] { return c.operand(0, at); });
}

OpDef band_op(std::string name, std::string doc, std::vector<AttrDef> attributes,
              const std::function<Band(const OpView&)>& band_of) {
    OpDef def;
    def.name = std::move(name);
    def.family = "indexing";
    def.doc = std::move(doc);
    def.args = {{"x", "a tensor of rank 2 or more"}};
    def.attributes = std::move(attributes);
    def.results = {"y"};
    def.infer = [](const OpView& v) {
        const Shape& shape = v.in_shape(0);
        if (shape.has_rank() && shape.rank() < 2) {
            v.fail(concat("input `x` has shape ", shape.str(), ", but matrices are needed: two dims or more"));
        }
        return same_type(v);
    };
    def.body = ElementBody{[band_of](ElementContext& c, const Indices& at) { return keep_band(c, at, band_of(c.op)); }};
    def.gradient = GradientRule{[](GradientContext& g) {
        return std::vector{apply(g.op.def().name, {g.grad()}, shared_attributes(g.op, g.op.def()))};
    }};
    return def;
}

OpDef band_part() {
    OpDef def = band_op(
        "band_part",
        "The matrices of the last two axes with everything outside of a band around the diagonal set to 0: element (i, "
        "j) "
        "is kept when i - j <= num_lower and j - i <= num_upper, where a negative number keeps all on that side.",
        {required_attr("num_lower", AttributeKind::integer,
                       "how many diagonals below the main one to keep, or -1 for all"),
         required_attr("num_upper", AttributeKind::integer, "how many diagonals above it to keep, or -1 for all")},
        [](const OpView& v) {
            Band band;
            if (v.integer("num_lower") >= 0) band.lowest = -v.integer("num_lower");
            if (v.integer("num_upper") >= 0) band.highest = v.integer("num_upper");
            return band;
        });
    def.mpsgraph = {"bandPartWithTensor"};
    return def;
}

AttrDef diagonal_attribute() {
    return optional_attr("k", AttributeKind::integer, std::int64_t{0},
                         "the diagonal: 0 is the main one, positive ones lie above it, negative ones below");
}

OpDef tril() {
    return band_op("tril", "The matrices of the last two axes with everything above diagonal number k set to 0.",
                   {diagonal_attribute()}, [](const OpView& v) { return Band{std::nullopt, v.integer("k")}; });
}

OpDef triu() {
    OpDef def = band_op("triu", "The matrices of the last two axes with everything below diagonal number k set to 0.",
                        {diagonal_attribute()}, [](const OpView& v) { return Band{v.integer("k"), std::nullopt}; });
    def.onnx = "Trilu";
    return def;
}

}  // namespace

std::vector<OpDef> indexing_ops() {
    return {coordinates(), one_hot(), band_part(), tril(), triu()};
}

}  // namespace topstitch::ops
