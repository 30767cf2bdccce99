// Tests of attention's types for dims that are not known yet, and of small values worked by hand.
// Larger problems, its kernels and its gradients are tested from Python (tests/python/test_attention.py).
#include "graph/dims.h"
#include "test_ops_support.h"

using namespace topstitch;
using namespace topstitch::ops_test;

namespace {

constexpr DType f32 = DType::float32;

const Dim unknown = Dim::unknown();
const Dim batch = Dim::symbol("batch");
const Dim heads = Dim::symbol("heads");
const char* const op = "scaled_dot_product_attention";

Shape attended(const Shape& query, const Shape& key, const Shape& value) {
    return infer(op, {{f32, query}, {f32, key}, {f32, value}}).shape;
}

// Symbols have these values while it lives.
class Values : public DimAssumptions {
public:
    explicit Values(std::map<std::string, std::int64_t> values) : values_(std::move(values)), scope_(this) {}
    std::int64_t hint(const Dim& dim) override {
        return dim.substitute([this](std::string_view name) { return Dim(values_.at(std::string(name))); }).value();
    }
    void assume_equal(const Dim& a, const Dim& b) override { assumed.emplace_back(a, b); }

    std::vector<std::pair<Dim, Dim>> assumed;

private:
    std::map<std::string, std::int64_t> values_;
    ScopedDimAssumptions scope_;
};

}  // namespace

TEST_CASE("types of attention") {
    CHECK(attended({7, 4}, {9, 4}, {9, 5}) == Shape{7, 5});
    CHECK(attended({6, 7, 4}, {2, 9, 4}, {2, 9, 5}) == Shape{6, 7, 5});
    CHECK(attended({batch, 6, 7, 4}, {1, 2, 9, 4}, {batch, 2, 9, 5}) == Shape{batch, 6, 7, 5});
    CHECK(attended({3, 1, 6, 7, 4}, {2, 6, 9, 4}, {2, 6, 9, 5}) == Shape{3, 2, 6, 7, 5});
    CHECK(attended({batch, heads, unknown, 4}, {batch, 2, 9, 4}, {batch, 2, 9, 5}).str() ==
          Shape{batch, heads, unknown, 5}.str());
    CHECK(!attended(Shape::unranked(), {9, 4}, {9, 5}).has_rank());
    CHECK(infer(op, {{DType::bfloat16, {7, 4}}, {DType::bfloat16, {9, 4}}, {DType::bfloat16, {9, 5}}}).dtype ==
          DType::bfloat16);
}

TEST_CASE("a mask broadcasts to the scores, and no further") {
    const auto with_mask = [](DType dtype, const Shape& mask) {
        return infer(op, {{f32, {2, 7, 4}}, {f32, {1, 9, 4}}, {f32, {1, 9, 5}}, {dtype, mask}}).shape;
    };
    for (const Shape& mask : {Shape{}, Shape{9}, Shape{7, 1}, Shape{2, 1, 9}, Shape{unknown, unknown}}) {
        CHECK(with_mask(DType::boolean, mask) == Shape{2, 7, 5});
        CHECK(with_mask(f32, mask) == Shape{2, 7, 5});
    }
    for (const Shape& mask : {Shape{7}, Shape{3, 7, 9}, Shape{1, 2, 7, 9}}) {
        const std::string message = message_of<UserError>([&] { with_mask(DType::boolean, mask); });
        CHECK(contains(message, "does not broadcast to the scores' (2, 7, 9)"));
    }
    CHECK(contains(message_of<TypeError>([&] { with_mask(DType::int32, {9}); }), "use cast"));
}

TEST_CASE("attention by hand") {
    // Scores of ln 3 and 0: weights of 3/4 and 1/4.
    const double third = std::log(3.0);
    const NDArray query = array(DType::float64, {1, 1}, {third});
    const NDArray key = array(DType::float64, {2, 1}, {1, 0});
    const NDArray value = array(DType::float64, {2, 1}, {8, 4});
    check_close(run(op, {query, key, value}), {7}, 1e-14);
    check_close(run(op, {query, key, value}, {{"scale", 0.0}}), {6}, 1e-14);
    const NDArray mask = array(DType::boolean, {2}, {0, 1});
    check_close(run(op, {query, key, value, mask}), {4}, 1e-14);
    check_close(run(op, {query, key, value}, {{"causal", true}}), {8}, 1e-14);
    check_same(run(op, {query, key, value, array(DType::boolean, {2}, {0, 0})}), {0});
    // A sink of 0 takes a share like the second key: weights of 3/5 and 1/5.
    const NDArray sink = array(DType::float64, {1}, {0});
    check_close(run("scaled_dot_product_attention_with_sinks", {query, key, value, sink}), {5.6}, 1e-14);
}

TEST_CASE("quotients of dims") {
    CHECK(dims_quotient(12, 4) == Dim(3));
    CHECK(dims_quotient(heads * Dim(4), heads) == Dim(4));
    CHECK(dims_quotient(heads, 1) == heads);
    CHECK(dims_quotient(12, 5).is_unknown());
    CHECK(dims_quotient(12, 0).is_unknown());
    CHECK(dims_quotient(heads, batch).is_unknown());
    Values values({{"heads", 12}, {"batch", 4}});
    CHECK(dims_quotient(heads, batch) == Dim(3));
    REQUIRE(values.assumed.size() == 1);
    CHECK(values.assumed[0].first == heads);
    CHECK(values.assumed[0].second == batch * Dim(3));
    CHECK(dims_quotient(batch, heads).is_unknown());
}
