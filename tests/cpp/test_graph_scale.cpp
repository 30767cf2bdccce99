// Tests of size and concurrency: chains of 10,000 operations, and threads that build, print and read one graph.
#include <atomic>
#include <thread>

#include "test_graph_support.h"

using namespace topstitch;
using namespace topstitch::graph_test;

TEST_CASE("a chain of 10,000 operations") {
    Graph graph;
    Tensor x = graph.placeholder({4, Dim::symbol("n")});
    for (int k = 0; k < 10000; ++k) x = apply("stop_gradient", {x});
    graph.verify();
    const std::string text = graph.str();
    const Graph back = Graph::parse(text);
    CHECK(back.operations().size() == 10001);
    CHECK(back.str() == text);
    CHECK(back.structural_hash() == graph.structural_hash());
    CHECK(x.shape().str() == "(4, n)");
}

TEST_CASE("a chain of 10,000 control dependencies") {
    Graph graph;
    const Tensor w = graph.variable(floats({1}, {0}));
    Operation last = graph.assign(w, w);
    for (int k = 0; k < 10000; ++k) {
        graph.control_dependencies({last}, [&] { last = graph.assign(w, w); });
    }
    CHECK(last.control_dependencies().size() == 1);
    CHECK(Graph::parse(graph.str()).structural_hash() == graph.structural_hash());
}

TEST_CASE("threads append, print, hash and read one graph") {
    Graph graph;
    const Tensor x = graph.placeholder({2, 3}, DType::float32, "x");
    const Tensor w = graph.variable(floats({2}, {1, 1}));
    constexpr int per_thread = 500;
    std::atomic<bool> done{false};
    std::atomic<int> wrong{0};
    std::vector<std::thread> writers, readers;
    for (int t = 0; t < 4; ++t) {
        writers.emplace_back([&, t] {
            set_current_location({"thread.py", t + 1});
            Tensor y = x;
            for (int k = 0; k < per_thread; ++k) {
                y = apply("stop_gradient", {y});
                if (y.shape() != x.shape() || y.operation().location().line != t + 1) ++wrong;
            }
            graph.set_variable_value(w, floats({2}, {static_cast<float>(t), static_cast<float>(t)}));
        });
    }
    for (int t = 0; t < 2; ++t) {
        readers.emplace_back([&] {
            while (!done) {
                try {
                    Graph::parse(graph.str()).verify();
                } catch (const Error&) { ++wrong; }
                graph.structural_hash();
                if (graph.placeholders().size() != 1) ++wrong;
                const auto pair = values_of(graph.variable_value(w));
                if (pair[0] != pair[1]) ++wrong;
            }
        });
    }
    for (std::thread& thread : writers) thread.join();
    done = true;
    for (std::thread& thread : readers) thread.join();
    CHECK(wrong == 0);
    CHECK(graph.operations().size() == 2 + 4 * per_thread);
    graph.verify();
}
