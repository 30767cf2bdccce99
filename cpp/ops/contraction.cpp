// matmul: the contraction of the last axis of one tensor with the last but one of another, batch by batch.
// Backends replace the loop over k by their hand-tuned kernels.
#include <algorithm>

#include "ops/expr.h"
#include "ops/families.h"
#include "ops/rules.h"

namespace topstitch::ops {

namespace {

using expr::operator*;

// A vector counts as a row on the left and as a column on the right.
Shape as_matrix(const Shape& shape, bool left) {
    if (shape.rank() != 1) return shape;
    return left ? Shape{1, shape[0]} : Shape{shape[0], 1};
}

Shape leading_dims(const Shape& matrix) {
    return Shape(std::vector<Dim>(matrix.dims().begin(), matrix.dims().end() - 2));
}

std::vector<TensorType> infer_matmul(const OpView& v) {
    require_numeric(v, 0);
    require_same_dtype(v);
    for (int k = 0; k < 2; ++k) {
        if (!v.in_shape(k).has_rank() || v.in_shape(k).rank() > 0) continue;
        v.fail(
            concat(input_name(v, k), " is a scalar, but matmul needs vectors or matrices; use multiply for scalars"));
    }
    const Shape& left = v.in_shape(0);
    const Shape& right = v.in_shape(1);
    const DType dtype = v.input(0).dtype;
    if (!left.has_rank() || !right.has_rank()) return {TensorType{dtype, Shape::unranked()}};
    const Shape a = as_matrix(left, true);
    const Shape b = as_matrix(right, false);
    const Dim& inner_a = a[a.rank() - 1];
    const Dim& inner_b = b[b.rank() - 2];
    if (!dims_agree(inner_a, inner_b)) {
        v.fail(concat("the shapes ", left.str(), " and ", right.str(), " do not fit: the last dim of `a`, ",
                      inner_a.str(), ", must equal the ", right.rank() == 1 ? "" : "last but one ", "dim of `b`, ",
                      inner_b.str(), "; transpose or swap_axes one of them"));
    }
    std::vector<Dim> dims = broadcast_shapes(v, leading_dims(a), leading_dims(b)).dims();
    if (left.rank() > 1) dims.push_back(a[a.rank() - 2]);
    if (right.rank() > 1) dims.push_back(b[b.rank() - 1]);
    return {TensorType{dtype, Shape(std::move(dims))}};
}

// The output's axes: batch, then the row unless `a` is a vector, then the column unless `b` is one.
Indices batch_index(const OpView& v, const Shape& operand, const Indices& at) {
    const std::size_t matrix_axes = (v.in_shape(0).rank() > 1 ? 1U : 0U) + (v.in_shape(1).rank() > 1 ? 1U : 0U);
    const auto count = static_cast<std::ptrdiff_t>(at.size() - matrix_axes);
    const std::vector<Dim>& dims = v.out_shape().dims();
    const Shape batch(std::vector<Dim>(dims.begin(), dims.begin() + count));
    return broadcast_index(leading_dims(operand), batch, Indices(at.begin(), at.begin() + count));
}

Value left_factor(ElementContext& c, const Indices& at, const Indices& inner) {
    const Shape& shape = c.op.in_shape(0);
    if (shape.rank() == 1) return c.operand(0, inner);
    Indices from = batch_index(c.op, shape, at);
    const std::size_t row = at.size() - (c.op.in_shape(1).rank() > 1 ? 2U : 1U);
    from.push_back(at[row]);
    from.push_back(inner[0]);
    return c.operand(0, from);
}

Value right_factor(ElementContext& c, const Indices& at, const Indices& inner) {
    const Shape& shape = c.op.in_shape(1);
    if (shape.rank() == 1) return c.operand(1, inner);
    Indices from = batch_index(c.op, shape, at);
    from.push_back(inner[0]);
    from.push_back(at.back());
    return c.operand(1, from);
}

Tensor transposed(const Tensor& matrix) {
    return conj_if_complex(apply("swap_axes", {matrix}, {{"axis1", std::int64_t{-1}}, {"axis2", std::int64_t{-2}}}));
}

std::vector<Tensor> matmul_gradient(GradientContext& g) {
    const Tensor& a = g.input(0);
    const Tensor& b = g.input(1);
    if (!a.shape().has_rank() || !b.shape().has_rank()) {
        g.op.fail("its gradient needs inputs of known rank; give the placeholders shapes, with -1 for unknown dims");
    }
    const bool vector_a = a.rank() == 1;
    const bool vector_b = b.rank() == 1;
    if (vector_a && vector_b) {
        return {if_needed(g, 0, [&] { return g.grad() * conj_if_complex(b); }),
                if_needed(g, 1, [&] { return g.grad() * conj_if_complex(a); })};
    }
    // With vectors as matrices, dA = G B^H and dB = A^H G.
    Tensor gradient = g.grad();
    if (vector_a) gradient = expr::expand_dims(gradient, {-2});
    if (vector_b) gradient = expr::expand_dims(gradient, {-1});
    const Tensor left = vector_a ? expr::expand_dims(a, {0}) : a;
    const Tensor right = vector_b ? expr::expand_dims(b, {1}) : b;
    const Tensor for_a = if_needed(g, 0, [&] {
        // sum_like also sums the axis of length 1 that a vector was given.
        return expr::sum_like(expr::matmul(gradient, transposed(right)), a);
    });
    const Tensor for_b = if_needed(g, 1, [&] {
        if (right.rank() == 2 && left.rank() > 2) {
            // One matrix for the whole batch: its rows are summed inside the contraction.
            const auto rows = [](const Tensor& x) { return apply("flatten2d", {x}, {{"axis", std::int64_t{-1}}}); };
            return expr::reshape_like(expr::matmul(transposed(rows(left)), rows(gradient)), b);
        }
        return expr::reshape_like(expr::sum_like(expr::matmul(transposed(left), gradient), right), b);
    });
    return {for_a, for_b};
}

OpDef matmul() {
    OpDef def;
    def.name = "matmul";
    def.family = "contraction";
    def.doc =
        "The matrix product over the last axis of `a` and the last but one of `b`; leading dims are batches, which "
        "broadcast. "
        "A vector is a row on the left and a column on the right, and its axis is left out of the result, as in NumPy. "
        "float16 and bfloat16 are accumulated in float32; integers are exact and wrap in their dtype. Over no elements "
        "the result is 0.";
    def.args = {{"a", "numbers, a vector or matrices"}, {"b", "of the same dtype"}};
    def.results = {"y"};
    def.infer = infer_matmul;
    ReduceBody body;
    body.combiner = [](const OpView&) { return Combiner::sum; };
    body.domain = [](const OpView& v) {
        return std::vector<Dim>{
            unify_dims(v.in_shape(0)[v.in_shape(0).rank() - 1], v.in_shape(1)[std::max(v.in_shape(1).rank() - 2, 0)])};
    };
    body.factors = {left_factor, right_factor};
    body.element = [](ElementContext& c, const Indices& at, const Indices& inner) {
        return product(c, left_factor(c, at, inner), right_factor(c, at, inner));
    };
    def.body = std::move(body);
    def.gradient = GradientRule{matmul_gradient};
    def.mpsgraph = {"matrixMultiplication"};
    def.onnx = "MatMul";
    return def;
}

}  // namespace

std::vector<OpDef> contraction_ops() {
    return {matmul()};
}

}  // namespace topstitch::ops
