// Branches and loops described from C++, against plain loops in double.
// Python's tests go through every kind; these are the public builders, their errors, and bodies under the sanitizers.
#include <doctest/doctest.h>

#include <cmath>
#include <string>

#include "topstitch/topstitch.h"

using namespace topstitch;

namespace {

NDArray floats(const Sizes& shape, const std::function<float(std::int64_t)>& value) {
    NDArray array(DType::float32, shape);
    for (std::int64_t k = 0; k < array.size(); ++k) array.data_as<float>()[k] = value(k);
    return array;
}

std::string message_of(const std::function<void()>& action) {
    try {
        action();
    } catch (const Error& error) { return error.what(); }
    return "";
}

}  // namespace

TEST_CASE("a scan carries, stacks and is differentiated") {
    Graph graph;
    const Tensor x = graph.placeholder(Shape({Dim::unknown(), Dim(3)}));
    const Tensor first = graph.placeholder(Shape({Dim(3)}));
    const ScanResult result = scan(graph, {first}, {x}, [](const Tensor&, const auto& carried, const auto& parts) {
        const Tensor next = topstitch::multiply(carried[0], parts[0]);
        return ScanResult{{next}, {topstitch::add(carried[0], parts[0])}};
    });
    const Tensor loss = topstitch::sum(result.carried[0]);
    const Tensor gradient = gradients(loss, {first}).at(first);
    const auto value = [](std::int64_t k) { return 0.5F + 0.25F * static_cast<float>(k % 4); };
    for (const std::int64_t length : {0, 1, 5}) {
        const Feeds feeds = {{x, floats({length, 3}, value)}, {first, floats({3}, [](std::int64_t) { return 2.0F; })}};
        const std::vector<NDArray> got = run(graph, feeds, {result.carried[0], result.stacked[0], gradient});
        for (std::int64_t column = 0; column < 3; ++column) {
            double carried = 2;
            double product = 1;
            for (std::int64_t row = 0; row < length; ++row) {
                const double part = value(3 * row + column);
                CHECK(got[1].at(3 * row + column) == doctest::Approx(carried + part));
                carried *= part;
                product *= part;
            }
            CHECK(got[0].at(column) == doctest::Approx(carried));
            CHECK(got[2].at(column) == doctest::Approx(product));
        }
    }
}

TEST_CASE("a while loop and a branch decide at run time") {
    Graph graph;
    const Tensor x = graph.placeholder(Shape({Dim(4)}));
    const auto total = [](const std::vector<Tensor>& carried) { return topstitch::sum(carried[0]); };
    const std::vector<Tensor> grown = while_loop(
        {x}, [&](const auto& carried) { return topstitch::less(total(carried), carried[0].graph().constant(100.0)); },
        [](const auto& carried) { return std::vector{topstitch::add(carried[0], carried[0])}; });
    const std::vector<Tensor> chosen = if_else(
        topstitch::greater(topstitch::sum(x), graph.constant(6.0)),
        [&] { return std::vector{topstitch::negative(grown[0])}; }, [&] { return grown; });
    for (const float start : {1.0F, 2.0F}) {
        const NDArray got = run(graph, {{x, floats({4}, [start](std::int64_t) { return start; })}}, chosen).at(0);
        double expected = start;
        while (4 * expected < 100) expected *= 2;
        CHECK(got.at(3) == (start > 1.5F ? -expected : expected));
    }
}

TEST_CASE("bodies are part of the text, and say what is wrong with them") {
    Graph graph;
    const Tensor x = graph.placeholder(Shape({Dim(4)}));
    const ScanOptions thrice{Dim(3), false, "thrice"};
    scan(
        graph, {x}, {},
        [](const Tensor&, const auto& carried, const auto&) { return ScanResult{{topstitch::exp(carried[0])}, {}}; },
        thrice);
    const std::string text = graph.str();
    CHECK(Graph::parse(text).str() == text);
    graph.verify();

    const auto broken = [&](const Tensor& result) {
        return message_of([&] {
            scan(
                graph, {x}, {}, [&](const Tensor&, const auto&, const auto&) { return ScanResult{{result}, {}}; },
                thrice);
        });
    };
    CHECK(broken(topstitch::sum(x)).find("must keep its dtype and shape") != std::string::npos);
    CHECK(broken(Graph().constant(1.0)).find("another graph") != std::string::npos);
    CHECK(broken(Tensor()).find("empty Tensor") != std::string::npos);
    CHECK(message_of([&] { while_loop({}, {}, {}); }).find("nothing is carried") != std::string::npos);
    Tensor inside;
    scan(
        graph, {x}, {},
        [&](const Tensor&, const auto& carried, const auto&) {
            inside = carried[0];
            return ScanResult{carried, {}};
        },
        thrice);
    CHECK(message_of([&] { topstitch::exp(inside); }).find("return") != std::string::npos);
}
