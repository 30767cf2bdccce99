// Tests of pad: values as NumPy's pad gives them, paddings wider than the input, and its adjoint.
// The adjoint is compared with the transposed matrix of pad itself, element by element.
#include <numeric>

#include "test_ops_support.h"

using namespace topstitch;
using namespace topstitch::ops_test;

namespace {

constexpr DType f32 = DType::float32;
constexpr DType f64 = DType::float64;
using Ints = std::vector<std::int64_t>;

NamedAttributes padding(const Ints& left, const Ints& right, const std::string& mode) {
    return {{"left", left}, {"right", right}, {"mode", mode}};
}

void check_pad(const std::string& mode, const Doubles& x, std::int64_t left, std::int64_t right,
               const Doubles& expected) {
    INFO("mode ", mode, ", left ", left, ", right ", right);
    check_same(run("pad", {vector_of(f64, x)}, padding({left}, {right}, mode)), expected);
    check_same(run("pad", {vector_of(DType::int16, x)}, padding({left}, {right}, mode)), expected);
}

// pad copies with weights 1 and -1, so that padding the unit vectors gives its matrix; the adjoint is its transpose.
void check_adjoint(const std::string& mode, std::int64_t extent, std::int64_t left, std::int64_t right) {
    INFO("mode ", mode, ", extent ", extent, ", left ", left, ", right ", right);
    const std::int64_t padded = extent + left + right;
    Doubles upstream;
    for (std::int64_t k = 0; k < padded; ++k) upstream.push_back(static_cast<double>(1 + k * k));
    Doubles expected;
    for (std::int64_t i = 0; i < extent; ++i) {
        Doubles unit(static_cast<std::size_t>(extent), 0.0);
        unit[static_cast<std::size_t>(i)] = 1.0;
        const Doubles column = values_of(run("pad", {vector_of(f64, unit)}, padding({left}, {right}, mode)));
        expected.push_back(std::inner_product(column.begin(), column.end(), upstream.begin(), 0.0));
    }
    check_same(run("pad_gradient", {vector_of(f64, upstream)},
                   {{"axis", std::int64_t{0}}, {"left", left}, {"right", right}, {"mode", mode}}),
               expected);
}

}  // namespace

TEST_CASE("constant padding") {
    const NDArray x = array(f32, {2, 2}, {1, 2, 3, 4});
    check_same(run("pad", {x}, {{"left", Ints{1, 0}}, {"right", Ints{0, 2}}}), {0, 0, 0, 0, 1, 2, 0, 0, 3, 4, 0, 0});
    check_same(run("pad", {x}, {{"left", Ints{0, 0}}, {"right", Ints{0, 1}}, {"value", -inf}}),
               {1, 2, -inf, 3, 4, -inf});
    check_same(run("pad", {x}, {{"left", Ints{0, 0}}, {"right", Ints{0, 0}}}), {1, 2, 3, 4});
    check_same(run("pad", {array(f32, {0}, {})}, {{"left", Ints{2}}, {"right", Ints{1}}, {"value", 7.0}}), {7, 7, 7});
    check_same(run("pad", {vector_of(DType::uint8, {5})}, {{"left", Ints{1}}, {"right", Ints{0}}, {"value", 255.0}}),
               {255, 5});
    // Whatever lies next to the input is not touched by arithmetic: NaN and infinity stay where they are.
    check_same(run("pad", {vector_of(f32, {qnan, inf})}, {{"left", Ints{1}}, {"right", Ints{1}}}), {0, qnan, inf, 0});
    const NDArray z = run("pad", {complex_array({{1, 2}})}, {{"left", Ints{0}}, {"right", Ints{1}}, {"value", 3.0}});
    CHECK(exact_values<std::complex<float>>(z) == Complexes{{1, 2}, {3, 0}});
}

TEST_CASE("modes that copy, as NumPy's pad") {
    check_pad("edge", {1, 2, 3}, 5, 7, {1, 1, 1, 1, 1, 1, 2, 3, 3, 3, 3, 3, 3, 3, 3});
    check_pad("reflect", {1, 2, 3}, 5, 7, {2, 1, 2, 3, 2, 1, 2, 3, 2, 1, 2, 3, 2, 1, 2});
    check_pad("symmetric", {1, 2, 3}, 5, 7, {2, 3, 3, 2, 1, 1, 2, 3, 3, 2, 1, 1, 2, 3, 3});
    check_pad("wrap", {1, 2, 3}, 5, 7, {2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1});
    check_pad("antiwrap", {1, 2, 3}, 5, 7, {2, 3, -1, -2, -3, 1, 2, 3, -1, -2, -3, 1, 2, 3, -1});
    check_pad("reflect", {1, 2, 3}, 2, 1, {3, 2, 1, 2, 3, 2});
    check_pad("symmetric", {1, 2, 3}, 2, 1, {2, 1, 1, 2, 3, 3});
    check_pad("wrap", {1, 2, 3}, 2, 1, {2, 3, 1, 2, 3, 1});
    for (const char* mode : {"edge", "reflect", "symmetric", "wrap"}) check_pad(mode, {4}, 2, 3, {4, 4, 4, 4, 4, 4});
    check_pad("reflect", {0, 1}, 5, 4, {1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1});
    check_pad("symmetric", {0, 1}, 5, 4, {0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1});
}

TEST_CASE("several axes") {
    const NDArray x = array(f64, {2, 3}, {0, 1, 2, 3, 4, 5});
    const auto padded = [&](const char* mode) { return run("pad", {x}, padding({1, 0}, {2, 1}, mode)); };
    check_same(padded("reflect"), {3, 4, 5, 4, 0, 1, 2, 1, 3, 4, 5, 4, 0, 1, 2, 1, 3, 4, 5, 4});
    check_same(padded("symmetric"), {0, 1, 2, 2, 0, 1, 2, 2, 3, 4, 5, 5, 3, 4, 5, 5, 0, 1, 2, 2});
    check_same(padded("wrap"), {3, 4, 5, 3, 0, 1, 2, 0, 3, 4, 5, 3, 0, 1, 2, 0, 3, 4, 5, 3});
    // The sign changes once for each axis.
    check_same(run("pad", {array(f64, {1, 1}, {5})}, padding({1, 1}, {0, 0}, "antiwrap")), {5, -5, -5, 5});
}

TEST_CASE("the adjoint gathers every copy") {
    for (const char* mode : {"edge", "reflect", "symmetric", "wrap", "antiwrap"}) {
        for (const std::int64_t extent : {1, 2, 3, 5}) {
            for (const std::int64_t left : {0, 1, 2, 4, 7}) {
                for (const std::int64_t right : {0, 1, 3, 6, 8}) check_adjoint(mode, extent, left, right);
            }
        }
    }
}

TEST_CASE("gradients against differences") {
    const NDArray x = array(f64, {2, 3}, {1.5, -0.4, 0.3, 0.9, -1.6, 2.5});
    for (const char* mode : {"constant", "edge", "reflect", "symmetric", "wrap", "antiwrap"}) {
        check_gradient("pad", {x}, padding({3, 0}, {1, 4}, mode));
        check_gradient("pad", {x}, padding({0, 0}, {0, 0}, mode));
    }
    check_gradient("pad_gradient", {x},
                   {{"axis", std::int64_t{1}},
                    {"left", std::int64_t{1}},
                    {"right", std::int64_t{0}},
                    {"mode", std::string("reflect")}});
}

TEST_CASE("shapes and messages of pad") {
    const auto padded = [](const Shape& shape, const Ints& left, const Ints& right, const char* mode = "constant") {
        return infer("pad", {{f32, shape}}, padding(left, right, mode)).shape;
    };
    const Dim batch = Dim::symbol("batch");
    CHECK(padded({batch, 3}, {1, 2}, {0, 2}) == Shape{batch + 1, 7});
    CHECK(padded({Dim::unknown(), 3}, {1, 2}, {0, 2}).str() == "(?, 7)");
    CHECK(padded(Shape::unranked(), {1, 2}, {0, 2}).str() == "(?, ?)");
    CHECK(infer("pad_gradient", {{f32, {batch + 3}}},
                {{"axis", std::int64_t{0}}, {"left", std::int64_t{1}}, {"right", std::int64_t{2}}})
              .shape == Shape{batch});
    const auto message = [&](const Shape& shape, const Ints& left, const Ints& right, const char* mode = "constant") {
        return message_of([&] { padded(shape, left, right, mode); });
    };
    CHECK(contains(message({2, 3}, {1}, {1}), "two paddings for each axis"));
    CHECK(contains(message({2, 3}, {-1, 0}, {0, 0}), "slice removes"));
    CHECK(contains(message({0}, {1}, {0}, "edge"), "has none"));
    CHECK(contains(message({3}, {1}, {0}, "mirror"), "reflect"));
    CHECK(contains(message_of<TypeError>([] { infer("pad", {{DType::boolean, {3}}}, padding({1}, {0}, "antiwrap")); }),
                   "no sign"));
}
