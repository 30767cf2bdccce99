// Tests of the reverse walk: fan-out, intermediates, seeds, variables, depth, and what is said when it cannot go on.
// Values by hand, or central differences of the evaluated graph.
#include "test_autodiff_support.h"

using namespace topstitch;
using namespace topstitch::autodiff_test;
using namespace topstitch::expr;

namespace {

constexpr DType f32 = DType::float32;
constexpr DType f64 = DType::float64;

std::size_t operation_count(const Tensor& tensor) {
    return tensor.graph_data()->size();
}

}  // namespace

TEST_CASE("a polynomial, to the third order") {
    Graph graph;
    const Tensor x = graph.placeholder({}, f64, "x");
    const Tensor y = x * x * x;
    const Tensor first = gradients(y, {x}).at(x);
    const Tensor second = gradients(first, {x}).at(x);
    const Tensor third = gradients(second, {x}).at(x);
    const Feeds feeds = {{x, array(f64, {}, {5})}};
    check_same(value_of(first, feeds), {75});
    check_same(value_of(second, feeds), {30});
    check_same(value_of(third, feeds), {6});
}

TEST_CASE("several uses of a tensor add up") {
    Graph graph;
    const Tensor x = graph.placeholder({2}, f64);
    const Tensor shared = exp(x);
    const Tensor y = shared * shared + sin(shared) * x + shared;
    check_gradients(y, {{x, vector_of(f64, {0.3, -0.7})}}, 2);

    const Tensor z = x + x;  // one operation, the same tensor twice
    check_same(value_of(gradients(z, {x}).at(x), {{x, vector_of(f64, {1, 2})}}), {2, 2});
}

TEST_CASE("intermediate results and the primary tensor itself") {
    Graph graph;
    const Tensor x = graph.placeholder({2}, f64);
    const Tensor middle = x * x;
    const Tensor y = middle * middle * x;
    const auto found = gradients(y, {x, middle, y});
    const Feeds feeds = {{x, vector_of(f64, {2, 3})}};
    check_same(value_of(found.at(middle), feeds), {16, 54});  // 2 * x^2 * x
    check_same(value_of(found.at(x), feeds), {80, 405});      // 5 * x^4
    check_same(value_of(found.at(y), feeds), {1, 1});
}

TEST_CASE("seeds weigh the elements") {
    Graph graph;
    const Tensor x = graph.placeholder({3}, f64);
    const Tensor y = x * x;
    const Tensor seed = graph.constant(vector_of(f64, {1, 0, -2}));
    check_same(value_of(gradients(y, {x}, seed).at(x), {{x, vector_of(f64, {1, 2, 3})}}), {2, 0, -12});
    CHECK(contains(message_of([&] { gradients(y, {x}, graph.placeholder({2}, f64)); }), "the seed is float64(2,)"));
    CHECK(contains(message_of([&] { gradients(y, {x}, graph.placeholder({3}, f32)); }), "same dtype and shape"));
}

TEST_CASE("no path gives zeros of the tensor's shape") {
    Graph graph;
    const Tensor x = graph.placeholder({2}, f64);
    const Tensor other = graph.placeholder({Dim::unknown(), 2}, f32);
    const Tensor y = x * 2.0;
    const Tensor later = y + 1.0;
    const auto found = gradients(y, {x, other, later});
    check_same(value_of(found.at(other), {{other, array(f32, {1, 2}, {5, 6})}}), {0, 0});
    check_same(value_of(found.at(later), {{x, vector_of(f64, {1, 1})}}), {0, 0});
    CHECK(found.at(other).dtype() == f32);
    CHECK(gradients(y, {}).empty());
}

TEST_CASE("stop_gradient, and ways through integers and bools, are constants") {
    Graph graph;
    const Tensor x = graph.placeholder({3}, f64);
    const Feeds feeds = {{x, vector_of(f64, {-1, 2, 3})}};
    check_same(value_of(gradients(stop_gradient(x) * x, {x}).at(x), feeds), {-1, 2, 3});
    check_same(value_of(gradients(stop_gradient(x * x), {x}).at(x), feeds), {0, 0, 0});
    const Tensor positive = cast(greater(x, constant_like(0, x)), f64);
    check_same(value_of(gradients(positive * x, {x}).at(x), feeds), {0, 1, 1});
    const Tensor best = cast(apply("argmax", {x}), f64);
    check_same(value_of(gradients(best * x, {x}).at(x), feeds), {2, 2, 2});
}

TEST_CASE("variables: used directly and through reads") {
    Graph graph;
    const Tensor w = graph.variable(vector_of(f64, {2, 3}), "w");
    const Tensor x = graph.placeholder({2}, f64);
    const Tensor y = w * x + graph.read(w) * graph.read(w);
    const Feeds feeds = {{x, vector_of(f64, {10, 20})}};
    check_same(value_of(gradients(y, {w}).at(w), feeds), {14, 26});

    const Tensor now = graph.read(w);  // of one read only
    check_same(value_of(gradients(now * now * w, {now}).at(now), feeds), {8, 18});
}

TEST_CASE("unknown dims and broadcasting") {
    Graph graph;
    const Dim unknown = Dim::unknown();
    const Tensor x = graph.placeholder({unknown, unknown}, f64);
    const Tensor w = graph.placeholder({unknown, 2}, f64);
    const Tensor b = graph.placeholder({unknown}, f64);
    const Tensor y = tanh(matmul(x, w) + b);
    const Tensor loss = mean(square(y), {0, 1}, false);
    const Feeds feeds = {{x, array(f64, {2, 3}, {0.5, -0.4, 0.3, 0.9, -1.6, 0.7})},
                         {w, array(f64, {3, 2}, {0.1, 0.2, -0.3, 0.4, 0.5, -0.6})},
                         {b, vector_of(f64, {0.1, -0.2})}};
    check_gradients(loss, feeds, 2);
    Feeds broadcast = feeds;
    broadcast[2].second = vector_of(f64, {0.4});  // the same graph, now broadcasting b
    check_gradients(loss, broadcast);
}

TEST_CASE("operations with several results") {
    Graph graph;
    const Tensor x = graph.placeholder({6}, f64);
    const std::vector<Tensor> parts = apply(graph.data(), *find_op("split"), {x}, {{"num_splits", std::int64_t{3}}});
    REQUIRE(parts.size() == 3);
    const Feeds feeds = {{x, vector_of(f64, {1, 2, 3, 4, 5, 6})}};
    check_gradients(parts[0] * sin(parts[2]), feeds, 2);
    check_same(value_of(gradients(parts[1] * 2.0, {x}).at(x), feeds), {0, 0, 2, 2, 0, 0});
}

TEST_CASE("composites are differentiated through their expansion, also nested ones") {
    Graph graph;
    const Tensor x = graph.placeholder({2}, f64);
    const Tensor y = graph.placeholder({2}, f64);
    // stack expands into concat; product's rule uses product_of_others, which has no rule of its own.
    const Tensor stacked = apply("stack", {x, y, x * y});
    const Tensor z = apply("product", {stacked}, {{"axes", std::vector<std::int64_t>{0}}});
    check_gradients(z, {{x, vector_of(f64, {0.5, 0})}, {y, vector_of(f64, {-2, 3})}}, 2);
    const Tensor others = apply("product_of_others", {x * x + y});
    check_gradients(others, {{x, vector_of(f64, {0.5, 1})}, {y, vector_of(f64, {-2, 3})}}, 2);
}

TEST_CASE("ten thousand operations in a row") {
    Graph graph;
    const Tensor x = graph.placeholder({}, f64);
    Tensor y = x;
    for (int k = 0; k < 10'000; ++k) y = y * 1.0001;
    const Tensor gradient = gradients(y, {x}).at(x);
    check_close(value_of(gradient, {{x, array(f64, {}, {1})}}), {std::pow(1.0001, 10'000)}, 1e-9);
}

TEST_CASE("only what lies between is differentiated") {
    Graph graph;
    const Tensor x = graph.placeholder({}, f64);
    const Tensor constant = graph.placeholder({}, f64);
    Tensor aside = constant;
    for (int k = 0; k < 100; ++k) aside = sin(aside);
    const Tensor y = x * aside;
    const std::size_t before = operation_count(y);
    gradients(y, {x});
    CHECK(operation_count(y) - before < 10);
}

TEST_CASE("an operation without a gradient is named, with the way to it") {
    set_current_location({"model.py", 3});
    Graph graph;
    const Tensor x = graph.placeholder({4}, f64, "x");
    OpDef def;
    def.name = "jump";
    def.args = {{"x", ""}};
    def.results = {"y"};
    def.infer = [](const OpView& v) { return std::vector{v.input(0)}; };
    def.body = ElementBody{[](ElementContext& c, const Indices& at) { return c.operand(0, at); }};
    def.gradient = NotDifferentiable{"it jumps"};
    set_current_location({"model.py", 9});
    const Tensor doubled = x * 2.0;
    const Tensor jump = apply(graph.data(), def, {doubled}, {}, "leap").front();
    const Tensor loss = sum(exp(jump), {0}, false);
    set_current_location({});
    const std::string message = message_of([&] { gradients(loss, {x}); });
    CHECK(contains(message, "[gradients] `jump` ('leap', model.py:9) is not differentiable, because it jumps."));
    CHECK(contains(message,
                   "`sum` (model.py:9) <- `exp` (model.py:9) <- `jump` ('leap', model.py:9) <- `multiply` "
                   "(model.py:9) <- `placeholder` ('x', model.py:3)"));
    CHECK(contains(message, "stop_gradient"));
    // Not on the way to what is asked for: no reason to complain.
    check_same(value_of(gradients(exp(jump), {jump}).at(jump), {{x, vector_of(f64, {0, 0, 0, 0})}}), {1, 1, 1, 1});
}

TEST_CASE("tensors that cannot be differentiated by") {
    Graph graph;
    const Tensor x = graph.placeholder({2}, f64, "x");
    const Tensor count = graph.placeholder({2}, DType::int32, "count");
    const Tensor flag = greater(x, x);
    const Tensor z = graph.placeholder({2}, DType::complex64, "z");
    CHECK(contains(message_of<TypeError>([&] { gradients(x, {count}); }), "'count' (int32(2,)) is not floating-point"));
    CHECK(contains(message_of<TypeError>([&] { gradients(count, {x}); }), "the primary tensor 'count'"));
    CHECK(contains(message_of<TypeError>([&] { gradients(flag, {x}); }), "the result of `greater`"));
    CHECK(contains(message_of<UnsupportedError>([&] { gradients(x, {z}); }), "complex"));
    CHECK(contains(message_of<UnsupportedError>([&] { gradients(z, {x}); }), "complex"));
    CHECK(contains(message_of([&] { gradients(x, {Tensor()}); }), "empty Tensor"));
    CHECK(contains(message_of([&] { gradients(Tensor(), {x}); }), "empty Tensor"));
    Graph other;
    CHECK(contains(message_of([&] { gradients(x, {other.placeholder({2}, f64)}); }), "different graphs"));
}
