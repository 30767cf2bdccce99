// Pooling: the maximum, the average or the Euclidean norm of sliding windows, along one to four axes.
// Composites over the primitives of window.cpp and window_taps.cpp.
#include "ops/expr.h"
#include "ops/families.h"
#include "ops/window_op.h"

namespace topstitch::ops {

namespace {

using expr::operator/;

// Windows over four axes are those of MPSGraph: they lie on the last four axes, whatever these are.
bool has_layout(int axes) {
    return axes <= 3;
}

// How many axes follow the spatial ones: the channels, when they are last.
int trailing_axes(const OpView& v, int axes) {
    return has_layout(axes) && v.string("data_layout") == channels_last(axes) ? 1 : 0;
}

// The attributes that the primitives take.
NamedAttributes windows(const OpView& v, int axes, NamedAttributes more = {}) {
    NamedAttributes attributes = same_window(v);
    attributes.emplace_back("kernel", numbers_for_axes(v, "kernel", axes, 1));
    attributes.emplace_back("ceil_mode", v.attribute("ceil_mode"));
    attributes.emplace_back("trailing", std::int64_t{trailing_axes(v, axes)});
    for (auto& attribute : more) attributes.push_back(std::move(attribute));
    return attributes;
}

Shape pooled_shape(const OpView& v, int axes) {
    if (has_layout(axes)) require_layout(v, 0, v.string("data_layout"));
    const Shape& shape = v.in_shape(0);
    return shape_of_windows(shape, axes_of(v, shape, axes, trailing_axes(v, axes)));
}

OpDef pool_op(std::string name, std::string doc, int axes) {
    OpDef def;
    def.name = std::move(name);
    def.family = "pooling";
    def.doc = std::move(doc);
    def.args = {{"x", has_layout(axes)
                          ? concat("a tensor of rank ", axes + 2)
                          : std::string("a tensor of rank 4 or more, of which the last 4 axes are pooled")}};
    def.attributes = {required_attr("kernel", AttributeKind::integers,
                                    "the extents of the window along the spatial axes; one number for all or one for "
                                    "each")};
    for (AttrDef& attribute : window_attributes(DefaultStride::kernel)) def.attributes.push_back(std::move(attribute));
    def.attributes.push_back(flag_attr("ceil_mode", false,
                                       "round the number of windows up, so that the last one may reach beyond the "
                                       "padding; it begins inside of the input or of the padding before it"));
    if (has_layout(axes)) def.attributes.push_back(data_layout_attr(axes));
    def.results = {"y"};
    def.gradient = FromExpansion{};
    return def;
}

std::string pool_name(const char* kind, int axes, const char* suffix = "") {
    return concat(kind, "_pool", axes, "d", suffix);
}

// "over windows of ..."
std::string where_windows_lie(int axes) {
    if (axes == 1) return "a window that slides along one spatial axis";
    if (axes == 4) return "a window that slides along the last four axes";
    return concat("a window that slides along ", axes == 2 ? "two" : "three", " spatial axes");
}

std::vector<std::string> mpsgraph_names(int axes, const std::string& kind, const std::string& suffix = "") {
    const bool has_counterpart = axes == 4 || (axes == 2 && kind != "L2Norm");
    if (!has_counterpart) return {};
    return {concat(kind, "Pooling", axes, "D", suffix)};
}

constexpr const char* max_doc =
    " Padding never wins; a window that has nothing but padding gives -infinity, or the lowest integer. A NaN in the "
    "window is the result. Of equal elements the first in row-major order counts, and gets the gradient.";

OpDef max_pool(int axes) {
    OpDef def =
        pool_op(pool_name("max", axes), concat("The largest element in ", where_windows_lie(axes), ".", max_doc), axes);
    def.infer = [axes](const OpView& v) {
        require(v, 0, reals);
        return std::vector{TensorType{v.input(0).dtype, pooled_shape(v, axes)}};
    };
    def.body = CompositeBody{
        [axes](CompositeContext& c) { return std::vector{apply("window_max", {c.input(0)}, windows(c.op, axes))}; }};
    def.mpsgraph = mpsgraph_names(axes, "max");
    if (has_layout(axes)) def.onnx = "MaxPool";
    return def;
}

OpDef max_pool_with_indices(int axes) {
    OpDef def = pool_op(pool_name("max", axes, "_with_indices"),
                        concat("The largest element in ", where_windows_lie(axes), ", and where it lies.", max_doc,
                               " Its index is that of the first NaN, if there is one, and -1 for a window that has "
                               "nothing but padding."),
                        axes);
    def.attributes.push_back(
        choice_attr("index_mode", "global", {"global", "local"},
                    "whether an index is the flat position among the spatial axes of the input, without padding, or "
                    "that of the element in the window; both row-major, in the order of depth, height and width"));
    def.attributes.push_back(optional_attr("index_dtype", AttributeKind::dtype, DType::int32, "int32 or int64"));
    def.results = {"y", "indices"};
    def.infer = [axes](const OpView& v) {
        require(v, 0, reals);
        const DType index = v.dtype("index_dtype");
        if (index != DType::int32 && index != DType::int64) {
            v.fail_type(
                concat("index_dtype is ", name_of(index), ", but indices are int32 or int64; use cast afterwards"));
        }
        const Shape shape = pooled_shape(v, axes);
        return std::vector{TensorType{v.input(0).dtype, shape}, TensorType{index, shape}};
    };
    def.body = CompositeBody{[axes](CompositeContext& c) {
        const Tensor& x = c.input(0);
        const Tensor y = apply("window_max", {x}, windows(c.op, axes));
        const Tensor taps = apply("window_argmax", {x}, windows(c.op, axes));
        const Tensor indices =
            apply("window_position", {taps, x},
                  windows(c.op, axes,
                          {{"index_mode", c.op.attribute("index_mode")}, {"dtype", c.op.attribute("index_dtype")}}));
        return std::vector{y, indices};
    }};
    def.mpsgraph = mpsgraph_names(axes, "max", "ReturnIndices");
    if (has_layout(axes)) def.onnx = "MaxPool";
    return def;
}

OpDef avg_pool(int axes) {
    OpDef def = pool_op(pool_name("avg", axes),
                        concat("The arithmetic mean of the elements in ", where_windows_lie(axes),
                               ". Only elements of the input are counted, unless include_padding says otherwise; a "
                               "window that has none gives 0. float16 and bfloat16 are computed in float32."),
                        axes);
    def.attributes.push_back(flag_attr("include_padding", false,
                                       "divide by the number of elements with the zeros of the padding (PyTorch's "
                                       "count_include_pad), but without what lies beyond it in ceil_mode"));
    def.infer = [axes](const OpView& v) {
        require_floating(v, 0);
        return std::vector{TensorType{v.input(0).dtype, pooled_shape(v, axes)}};
    };
    def.body = CompositeBody{[axes](CompositeContext& c) {
        const Tensor x = widened(c.input(0));
        const Tensor total = apply("window_sum", {x}, windows(c.op, axes));
        const Tensor count =
            apply("window_count", {x},
                  windows(c.op, axes, {{"include_padding", c.op.attribute("include_padding")}, {"dtype", x.dtype()}}));
        return std::vector{narrowed(total / count, c.input(0).dtype())};
    }};
    def.mpsgraph = mpsgraph_names(axes, "avg");
    if (has_layout(axes)) def.onnx = "AveragePool";
    return def;
}

OpDef l2_pool(int axes) {
    OpDef def = pool_op(pool_name("l2", axes),
                        concat("The Euclidean norm, sqrt(sum(x**2)), of the elements in ", where_windows_lie(axes),
                               ". It overflows where the squares do. Where it is 0, its gradient is 0. float16 and "
                               "bfloat16 are computed in float32."),
                        axes);
    def.infer = [axes](const OpView& v) {
        require_floating(v, 0);
        return std::vector{TensorType{v.input(0).dtype, pooled_shape(v, axes)}};
    };
    def.body = CompositeBody{[axes](CompositeContext& c) {
        const Tensor x = widened(c.input(0));
        const Tensor total = apply("window_sum", {expr::square(x)}, windows(c.op, axes));
        // The root is taken of 1 instead of 0, where its slope would be infinite.
        const Tensor zero = expr::constant_like(0, total);
        const Tensor is_zero = expr::equal(total, zero);
        const Tensor root = expr::sqrt(expr::where(is_zero, expr::constant_like(1, total), total));
        return std::vector{narrowed(expr::where(is_zero, zero, root), c.input(0).dtype())};
    }};
    def.mpsgraph = mpsgraph_names(axes, "L2Norm");
    if (has_layout(axes)) def.onnx = "LpPool";
    return def;
}

}  // namespace

std::vector<OpDef> pooling_ops() {
    std::vector<OpDef> ops;
    for (int axes = 1; axes <= 4; ++axes) {
        ops.push_back(max_pool(axes));
        ops.push_back(max_pool_with_indices(axes));
        ops.push_back(avg_pool(axes));
        ops.push_back(l2_pool(axes));
    }
    return ops;
}

}  // namespace topstitch::ops
