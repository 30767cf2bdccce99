// Tests of verify(): a good graph passes, and each broken invariant is found.
#include "test_graph_support.h"

using namespace topstitch;
using namespace topstitch::graph_test;

TEST_CASE("verify accepts what apply() makes and finds what is broken") {
    const OpDef add = make_add();
    const OpDef every_kind = make_every_kind();
    Graph graph;
    const Tensor x = graph.placeholder({2, Dim::unknown()}, DType::float32, "x");
    const Tensor w = graph.variable(floats({2, 2}, {1, 2, 3, 4}));
    const Tensor y = apply(graph.data(), add, {x, w}).front();
    apply(graph.data(), every_kind, {y}, {{"needed", std::int64_t{1}}});
    graph.push_control_dependencies({y.operation()});
    graph.read(w);
    graph.verify();

    auto& ops = graph.data()->ops;
    const auto finds = [&](const std::string& expected) {
        const std::string message = message_of<InternalError>([&] { graph.verify(); });
        CAPTURE(message);
        CHECK(contains(message, expected));
    };
    SUBCASE("a later input") {
        ops[2].inputs[0] = {3, 0};
        finds("operation %2 (`test_add`) takes %3, which is not created before it");
    }
    SUBCASE("an output that is not there") {
        ops[2].inputs[0] = {0, 1};
        finds("takes result 1 of %0");
    }
    SUBCASE("too few inputs") {
        ops[2].inputs.pop_back();
        finds("takes 2 inputs, but got 1");
    }
    SUBCASE("a wrong type") {
        ops[2].outputs[0].dtype = DType::int8;
        finds("result 0 of type int8(2, 2) instead of float32(2, 2)");
    }
    SUBCASE("too many results") {
        ops[2].outputs.push_back(ops[2].outputs[0]);
        finds("has 2 results instead of 1");
    }
    SUBCASE("an attribute of another kind") {
        ops[3].attributes[1] = 1.5;
        finds("'count' in another kind");
    }
    SUBCASE("a required attribute that is missing") {
        ops[3].attributes[8] = std::monostate();
        finds("'needed' in another kind");
    }
    SUBCASE("too few attributes") {
        ops[3].attributes.pop_back();
        finds("has 8 attributes instead of 9");
    }
    SUBCASE("a variable without storage") {
        ops[1].variable = nullptr;
        finds("variable without storage");
    }
    SUBCASE("a variable with another type in store") {
        ops[1].variable->value = floats({4}, {1, 2, 3, 4});
        finds("holds float32(4,)");
    }
    SUBCASE("a read of what is not a variable") {
        ops[4].inputs[0] = {0, 0};
        ops[4].outputs[0] = ops[0].outputs[0];
        finds("acts on what is not a variable");
    }
    SUBCASE("a later control dependency") {
        ops[4].control = {4};
        finds("runs after %4");
    }
}
