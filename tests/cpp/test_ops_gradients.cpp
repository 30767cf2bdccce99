// Tests of gradient rules of element-by-element operations: central differences in float64, and edge values by hand.
// Complex gradients are compared with differences along the real and the imaginary axis.
#include "test_ops_support.h"

using namespace topstitch;
using namespace topstitch::ops_test;

namespace {

constexpr DType f32 = DType::float32;
constexpr DType f64 = DType::float64;

NDArray matrix(const Doubles& values) {
    return array(f64, {2, static_cast<std::int64_t>(values.size() / 2)}, values);
}

// The gradient with an upstream gradient of ones.
std::vector<NDArray> with_ones(const std::string& op, const std::vector<NDArray>& inputs,
                               const NamedAttributes& attributes = {}) {
    const NDArray y = run(op, inputs, attributes);
    return run_gradient(op, inputs, array(y.dtype(), y.shape(), Doubles(static_cast<std::size_t>(y.size()), 1.0)),
                        attributes);
}

}  // namespace

TEST_CASE("unary rules against differences") {
    const NDArray any = matrix({-1.7, -0.4, 0.3, 0.9, 1.6, 2.6});
    for (const char* op :
         {"identity", "exp",   "exp2", "exp10", "expm1",   "square",      "reciprocal", "absolute",
          "negative", "sin",   "cos",  "tan",   "sinh",    "cosh",        "tanh",       "atan",
          "asinh",    "erf",   "erfc", "cbrt",  "sigmoid", "log_sigmoid", "softplus",   "silu",
          "elu",      "relu",  "real", "conj",  "softmax", "log_softmax", "leaky_relu", "hard_sigmoid",
          "gelu",     "floor", "ceil", "trunc", "rint",    "round",       "sign",       "absolute_square",
          "imag"}) {
        check_gradient(op, {any});
    }
    const NDArray positive = matrix({0.2, 0.5, 1.3, 4.0});
    for (const char* op : {"log", "log2", "log10", "log1p", "sqrt", "rsqrt"}) check_gradient(op, {positive});
    const NDArray small = matrix({-0.9, -0.2, 0.1, 0.7});
    for (const char* op : {"asin", "acos", "atanh"}) check_gradient(op, {small});
    check_gradient("acosh", {matrix({1.1, 1.5, 3.0, 20.0})});
    check_gradient("gelu", {any}, {{"approximate", std::string("tanh")}});
    check_gradient("elu", {any}, {{"alpha", 0.3}});
    check_gradient("leaky_relu", {any}, {{"alpha", -0.5}});
    check_gradient("softmax", {any}, {{"axis", std::int64_t{0}}});
    check_gradient("log_softmax", {any}, {{"axis", std::int64_t{0}}});
}

TEST_CASE("binary and ternary rules against differences, with broadcasting") {
    const NDArray a = matrix({-1.7, -0.4, 0.3, 0.9, 1.6, 2.5});
    const NDArray row = array(f64, {3}, {0.8, -1.1, 2.2});
    const NDArray column = array(f64, {2, 1}, {0.7, 1.9});
    const NDArray scalar = array(f64, {}, {1.3});
    for (const char* op :
         {"add", "subtract", "multiply", "divide", "divide_no_nan", "atan2", "hypot", "minimum", "maximum", "fmin",
          "fmax", "copysign", "fmod", "remainder", "floor_divide", "truncate_divide", "prelu"}) {
        check_gradient(op, {a, row});
        check_gradient(op, {scalar, a});
        check_gradient(op, {row, column});
    }
    check_gradient("power", {matrix({0.5, 1.2, 2.0, 3.0, 0.1, 1.0}), row});
    check_gradient("power", {scalar, a});
    check_gradient("fma", {a, row, column});
    check_gradient("clamp", {a, array(f64, {3}, {-0.5, 0.1, 0.2}), column});
    check_gradient("where", {array(DType::boolean, {2, 1}, {1, 0}), row, a});
}

TEST_CASE("edges: zeros, ties, infinities and NaN") {
    check_same(with_ones("absolute", {vector_of(f32, {0, -0.0, -2})})[0], {0, -0.0, -1});
    check_same(with_ones("sqrt", {vector_of(f32, {0})})[0], {inf});
    check_same(with_ones("relu", {vector_of(f32, {0, -1, 1})})[0], {0, 0, 1});
    check_same(with_ones("softplus", {vector_of(f32, {1000, -1000})})[0], {1, 0});
    check_same(with_ones("log_sigmoid", {vector_of(f32, {1000, -1000})})[0], {0, 1});
    check_same(with_ones("elu", {vector_of(f32, {1000, -1000})})[0], {1, 0});
    // 1 - sigmoid(20) is 2.06e-9, though sigmoid(20) rounds to 1 in float32.
    check_close(with_ones("sigmoid", {vector_of(f32, {20})})[0], {2.0611536181902035814e-9}, 1e-6);

    const auto power = with_ones("power", {vector_of(f64, {0, 0, 0, 2, 0, 0}), vector_of(f64, {0, 1, 2, 0, 3, -1})});
    check_same(power[0], {0, 1, 0, 0, 0, -inf});
    check_same(vector_of(f64, {power[1].at(0), power[1].at(1), power[1].at(2), power[1].at(4)}), {0, 0, 0, 0});
    CHECK(std::abs(power[1].at(3) - std::log(2.0)) < 1e-15);

    for (const char* op : {"minimum", "maximum", "fmin", "fmax"}) {
        const auto tie = with_ones(op, {vector_of(f32, {3}), vector_of(f32, {3})});
        check_same(tie[0], {0.5});
        check_same(tie[1], {0.5});
    }
    const auto ignoring = with_ones("fmax", {vector_of(f32, {qnan, 1}), vector_of(f32, {1, qnan})});
    check_same(ignoring[0], {0, 1});
    check_same(ignoring[1], {1, 0});
    const auto origin = with_ones("atan2", {vector_of(f32, {0}), vector_of(f32, {0})});
    check_same(origin[0], {0});
    CHECK(origin[1].at(0) == 0.0);
    check_same(with_ones("hypot", {vector_of(f32, {0}), vector_of(f32, {0})})[0], {0});
    check_same(with_ones("divide_no_nan", {vector_of(f32, {1}), vector_of(f32, {0})})[0], {0});
    // What is not chosen does not matter, not even as NaN.
    const auto chosen =
        with_ones("where", {vector_of(DType::boolean, {1, 0}), vector_of(f32, {1, qnan}), vector_of(f32, {inf, 1})});
    check_same(chosen[1], {1, 0});
    check_same(chosen[2], {0, 1});
    CHECK_FALSE(std::holds_alternative<GradientRule>(find_op("less")->gradient));
    const auto limits =
        with_ones("clamp", {vector_of(f32, {1, 2, 5, 0}), vector_of(f32, {1, 3, 3, 3}), vector_of(f32, {4, 4, 4, 1})});
    check_same(limits[0], {1, 0, 0, 0});
    check_same(limits[1], {0, 1, 0, 0});
    check_same(limits[2], {0, 0, 1, 1});
}

TEST_CASE("second derivatives at edges stay finite") {
    // d2/dx2 of x^2 at 0 is 2, and of x^1 and x^0 it is 0: the rule's own operations must not mix 0 and inf.
    Graph graph;
    const Tensor x = graph.placeholder({3}, f64);
    const Tensor exponent = graph.constant(vector_of(f64, {2, 1, 0}));
    const Tensor y = apply("power", {x, exponent});
    const Tensor one = graph.constant(vector_of(f64, {1, 1, 1}));
    const OpNode& node = graph.data()->ops[static_cast<std::size_t>(y.ref().op)];
    const std::vector<TensorType> types = {x.type(), exponent.type()};
    const OpView view(*node.def, types, node.outputs, node.attributes);
    GradientContext first({x, exponent}, {y}, {one}, {true, false}, view);
    const Tensor dx = std::get<GradientRule>(node.def->gradient)(first)[0];
    // dx is one * (exponent * power(x, safe - 1)): differentiate that inner power once more.
    const Tensor inner = dx.operation().inputs()[1].operation().inputs()[1];
    REQUIRE(inner.operation().op() == "power");
    const std::vector<Tensor> inputs = inner.operation().inputs();
    const std::vector<TensorType> inner_types = {inputs[0].type(), inputs[1].type()};
    const std::vector<TensorType> inner_outputs = {inner.type()};
    const OpView inner_view(*node.def, inner_types, inner_outputs, node.attributes);
    GradientContext second(inputs, {inner}, {exponent}, {true, true}, inner_view);
    const std::vector<Tensor> both = std::get<GradientRule>(node.def->gradient)(second);
    const auto values = run_graph({dx, both[0], both[1]}, {{x, vector_of(f64, {0, 0, 0})}});
    check_same(values[0], {0, 1, 0});
    check_same(values[1], {2, 0, 0});
    check_same(values[2], {0, 0, 0});
}

TEST_CASE("complex rules: the gradient along the real and the imaginary axis") {
    using C = std::complex<float>;
    struct Case {
        const char* name;
        int arity;
    };
    for (const Case& c : {Case{"exp", 1}, Case{"log", 1}, Case{"sqrt", 1}, Case{"sin", 1}, Case{"cos", 1},
                          Case{"square", 1}, Case{"reciprocal", 1}, Case{"negative", 1}, Case{"conj", 1},
                          Case{"absolute", 1}, Case{"absolute_square", 1}, Case{"real", 1}, Case{"imag", 1},
                          Case{"multiply", 2}, Case{"divide", 2}, Case{"subtract", 2}, Case{"divide_no_nan", 2}}) {
        INFO(c.name);
        std::vector<C> points = {C(0.8F, -1.1F), C(1.4F, 0.6F)};
        points.resize(static_cast<std::size_t>(c.arity));
        const auto inputs_at = [&](const std::vector<C>& at) {
            std::vector<NDArray> inputs;
            for (const C& z : at) inputs.push_back(complex_array({z}));
            return inputs;
        };
        // The objective: real(conj(w) * y) for a fixed w, whose gradient with respect to y is w.
        const C w(0.9F, 0.4F);
        const auto objective = [&](const std::vector<C>& at) {
            const NDArray y = run(c.name, inputs_at(at));
            if (!is_complex(y.dtype())) return static_cast<double>(w.real()) * y.at(0);
            const C value = y.data_as<C>()[0];
            return static_cast<double>(w.real()) * value.real() + static_cast<double>(w.imag()) * value.imag();
        };
        const bool complex_result = is_complex(run(c.name, inputs_at(points)).dtype());
        const NDArray seed = complex_result ? complex_array({w}) : vector_of(f32, {w.real()});
        const auto gradients = run_gradient(c.name, inputs_at(points), seed);
        for (std::size_t k = 0; k < points.size(); ++k) {
            const C actual = gradients[k].data_as<C>()[0];
            const float step = 1.0F / 256;
            const auto difference = [&](C by) {
                std::vector<C> up = points, down = points;
                up[k] += by;
                down[k] -= by;
                return (objective(up) - objective(down)) / (2.0 * step);
            };
            CHECK(actual.real() == doctest::Approx(difference(C(step, 0))).epsilon(2e-3));
            CHECK(actual.imag() == doctest::Approx(difference(C(0, step))).epsilon(2e-3));
        }
    }
    // Planes and casts.
    const auto planes =
        run_gradient("planar_from_complex", {complex_array({{1, 2}, {3, 4}})}, array(f32, {4}, {10, 20, 30, 40}));
    CHECK(exact_values<C>(planes[0]) == std::vector<C>{{10, 30}, {20, 40}});
    check_same(run_gradient("cast", {vector_of(f32, {1})}, complex_array({{5, 6}}), {{"dtype", DType::complex64}})[0],
               {5});
    check_same(run_gradient("cast", {vector_of(DType::float16, {1})}, vector_of(f64, {5}), {{"dtype", f64}})[0], {5});
    CHECK(exact_values<C>(run_gradient("absolute", {complex_array({{0, 0}})}, vector_of(f32, {1}))[0]) ==
          std::vector<C>{{0, 0}});
}

TEST_CASE("rules build graphs with unknown dims and ranks") {
    for (const OpDef& def : all_ops()) {
        const bool mine = def.family == "elementwise" || def.family == "activation" || def.family == "conversion" ||
                          def.family == "loss";
        const auto* rule = std::get_if<GradientRule>(&def.gradient);
        if (!mine || rule == nullptr) continue;
        for (const Shape& shape : {Shape({Dim::unknown(), 4}), Shape::unranked()}) {
            INFO(def.name, " with ", shape.str());
            Graph graph;
            std::vector<Tensor> inputs;
            for (const ArgDef& arg : def.args) {
                const bool predicate = arg.name == "predicate";
                const bool integer = def.name == "one_hot_like" && inputs.empty();
                const bool planes = def.name == "complex_from_planar" || def.name == "complex";
                const DType dtype = predicate ? DType::boolean : integer ? DType::int32 : planes ? f32 : f32;
                const bool rows = integer && shape.has_rank();
                inputs.push_back(graph.placeholder(rows ? Shape({Dim::unknown()}) : shape, dtype));
            }
            NamedAttributes given;
            for (const AttrDef& attr : def.attributes) {
                if (!attr.required && attr.kind != AttributeKind::dtype) continue;
                if (attr.kind == AttributeKind::dtype && attr.required) given.emplace_back(attr.name, f64);
                if (attr.kind == AttributeKind::real) given.emplace_back(attr.name, 0.5);
            }
            const std::vector<Tensor> outputs = apply(graph.data(), def, inputs, given);
            const OpNode& node = graph.data()->ops[static_cast<std::size_t>(outputs[0].ref().op)];
            std::vector<TensorType> types;
            for (const Tensor& input : inputs) types.push_back(input.type());
            const OpView view(def, types, node.outputs, node.attributes);
            const Tensor seed = graph.placeholder(outputs[0].shape(), outputs[0].dtype());
            GradientContext context(inputs, outputs, {seed}, std::vector<bool>(inputs.size(), true), view);
            const std::vector<Tensor> gradients = (*rule)(context);
            REQUIRE(gradients.size() == inputs.size());
            for (std::size_t k = 0; k < gradients.size(); ++k) {
                if (gradients[k]) CHECK(gradients[k].dtype() == inputs[k].dtype());
            }
        }
    }
}
