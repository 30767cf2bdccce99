// Attention and its gradients as Metal source, run on the simulated device in three orders of threads, against their
// definition in double: sizes around those of tiles, masks, heads in groups, all three types.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "test_codegen_products.h"

using namespace topstitch;
using namespace topstitch::testing;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

enum class Mask { none, causal, additive };

struct Problem {
    std::int64_t heads = 1, group = 1, tokens = 1, kv_tokens = 1, features = 8, value_features = 8;
    Mask mask = Mask::none;
    DType dtype = f32;
};

// The result, and the gradients of the sum of result times seed: everything that is compared, by the definition.
class Definition {
public:
    Definition(const Problem& p, const NDArray& q, const NDArray& k, const NDArray& v, const NDArray& bias,
               const NDArray& seed)
        : by_query(static_cast<std::size_t>(q.size())),
          by_key(static_cast<std::size_t>(k.size())),
          by_value(static_cast<std::size_t>(v.size())) {
        const double scale = 1 / std::sqrt(static_cast<double>(p.features));
        for (std::int64_t row = 0; row < p.heads * p.tokens; ++row) {
            const std::int64_t head = row / p.tokens / p.group, token = row % p.tokens;
            const auto kv = [&](std::int64_t t) { return head * p.kv_tokens + t; };
            const auto key = [&](std::int64_t t, std::int64_t f) { return kv(t) * p.features + f; };
            const auto value = [&](std::int64_t t, std::int64_t f) { return kv(t) * p.value_features + f; };
            const std::int64_t query = row * p.features, result = row * p.value_features;
            std::vector<double> weights(static_cast<std::size_t>(p.kv_tokens)), by_weights(weights.size());
            double largest = -infinity;
            for (std::int64_t t = 0; t < p.kv_tokens; ++t) {
                double score = 0;
                for (std::int64_t f = 0; f < p.features; ++f) score += q.at(query + f) * k.at(key(t, f)) * scale;
                if (p.mask == Mask::additive) score += bias.at(token * p.kv_tokens + t);
                if (p.mask == Mask::causal && t > token) score = -infinity;
                weights[at(t)] = score;
                largest = std::max(largest, score);
            }
            double total = 0;
            for (double& weight : weights) total += weight = std::exp(weight - largest);
            double mean = 0;
            for (std::int64_t t = 0; t < p.kv_tokens; ++t) {
                weights[at(t)] /= total;
                for (std::int64_t f = 0; f < p.value_features; ++f) {
                    by_weights[at(t)] += seed.at(result + f) * v.at(value(t, f));
                    by_value[at(value(t, f))] += weights[at(t)] * seed.at(result + f);
                }
                mean += weights[at(t)] * by_weights[at(t)];
            }
            for (std::int64_t f = 0; f < p.value_features; ++f) {
                double sum = 0;
                for (std::int64_t t = 0; t < p.kv_tokens; ++t) sum += weights[at(t)] * v.at(value(t, f));
                output.push_back(sum);
            }
            for (std::int64_t t = 0; t < p.kv_tokens; ++t) {
                const double by_score = weights[at(t)] * (by_weights[at(t)] - mean) * scale;
                for (std::int64_t f = 0; f < p.features; ++f) {
                    by_query[at(query + f)] += by_score * k.at(key(t, f));
                    by_key[at(key(t, f))] += by_score * q.at(query + f);
                }
            }
        }
    }

    std::vector<double> output, by_query, by_key, by_value;

private:
    static std::size_t at(std::int64_t number) { return static_cast<std::size_t>(number); }
};

void check_close(const NDArray& result, const std::vector<double>& expected, const char* what) {
    REQUIRE(result.size() == static_cast<std::int64_t>(expected.size()));
    double scale = 1;
    for (const double value : expected) scale = std::max(scale, std::abs(value));
    const double allowed = scale * (rounding(result.dtype()) + 64 * rounding(f32));
    for (std::int64_t k = 0; k < result.size(); ++k) {
        const double wanted = expected[static_cast<std::size_t>(k)];
        const bool close = std::abs(result.at(k) - wanted) <= allowed;
        if (!close) {
            CHECK_MESSAGE(close, what, " ", k, " is ", result.at(k), ", not ", wanted, " within ", allowed);
            break;
        }
    }
}

void check_attention(const Problem& p) {
    INFO(p.heads, " heads in groups of ", p.group, ", ", p.tokens, " by ", p.kv_tokens, " tokens, ", p.features,
         " and ", p.value_features, " features, ", std::string(name_of(p.dtype)));
    const std::int64_t kv_heads = p.heads / p.group;
    const NDArray q = numbers(p.dtype, {p.heads, p.tokens, p.features}, 1);
    const NDArray k = numbers(p.dtype, {kv_heads, p.kv_tokens, p.features}, 2);
    const NDArray v = numbers(p.dtype, {kv_heads, p.kv_tokens, p.value_features}, 3);
    const NDArray bias = numbers(p.dtype, {p.tokens, p.kv_tokens}, 4);
    const NDArray seed = numbers(p.dtype, {p.heads, p.tokens, p.value_features}, 5);
    Graph graph;
    const auto feed = [&](const NDArray& array, const char* name) {
        return graph.placeholder(shape_of(array), array.dtype(), name);
    };
    const Tensor query = feed(q, "query"), key = feed(k, "key"), value = feed(v, "value");
    const Tensor mask = feed(bias, "mask"), by_output = feed(seed, "seed");
    const bool masked = p.mask == Mask::additive;
    const Tensor y =
        scaled_dot_product_attention(query, key, value, masked ? mask : Tensor(), std::nullopt, p.mask == Mask::causal);
    const auto found = gradients(y, {query, key, value}, by_output);
    const std::vector<Tensor> targets = {y, found.at(query), found.at(key), found.at(value)};
    Feeds feeds = {{query, q}, {key, k}, {value, v}, {by_output, seed}};
    if (masked) feeds.emplace_back(mask, bias);
    const std::vector<NDArray> results = run(graph, feeds, targets, {}, on_simulation());
    const std::string source = source_of(graph, feeds, targets);
    INFO(source);
    CHECK(form_of(source) == Form::tiles);
    const Definition expected(p, q, k, v, bias, seed);
    check_close(results[0], expected.output, "output");
    check_close(results[1], expected.by_query, "query gradient");
    check_close(results[2], expected.by_key, "key gradient");
    check_close(results[3], expected.by_value, "value gradient");
}

}  // namespace

TEST_CASE("attention: one token, one feature, and sizes around those of tiles") {
    check_attention({.tokens = 1, .kv_tokens = 1, .features = 1, .value_features = 1});
    check_attention({.heads = 2, .tokens = 9, .kv_tokens = 17, .features = 5, .value_features = 3});
    check_attention({.heads = 16, .tokens = 65, .kv_tokens = 33, .features = 16, .value_features = 24});
}

TEST_CASE("attention: causal, and with an additive mask") {
    check_attention(
        {.heads = 2, .tokens = 40, .kv_tokens = 40, .features = 16, .value_features = 16, .mask = Mask::causal});
    check_attention(
        {.heads = 1, .tokens = 37, .kv_tokens = 20, .features = 8, .value_features = 8, .mask = Mask::causal});
    check_attention(
        {.heads = 2, .tokens = 20, .kv_tokens = 35, .features = 8, .value_features = 9, .mask = Mask::additive});
}

TEST_CASE("attention: many features, heads in groups, 16-bit types") {
    check_attention({.heads = 1, .tokens = 10, .kv_tokens = 18, .features = 80, .value_features = 128});
    check_attention({.heads = 4,
                     .group = 2,
                     .tokens = 33,
                     .kv_tokens = 34,
                     .features = 40,
                     .value_features = 40,
                     .dtype = DType::float16});
    check_attention({.heads = 3,
                     .group = 3,
                     .tokens = 12,
                     .kv_tokens = 30,
                     .features = 64,
                     .value_features = 64,
                     .dtype = DType::bfloat16});
}
