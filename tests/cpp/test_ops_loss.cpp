// Tests of activations, losses and optimizer steps: hand-calculated numbers, stability at the ends, gradients.
// Longer numbers were computed with 50-digit arithmetic.
#include "test_ops_support.h"

using namespace topstitch;
using namespace topstitch::ops_test;

namespace {

constexpr DType f16 = DType::float16;
constexpr DType f32 = DType::float32;
constexpr DType f64 = DType::float64;

NamedAttributes reduction(const char* how) {
    return {{"reduction", std::string(how)}};
}

}  // namespace

TEST_CASE("activations at the ends") {
    const NDArray x = vector_of(f32, {-inf, -1000, 0, 1000, inf, qnan});
    check_same(run("relu", {x}), {0, 0, 0, 1000, inf, qnan});
    check_same(run("sigmoid", {x}), {0, 0, 0.5, 1, 1, qnan});
    check_same(run("hard_sigmoid", {x}), {0, 0, 0.5, 1, 1, qnan});
    check_same(run("softplus", {x}), {0, 0, static_cast<double>(std::log(2.0F)), 1000, inf, qnan});
    check_same(run("log_sigmoid", {x}), {-inf, -1000, static_cast<double>(-std::log(2.0F)), 0, 0, qnan});
    check_same(run("silu", {x}), {-0.0, -0.0, 0, 1000, inf, qnan});
    check_same(run("gelu", {x}), {-0.0, -0.0, 0, 1000, inf, qnan});
    check_same(run("gelu", {x}, {{"approximate", std::string("tanh")}}), {-0.0, -0.0, 0, 1000, inf, qnan});
    check_same(run("elu", {x}), {-1, -1, 0, 1000, inf, qnan});
    check_same(run("leaky_relu", {x}, {{"alpha", 0.5}}), {-inf, -500, 0, 1000, inf, qnan});
    check_same(run("prelu", {array(f32, {2, 2}, {-1, 2, -3, 4}), vector_of(f32, {0.5, 9})}), {-0.5, 2, -1.5, 4});
    check_same(run("relu", {vector_of(DType::int8, {-128, 5})}), {0, 5});
    check_same(run("hard_sigmoid", {vector_of(f64, {-2.5, 1})}, {{"alpha", 0.2}}), {0, 0.7});
}

TEST_CASE("activations keep their relative accuracy in the tails") {
    // sigmoid(-100), log_sigmoid(100), softplus(-100): all exp(-100) in 50 digits.
    check_close(run("sigmoid", {vector_of(f64, {-100})}), {3.7200759760208359630e-44}, 1e-15);
    check_close(run("log_sigmoid", {vector_of(f64, {100})}), {-3.7200759760208359630e-44}, 1e-15);
    check_close(run("softplus", {vector_of(f64, {-100})}), {3.7200759760208359630e-44}, 1e-15);
    // x * Phi(x) at -5 and 1: Phi(-5) = 2.8665157187919391167e-7, Phi(1) = 0.84134474606854294859.
    check_close(run("gelu", {vector_of(f64, {-5, 1})}), {-1.4332578593959695583e-6, 0.84134474606854294859}, 1e-14);
    check_close(run("gelu", {vector_of(f32, {-5, 1})}), {-1.4332578593959695583e-6, 0.84134474606854294859}, 1e-6);
    // 0.5 * (1 + tanh(sqrt(2/pi) * 1.044715)).
    check_close(run("gelu", {vector_of(f64, {1})}, {{"approximate", std::string("tanh")}}), {0.84119199060827670479},
                1e-14);
    check_close(run("silu", {vector_of(f64, {1})}), {0.73105857863000487925}, 1e-15);
    check_close(run("elu", {vector_of(f64, {-1e-10})}, {{"alpha", 2.0}}), {-1.9999999999e-10}, 1e-14);
}

TEST_CASE("softmax and log_softmax") {
    const NDArray x = array(f64, {2, 3}, {1, 2, 3, 1000, 1000, 1000 - std::log(2.0)});
    const Doubles first = {0.090030573170380457998, 0.24472847105479765247, 0.66524095577482188953};
    const NDArray y = run("softmax", {x});
    check_close(y, {first[0], first[1], first[2], 0.4, 0.4, 0.2}, 1e-13);
    check_close(
        run("log_softmax", {x}),
        {std::log(first[0]), std::log(first[1]), std::log(first[2]), std::log(0.4), std::log(0.4), std::log(0.2)},
        1e-13);
    check_close(run("softmax", {array(f64, {2, 2}, {0, 5, std::log(3.0), 5})}, {{"axis", std::int64_t{0}}}),
                {0.25, 0.5, 0.75, 0.5}, 1e-15);
    check_same(run("softmax", {vector_of(f32, {-inf, 0, 0})}), {0, 0.5, 0.5});
    check_same(run("log_softmax", {vector_of(f32, {-1000, 0})}), {-1000, 0});
    check_same(run("softmax", {vector_of(f32, {-inf, -inf})}), {qnan, qnan});
    // 16-bit floats: the sum of 4096 ones would stop at 2048 in float16.
    const NDArray many = run("softmax", {array(f16, {4096}, Doubles(4096, 1.0))});
    CHECK(many.dtype() == f16);
    CHECK(many.at(0) == 0x1p-12);
    CHECK(run("softmax", {array(f32, {2, 0}, {})}).shape() == Sizes{2, 0});
    CHECK(run("softmax", {array(f32, {0, 2}, {})}).shape() == Sizes{0, 2});
    CHECK_THROWS_AS(run("softmax", {array(f32, {2}, {1, 2})}, {{"axis", std::int64_t{1}}}), UserError);
    CHECK_THROWS_AS(run("softmax", {array(f32, {}, {1})}), UserError);
    CHECK_FALSE(infer("softmax", {{f32, Shape::unranked()}}).shape.has_rank());
}

TEST_CASE("softmax cross entropy with classes and with probabilities") {
    // Row 1: log(e + e^2 + e^3) - 3 for class 2; row 2: equal logits, log 3.
    const NDArray logits = array(f64, {2, 3}, {1, 2, 3, 5, 5, 5});
    const double row1 = 0.40760596444438030448;
    const double row2 = std::log(3.0);
    for (const DType dtype : {DType::int8, DType::int32, DType::uint64}) {
        const NDArray classes = vector_of(dtype, {2, 0});
        check_close(run("softmax_cross_entropy", {logits, classes}), {row1, row2}, 1e-14);
        check_close(run("softmax_cross_entropy", {logits, classes}, reduction("sum")), {row1 + row2}, 1e-14);
        check_close(run("softmax_cross_entropy", {logits, classes}, reduction("mean")), {(row1 + row2) / 2}, 1e-14);
    }
    const NDArray dense = array(f64, {2, 3}, {0, 0, 1, 0.5, 0.25, 0.25});
    check_close(run("softmax_cross_entropy", {logits, dense}), {row1, row2}, 1e-14);
    // Labels that do not sum to 1 count as they are: 2 * (row1 + 1) + 3 * row1.
    check_close(run("softmax_cross_entropy", {vector_of(f64, {1, 2, 3}), vector_of(f64, {0, 2, 3})}), {5 * row1 + 2},
                1e-14);
    // Another axis.
    check_close(run("softmax_cross_entropy", {logits.transpose({1, 0}), vector_of(DType::int32, {2, 0})},
                    {{"axis", std::int64_t{0}}}),
                {row1, row2}, 1e-14);
    // An impossible class that nobody asks for, and one that is asked for.
    const NDArray masked = array(f32, {2, 2}, {-inf, 0, -inf, 0});
    check_same(run("softmax_cross_entropy", {masked, array(f32, {2, 2}, {0, 1, 1, 0})}), {0, inf});
    check_same(run("softmax_cross_entropy", {masked, vector_of(DType::int32, {1, 0})}), {0, inf});
    // No such class.
    for (const double label : {-1.0, 3.0, -100.0, 4294967296.0}) {
        check_same(run("softmax_cross_entropy", {vector_of(f32, {1, 2, 3}), array(DType::int64, {}, {label})}), {qnan});
    }
    check_close(run("softmax_cross_entropy", {logits, vector_of(DType::int8, {-1, 0})}), {qnan, row2}, 1e-14);
    for (const char* how : {"sum", "mean"}) {
        check_same(run("softmax_cross_entropy", {logits, vector_of(DType::int32, {2, 3})}, reduction(how)), {qnan});
    }
    // float16: exp(12) overflows, so does a plain sum; the result is near 0.
    const NDArray half = run("softmax_cross_entropy", {vector_of(f16, {12, -12}), vector_of(f16, {0, 1})});
    CHECK(half.dtype() == f16);
    CHECK(half.at(0) == 24.0);
    CHECK(run("softmax_cross_entropy", {array(f32, {0, 3}, {}), array(DType::int32, {0}, {})}).shape() == Sizes{0});
}

TEST_CASE("softmax cross entropy: gradients") {
    const NDArray logits = array(f64, {2, 3}, {1, 2, 3, 0.5, -1, 2});
    const NDArray dense = array(f64, {2, 3}, {0.2, 0.3, 0.1, 0.5, 0.25, 0.4});
    const NDArray classes = vector_of(DType::int32, {2, 0});
    for (const char* how : {"none", "sum", "mean"}) {
        check_gradient("softmax_cross_entropy", {logits, dense}, reduction(how));
        check_gradient("softmax_cross_entropy", {logits, classes}, reduction(how));
        NamedAttributes first = reduction(how);
        first.emplace_back("axis", std::int64_t{0});
        check_gradient("softmax_cross_entropy", {logits, dense}, first);
        check_gradient("softmax_cross_entropy", {logits, vector_of(DType::int64, {1, 0, 1})}, first);
    }
    // softmax - labels by hand.
    const auto gradient =
        run_gradient("softmax_cross_entropy", {vector_of(f64, {0, std::log(3.0)}), array(DType::int32, {}, {1})},
                     array(f64, {}, {2}));
    check_close(gradient[0], {0.5, -0.5}, 1e-14);
    // A label that is no class spoils its own row only: softmax - labels of the first, NaN in the second.
    const auto spoilt = run_gradient("softmax_cross_entropy",
                                     {array(f64, {2, 2}, {0, std::log(3.0), 0, 1}), vector_of(DType::int32, {1, 7})},
                                     vector_of(f64, {2, 2}));
    check_close(spoilt[0], {0.5, -0.5, qnan, qnan}, 1e-14);
}

TEST_CASE("cross entropy: shapes and errors") {
    const auto shape = [](const Shape& logits, const Shape& labels, DType dtype, const char* how = "none") {
        return infer("softmax_cross_entropy", {{f32, logits}, {dtype, labels}}, reduction(how)).shape.str();
    };
    const Dim unknown = Dim::unknown();
    const Dim batch = Dim::symbol("batch");
    CHECK(shape(Shape({batch, 10}), Shape({batch}), DType::int32) == "(batch,)");
    CHECK(shape(Shape({unknown, 10}), Shape({64}), DType::int32) == "(64,)");
    CHECK(shape(Shape({unknown, 10}), Shape({64, unknown}), f32) == "(64,)");
    CHECK(shape(Shape({unknown, 10}), Shape::unranked(), DType::int32, "mean") == "()");
    CHECK(shape(Shape::unranked(), Shape::unranked(), f32) == "(?...)");
    CHECK(contains(message_of([&] { shape(Shape({4, 10}), Shape({5}), DType::int32); }),
                   "input `labels` has shape (5,), but integer labels need the shape (4,), one class for each row"));
    CHECK(contains(message_of([&] { shape(Shape({4, 10}), Shape({4}), f32); }),
                   "input `logits` has shape (4, 10), but input `labels` has (4,); the shapes must be equal"));
    CHECK_THROWS_AS(shape(Shape({4, 10}), Shape({4, 10}), f64), TypeError);
    CHECK_THROWS_AS(shape(Shape({4, 10}), Shape({4, 10}), DType::boolean), TypeError);
    CHECK_THROWS_AS(infer("mean_squared_error", {{f32, Shape({3, 1})}, {f32, Shape({3})}}), UserError);
}

TEST_CASE("one_hot_like") {
    const NDArray like = array(f32, {2, 3}, Doubles(6, qnan));
    check_same(run("one_hot_like", {vector_of(DType::int32, {2, 0}), like}), {0, 0, 1, 1, 0, 0});
    check_same(run("one_hot_like", {vector_of(DType::int64, {2, 1, -1}), like}, {{"axis", std::int64_t{0}}}),
               {qnan, 0, qnan, qnan, 1, qnan});
    // 2^32 must not look like 0, nor 2^64 - 1 like a class.
    check_same(run("one_hot_like", {vector_of(DType::int64, {4294967296.0, 1}), like}), {qnan, qnan, qnan, 0, 1, 0});
    check_same(run("one_hot_like", {exact(DType::uint64, std::vector<std::uint64_t>{UINT64_MAX, 2}), like}),
               {qnan, qnan, qnan, 0, 0, 1});
}

TEST_CASE("sigmoid cross entropy") {
    const NDArray x = vector_of(f64, {0, 2, -3});
    const NDArray z = vector_of(f64, {1, 0.25, 0});
    // log 2; 0.75 * log(1 + e^2) + 0.25 * log(1 + e^-2); log(1 + e^-3).
    const Doubles expected = {0.69314718055994530942, 1.6269280110429724964, 0.048587351573742058759};
    check_close(run("sigmoid_cross_entropy", {x, z}), expected, 1e-13);
    check_close(run("sigmoid_cross_entropy", {x, z}, reduction("mean")),
                {(expected[0] + expected[1] + expected[2]) / 3}, 1e-13);
    check_same(run("sigmoid_cross_entropy",
                   {vector_of(f32, {inf, -inf, inf, -inf, 1000, -1000}), vector_of(f32, {1, 0, 0, 1, 0, 1})}),
               {0, 0, inf, inf, 1000, 1000});
    for (const char* how : {"none", "sum", "mean"}) check_gradient("sigmoid_cross_entropy", {x, z}, reduction(how));
    // sigmoid(20) - 1 without cancellation.
    check_close(
        run_gradient("sigmoid_cross_entropy", {vector_of(f32, {20}), vector_of(f32, {1})}, vector_of(f32, {1}))[0],
        {-2.0611536181902035814e-9}, 1e-6);
}

TEST_CASE("mean squared error") {
    const NDArray a = array(f32, {2, 2}, {1, 2, 3, 4});
    const NDArray b = array(f32, {2, 2}, {1, 4, 0, 4});
    check_same(run("mean_squared_error", {a, b}), {13.0 / 4});
    check_same(run("mean_squared_error", {a, b}, reduction("sum")), {13});
    check_same(run("mean_squared_error", {a, b}, reduction("none")), {0, 4, 9, 0});
    // 300^2 overflows float16, the mean of 4 and it does not when computed in float32: (90000 + 4) / 4 = 22501.
    const NDArray wide = run("mean_squared_error", {vector_of(f16, {300, 2, 0, 0}), vector_of(f16, {0, 0, 0, 0})});
    CHECK(wide.at(0) == 22496.0);  // float16 steps by 16 there
}

TEST_CASE("gradient descent") {
    const NDArray value = vector_of(f32, {1, 2});
    const NDArray gradient = vector_of(f32, {4, -8});
    check_same(run("sgd", {value, gradient, array(f32, {}, {0.25})}), {0, 4});
    const NDArray velocity = vector_of(f32, {2, 0});
    const NamedAttributes half = {{"momentum", 0.5}};
    const auto step = run_all("sgd_momentum", {value, gradient, velocity, array(f32, {}, {0.25})}, half);
    check_same(step.at(0), {1 - 0.25 * 5, 2 + 0.25 * 8});
    check_same(step.at(1), {5, -8});
    const auto ahead = run_all("sgd_momentum", {value, gradient, velocity, array(f32, {}, {0.25})},
                               {{"momentum", 0.5}, {"nesterov", true}});
    check_same(ahead.at(0), {1 - 0.25 * 6.5, 2 + 0.25 * 12});
    check_same(ahead.at(1), {5, -8});
    // bfloat16 values with a float32 rate and velocity.
    const auto mixed = run_all("sgd_momentum",
                               {vector_of(DType::bfloat16, {1}), vector_of(DType::bfloat16, {1}),
                                vector_of(f32, {0x1p-20}), array(f32, {}, {1})},
                               {{"momentum", 1.0}});
    CHECK(mixed.at(0).dtype() == DType::bfloat16);
    CHECK(mixed.at(1).dtype() == f32);
    CHECK(mixed.at(1).at(0) == 1 + 0x1p-20);
    CHECK(contains(message_of([&] { run("sgd", {value, gradient, vector_of(f32, {1, 2})}); }),
                   "[sgd] input `learning_rate` has shape (2,), but a scalar is needed"));
    CHECK_THROWS_AS(run("sgd", {value, vector_of(f32, {1}), array(f32, {}, {1})}), UserError);
}

TEST_CASE("Adam against the paper's algorithm with explicit bias correction") {
    Doubles value = {1.0, -2.0};
    Doubles first = {0, 0};
    Doubles second = {0, 0};
    Doubles largest = {0, 0};
    Doubles greatest_value = value;
    NDArray v = vector_of(f64, value), m = vector_of(f64, first), s = vector_of(f64, second);
    NDArray gv = v, gm = m, gs = s, gl = vector_of(f64, largest);
    const double b1 = 0.8, b2 = 0.95, epsilon = 1e-6, rate = 0.1;
    const NamedAttributes attributes = {{"beta1", b1}, {"beta2", b2}, {"epsilon", epsilon}};
    for (int t = 1; t <= 4; ++t) {
        const Doubles g = {0.5 * t, t == 2 ? -40.0 : 0.01};
        const NDArray gradient = vector_of(f64, g);
        const NDArray step = array(DType::int64, {}, {static_cast<double>(t)});
        const NDArray lr = array(f64, {}, {rate});
        for (int k = 0; k < 2; ++k) {
            first[k] = b1 * first[k] + (1 - b1) * g[k];
            second[k] = b2 * second[k] + (1 - b2) * g[k] * g[k];
            largest[k] = std::max(largest[k], second[k]);
            const double corrected = rate * std::sqrt(1 - std::pow(b2, t)) / (1 - std::pow(b1, t));
            value[k] -= corrected * first[k] / (std::sqrt(second[k]) + epsilon);
            greatest_value[k] -= corrected * first[k] / (std::sqrt(largest[k]) + epsilon);
        }
        const auto adam = run_all("adam", {v, gradient, m, s, step, lr}, attributes);
        REQUIRE(adam.size() == 3);
        v = adam[0], m = adam[1], s = adam[2];
        check_close(v, value, 1e-13);
        check_close(m, first, 1e-13);
        check_close(s, second, 1e-13);
        const auto amsgrad = run_all("amsgrad", {gv, gradient, gm, gs, gl, step, lr}, attributes);
        REQUIRE(amsgrad.size() == 4);
        gv = amsgrad[0], gm = amsgrad[1], gs = amsgrad[2], gl = amsgrad[3];
        check_close(gv, greatest_value, 1e-13);
        check_close(gl, largest, 1e-13);
    }
    CHECK(largest[1] > second[1]);  // so that the two differ
}

TEST_CASE("Adam: the first step in float32, weight decay, errors") {
    // In the first step the update is rate * g / (|g| + epsilon / sqrt(1 - beta2)): nearly the sign of g, for which
    // 1 - beta2^1 must be accurate.
    const NDArray zero = vector_of(f32, {0});
    const NDArray step = array(DType::int32, {}, {1});
    const auto run_adam = [&](const NamedAttributes& attributes, const char* op = "adam") {
        return run_all(op, {vector_of(f32, {1}), vector_of(f32, {3}), zero, zero, step, array(f32, {}, {0.5})},
                       attributes);
    };
    check_close(run_adam({}).at(0), {0.5}, 1e-6);
    // As part of the gradient, 3 + 0.25 * 1, whose sign counts in the value and whose tenth is the momentum.
    const auto penalized = run_adam({{"weight_decay", 0.25}});
    check_close(penalized.at(0), {0.5}, 1e-6);
    check_close(penalized.at(1), {0.325}, 1e-6);
    check_close(run_adam({{"weight_decay", 0.25}}, "adamw").at(0), {1 - 0.5 * 0.25 - 0.5}, 1e-6);
    check_close(run_adam({{"beta1", 0.0}, {"beta2", 0.0}}).at(0), {0.5}, 1e-6);
    CHECK(contains(message_of([&] { run_adam({{"beta2", 1.0}}); }),
                   "[adam] beta2 is 1, but must be at least 0 and less than 1"));
}
