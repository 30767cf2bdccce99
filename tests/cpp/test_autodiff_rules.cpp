// Gradient rules inside whole graphs, to the second order and with unknown dims, against central differences.
// Every differentiable operation of the families that move, reduce and contract appears here.
#include "test_autodiff_support.h"

using namespace topstitch;
using namespace topstitch::autodiff_test;
using namespace topstitch::expr;

namespace {

constexpr DType f64 = DType::float64;
using Ints = std::vector<std::int64_t>;

NDArray wavy(const Sizes& shape, double phase = 0.3) {
    Doubles values;
    for (std::int64_t k = 0; k < num_elements(shape); ++k) {
        values.push_back(std::sin(phase + 2.3 * static_cast<double>(k)) + 0.1 * static_cast<double>(k % 5));
    }
    return array(f64, shape, values);
}

// Differentiates sum(sin(op(square(x) + x))) twice, with every dim of the placeholders unknown.
void check_twice(const std::string& op, const std::vector<NDArray>& inputs, const NamedAttributes& attributes = {}) {
    INFO(op);
    Graph graph;
    std::vector<Tensor> operands;
    Feeds feeds;
    for (const NDArray& input : inputs) {
        const Shape shape(std::vector<Dim>(input.shape().size(), Dim::unknown()));
        const Tensor tensor = graph.placeholder(shape, input.dtype());
        feeds.emplace_back(tensor, input);
        operands.push_back(input.dtype() == f64 ? square(tensor) * 0.5 + tensor : tensor);
    }
    const std::vector<Tensor> results = apply(graph.data(), *find_op(op), operands, attributes);
    Tensor total;
    for (std::size_t k = 0; k < results.size(); ++k) {
        const Tensor part = apply("sum", {sin(results[k]) * (1.0 + static_cast<double>(k))});
        total = total ? total + part : part;
    }
    check_gradients(total, feeds, 2);
}

NamedAttributes over(const Ints& axes, bool keepdims = false) {
    return {{"axes", axes}, {"keepdims", keepdims}};
}

}  // namespace

TEST_CASE("reductions") {
    const NDArray x = wavy({2, 3});
    for (const char* op : {"sum", "mean", "variance", "product", "max", "min", "logsumexp", "l2_norm"}) {
        check_twice(op, {x});
        check_twice(op, {x}, over({-1}));
        check_twice(op, {x}, over({0}, true));
    }
    check_twice("variance", {x, wavy({2, 1}, 0.9)}, over({1}));
    check_twice("product_of_others", {x});
}

TEST_CASE("a product with zeros, to the second order") {
    Graph graph;
    const Tensor known = graph.placeholder({5}, f64);
    const Tensor unknown = graph.placeholder({Dim::unknown()}, f64);
    for (const Tensor& x : {known, unknown}) {
        for (const Doubles& values : {Doubles{2, 0, 3, 1, 4}, Doubles{2, 0, 3, 0, 4}, Doubles{0, 0, 3, 0, 4}}) {
            check_gradients(apply("product", {x}), {{x, vector_of(f64, values)}}, 2);
        }
    }
}

TEST_CASE("movement") {
    const NDArray x = wavy({2, 3});
    check_twice("reshape", {x}, {{"shape", Shape{3, Dim::unknown()}}});
    check_twice("transpose", {x});
    check_twice("transpose", {x}, {{"permutation", Ints{-1, 0}}});
    check_twice("swap_axes", {x}, {{"axis1", std::int64_t{0}}, {"axis2", std::int64_t{1}}});
    check_twice("squeeze", {wavy({2, 1})}, {{"axes", Ints{1}}});
    check_twice("squeeze", {wavy({2, 1})});
    check_twice("expand_dims", {x}, {{"axes", Ints{-1}}});
    check_twice("flatten2d", {wavy({2, 1, 3})}, {{"axis", std::int64_t{1}}});
    check_twice("reverse", {x});
    check_twice("roll", {x}, {{"shifts", Ints{1}}, {"axes", Ints{-1}}});
    check_twice("broadcast_to", {wavy({2, 1})}, {{"shape", Shape{2, 2, 3}}});
    check_twice("broadcast_like", {wavy({2, 1}), x});
    check_twice("sum_like", {x, wavy({3})});
    check_twice("reshape_like", {x, wavy({6})});
}

TEST_CASE("slicing, joining and padding") {
    const NDArray x = wavy({2, 3});
    check_twice("slice", {x}, {{"starts", Ints{1, 2}}, {"stops", Ints{2, -9}}, {"steps", Ints{1, -2}}});
    check_twice("slice_update", {x, wavy({1}, 1.1)}, {{"starts", Ints{0, 0}}, {"stops", Ints{2, 2}}});
    check_twice("concat", {x, wavy({1, 3}, 1.1), x});
    check_twice("concat_part", {x, wavy({2, 1}), wavy({2, 2})}, {{"axis", std::int64_t{1}}, {"part", std::int64_t{1}}});
    check_twice("axis_window", {x}, {{"axis", std::int64_t{1}}, {"window", Shape{1, 2}}});
    check_twice("stack", {x, x}, {{"axis", std::int64_t{1}}});
    check_twice("split", {x}, {{"sizes", Ints{1, 2}}, {"axis", std::int64_t{1}}});
    check_twice("split", {x}, {{"num_splits", std::int64_t{2}}});
    check_twice("tile", {x}, {{"multiples", Ints{2, 1}}});
    check_twice("tile", {x}, {{"multiples", Ints{2, 0}}});
    check_twice("tile_gradient", {wavy({2, 4})}, {{"multiples", Ints{1, 2}}});
    for (const char* mode : {"constant", "edge", "reflect", "symmetric", "wrap", "antiwrap"}) {
        check_twice("pad", {x}, {{"left", Ints{2, 1}}, {"right", Ints{0, 3}}, {"mode", std::string(mode)}});
    }
    check_twice("pad_gradient", {wavy({5})}, {{"left", std::int64_t{1}}, {"right", std::int64_t{2}}});
}

TEST_CASE("indexing and contraction") {
    const NDArray x = wavy({2, 3});
    const NDArray indices = array(DType::int32, {2, 2}, {2, 2, -1, 0});
    check_twice("gather_along_axis", {x, indices});
    check_twice("gather_along_axis_gradient", {wavy({2, 2}), indices, x});
    check_twice("band_part", {x}, {{"num_lower", std::int64_t{0}}, {"num_upper", std::int64_t{1}}});
    check_twice("tril", {x});
    check_twice("triu", {x});
    check_twice("matmul", {x, wavy({3, 2}, 0.8)});
    check_twice("matmul", {wavy({3}), wavy({3, 2}, 0.8)});
    check_twice("matmul", {wavy({2, 2, 3}), wavy({3, 2}, 0.8)});
    check_twice("matmul", {wavy({2, 1, 2, 3}), wavy({2, 3, 1}, 0.8)});
    check_twice("matmul", {wavy({2, 2, 3}), wavy({3}, 0.8)});
}

TEST_CASE("a composite of many operations: attention with a mask") {
    Graph graph;
    const Dim length = Dim::unknown();
    const Tensor q = graph.placeholder({2, length, 3}, f64);
    const Tensor k = graph.placeholder({2, length, 3}, f64);
    const Tensor v = graph.placeholder({2, length, 2}, f64);
    const Tensor scores = matmul(q, apply("swap_axes", {k}, {{"axis1", std::int64_t{1}}, {"axis2", std::int64_t{2}}}));
    const Tensor shifted = scores - apply("logsumexp", {scores}, over({-1}, true));
    const Tensor attended = matmul(apply("tril", {exp(shifted)}), v);
    check_gradients(mean(square(attended), {0, 1, 2}, false),
                    {{q, wavy({2, 2, 3}, 0.1)}, {k, wavy({2, 2, 3}, 0.5)}, {v, wavy({2, 2, 2}, 0.9)}}, 2);
}
