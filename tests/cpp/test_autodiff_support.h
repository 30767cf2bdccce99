// Evaluates whole graphs, operation by operation, and compares gradients with central differences in float64.
// Independent of passes, stitching and code generation.
#pragma once

#include "ops/expr.h"
#include "test_ops_support.h"
#include "topstitch/autodiff.h"

namespace topstitch::autodiff_test {

using namespace ops_test;

// The value of `target`. Variables have their own value unless fed; a read sees that value.
inline NDArray value_of(const Tensor& target, const Feeds& feeds) {
    const GraphData& graph = *target.graph_data();
    std::map<TensorRef, NDArray> values;
    for (const auto& [tensor, value] : feeds) values[tensor.ref()] = value;
    std::vector<bool> needed(static_cast<std::size_t>(target.ref().op) + 1, false);
    needed.back() = true;
    for (std::size_t id = needed.size(); id-- > 0;) {
        if (!needed[id] || values.contains({static_cast<OpId>(id), 0})) continue;
        for (const TensorRef input : graph.ops[id].inputs) needed[static_cast<std::size_t>(input.op)] = true;
    }
    for (std::size_t id = 0; id < needed.size(); ++id) {
        const TensorRef first{static_cast<OpId>(id), 0};
        if (!needed[id] || values.contains(first)) continue;
        const OpNode& node = graph.ops[id];
        std::vector<NDArray> inputs;
        for (const TensorRef ref : node.inputs) inputs.push_back(values.at(ref));
        if (node.def->name == "variable") {
            values[first] = node.variable->value;
        } else if (node.def->name == "read") {
            values[first] = inputs[0];
        } else {
            const std::vector<NDArray> outputs = evaluate(*node.def, inputs, node.attributes);
            for (std::size_t k = 0; k < outputs.size(); ++k) {
                values[{first.op, static_cast<std::int32_t>(k)}] = outputs[k];
            }
        }
    }
    return values.at(target.ref());
}

inline double total_of(const Tensor& target, const Feeds& feeds) {
    double total = 0.0;
    for (const double value : values_of(value_of(target, feeds))) total += value;
    return total;
}

// `gradient` against central differences of the sum of `primary`, by the fed float64 tensor number `fed`.
inline void check_against_differences(const Tensor& primary, const Tensor& gradient, const Feeds& feeds,
                                      std::size_t fed, double tolerance) {
    const NDArray actual = value_of(gradient, feeds);
    const NDArray& at = feeds[fed].second;
    REQUIRE(actual.shape() == at.shape());
    for (std::int64_t k = 0; k < at.size(); ++k) {
        const double step = 1e-5 * std::max(1.0, std::abs(at.at(k)));
        const auto shifted = [&](double by) {
            Feeds moved = feeds;
            moved[fed].second = at.copy();
            moved[fed].second.data_as<double>()[k] += by;
            return total_of(primary, moved);
        };
        const double expected = (shifted(step) - shifted(-step)) / (2.0 * step);
        CHECK_MESSAGE(std::abs(actual.at(k) - expected) <= tolerance * std::max(1.0, std::abs(expected)), "tensor ",
                      fed, ", element ", k, ": ", actual.at(k), ", differences give ", expected);
    }
}

// Gradients of `primary` by every fed float64 tensor, and, to the second order, those of a weighted sum of the
// gradients.
inline void check_gradients(const Tensor& primary, const Feeds& feeds, int orders = 1, double tolerance = 1e-6) {
    std::vector<Tensor> tensors;
    for (const auto& [tensor, value] : feeds) {
        if (value.dtype() == DType::float64) tensors.push_back(tensor);
    }
    const auto found = gradients(primary, tensors);
    REQUIRE(found.size() == tensors.size());
    Tensor next;
    for (std::size_t k = 0; k < feeds.size(); ++k) {
        if (feeds[k].second.dtype() != DType::float64) continue;
        const Tensor& gradient = found.at(feeds[k].first);
        check_against_differences(primary, gradient, feeds, k, tolerance);
        // Weighted by sines, so that a symmetric error does not cancel.
        const Tensor weighted = expr::operator*(gradient, expr::sin(expr::operator+(gradient, 0.3)));
        const Tensor summed = expr::sum(weighted, {}, false);
        const Tensor total = apply("sum", {summed});
        next = next ? expr::operator+(next, total) : total;
    }
    if (orders > 1) check_gradients(next, feeds, orders - 1, tolerance * 20);
}

}  // namespace topstitch::autodiff_test
