// What tests of products share: numbers, sums with bounds of their error, and whole graphs on the simulated device.
// Errors are bounded by what sums in float32 may lose, in any order.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "test_codegen_backend.h"
#include "test_kernel_support.h"
#include "test_support.h"
#include "topstitch/topstitch.h"

namespace topstitch::testing {

inline constexpr DType f32 = DType::float32;
using Ints = std::vector<std::int64_t>;

// Numbers with few digits, which all floats hold exactly; sums of their products are not exact for long.
inline NDArray numbers(DType dtype, const Sizes& shape, unsigned seed) {
    NDArray array(dtype, shape);
    std::mt19937_64 random(test_seed() + seed);
    for (std::int64_t k = 0; k < array.size(); ++k) {
        const float value = static_cast<float>(static_cast<int>(random() % 255) - 127) / 64.0f;
        switch (dtype) {
            case DType::float16:
                array.data_as<std::uint16_t>()[k] = float_to_half(value);
                break;
            case DType::bfloat16:
                array.data_as<std::uint16_t>()[k] = float_to_bfloat(value);
                break;
            case DType::uint8:
                array.data_as<std::uint8_t>()[k] = static_cast<std::uint8_t>(random() % 256);
                break;
            case DType::int32:
                array.data_as<std::int32_t>()[k] = static_cast<std::int32_t>(random());
                break;
            default:
                // All 24 digits.
                array.data_as<float>()[k] = std::ldexp(static_cast<float>(random() % (1U << 24)), -23) - 1.0f;
        }
    }
    return array;
}

inline Shape shape_of(const NDArray& array) {
    const Sizes& sizes = array.shape();
    return Shape(std::vector<Dim>(sizes.begin(), sizes.end()));
}

inline Data bytes_of(const NDArray& array) {
    Data data;
    const auto* first = array.data_as<std::byte>();
    data.bytes.assign(first, first + static_cast<std::size_t>(array.size()) * size_of(array.dtype()));
    return data;
}

// A number, and how far from it a result may be.
struct Expected {
    double value = 0;
    double error = 0;
};

class SumOfProducts {
public:
    void add(double a, double b) {
        value_ += a * b;
        magnitude_ += std::abs(a * b);
        ++terms_;
    }
    // Each of the products and sums rounds once, whatever the order.
    Expected expected() const { return {value_, (terms_ + 1) * 0x1p-24 * 1.01 * magnitude_}; }

private:
    double value_ = 0;
    double magnitude_ = 0;
    int terms_ = 0;
};

// By how much the result is rounded, when it is stored.
inline double rounding(DType dtype) {
    return dtype == DType::float16 ? 0x1p-11 : dtype == DType::bfloat16 ? 0x1p-8 : 0x1p-24;
}

using Reference = std::function<Expected(std::int64_t flat)>;

enum class Form { tiles, strips, loops };

inline CompileOptions on_simulation() {
    CompileOptions options;
    options.device = Device(simulated_device());
    return options;
}

inline std::string source_of(const Graph& graph, const Feeds& feeds, const std::vector<Tensor>& targets,
                             const std::vector<Operation>& operations = {}) {
    std::vector<Tensor> fed;
    for (const auto& [tensor, array] : feeds) fed.push_back(tensor);
    return find_executable(graph, fed, targets, operations, on_simulation()).source("metal");
}

// That of the product in a source.
inline Form form_of(const std::string& source) {
    if (contains(source, "simdgroup_multiply_accumulate")) return Form::tiles;
    return contains(source, "constexpr int strip = 128;") ? Form::strips : Form::loops;
}

inline void check(const Graph& graph, const Feeds& feeds, const Tensor& target, Form form, const Reference& reference) {
    const NDArray result = run(graph, feeds, {target}, {}, on_simulation()).at(0);
    const std::string source = source_of(graph, feeds, {target});
    INFO(source);
    CHECK(form_of(source) == form);
    for (std::int64_t k = 0; k < result.size(); ++k) {
        const Expected expected = reference(k);
        const double allowed =
            expected.error + rounding(result.dtype()) * (std::abs(expected.value) + expected.error) + 1e-30;
        const bool close = std::abs(result.at(k) - expected.value) <= allowed;
        if (!close) {
            CHECK_MESSAGE(close, "element ", k, " is ", result.at(k), ", not ", expected.value, " within ", allowed);
            break;
        }
    }
}

}  // namespace topstitch::testing
