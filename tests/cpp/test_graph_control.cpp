// Tests of control dependencies: which operations get them, nesting, and misuse.
#include <stdexcept>
#include <thread>

#include "test_graph_support.h"

using namespace topstitch;
using namespace topstitch::graph_test;

namespace {

std::vector<OpId> control_of(const Operation& operation) {
    std::vector<OpId> ids;
    for (const Operation& before : operation.control_dependencies()) ids.push_back(before.id());
    return ids;
}

}  // namespace

TEST_CASE("operations inside come after the given ones, through all levels, each once") {
    Graph graph;
    const Tensor w = graph.variable(floats({1}, {0}));
    const Tensor x = graph.placeholder({1});
    const Operation first = graph.assign(w, x);
    const Operation second = graph.assign(w, x);
    Tensor inner, outer;
    graph.control_dependencies({first}, [&] {
        graph.control_dependencies({second, first}, [&] { inner = graph.read(w); });
        outer = graph.read(w);
    });
    const Tensor after = graph.read(w);
    CHECK(control_of(inner.operation()) == std::vector{first.id(), second.id()});
    CHECK(control_of(outer.operation()) == std::vector{first.id()});
    CHECK(control_of(after.operation()).empty());
}

TEST_CASE("sources have nothing to wait for") {
    Graph graph;
    const Tensor w = graph.variable(floats({1}, {0}));
    const Operation assign = graph.assign(w, w);
    graph.push_control_dependencies({assign});
    CHECK(control_of(graph.placeholder({1}).operation()).empty());
    CHECK(control_of(graph.constant(1.0).operation()).empty());
    CHECK(control_of(graph.variable(floats({1}, {0})).operation()).empty());
    CHECK(control_of(graph.read(w).operation()) == std::vector{assign.id()});
    graph.pop_control_dependencies();
}

TEST_CASE("an exception inside closes the block") {
    Graph graph;
    const Tensor w = graph.variable(floats({1}, {0}));
    const Operation assign = graph.assign(w, w);
    CHECK_THROWS_AS(graph.control_dependencies({assign}, [] { throw std::runtime_error("mine"); }), std::runtime_error);
    CHECK(control_of(graph.read(w).operation()).empty());
}

TEST_CASE("misuse of control dependencies") {
    Graph graph, other;
    CHECK(contains(message_of([&] { graph.pop_control_dependencies(); }), "none is open"));
    const Operation foreign = other.placeholder({1}).operation();
    CHECK(contains(message_of([&] { graph.push_control_dependencies({foreign}); }), "another graph"));
    CHECK(contains(message_of([&] { graph.push_control_dependencies({Operation()}); }), "empty Operation"));
    CHECK(contains(message_of([&] { graph.pop_control_dependencies(); }), "none is open"));
}

TEST_CASE("control dependencies are those of the thread that opened them") {
    Graph graph;
    const Tensor w = graph.variable(floats({1}, {0}));
    const Operation assign = graph.assign(w, w);
    const auto elsewhere = [](const auto& work) { std::thread(work).join(); };
    Tensor beside, within;
    std::string message;
    graph.control_dependencies({assign}, [&] {
        elsewhere([&] {
            beside = graph.read(w);
            message = message_of([&] { graph.pop_control_dependencies(); });
        });
        within = graph.read(w);
    });
    CHECK(control_of(beside.operation()).empty());
    CHECK(contains(message, "none is open in this thread"));
    CHECK(control_of(within.operation()) == std::vector{assign.id()});
}
