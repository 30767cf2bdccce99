// Products of whole graphs as Metal source in tiles and strips, run on the simulated device in three orders of threads,
// against plain loops in double: all types, sizes, views, batches, and what is stitched to them.
#include "test_codegen_products.h"

#include <algorithm>
#include <array>

#include "test_codegen_device.h"
#include "test_codegen_support.h"

using namespace topstitch;
using namespace topstitch::testing;
using loopir::Index;
using Role = loopir::BufferParam::Role;

namespace {

// y[b, m, n] = sum over k of a[b, m, k] w[b, k, n], each where strides say; a stride of 0 is no axis.
struct Matrices {
    std::int64_t batch = 1, m = 1, n = 1, k = 1;
    std::array<std::int64_t, 3> a_strides{};  // of b, m, k
    std::array<std::int64_t, 3> w_strides{};  // of b, k, n
    Expected operator()(const NDArray& a, const NDArray& w, std::int64_t flat) const {
        const std::int64_t b = flat / (m * n), row = flat / n % m, column = flat % n;
        SumOfProducts sum;
        for (std::int64_t step = 0; step < k; ++step) {
            sum.add(a.at(b * a_strides[0] + row * a_strides[1] + step * a_strides[2]),
                    w.at(b * w_strides[0] + step * w_strides[1] + column * w_strides[2]));
        }
        return sum.expected();
    }
};

void check_matmul(DType dtype, std::int64_t m, std::int64_t n, std::int64_t k, bool a_turned, bool w_turned,
                  Form form = Form::tiles, bool dynamic = false) {
    INFO(std::string(name_of(dtype)), " ", m, " x ", k, " by ", k, " x ", n, a_turned ? ", a turned" : "",
         w_turned ? ", w turned" : "");
    Graph graph;
    const NDArray a = numbers(dtype, a_turned ? Sizes{k, m} : Sizes{m, k}, 1);
    const NDArray w = numbers(dtype, w_turned ? Sizes{n, k} : Sizes{k, n}, 2);
    const auto shape = [&](const NDArray& array, bool rows_first) {
        Shape result = shape_of(array);
        if (!dynamic) return result;
        return rows_first ? Shape{-1, result[1]} : Shape{result[0], -1};
    };
    const Tensor left = graph.placeholder(shape(a, !a_turned), dtype, "x");
    const Tensor right = graph.placeholder(shape_of(w), dtype, "w");
    const Tensor y = matmul(a_turned ? swap_axes(left, 0, 1) : left, w_turned ? swap_axes(right, 0, 1) : right);
    const Matrices reference{
        1, m, n, k, {0, a_turned ? 1 : k, a_turned ? m : 1}, {0, w_turned ? 1 : n, w_turned ? k : 1}};
    check(graph, {{left, a}, {right, w}}, y, form, [&](std::int64_t flat) { return reference(a, w, flat); });
}

}  // namespace

TEST_CASE("products: sizes around those of tiles, in all three types") {
    check_matmul(f32, 8, 8, 8, false, false);
    check_matmul(f32, 64, 32, 48, false, false);
    check_matmul(f32, 130, 129, 130, false, false);
    check_matmul(DType::float16, 65, 40, 34, false, false);
    check_matmul(DType::float16, 9, 100, 100, false, false);
    check_matmul(DType::bfloat16, 12, 36, 64, false, false);
}

TEST_CASE("products: transposed factors") {
    check_matmul(f32, 37, 44, 50, true, false);
    check_matmul(f32, 36, 45, 52, false, true);
    check_matmul(DType::float16, 33, 35, 36, true, true);
    check_matmul(DType::bfloat16, 48, 40, 31, true, true);
}

TEST_CASE("products: large tiles where there are enough of them") {
    check_matmul(f32, 520, 260, 20, false, false);
    check_matmul(DType::float16, 384, 400, 18, true, true);
}

TEST_CASE("products: rows that only a run knows; sums in blocks") {
    for (const std::int64_t rows : {7, 33}) check_matmul(f32, rows, 40, 600, false, false, Form::tiles, true);
    check_matmul(f32, 1, 40, 600, false, false, Form::strips, true);
    check_matmul(DType::float16, 5, 70, 24, true, false, Form::tiles, true);
}

TEST_CASE("products: steps that only a run knows, in blocks") {
    Graph graph;
    const Tensor x = graph.placeholder(Shape{20, Dim::symbol("steps")}, f32, "x");
    const Tensor y = graph.placeholder(Shape{Dim::symbol("steps"), 24}, f32, "w");
    const Tensor product = matmul(x, y);
    for (const std::int64_t steps : {700, 128, 5}) {
        const NDArray a = numbers(f32, {20, steps}, 1);
        const NDArray w = numbers(f32, {steps, 24}, 2);
        const Matrices reference{1, 20, 24, steps, {0, steps, 1}, {0, 24, 1}};
        check(graph, {{x, a}, {y, w}}, product, Form::tiles, [&](std::int64_t flat) { return reference(a, w, flat); });
    }
}

TEST_CASE("products: one kernel for all sizes") {
    // As loop IR, since a graph would have other kernels for sizes of 1, and for those that are equal.
    struct Case {
        DType dtype;
        bool a_turned, w_turned;
    };
    std::mt19937_64 random(test_seed());
    for (const Case& one : {Case{f32, false, false}, Case{DType::float16, true, false},
                            Case{DType::bfloat16, false, true}, Case{f32, true, true}}) {
        const Dim m = Dim::symbol("m"), n = Dim::symbol("n"), k = Dim::symbol("k");
        loopir::Builder b;
        const int x = b.add_buffer({"x", one.dtype, Role::input, m * k});
        const int w = b.add_buffer({"w", one.dtype, Role::input, k * n});
        const int y = b.add_buffer({"y", f32, Role::output, m * n});
        const Index i = b.begin_loop("i", m);
        const Index j = b.begin_loop("j", n);
        const int sum = b.add_accumulator(loopir::Combiner::sum, f32);
        b.init_acc(sum);
        const Index r = b.begin_loop("r", k);
        const loopir::ValueId left = b.load(x, one.a_turned ? r * m + i : i * k + r);
        const loopir::ValueId right = b.load(w, one.w_turned ? j * k + r : r * n + j);
        b.accumulate(sum, b.mul(left, right));
        b.end_loop();
        b.store(y, i * n + j, b.acc_read(sum));
        b.end_loop();
        b.end_loop();
        const loopir::Kernel kernel = scheduled(b.finish("product"), {{"i", {true, false, 1}}});
        const codegen::Source source = emitted(kernel, {.narrow = one.a_turned == one.w_turned});
        CHECK(form_of(source.text) == Form::tiles);
        for (int turn = 0; turn < 20; ++turn) {
            const auto size = [&] { return static_cast<std::int64_t>(turn < 2 ? 1 + turn : 1 + random() % 130); };
            const std::int64_t rows = size(), columns = size(), steps = turn == 2 ? 0 : size();
            INFO(rows, " x ", steps, " by ", steps, " x ", columns);
            const NDArray a = numbers(one.dtype, {rows * steps}, 1);
            const NDArray c = numbers(one.dtype, {columns * steps}, 2);
            std::vector<std::int64_t> sizes;
            for (const Dim& dim : source.sizes) {
                sizes.push_back(dim.evaluate([&](std::string_view name) {
                    return name == "m" ? rows : name == "n" ? columns : steps;
                }));
            }
            const std::vector<float> empty(static_cast<std::size_t>(rows * columns), -1.0f);
            const auto results =
                run_in_each_order(source, {bytes_of(a), bytes_of(c), Data::of(empty)}, sizes).at(2).as<float>();
            const Matrices reference{1,
                                     rows,
                                     columns,
                                     steps,
                                     {0, one.a_turned ? 1 : steps, one.a_turned ? rows : 1},
                                     {0, one.w_turned ? 1 : columns, one.w_turned ? steps : 1}};
            for (std::int64_t flat = 0; flat < rows * columns; ++flat) {
                const Expected expected = reference(a, c, flat);
                const double result = results[static_cast<std::size_t>(flat)];
                const bool close = std::abs(result - expected.value) <= expected.error;
                if (!close) CHECK_MESSAGE(close, "element ", flat, " is ", result, ", not ", expected.value);
            }
            if (one.dtype != DType::bfloat16 || turn > 3) continue;
            // Before MSL 3.1 the same numbers are staged as float32.
            const auto older = run_emitted(source, {bytes_of(a), bytes_of(c), Data::of(empty)}, sizes, 300).at(2);
            CHECK(older.as<float>() == results);
        }
    }
}

TEST_CASE("products: few rows or columns, lanes along the steps where these are contiguous") {
    check_matmul(f32, 1, 50, 300, false, true, Form::loops);
    check_matmul(f32, 50, 1, 301, false, false, Form::loops);
    check_matmul(DType::float16, 3, 40, 129, false, true, Form::loops);
    check_matmul(f32, 40, 40, 5, false, false, Form::loops);
}

TEST_CASE("products: few rows or columns in strips, lanes along the others") {
    check_matmul(f32, 1, 130, 40, false, false, Form::strips);
    check_matmul(f32, 6, 45, 70, false, false, Form::strips);
    check_matmul(DType::bfloat16, 7, 300, 33, true, false, Form::strips);
    check_matmul(DType::float16, 129, 2, 50, true, true, Form::strips);
    // Whatever is stitched to it, and several axes on each side.
    Graph graph;
    const NDArray a = numbers(f32, {2, 3, 37}, 1);
    const NDArray w = numbers(DType::float16, {37, 5, 9}, 2);
    const NDArray bias = numbers(f32, {5, 9}, 3);
    const Tensor x = graph.placeholder(Shape{2, 3, 37}, f32, "x");
    const Tensor weights = graph.placeholder(Shape{37, 5, 9}, DType::float16, "w");
    const Tensor b = graph.placeholder(Shape{5, 9}, f32, "bias");
    const Tensor y = matmul(reshape(x, {6, 37}), reshape(cast(weights, f32) * 0.5, {37, 45}));
    const Tensor z =
        relu(transpose(reshape(y, {2, 3, 5, 9}), Ints{2, 0, 3, 1}) + reshape(b, {5, 1, 9, 1}));  // [5, 2, 9, 3]
    check(graph, {{x, a}, {weights, w}, {b, bias}}, z, Form::strips, [&](std::int64_t flat) {
        const std::int64_t p = flat / 54, i = flat / 27 % 2, q = flat / 3 % 9, j = flat % 3;
        SumOfProducts sum;
        for (std::int64_t k = 0; k < 37; ++k) sum.add(a.at((i * 3 + j) * 37 + k), 0.5 * w.at((k * 5 + p) * 9 + q));
        Expected expected = sum.expected();
        expected.value = std::max(expected.value + bias.at(p * 9 + q), 0.0);
        return expected;
    });
}

TEST_CASE("products: nothing to add up gives zeros") {
    check_matmul(f32, 20, 0, 20, false, false, Form::loops, true);
    check_matmul(f32, 20, 20, 0, false, false, Form::loops);
}

TEST_CASE("products: few results of many steps are added up in chunks") {
    check_matmul(f32, 24, 20, 2400, true, false);
    check_matmul(DType::float16, 40, 9, 2050, true, false);
}

TEST_CASE("products: integers are exact, and stay as they are") {
    Graph graph;
    const NDArray a = numbers(DType::int32, {20, 30}, 1);
    const NDArray w = numbers(DType::int32, {30, 20}, 2);
    const Tensor x = graph.placeholder(Shape{20, 30}, DType::int32, "x");
    const Tensor y = graph.placeholder(Shape{30, 20}, DType::int32, "w");
    check(graph, {{x, a}, {y, w}}, matmul(x, y), Form::loops, [&](std::int64_t flat) {
        std::uint32_t sum = 0;
        for (std::int64_t k = 0; k < 30; ++k) {
            sum += static_cast<std::uint32_t>(a.data_as<std::int32_t>()[flat / 20 * 30 + k]) *
                   static_cast<std::uint32_t>(w.data_as<std::int32_t>()[k * 20 + flat % 20]);
        }
        return Expected{static_cast<double>(static_cast<std::int32_t>(sum)), 0};
    });
}

TEST_CASE("products: batches, of both factors and of one; one matrix for all") {
    Graph graph;
    const NDArray a = numbers(f32, {3, 1, 19, 21}, 1);
    const NDArray w = numbers(f32, {2, 21, 26}, 2);
    const Tensor x = graph.placeholder(Shape{3, 1, 19, 21}, f32, "x");
    const Tensor y = graph.placeholder(Shape{2, 21, 26}, f32, "w");
    check(graph, {{x, a}, {y, w}}, matmul(x, y), Form::tiles, [&](std::int64_t flat) {
        const std::int64_t p = flat / (2 * 19 * 26), q = flat / (19 * 26) % 2;
        SumOfProducts sum;
        for (std::int64_t k = 0; k < 21; ++k) {
            sum.add(a.at((p * 19 + flat / 26 % 19) * 21 + k), w.at((q * 21 + k) * 26 + flat % 26));
        }
        return sum.expected();
    });
    Graph attention;
    const NDArray scores = numbers(DType::float16, {2, 3, 24, 12}, 3);
    const NDArray keys = numbers(DType::float16, {2, 3, 20, 12}, 4);
    const Tensor s = attention.placeholder(Shape{-1, 3, 24, 12}, DType::float16, "queries");
    const Tensor t = attention.placeholder(Shape{-1, 3, 20, 12}, DType::float16, "keys");
    const Matrices reference{6, 24, 20, 12, {24 * 12, 12, 1}, {20 * 12, 1, 12}};
    check(attention, {{s, scores}, {t, keys}}, matmul(s, swap_axes(t, -1, -2)), Form::tiles,
          [&](std::int64_t flat) { return reference(scores, keys, flat); });
}

TEST_CASE("products: views: a part, every second column, backwards") {
    Graph graph;
    const NDArray a = numbers(f32, {30, 60}, 1);
    const NDArray w = numbers(f32, {40, 27}, 2);
    const Tensor x = graph.placeholder(Shape{30, 60}, f32, "x");
    const Tensor y = graph.placeholder(Shape{40, 27}, f32, "w");
    const Tensor part = slice(x, {2, 1}, {30, 60}, Ints{1, 2});  // 28 x 30
    const Tensor turned = reverse(slice(y, {5, 0}, {35, 27}), Ints{0});
    check(graph, {{x, a}, {y, w}}, matmul(part, turned), Form::tiles, [&](std::int64_t flat) {
        SumOfProducts sum;
        for (std::int64_t k = 0; k < 30; ++k) {
            sum.add(a.at((flat / 27 + 2) * 60 + 1 + 2 * k), w.at((34 - k) * 27 + flat % 27));
        }
        return sum.expected();
    });
}

TEST_CASE("products: what is stitched to the factors and to the result") {
    Graph graph;
    const NDArray image = numbers(DType::uint8, {18, 45}, 1);
    const NDArray w = numbers(DType::float16, {45, 38}, 2);
    const NDArray bias = numbers(f32, {38}, 3);
    const NDArray residual = numbers(f32, {18, 38}, 4);
    const Tensor x = graph.placeholder(Shape{18, 45}, DType::uint8, "image");
    const Tensor weights = graph.placeholder(Shape{45, 38}, DType::float16, "w");
    const Tensor b = graph.placeholder(Shape{38}, f32, "bias");
    const Tensor r = graph.placeholder(Shape{18, 38}, f32, "residual");
    const Tensor scaled = cast(x, f32) * 0.25 - 30.0;
    const Tensor y = tanh(matmul(scaled, cast(weights, f32)) * 0.01 + b) + r;
    const Feeds feeds{{x, image}, {weights, w}, {b, bias}, {r, residual}};
    check(graph, feeds, y, Form::tiles, [&](std::int64_t flat) {
        SumOfProducts sum;
        for (std::int64_t k = 0; k < 45; ++k) {
            sum.add(image.at(flat / 38 * 45 + k) * 0.25 - 30, w.at(k * 38 + flat % 38));
        }
        const double inner = sum.expected().value * 0.01 + bias.at(flat % 38);
        const double error = sum.expected().error * 0.01 + 0x1p-22 * (std::abs(inner) + 1);
        return Expected{std::tanh(inner) + residual.at(flat), error + 0x1p-22};
    });
    const std::string source = source_of(graph, feeds, {y});
    CHECK(source.find("kernel void") == source.rfind("kernel void"));
}

TEST_CASE("products: names of people that are words of the template") {
    Graph graph;
    const NDArray a = numbers(f32, {20, 12}, 1);
    const NDArray w = numbers(f32, {12, 24}, 2);
    const NDArray more = numbers(f32, {20, 24}, 3);
    const Tensor x = graph.placeholder(Shape{20, 12}, f32, "row_tile");
    const Tensor y = graph.placeholder(Shape{12, 24}, f32, "simdgroup_load");
    const Tensor z = graph.placeholder(Shape{20, 24}, f32, "maximum_float");
    const Matrices reference{1, 20, 24, 12, {0, 12, 1}, {0, 24, 1}};
    check(graph, {{x, a}, {y, w}, {z, more}}, relu(matmul(x, y) + z), Form::tiles, [&](std::int64_t flat) {
        Expected expected = reference(a, w, flat);
        expected.value = std::max(expected.value + more.at(flat), 0.0);
        return expected;
    });
}

TEST_CASE("products: what lies past the last step adds nothing, though it would not be zero") {
    // 45 steps are no multiple of four, and both factors are staged along them.
    Graph graph;
    const NDArray a = numbers(f32, {18, 45}, 1);
    const NDArray w = numbers(f32, {38, 45}, 2);
    const Tensor x = graph.placeholder(Shape{18, 45}, f32, "x");
    const Tensor y = graph.placeholder(Shape{38, 45}, f32, "w");
    check(graph, {{x, a}, {y, w}}, matmul(x + 2.0, swap_axes(y + 3.0, 0, 1)), Form::tiles, [&](std::int64_t flat) {
        SumOfProducts sum;
        double rounded = 0;
        for (std::int64_t k = 0; k < 45; ++k) {
            const double left = a.at(flat / 38 * 45 + k) + 2, right = w.at(flat % 38 * 45 + k) + 3;
            sum.add(left, right);
            rounded += 0x1p-23 * left * right;  // of the two factors
        }
        return Expected{sum.expected().value, sum.expected().error + 1.01 * rounded};
    });
}

TEST_CASE("products: two results, and a variable that is replaced in place") {
    // w <- w - 0.5 x^T g, and its square besides.
    Graph graph;
    const NDArray start = numbers(f32, {26, 22}, 1);
    const NDArray in = numbers(f32, {40, 26}, 2);
    const NDArray gradient = numbers(f32, {40, 22}, 3);
    const Tensor w = graph.variable(start, "w");
    const Tensor x = graph.placeholder(Shape{40, 26}, f32, "x");
    const Tensor g = graph.placeholder(Shape{40, 22}, f32, "g");
    const Tensor updated = w - 0.5 * matmul(swap_axes(x, 0, 1), g);
    const Operation step = graph.assign(w, updated);
    const Tensor square = updated * updated;
    const Feeds feeds{{x, in}, {g, gradient}};
    const auto results = run(graph, feeds, {square}, {step}, on_simulation());
    CHECK(form_of(source_of(graph, feeds, {square}, {step})) == Form::tiles);
    const NDArray after = run(graph, {}, {w * 1.0}, {}, on_simulation()).at(0);
    const Matrices reference{1, 26, 22, 40, {0, 1, 26}, {0, 22, 1}};
    for (std::int64_t k = 0; k < after.size(); ++k) {
        const Expected product = reference(in, gradient, k);
        const double value = start.at(k) - 0.5 * product.value;
        const double error = product.error + 0x1p-22 * (std::abs(value) + std::abs(product.value));
        CHECK(std::abs(after.at(k) - value) <= error);
        CHECK(std::abs(results[0].at(k) - value * value) <= 2.1 * error * (std::abs(value) + error));
    }
}
