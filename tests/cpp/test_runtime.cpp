// Whole graphs from C++: built, differentiated, compiled and run, against values worked out with plain loops in double.
// Each runs stitched, unstitched and interpreted.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <random>
#include <thread>

#include "topstitch/topstitch.h"

using namespace topstitch;

namespace {

NDArray random_array(const Sizes& shape, unsigned seed) {
    NDArray array(DType::float32, shape);
    std::mt19937 engine(seed);
    std::normal_distribution<float> normal;
    for (std::int64_t k = 0; k < array.size(); ++k) array.data_as<float>()[k] = normal(engine);
    return array;
}

// Runs in all three ways and compares each with `expected`, element by element.
void check_everywhere(const Graph& graph, const Feeds& feeds, const Tensor& target,
                      const std::function<double(std::int64_t)>& expected, double tolerance = 1e-5) {
    for (const bool stitch : {true, false}) {
        for (const bool interpret : {false, true}) {
            CompileOptions options;
            options.stitch = stitch;
            options.interpret = interpret;
            const NDArray result = run(graph, feeds, {target}, {}, options).at(0);
            double worst = 0;
            for (std::int64_t k = 0; k < result.size(); ++k)
                worst = std::max(worst, std::abs(result.at(k) - expected(k)));
            INFO("stitch ", stitch, ", interpret ", interpret);
            CHECK(worst <= tolerance);
        }
    }
}

double gelu_of(double x) {
    return 0.5 * x * (1 + std::erf(x * std::sqrt(0.5)));
}

}  // namespace

TEST_CASE("runtime: five operations over a dynamic batch") {
    Graph graph;
    const Tensor x = graph.placeholder(Shape{-1, 37}, DType::float32, "x");
    const Tensor y = 0.5 * x * (1.0 + erf(x * std::sqrt(0.5)));
    for (const std::int64_t batch : {0, 1, 2, 5, 64}) {
        const NDArray in = random_array({batch, 37}, 1);
        check_everywhere(graph, {{x, in}}, y, [&](std::int64_t k) { return gelu_of(in.at(k)); });
    }
}

TEST_CASE("runtime: softmax over the last and over the first axis") {
    const NDArray in = random_array({13, 29}, 2);
    for (const int axis : {0, 1}) {
        Graph graph;
        const Tensor x = graph.placeholder(Shape{13, 29});
        check_everywhere(graph, {{x, in}}, softmax(x, axis), [&](std::int64_t k) {
            const std::int64_t row = k / 29, column = k % 29;
            double total = 0;
            for (std::int64_t j = 0; j < (axis == 1 ? 29 : 13); ++j) {
                total += std::exp(in.at(axis == 1 ? row * 29 + j : j * 29 + column));
            }
            return std::exp(in.at(k)) / total;
        });
    }
}

TEST_CASE("runtime: a reduction that is split into chunks") {
    Graph graph;
    const std::int64_t count = 100'003;
    const Tensor x = graph.placeholder(Shape{-1});
    const NDArray in = random_array({count}, 3);
    double total = 0;
    std::int64_t best = 0;
    for (std::int64_t k = 0; k < count; ++k) {
        total += in.at(k) * in.at(k);
        if (in.at(k) > in.at(best)) best = k;
    }
    check_everywhere(graph, {{x, in}}, sum(square(x)) * 2.0, [&](std::int64_t) { return 2 * total; }, 0.5);
    check_everywhere(graph, {{x, in}}, argmax(x, 0), [&](std::int64_t) { return static_cast<double>(best); }, 0);
}

TEST_CASE("runtime: a product with bias and activation, and its gradient by finite differences") {
    Graph graph;
    const Tensor x = graph.placeholder(Shape{5, 7});
    const Tensor w = graph.variable(random_array({7, 11}, 4), "w");
    const Tensor b = graph.constant(random_array({11}, 5));
    const Tensor y = gelu(matmul(x, w) + b);
    const NDArray in = random_array({5, 7}, 6);
    const NDArray weights = graph.variable_value(w);
    const NDArray bias = random_array({11}, 5);
    const auto value = [&](const std::function<double(std::int64_t, std::int64_t)>& weight, std::int64_t k) {
        double sum = bias.at(k % 11);
        for (std::int64_t j = 0; j < 7; ++j) sum += in.at(k / 11 * 7 + j) * weight(j, k % 11);
        return gelu_of(sum);
    };
    check_everywhere(graph, {{x, in}}, y, [&](std::int64_t k) {
        return value([&](std::int64_t j, std::int64_t n) { return weights.at(j * 11 + n); }, k);
    });
    const Tensor gradient = gradients(sum(y), {w}).at(w);
    check_everywhere(
        graph, {{x, in}}, gradient,
        [&](std::int64_t k) {
            const auto loss = [&](double shift) {
                double total = 0;
                for (std::int64_t e = 0; e < 55; ++e) {
                    total += value(
                        [&](std::int64_t j, std::int64_t n) {
                            return weights.at(j * 11 + n) + (j == k / 11 && n == k % 11 ? shift : 0);
                        },
                        e);
                }
                return total;
            };
            return (loss(1e-4) - loss(-1e-4)) / 2e-4;
        },
        1e-4);
}

TEST_CASE("runtime: training steps update a variable in place") {
    Graph graph;
    const Tensor w = graph.variable(NDArray::zeros(DType::float32, {3}), "w");
    const Tensor target = graph.placeholder(Shape{3});
    const Tensor loss = sum(square(w - target));
    const Operation step = graph.assign(w, w - 0.25 * gradients(loss, {w}).at(w));
    const NDArray goal = random_array({3}, 7);
    // Each step halves the distance to the goal.
    for (int k = 0; k < 3; ++k) run(graph, {{target, goal}}, {loss}, {step});
    const NDArray value = graph.variable_value(w);
    for (int k = 0; k < 3; ++k) CHECK(value.at(k) == doctest::Approx(goal.at(k) * 0.875).epsilon(1e-5));
    const Executable executable = find_executable(graph, {target}, {loss}, {step}, {});
    CHECK(executable.report().str().find("updated in place") != std::string::npos);
}

TEST_CASE("runtime: a run that fails leaves variables alone") {
    Graph graph;
    const Tensor w = graph.variable(NDArray::zeros(DType::float32, {3}), "w");
    const Operation step = graph.assign(w, w + 1.0);
    const Tensor x = graph.placeholder(Shape{});
    const std::int64_t huge = std::int64_t{1} << 30;
    const Tensor big = broadcast_to(x, Shape{huge, huge});
    CHECK_THROWS_AS(run(graph, {{x, NDArray::scalar(1.0)}}, {big}, {step}), Error);
    CHECK(graph.variable_value(w).at(0) == 0);
    CHECK_THROWS_AS(run(graph, {{x, NDArray::scalar(1.0, DType::float64)}}, {x}, {step}), TypeError);
    CHECK(graph.variable_value(w).at(0) == 0);
}

TEST_CASE("runtime: one graph from many threads") {
    Graph graph;
    const Tensor x = graph.placeholder(Shape{-1});
    const Tensor counter = graph.variable(NDArray::scalar(0.0), "counter");
    const Operation step = graph.assign(counter, counter + 1.0);
    const Tensor y = exp(x) * 2.0;
    std::vector<std::thread> threads;
    std::vector<int> wrong(6, 0);
    for (int t = 0; t < 6; ++t) {
        threads.emplace_back([&, t] {
            const NDArray in = random_array({100 + 1000 * t}, static_cast<unsigned>(t));
            for (int k = 0; k < 10; ++k) {
                const NDArray out = run(graph, {{x, in}}, {y}, {step}).at(0);
                wrong[static_cast<std::size_t>(t)] += std::abs(out.at(7) - 2 * std::exp(in.at(7))) > 1e-4;
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    for (const int count : wrong) CHECK(count == 0);
    CHECK(graph.variable_value(counter).at(0) == 60);
}

TEST_CASE("runtime: text and back gives the same results") {
    Graph graph;
    const Tensor x = graph.placeholder(Shape{4, 6}, DType::float32, "x");
    log_softmax(transpose(x), 0);
    const Graph copy = Graph::parse(graph.str());
    CHECK(copy.structural_hash() == graph.structural_hash());
    const NDArray in = random_array({4, 6}, 8);
    const auto last = [](const Graph& g) { return g.operations().back().outputs().at(0); };
    const NDArray a = run(graph, {{x, in}}, {last(graph)}).at(0);
    const NDArray b = run(copy, {{copy.placeholders().at(0), in}}, {last(copy)}).at(0);
    for (std::int64_t k = 0; k < a.size(); ++k) CHECK(a.at(k) == b.at(k));
}
