// Uses the public C++ API of an installed topstitch and prints what it got, for test_package.py to compare.
// Exits with 1 when an exception of topstitch cannot be caught as what it is.
#include <topstitch/topstitch.h>

#include <iostream>
#include <string>
#include <vector>

namespace ts = topstitch;

namespace {

void print(const std::string& what, const ts::NDArray& array) {
    std::cout << what;
    for (std::int64_t i = 0; i < array.size(); ++i) std::cout << ' ' << array.at(i);
    std::cout << '\n';
}

void use_arrays() {
    const float values[] = {1, 2, 3, 4, 5, 6};
    const ts::NDArray array = ts::NDArray::copy_of(values, ts::DType::float32, {2, 3});
    print("transpose", array.transpose({1, 0}));
    print("reversed", array.slice(1, -1, -4, -1));
    const ts::Shape shape{ts::Dim::symbol("batch"), 3};
    std::cout << "shape " << shape.str() << '\n';
}

// Three steps of gradient descent on sum((tanh(x w) - 1)^2).
void train() {
    const double feed[] = {0.5, -1, 2, 0.25, 1, -0.5};
    const double initial[] = {0.1, -0.2, 0.3, 0.4, -0.5, 0.6};
    ts::Graph graph;
    const ts::Tensor x = graph.placeholder({-1, 3}, ts::DType::float64, "x");
    const ts::Tensor w = graph.variable(ts::NDArray::copy_of(initial, ts::DType::float64, {3, 2}), "w");
    const ts::Tensor error = ts::tanh(ts::matmul(x, w)) - 1.0;
    const ts::Tensor loss = ts::sum(error * error);
    const ts::Tensor slope = ts::gradients(loss, {w}).at(w);
    const ts::Operation step = graph.assign(w, w - 0.1 * slope);

    const ts::Feeds feeds{{x, ts::NDArray::copy_of(feed, ts::DType::float64, {2, 3})}};
    print("slope", ts::run(graph, feeds, {slope}).at(0));
    for (int i = 0; i < 3; ++i) { print("loss" + std::to_string(i), ts::run(graph, feeds, {loss}, {step}).at(0)); }
    print("trained", graph.variable_value(w));
    std::cout << "typed " << x.type().str() << '\n';
}

// Ahead of time, for any number of rows.
void compile() {
    ts::Graph graph;
    const ts::Tensor x = graph.placeholder({-1, 2});
    const ts::Executable executable = ts::compile(graph, {{x, ts::ShapedType{{-1, 2}}}}, {ts::exp(x) * 2.0});
    const float values[] = {0, 1, -1, 2, 3, -4};
    for (const std::int64_t rows : {1, 3}) {
        const std::vector<ts::NDArray> inputs{ts::NDArray::copy_of(values, ts::DType::float32, {rows, 2})};
        print("rows" + std::to_string(rows), executable.run(inputs).at(0));
    }
    std::cout << "kernels " << executable.report().kernels << '\n';
}

bool catches_errors() {
    try {
        const ts::NDArray array(ts::DType::float32, {-1});
    } catch (const ts::UserError& error) {
        std::cout << "error " << error.what() << '\n';
        return true;
    }
    return false;
}

}  // namespace

int main() {
    std::cout.precision(17);
    use_arrays();
    train();
    compile();
    return catches_errors() ? 0 : 1;
}
