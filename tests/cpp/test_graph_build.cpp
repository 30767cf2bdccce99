// Tests of construction: handles, checks of inputs, constants, variables, and the texts of errors.
#include <cmath>
#include <limits>
#include <unordered_map>

#include "test_graph_support.h"

using namespace topstitch;
using namespace topstitch::graph_test;

TEST_CASE("handles answer for what was built") {
    Graph graph;
    const Tensor x = graph.placeholder({Dim::symbol("batch"), 784}, DType::float16, "x");
    CHECK(x.dtype() == DType::float16);
    CHECK(x.shape().str() == "(batch, 784)");
    CHECK(x.type().str() == "float16(batch, 784)");
    CHECK(x.rank() == 2);
    CHECK(x.name() == "x");
    CHECK(x.graph() == graph);
    CHECK(x.operation().op() == "placeholder");
    CHECK(x.operation().outputs() == std::vector{x});
    CHECK(contains(x.str(), "float16(batch, 784)"));

    const OpDef add = make_add();
    const Tensor y = apply(graph.data(), add, {x, x}, {}, "y").front();
    CHECK(y.operation().inputs() == std::vector{x, x});
    CHECK(y.type().str() == "float16(batch, 784)");
    CHECK(y != x);
    CHECK(graph.operations().size() == 2);
    CHECK(graph.placeholders() == std::vector{x});
    const auto attributes = x.operation().attributes();
    REQUIRE(attributes.size() == 2);
    CHECK(attributes[0].first == "shape");

    std::unordered_map<Tensor, int> numbers{{x, 1}, {y, 2}};
    CHECK(numbers.at(y) == 2);
}

TEST_CASE("empty and forged handles are refused") {
    Graph graph;
    CHECK(contains(message_of([] { Tensor().shape(); }), "empty Tensor"));
    CHECK(contains(message_of([] { Operation().op(); }), "empty Operation"));
    CHECK(contains(message_of([&] { Tensor(graph.data(), {5, 0}).shape(); }), "operation 5"));
    const Tensor x = graph.placeholder({2});
    CHECK(contains(message_of([&] { Tensor(graph.data(), {0, 1}).dtype(); }), "output 1"));
    const OpDef add = make_add();
    CHECK(contains(message_of([&] { apply(graph.data(), add, {x, Tensor()}); }), "input 1 (`b`) is an empty Tensor"));
    CHECK(contains(message_of([&] { apply(graph.data(), add, {x, Tensor(graph.data(), {0, 3})}); }), "does not exist"));
    CHECK(graph.operations().size() == 1);
}

TEST_CASE("inputs are checked before anything is appended") {
    Graph graph, other;
    const OpDef add = make_add();
    const Tensor x = graph.placeholder({2, 3});
    const Tensor foreign = other.placeholder({2, 3}, DType::float32, "theirs");
    const std::string message = message_of([&] { apply(graph.data(), add, {x, foreign}); });
    CHECK(contains(message, "[test_add] input 1 (`b`)"));
    CHECK(contains(message, "another graph"));
    CHECK(contains(message, "theirs"));
    CHECK(contains(message_of([&] { apply(graph.data(), add, {x}); }), "takes 2 inputs, but got 1"));
    CHECK(contains(message_of([&] { apply(graph.data(), add, {x, x, x}); }), "its form is test_add(a, b)"));
    CHECK(graph.operations().size() == 1);
}

TEST_CASE("errors name the operation and the user's line") {
    Graph graph;
    const OpDef add = make_add();
    const Tensor a = graph.placeholder({2, 3});
    const Tensor b = graph.placeholder({4, 3});
    const Tensor h = graph.placeholder({2, 3}, DType::float16);
    set_current_location({"model.py", 12});
    const std::string shapes = message_of([&] { apply(graph.data(), add, {a, b}); });
    const std::string dtypes = message_of<TypeError>([&] { apply(graph.data(), add, {a, h}); });
    const std::string count = message_of([&] { apply(graph.data(), add, {a}); });
    const std::string attribute = message_of([&] { apply(graph.data(), add, {a, a}, {{"axis", std::int64_t{1}}}); });
    const Tensor sum = apply(graph.data(), add, {a, a}).front();
    set_current_location({});
    CHECK(
        shapes.starts_with("[test_add] the shapes (2, 3) and (4, 3) do not broadcast together: 2 meets 4 at axis -2"));
    for (const std::string& message : {shapes, dtypes, count, attribute}) {
        CHECK(message.ends_with("(created at model.py:12)"));
    }
    CHECK(sum.operation().location().str() == "model.py:12");
    CHECK(!contains(message_of([&] { apply(graph.data(), add, {a, b}); }), "created at"));
}

TEST_CASE("a rule's plain UserError gets the operation and the place") {
    OpDef def = make_add();
    def.infer = [](const OpView&) -> std::vector<TensorType> { throw UserError("plain words"); };
    Graph graph;
    const Tensor x = graph.placeholder({1});
    set_current_location({"a.py", 3});
    const std::string message = message_of([&] { apply(graph.data(), def, {x, x}); });
    set_current_location({});
    CHECK(message == "[test_add] plain words (created at a.py:3)");
}

TEST_CASE("operations are found by name") {
    Graph graph;
    const Tensor x = graph.placeholder({2});
    CHECK(apply("stop_gradient", {x}).type() == x.type());
    CHECK(contains(message_of([&] { apply("stop_gradent", {x}); }), "did you mean 'stop_gradient'?"));
    CHECK(contains(message_of([&] { apply("stop_gradient", {}); }), "graph is not known"));
    CHECK(find_op("no such thing") == nullptr);
    for (const OpDef& def : all_ops()) CHECK(find_op(def.name) == &def);
}

TEST_CASE("scalar constants must be representable") {
    Graph graph;
    const double nan = std::numeric_limits<double>::quiet_NaN();
    CHECK(values_of(std::get<NDArray>(graph.constant(255.0, DType::uint8).operation().attributes()[0].second)) ==
          std::vector<double>{255});
    CHECK(graph.constant(-128.0, DType::int8).dtype() == DType::int8);
    CHECK(graph.constant(-std::ldexp(1.0, 63), DType::int64).shape().rank() == 0);
    CHECK(graph.constant(nan, DType::float16).dtype() == DType::float16);
    CHECK(graph.constant(0.1, DType::float32).dtype() == DType::float32);
    CHECK(contains(message_of([&] { graph.constant(256.0, DType::uint8); }),
                   "256 does not fit uint8, which holds 0 to 255"));
    CHECK(contains(message_of([&] { graph.constant(-129.0, DType::int8); }), "-128 to 127"));
    CHECK(contains(message_of([&] { graph.constant(-1.0, DType::uint64); }), "does not fit uint64"));
    CHECK(contains(message_of([&] { graph.constant(std::ldexp(1.0, 63), DType::int64); }), "does not fit int64"));
    CHECK(contains(message_of([&] { graph.constant(std::ldexp(1.0, 64), DType::uint64); }), "does not fit uint64"));
    CHECK(contains(message_of([&] { graph.constant(0.5, DType::int32); }), "not a whole number"));
    CHECK(contains(message_of([&] { graph.constant(nan, DType::int32); }), "has no value in int32"));
    CHECK(contains(message_of([&] { graph.constant(1.0 / 0.0, DType::boolean); }), "has no value in bool"));
    CHECK(contains(message_of([&] { graph.constant(2.0, DType::boolean); }), "not a bool"));
}

TEST_CASE("constants and variables copy the caller's array") {
    Graph graph;
    const NDArray mine = floats({2}, {1, 2});
    const Tensor constant = graph.constant(mine, "c");
    const Tensor variable = graph.variable(mine, "w");
    mine.data_as<float>()[0] = 9;
    CHECK(values_of(std::get<NDArray>(constant.operation().attributes()[0].second)) == std::vector<double>{1, 2});
    CHECK(values_of(graph.variable_value(variable)) == std::vector<double>{1, 2});
    graph.variable_value(variable).data_as<float>()[0] = 9;
    CHECK(values_of(graph.variable_value(variable)) == std::vector<double>{1, 2});
}

TEST_CASE("variables keep dtype and shape") {
    Graph graph;
    const Tensor w = graph.variable(floats({2}, {1, 2}), "w");
    CHECK(graph.variables() == std::vector{w});
    graph.set_variable_value(w, floats({2}, {3, 4}));
    CHECK(values_of(graph.variable_value(w)) == std::vector<double>{3, 4});
    CHECK(contains(message_of([&] { graph.set_variable_value(w, floats({1, 2}, {3, 4})); }), "shape is (1, 2)"));
    CHECK_THROWS_AS(graph.set_variable_value(w, NDArray::zeros(DType::float64, {2})), TypeError);
    const Tensor x = graph.placeholder({2});
    CHECK(contains(message_of([&] { graph.set_variable_value(x, floats({2}, {3, 4})); }), "is not a variable"));
    CHECK(contains(message_of([&] { Graph().variable_value(w); }), "another graph"));
    CHECK(values_of(graph.variable_value(w)) == std::vector<double>{3, 4});
}

TEST_CASE("read and assign act on variables only") {
    Graph graph;
    const Tensor w = graph.variable(floats({2, 3}, {1, 2, 3, 4, 5, 6}), "w");
    const Tensor x = graph.placeholder({2, Dim::unknown()});
    CHECK(graph.read(w).type() == w.type());
    CHECK(graph.assign(w, x).outputs().empty());
    CHECK(graph.assign(w, graph.placeholder(Shape::unranked())).inputs().size() == 2);
    CHECK(contains(message_of([&] { graph.read(x); }), "must be a variable"));
    CHECK(contains(message_of([&] { graph.read(x); }), "`placeholder`"));
    CHECK(contains(message_of([&] { graph.assign(x, w); }), "must be a variable"));
    CHECK(contains(message_of([&] { graph.assign(w, graph.placeholder({3, 2})); }), "keeps its shape"));
    CHECK(contains(message_of([&] { graph.assign(w, graph.placeholder({3})); }), "keeps its shape"));
    CHECK_THROWS_AS(graph.assign(w, graph.placeholder({2, 3}, DType::int32)), TypeError);
}

TEST_CASE("optional and variadic arguments") {
    OpDef def = make_add();
    def.infer = [](const OpView& v) { return std::vector{v.input(0)}; };
    Graph graph;
    const Tensor x = graph.placeholder({1});
    def.args = {{"a", ""}, {"b", "", false, true}};
    CHECK(apply(graph.data(), def, {x}).size() == 1);
    CHECK(apply(graph.data(), def, {x, x}).size() == 1);
    CHECK(contains(message_of([&] { apply(graph.data(), def, {x, x, x}); }), "takes 1 to 2 inputs"));
    def.args = {{"first", ""}, {"rest", "", true}};
    CHECK(apply(graph.data(), def, {x, x, x, x}).size() == 1);
    CHECK(contains(message_of([&] { apply(graph.data(), def, {x}); }), "takes at least 2 inputs, but got 1"));
}
