// Shorthand for the tests of operations: arrays of every dtype, one operation by name, whole graphs, and gradient rules
// against finite differences of the forward value in float64.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <complex>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "graph/apply.h"
#include "ops/evaluate.h"
#include "test_graph_support.h"

namespace topstitch::ops_test {

using graph_test::array_of;
using graph_test::values_of;
using topstitch::contains;
using topstitch::message_of;
using Doubles = std::vector<double>;

inline constexpr double inf = std::numeric_limits<double>::infinity();
inline constexpr double qnan = std::numeric_limits<double>::quiet_NaN();

// An array of any real dtype from numbers that it can hold exactly (integers up to 2^53).
inline NDArray array(DType dtype, const Sizes& shape, const Doubles& values) {
    NDArray result(dtype, shape);
    REQUIRE(static_cast<std::size_t>(result.size()) == values.size());
    for (std::size_t k = 0; k < values.size(); ++k) {
        const NDArray element = NDArray::scalar(values[k], dtype);
        std::memcpy(result.data_as<char>() + k * size_of(dtype), element.data(), size_of(dtype));
    }
    return result;
}

inline NDArray vector_of(DType dtype, const Doubles& values) {
    return array(dtype, {static_cast<std::int64_t>(values.size())}, values);
}

template <typename T>
NDArray exact(DType dtype, const std::vector<T>& values) {
    return array_of<T>(dtype, {static_cast<std::int64_t>(values.size())}, values);
}

using Complexes = std::vector<std::complex<float>>;
inline NDArray complex_array(const Complexes& values) {
    return exact(DType::complex64, values);
}
template <typename T>
std::vector<T> exact_values(const NDArray& array) {
    REQUIRE(array.is_contiguous());
    return std::vector<T>(array.data_as<T>(), array.data_as<T>() + array.size());
}

inline std::vector<NDArray> run_all(const std::string& op, const std::vector<NDArray>& inputs,
                                    const NamedAttributes& attributes = {}) {
    const OpDef* def = find_op(op);
    REQUIRE_MESSAGE(def != nullptr, op);
    return evaluate(*def, inputs, complete_attributes(*def, attributes));
}

inline NDArray run(const std::string& op, const std::vector<NDArray>& inputs, const NamedAttributes& attributes = {}) {
    return run_all(op, inputs, attributes).at(0);
}

// The type that an operation infers.
inline TensorType infer(const std::string& op, const std::vector<TensorType>& inputs,
                        const NamedAttributes& attributes = {}) {
    const OpDef* def = find_op(op);
    REQUIRE_MESSAGE(def != nullptr, op);
    return infer_types(*def, inputs, complete_attributes(*def, attributes)).at(0);
}

// Equal, with NaN equal to NaN and the sign of zero counting.
inline bool same(double a, double b) {
    if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
    return a == b && std::signbit(a) == std::signbit(b);
}

inline void check_same(const NDArray& actual, const Doubles& expected) {
    const Doubles values = values_of(actual);
    REQUIRE(values.size() == expected.size());
    for (std::size_t k = 0; k < expected.size(); ++k) {
        CHECK_MESSAGE(same(values[k], expected[k]), "element ", k, ": ", values[k], ", expected ", expected[k]);
    }
}

inline void check_close(const NDArray& actual, const Doubles& expected, double relative, double absolute = 0.0) {
    const Doubles values = values_of(actual);
    REQUIRE(values.size() == expected.size());
    for (std::size_t k = 0; k < expected.size(); ++k) {
        const bool close = same(values[k], expected[k]) ||
                           std::abs(values[k] - expected[k]) <= relative * std::abs(expected[k]) + absolute;
        CHECK_MESSAGE(close, "element ", k, ": ", values[k], ", expected ", expected[k]);
    }
}

// --- Whole graphs.

using Feeds = std::vector<std::pair<Tensor, NDArray>>;

// The values of `targets`, operation by operation.
inline std::vector<NDArray> run_graph(const std::vector<Tensor>& targets, const Feeds& feeds) {
    const GraphData& graph = *targets.at(0).graph_data();
    std::map<TensorRef, NDArray> values;
    for (const auto& [tensor, value] : feeds) values[tensor.ref()] = value;
    for (std::size_t id = 0; id < graph.ops.size(); ++id) {
        const OpNode& node = graph.ops[id];
        if (values.contains({static_cast<OpId>(id), 0})) continue;
        if (node.def->name == "placeholder") continue;
        std::vector<NDArray> inputs;
        for (const TensorRef ref : node.inputs) inputs.push_back(values.at(ref));
        const std::vector<NDArray> outputs = evaluate(*node.def, inputs, node.attributes);
        for (std::size_t k = 0; k < outputs.size(); ++k) {
            values[{static_cast<OpId>(id), static_cast<std::int32_t>(k)}] = outputs[k];
        }
    }
    std::vector<NDArray> results;
    for (const Tensor& target : targets) results.push_back(values.at(target.ref()));
    return results;
}

// What the gradient rule of `op` gives for each input, where `upstream` is the gradient of its first output.
inline std::vector<NDArray> run_gradient(const std::string& op, const std::vector<NDArray>& inputs,
                                         const NDArray& upstream, const NamedAttributes& attributes = {}) {
    const OpDef& def = *find_op(op);
    Graph graph;
    std::vector<Tensor> tensors;
    Feeds feeds;
    for (const NDArray& input : inputs) {
        tensors.push_back(graph.placeholder(Shape::of(input.shape()), input.dtype()));
        feeds.emplace_back(tensors.back(), input);
    }
    const Tensor seed = graph.placeholder(Shape::of(upstream.shape()), upstream.dtype());
    feeds.emplace_back(seed, upstream);
    const std::vector<Tensor> outputs = apply(graph.data(), def, tensors, attributes);

    const std::vector<Attribute> complete = complete_attributes(def, attributes);
    std::vector<TensorType> input_types;
    std::vector<TensorType> output_types;
    std::vector<bool> needed;
    for (const Tensor& tensor : tensors) {
        input_types.push_back(tensor.type());
        needed.push_back(is_floating(tensor.dtype()) || is_complex(tensor.dtype()));
    }
    for (const Tensor& tensor : outputs) output_types.push_back(tensor.type());
    const OpView view(def, input_types, output_types, complete);
    GradientContext context(tensors, outputs, {seed}, needed, view);
    const auto* rule = std::get_if<GradientRule>(&def.gradient);
    REQUIRE_MESSAGE(rule != nullptr, op);
    const std::vector<Tensor> gradients = (*rule)(context);
    REQUIRE(gradients.size() == inputs.size());

    std::vector<NDArray> results;
    for (std::size_t k = 0; k < gradients.size(); ++k) {
        if (!gradients[k]) {
            results.emplace_back();
            continue;
        }
        CHECK(gradients[k].dtype() == tensors[k].dtype());
        results.push_back(run_graph({gradients[k]}, feeds)[0]);
        CHECK(results.back().shape() == inputs[k].shape());
    }
    return results;
}

// Compares the rule with central differences of sum(upstream * op(inputs)); inputs are float64.
inline void check_gradient(const std::string& op, const std::vector<NDArray>& inputs,
                           const NamedAttributes& attributes = {}, double tolerance = 1e-6) {
    INFO("gradient of ", op);
    const NDArray output = run(op, inputs, attributes);
    Doubles weights;
    for (std::int64_t k = 0; k < output.size(); ++k) weights.push_back(0.7 + 0.3 * std::sin(1.0 + 2.0 * k));
    const NDArray upstream = array(output.dtype(), output.shape(), weights);
    const auto objective = [&](const std::vector<NDArray>& at) {
        const Doubles values = values_of(run(op, at, attributes));
        double total = 0.0;
        for (std::size_t k = 0; k < values.size(); ++k) total += weights[k] * values[k];
        return total;
    };
    const std::vector<NDArray> gradients = run_gradient(op, inputs, upstream, attributes);
    for (std::size_t input = 0; input < inputs.size(); ++input) {
        if (inputs[input].dtype() != DType::float64) continue;
        for (std::int64_t k = 0; k < inputs[input].size(); ++k) {
            const auto shifted = [&](double by) {
                std::vector<NDArray> moved = inputs;
                moved[input] = inputs[input].copy();
                moved[input].data_as<double>()[k] += by;
                return objective(moved);
            };
            const double step = 1e-5 * std::max(1.0, std::abs(inputs[input].at(k)));
            const double expected = (shifted(step) - shifted(-step)) / (2.0 * step);
            const double actual = gradients[input].at(k);
            CHECK_MESSAGE(std::abs(actual - expected) <= tolerance * std::max(1.0, std::abs(expected)), "input ", input,
                          ", element ", k, ": ", actual, ", differences give ", expected);
        }
    }
}

}  // namespace topstitch::ops_test
