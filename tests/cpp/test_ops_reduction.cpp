// Tests of reductions: values worked by hand, NaN and tie rules, empty domains, inferred shapes and messages.
// Gradients are compared with central differences in float64.
#include "test_ops_support.h"

using namespace topstitch;
using namespace topstitch::ops_test;

namespace {

constexpr DType f16 = DType::float16;
constexpr DType f32 = DType::float32;
constexpr DType f64 = DType::float64;
using Ints = std::vector<std::int64_t>;

const Dim unknown = Dim::unknown();
const Dim batch = Dim::symbol("batch");

NDArray cube(DType dtype = f32) {  // 0 .. 23 in (2, 3, 4)
    Doubles values;
    for (int k = 0; k < 24; ++k) values.push_back(k);
    return array(dtype, {2, 3, 4}, values);
}

NamedAttributes over(const Ints& axes, bool keepdims = false) {
    return {{"axes", axes}, {"keepdims", keepdims}};
}

Shape shape_after(const char* op, const Shape& shape, const NamedAttributes& attributes = {}) {
    return infer(op, {{f32, shape}}, attributes).shape;
}

}  // namespace

TEST_CASE("sums over any axes") {
    check_same(run("sum", {cube()}), {276});
    check_same(run("sum", {cube()}, over({0, 2})), {60, 92, 124});
    check_same(run("sum", {cube()}, over({-1})), {6, 22, 38, 54, 70, 86});
    check_same(run("sum", {cube()}, over({1})), {12, 15, 18, 21, 48, 51, 54, 57});
    CHECK(run("sum", {cube()}, over({0, 2}, true)).shape() == Sizes{1, 3, 1});
    CHECK(run("sum", {cube()}, over({-1, 0})).shape() == Sizes{3});
    check_same(run("sum", {cube()}, over({})), values_of(cube()));  // no axes: nothing is combined
    check_same(run("sum", {array(f32, {}, {3})}), {3});
    check_same(run("sum", {cube().transpose({2, 0, 1})}, over({1, 0})), {60, 92, 124});
}

TEST_CASE("sums of rank 16") {
    const NDArray ones = array(f32, {2, 1, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 1, 3}, Doubles(24, 1.0));
    check_same(run("sum", {ones}, over({0, 2, 15})), {12, 12});
    check_same(run("sum", {ones}), {24});
}

TEST_CASE("dtypes of sums and products: integers wrap, 16-bit floats accumulate in float32") {
    check_same(run("sum", {vector_of(DType::uint8, {200, 72})}), {16});
    check_same(run("sum", {vector_of(DType::int8, {127, 1})}), {-128});
    check_same(run("product", {vector_of(DType::int16, {300, 300})}), {90000 - 65536});
    CHECK(exact_values<std::int64_t>(run("sum", {exact<std::int64_t>(DType::int64, {(1LL << 60) + 1, 2})}))[0] ==
          (1LL << 60) + 3);
    // 2048 + 1 + 1 + 1 + 1: in float16 each 1 alone would be lost.
    check_same(run("sum", {vector_of(f16, {2048, 1, 1, 1, 1})}), {2052});
    const NDArray total = run("sum", {complex_array({{1, 2}, {3, -5}})});
    CHECK(exact_values<std::complex<float>>(total.contiguous())[0] == std::complex<float>(4, -3));
    CHECK(infer("sum", {{DType::uint8, {3}}}).dtype == DType::uint8);
}

TEST_CASE("nothing to reduce") {
    check_same(run("sum", {array(f32, {2, 0}, {})}, over({1})), {0, 0});
    check_same(run("product", {array(f32, {2, 0}, {})}, over({1})), {1, 1});
    check_same(run("all", {array(f32, {2, 0}, {})}, over({1})), {1, 1});
    check_same(run("any", {array(f32, {2, 0}, {})}, over({1})), {0, 0});
    check_same(run("mean", {array(f32, {2, 0}, {})}, over({1})), {qnan, qnan});
    check_same(run("variance", {array(f32, {2, 0}, {})}, over({1})), {qnan, qnan});
    check_same(run("logsumexp", {array(f32, {2, 0}, {})}, over({1})), {-inf, -inf});
    CHECK(run("max", {array(f32, {0, 3}, {})}, over({1})).shape() == Sizes{0});
    CHECK(run("max", {array(f32, {0, 0}, {})}, over({1})).shape() == Sizes{0});  // nothing is asked for
    const std::string message = message_of([] { run("max", {array(f32, {2, 0}, {})}, over({1})); });
    CHECK(contains(message, "[max]"));
    CHECK(contains(message, "(2, 0)"));
    CHECK(contains(message_of([] { run("argmin", {array(f32, {0}, {})}); }), "no elements"));
}

TEST_CASE("extrema: NaN policies and integers") {
    const NDArray x = array(f32, {2, 3}, {1, qnan, 3, -inf, -7, -8});
    check_same(run("max", {x}, over({1})), {qnan, -7});
    check_same(run("min", {x}, over({1})), {qnan, -inf});
    NamedAttributes ignoring = over({1});
    ignoring.emplace_back("nan", std::string("ignore"));
    check_same(run("max", {x}, ignoring), {3, -7});
    check_same(run("min", {x}, ignoring), {1, -inf});
    check_same(run("max", {vector_of(f32, {qnan, qnan})}, {{"nan", std::string("ignore")}}), {qnan});
    CHECK(exact_values<std::int64_t>(
              run("max", {exact<std::int64_t>(DType::int64, {(1LL << 62) + 1, 1LL << 62})}))[0] == (1LL << 62) + 1);
    check_same(run("min", {vector_of(DType::int8, {-128, 127})}), {-128});
    check_same(run("max", {vector_of(DType::uint64, {3, 5})}, {{"nan", std::string("ignore")}}), {5});
    CHECK(contains(message_of<TypeError>([] { infer("max", {{DType::boolean, {3}}}); }), "any or all"));
    CHECK(contains(message_of([] { infer("max", {{f32, {3}}}, {{"nan", std::string("drop")}}); }), "ignore"));
}

TEST_CASE("positions of extrema: the first of equals, the first NaN") {
    const NDArray x = array(f32, {2, 4}, {3, 9, 9, 1, 5, qnan, qnan, 7});
    CHECK(run("argmax", {x}).dtype() == DType::int32);
    check_same(run("argmax", {x}, {{"axis", std::int64_t{1}}}), {1, 1});
    check_same(run("argmin", {x}, {{"axis", std::int64_t{-1}}}), {3, 1});
    check_same(run("argmax", {x}, {{"axis", std::int64_t{0}}}), {1, 1, 1, 1});
    check_same(run("argmax", {x}), {5});  // flattened
    check_same(run("argmin", {cube(DType::int64)}, {{"dtype", DType::int64}}), {0});
    CHECK(run("argmax", {x}, {{"axis", std::int64_t{1}}, {"keepdims", true}}).shape() == Sizes{2, 1});
    CHECK(run("argmax", {x}, {{"keepdims", true}}).shape() == Sizes{1, 1});
    CHECK(contains(message_of<TypeError>([] { infer("argmax", {{f32, {3}}}, {{"dtype", f32}}); }), "int32 or int64"));
}

TEST_CASE("all and any") {
    const NDArray flags = array(DType::boolean, {2, 2}, {1, 0, 1, 1});
    check_same(run("all", {flags}, over({1})), {0, 1});
    check_same(run("any", {flags}, over({0})), {1, 1});
    CHECK(run("any", {flags}).dtype() == DType::boolean);
    check_same(run("all", {vector_of(f32, {qnan, -1})}), {1});
    check_same(run("any", {vector_of(f32, {0, -0.0})}), {0});
    check_same(run("any", {vector_of(DType::int8, {0, -1})}), {1});
    check_same(run("any", {complex_array({{0, 0}, {0, 1}})}), {1});
    check_same(run("all", {complex_array({{0, 0}, {0, 1}})}), {0});
}

TEST_CASE("mean and variance") {
    const NDArray x = array(f32, {2, 4}, {1, 2, 3, 4, -10, 10, -10, 10});
    check_same(run("mean", {x}, over({1})), {2.5, 0});
    check_same(run("mean", {x}), {1.25});
    check_same(run("variance", {x}, over({1})), {1.25, 100});
    NamedAttributes sample = over({1});
    sample.emplace_back("ddof", std::int64_t{1});
    check_close(run("variance", {x}, sample), {5.0 / 3.0, 400.0 / 3.0}, 1e-6);
    check_same(run("variance", {x, array(f32, {1, 1}, {0})}, over({1})), {7.5, 100});
    // E[x^2] - E[x]^2 would give 0 or worse here.
    check_same(run("variance", {vector_of(f32, {16777214, 16777216})}), {1});
    // 70000 does not fit float16, the mean does.
    check_same(run("mean", {array(f16, {70000}, Doubles(70000, 1.0))}), {1});
    check_same(run("variance", {vector_of(f16, {-300, 300, -300, 300})}), {inf});  // 90000 is beyond float16
    const NDArray center = run("mean", {complex_array({{1, 2}, {3, -5}})});
    CHECK(exact_values<std::complex<float>>(center.contiguous())[0] == std::complex<float>(2, -1.5));
    check_same(run("variance", {vector_of(f32, {5})}, {{"ddof", std::int64_t{1}}}), {qnan});  // 0 / 0
    CHECK(contains(message_of<TypeError>([] { infer("mean", {{DType::int32, {3}}}); }), "use cast"));
    CHECK(contains(message_of<TypeError>([] { infer("variance", {{DType::complex64, {3}}}); }), "complex64"));
}

TEST_CASE("logsumexp and l2_norm") {
    check_close(run("logsumexp", {vector_of(f64, {0, std::log(2.0), std::log(3.0)})}), {std::log(6.0)}, 1e-15);
    check_close(run("logsumexp", {vector_of(f32, {1000, 1000})}), {1000.6931471805599}, 1e-7);
    check_close(run("logsumexp", {array(f64, {2, 2}, {-1000, -1001, 0, 1})}, over({1}, true)),
                {-1000 + std::log1p(std::exp(-1.0)), 1 + std::log1p(std::exp(-1.0))}, 1e-14);
    check_same(run("logsumexp", {vector_of(f32, {-inf, -inf})}), {-inf});
    check_same(run("logsumexp", {vector_of(f32, {inf, 1})}), {inf});
    check_same(run("logsumexp", {vector_of(f32, {qnan, 1})}), {qnan});
    CHECK(run("logsumexp", {cube()}, over({0, 2})).shape() == Sizes{3});
    check_same(run("l2_norm", {array(f32, {2, 2}, {3, 4, 5, 12})}, over({1})), {5, 13});
    check_same(run("l2_norm", {vector_of(f16, {300, 400})}), {500});  // the squares overflow float16
}

TEST_CASE("size counts elements") {
    check_same(run("size", {cube()}), {24});
    check_same(run("size", {cube()}, {{"axes", Ints{0, -1}}, {"dtype", f64}}), {8});
    check_same(run("size", {array(f32, {0, 3}, {})}, {{"axes", Ints{1}}}), {3});
}

TEST_CASE("product of others") {
    const NDArray x = array(f64, {2, 5}, {2, 3, 5, 7, 11, 0, 3, 0, 7, 1});
    check_same(run("product_of_others", {x}), {1155, 770, 462, 330, 210, 0, 0, 0, 0, 0});
    check_same(run("product_of_others", {vector_of(f64, {0, 3, 4})}), {12, 0, 0});
    check_same(run("product_of_others", {vector_of(f64, {9})}), {1});
    check_same(run("product_of_others", {array(f64, {2, 2}, {1, 2, 3, 4})}, {{"axis", std::int64_t{0}}}), {3, 4, 1, 2});
    CHECK(run("product_of_others", {array(f64, {3, 0}, {})}).shape() == Sizes{3, 0});
    // No quotient, so no overflow of the whole product on the way.
    check_same(run("product_of_others", {vector_of(f32, {1e-30, 1e-30})}),
               {static_cast<double>(1e-30F), static_cast<double>(1e-30F)});
}

TEST_CASE("shapes with unknown dims and unknown rank") {
    CHECK(shape_after("sum", {batch, 3, unknown}, over({2})) == Shape{batch, 3});
    CHECK(shape_after("sum", {batch, 3, unknown}, over({-1}, true)) == Shape{batch, 3, 1});
    CHECK(shape_after("max", {unknown, 3}) == Shape{});
    CHECK(shape_after("sum", Shape::unranked()) == Shape{});
    CHECK(!shape_after("sum", Shape::unranked(), over({0})).has_rank());
    CHECK(!shape_after("mean", Shape::unranked(), {{"keepdims", true}}).has_rank());
    CHECK(shape_after("argmax", {batch, unknown}, {{"axis", std::int64_t{1}}}) == Shape{batch});
    CHECK(shape_after("argmax", Shape::unranked()) == Shape{});
    CHECK(shape_after("size", {unknown, 4}) == Shape{});
}

TEST_CASE("messages about axes") {
    const auto sum_over = [](const Ints& axes) { return message_of([&] { shape_after("sum", {2, 3}, over(axes)); }); };
    CHECK(contains(sum_over({2}), "[sum] axis 2 is out of range"));
    CHECK(contains(sum_over({2}), "-2 to 1"));
    CHECK(contains(sum_over({1, -1}), "twice"));
    CHECK(contains(message_of([] { shape_after("sum", Shape{}, over({0})); }), "scalar"));
    CHECK(contains(message_of<TypeError>([] { infer("sum", {{DType::boolean, {3}}}); }), "any and all"));
}

TEST_CASE("gradients against differences") {
    const NDArray x = array(f64, {2, 3}, {1.5, -0.4, 0.3, 0.9, -1.6, 2.5});
    for (const char* op : {"sum", "mean", "variance", "product", "max", "min", "logsumexp", "l2_norm"}) {
        check_gradient(op, {x});
        check_gradient(op, {x}, over({1}));
        check_gradient(op, {x}, over({-2}, true));
        check_gradient(op, {x}, over({}));
    }
    NamedAttributes sample = over({0});
    sample.emplace_back("ddof", std::int64_t{1});
    check_gradient("variance", {x}, sample);
    check_gradient("variance", {x, array(f64, {2, 1}, {0.3, -0.2})}, over({1}));
    check_gradient("product", {array(f64, {3, 2, 2}, {0, 2, 0, 4, 5, 0, 7, 8, 9, 10, 0, 12})}, over({0, 2}));
    check_gradient("product", {vector_of(f64, {0, 0, 3})});
}

TEST_CASE("gradients at edges") {
    const NDArray one = array(f32, {}, {1});
    const auto gradient = [&](const char* op, const Doubles& x) {
        return run_gradient(op, {vector_of(f32, x)}, one)[0];
    };
    check_same(gradient("max", {2, 5, 5, 1}), {0, 0.5, 0.5, 0});
    check_same(gradient("min", {1, 1, 1, 1}), {0.25, 0.25, 0.25, 0.25});
    check_same(gradient("max", {2, qnan, 5}), {0, 1, 0});
    check_same(gradient("product", {0, 3, 4}), {12, 0, 0});
    check_same(gradient("logsumexp", {-inf, -inf}), {0, 0});
    check_same(gradient("logsumexp", {-inf, 0}), {0, 1});
    check_same(gradient("l2_norm", {0, 0}), {0, 0});
    check_close(gradient("l2_norm", {3, 4}), {0.6, 0.8}, 1e-6);
    // 5000 ties are more than float16 can count.
    check_same(run_gradient("max", {array(f16, {4096}, Doubles(4096, 1.0))}, array(f16, {}, {4096}))[0],
               Doubles(4096, 1.0));
}
