// Tests of evaluate(): element, reduce and composite bodies against values worked by hand.
#include <cmath>

#include "ops/element_lowering.h"
#include "ops/evaluate.h"
#include "test_graph_support.h"

using namespace topstitch;
using namespace topstitch::graph_test;

namespace {

using Doubles = std::vector<double>;

NDArray run(const OpDef& def, const std::vector<NDArray>& inputs, const NamedAttributes& attributes = {}) {
    const auto complete = complete_attributes(def, attributes);
    return evaluate(def, inputs, complete).at(0);
}

}  // namespace

TEST_CASE("elements, with broadcasting and any strides") {
    const OpDef add = make_add();
    const NDArray matrix = floats({2, 3}, {1, 2, 3, 4, 5, 6});
    CHECK(values_of(run(add, {matrix, floats({3}, {10, 20, 30})})) == Doubles{11, 22, 33, 14, 25, 36});
    CHECK(values_of(run(add, {floats({2, 1}, {10, 20}), matrix})) == Doubles{11, 12, 13, 24, 25, 26});
    CHECK(values_of(run(add, {matrix.transpose({1, 0}), floats({}, {1})})) == Doubles{2, 5, 3, 6, 4, 7});
    CHECK(values_of(run(add, {matrix.slice(1, 2, -100, -1), matrix})) == Doubles{4, 4, 4, 10, 10, 10});
    CHECK(run(add, {matrix, floats({1}, {0})}).shape() == Sizes{2, 3});
    CHECK(run(add, {floats({0, 3}, {}), floats({3}, {1, 2, 3})}).shape() == Sizes{0, 3});
    CHECK(values_of(run(add, {floats({}, {1}), floats({}, {2})})) == Doubles{3});
}

TEST_CASE("elements of other dtypes") {
    const OpDef add = make_add();
    CHECK(values_of(run(add, {array_of<std::int8_t>(DType::int8, {2}, {127, -3}),
                              array_of<std::int8_t>(DType::int8, {}, {1})})) == Doubles{-128, -2});
    const NDArray half = array_of<std::uint16_t>(DType::float16, {1}, {float_to_half(2048)});
    const NDArray one = array_of<std::uint16_t>(DType::float16, {1}, {float_to_half(1)});
    CHECK(values_of(run(add, {half, one})) == Doubles{2048});  // 2049 is a tie, which goes to even
    const NDArray z = run(
        add, {array_of<float>(DType::complex64, {2}, {1, 2, 3, 4}), array_of<float>(DType::complex64, {}, {10, 20})});
    CHECK(z.dtype() == DType::complex64);
    CHECK(std::vector<float>(z.data_as<float>(), z.data_as<float>() + 4) == std::vector<float>{11, 22, 13, 24});
}

TEST_CASE("reductions") {
    const NDArray matrix = floats({2, 3}, {1, 7, 3, 9, 5, 9});
    CHECK(values_of(run(make_reduce("s", Combiner::sum), {matrix})) == Doubles{11, 23});
    CHECK(values_of(run(make_reduce("p", Combiner::product), {matrix})) == Doubles{21, 405});
    CHECK(values_of(run(make_reduce("m", Combiner::max), {matrix})) == Doubles{7, 9});
    CHECK(values_of(run(make_reduce("s", Combiner::sum), {floats({2, 0}, {})})) == Doubles{0, 0});
    CHECK(values_of(run(make_reduce("s", Combiner::sum), {floats({4}, {1, 2, 3, 4})})) == Doubles{10});
    const NDArray nans = floats({1, 3}, {1, std::nanf(""), 3});
    CHECK(std::isnan(run(make_reduce("m", Combiner::max), {nans}).at(0)));
    CHECK(values_of(run(make_reduce("m", Combiner::fmax), {nans})) == Doubles{3});
}

TEST_CASE("positions of extremes: the first of equals, and the first NaN") {
    const NDArray matrix = floats({2, 3}, {1, 7, 7, 2, 1, 1});
    const NDArray largest = run(make_reduce("a", Combiner::argmax, true), {matrix});
    CHECK(largest.dtype() == DType::int32);
    CHECK(values_of(largest) == Doubles{1, 0});
    CHECK(values_of(run(make_reduce("a", Combiner::argmin, true), {matrix})) == Doubles{0, 1});
    const NDArray nans = floats({1, 3}, {5, std::nanf(""), std::nanf("")});
    CHECK(values_of(run(make_reduce("a", Combiner::argmax, true), {nans})) == Doubles{1});
}

TEST_CASE("complex sums; other complex reductions are refused") {
    const NDArray z = array_of<float>(DType::complex64, {2}, {1, 2, 30, 40});
    const NDArray sum = run(make_reduce("s", Combiner::sum), {z});
    CHECK(std::vector<float>(sum.data_as<float>(), sum.data_as<float>() + 2) == std::vector<float>{31, 42});
    CHECK_THROWS_AS(run(make_reduce("p", Combiner::product), {z}), UnsupportedError);
}

TEST_CASE("guards keep loads inside and give the other value outside") {
    OpDef shift = make_add();  // y[i] = x[i - 1], and 5 at i = 0
    shift.args = {{"x", ""}};
    shift.infer = [](const OpView& v) { return std::vector{v.input(0)}; };
    shift.body = ElementBody{[](ElementContext& c, const Indices& at) {
        const auto zero = c.b.constant_int(0, DType::int64);
        const auto inside = c.b.op(loopir::ScalarOp::lt, zero, c.b.index_value(at[0]));
        return c.guarded(inside, [&] { return c.operand(0, {at[0] - Index(1)}); }, c.constant(5, DType::float32));
    }};
    CHECK(values_of(run(shift, {floats({3}, {1, 2, 3})})) == Doubles{5, 1, 2});
}

TEST_CASE("composites are expanded, also within each other") {
    static const OpDef add = make_add();
    static const OpDef sum = make_reduce("test_sum", Combiner::sum);
    OpDef twice = make_add();  // x + x, and its sum
    twice.name = "test_twice";
    twice.args = {{"x", ""}};
    twice.infer = [](const OpView& v) {
        return std::vector{v.input(0), TensorType{v.input(0).dtype, Shape{v.in_shape(0)[0]}}};
    };
    twice.body = CompositeBody{[](CompositeContext& c) {
        const Tensor doubled = apply(c.graph, add, {c.input(0), c.input(0)}).front();
        return std::vector{doubled, apply(c.graph, sum, {doubled}).front()};
    }};
    const auto results = evaluate(twice, std::vector{floats({2, 2}, {1, 2, 3, 4})}, {});
    REQUIRE(results.size() == 2);
    CHECK(values_of(results[0]) == Doubles{2, 4, 6, 8});
    CHECK(values_of(results[1]) == Doubles{6, 14});

    static const OpDef inner = twice;
    OpDef outer = twice;
    outer.body = CompositeBody{[](CompositeContext& c) {
        const auto pair = apply(c.graph, inner, {c.input(0)});
        const Tensor unused = apply(c.graph, inner, {pair[0]}).front();
        return std::vector{pair[0], pair[1]};
    }};
    CHECK(values_of(evaluate(outer, std::vector{floats({2, 2}, {1, 2, 3, 4})}, {}).at(1)) == Doubles{6, 14});

    // An expansion that does not keep the promise of the type rule is our own defect.
    outer.body = CompositeBody{[](CompositeContext& c) { return std::vector{c.input(0), c.input(0)}; }};
    CHECK_THROWS_AS(evaluate(outer, std::vector{floats({2, 2}, {1, 2, 3, 4})}, {}), InternalError);
}

TEST_CASE("constants, stop_gradient, and what has no value outside of a run") {
    const OpDef& constant = *find_op("constant");
    CHECK(values_of(run(constant, {}, {{"value", floats({2}, {1, 2})}})) == Doubles{1, 2});
    CHECK(values_of(run(*find_op("stop_gradient"), {floats({2}, {1, 2})})) == Doubles{1, 2});
    CHECK_THROWS_AS(run(*find_op("placeholder"), {}, {{"shape", Shape{2}}}), UnsupportedError);
    CHECK(contains(message_of([&] { run(*find_op("stop_gradient"), {}); }), "takes 1 input, but got 0"));
}

TEST_CASE("row-major offsets") {
    const Index i = Index::var(0, 2), j = Index::var(1, 3);
    CHECK(row_major_offset({2, 3}, {i, j}) == i * 3 + j);
    CHECK(row_major_offset({}, {}) == Index(0));
    const Dim n = Dim::symbol("n");
    CHECK(row_major_offset({2, n}, {i, j}) == i * n + j);
}
