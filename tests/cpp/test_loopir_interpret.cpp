// The interpreter on whole kernels against plain C++ loops, and the accesses that it refuses.
// Kernels are built as the stitcher builds them.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "loopir/builder.h"
#include "loopir/interpret.h"
#include "test_loopir_support.h"
#include "topstitch/error.h"

using namespace topstitch;
using namespace topstitch::loopir;

namespace {

using Role = BufferParam::Role;
constexpr DType f32 = DType::float32;
constexpr DType i64 = DType::int64;
constexpr float nan32 = std::numeric_limits<float>::quiet_NaN();

void run(const Kernel& kernel, std::vector<void*> buffers, std::vector<std::int64_t> sizes = {}) {
    interpret(kernel, buffers, sizes);
}

// One number for each size parameter, from the value of n.
std::vector<std::int64_t> sizes_for(const Kernel& kernel, std::int64_t n) {
    std::vector<std::int64_t> sizes;
    for (const Dim& dim : size_params(kernel)) sizes.push_back(dim.evaluate([n](std::string_view) { return n; }));
    return sizes;
}

std::vector<float> random_floats(std::size_t count, unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> values(count);
    for (float& value : values) value = normal(random);
    return values;
}

Kernel reduce_rows(Combiner combiner, const Dim& rows, std::int64_t cols, bool position = false) {
    Builder b;
    const int x = b.add_buffer({"x", f32, Role::input, rows * cols});
    const int y = b.add_buffer({"y", position ? i64 : f32, Role::output, rows});
    const int acc = b.add_accumulator(combiner, f32);
    const Index r = b.begin_loop("r", rows);
    b.init_acc(acc);
    const Index j = b.begin_loop("j", cols);
    const bool is_arg = combiner == Combiner::argmin || combiner == Combiner::argmax;
    b.accumulate(acc, b.load(x, r * cols + j), is_arg ? b.index_value(j) : no_value);
    b.end_loop();
    b.store(y, r, b.acc_read(acc, position ? 1 : 0));
    b.end_loop();
    return b.finish("reduce");
}

float reduced(Combiner combiner, std::vector<float> values) {
    float result = -77;
    run(reduce_rows(combiner, 1, static_cast<std::int64_t>(values.size())), {values.data(), &result});
    return result;
}

std::int64_t position_of(Combiner combiner, std::vector<float> values) {
    std::int64_t result = -77;
    run(reduce_rows(combiner, 1, static_cast<std::int64_t>(values.size()), true), {values.data(), &result});
    return result;
}

}  // namespace

TEST_CASE("interpret: gelu of any size") {
    const Dim n = Dim::symbol("n");
    Builder b;
    const int in = b.add_buffer({"x", f32, Role::input, n});
    const int out = b.add_buffer({"y", f32, Role::output, n});
    const Index i = b.begin_loop("i", n);
    const ValueId v = b.load(in, i);
    const ValueId e = b.op(ScalarOp::erf, b.mul(v, b.constant(std::sqrt(0.5), f32)));
    b.store(out, i, b.mul(b.mul(b.constant(0.5, f32), v), b.add(b.constant(1, f32), e)));
    b.end_loop();
    const Kernel kernel = b.finish("gelu");
    for (std::size_t count : {0, 1, 100}) {
        std::vector<float> x = random_floats(count, 1);
        std::vector<float> y(count, -1);
        run(kernel, {x.data(), y.data()}, {static_cast<std::int64_t>(count)});
        for (std::size_t k = 0; k < count; ++k) {
            const double exact = 0.5 * x[k] * (1 + std::erf(x[k] * std::sqrt(0.5)));
            CHECK(y[k] == doctest::Approx(exact).epsilon(1e-6));
        }
    }
}

TEST_CASE("interpret: softmax of rows, with a local buffer, in bfloat16") {
    const std::int64_t cols = 7;
    const Kernel kernel = softmax_rows(Dim::symbol("n"), cols, f32, DType::bfloat16);

    std::vector<float> in = random_floats(5 * cols, 2);
    std::vector<std::uint16_t> out(in.size());
    run(kernel, {in.data(), out.data()}, sizes_for(kernel, 5));
    for (std::size_t row = 0; row < 5; ++row) {
        double sum = 0;
        for (std::size_t k = 0; k < 7; ++k) sum += std::exp(static_cast<double>(in[row * 7 + k]));
        for (std::size_t k = 0; k < 7; ++k) {
            const double exact = std::exp(static_cast<double>(in[row * 7 + k])) / sum;
            // bfloat16 has 8 significant bits.
            CHECK(bfloat_to_float(out[row * 7 + k]) == doctest::Approx(exact).epsilon(1.0 / 256));
        }
    }
}

TEST_CASE("interpret: a transposed copy of a reshaped and reversed array") {
    // y[j, i] = x viewed as (6, 4), columns reversed, for x of shape (2, 3, 4).
    Builder b;
    const int x = b.add_buffer({"x", DType::int16, Role::input, 24});
    const int y = b.add_buffer({"y", DType::int16, Role::output, 24});
    const Index j = b.begin_loop("j", 4);
    const Index i = b.begin_loop("i", 6);
    const Index flat = i * 4 + (Index(3) - j);
    const Index plane = floor_div(flat, 12);
    const Index row = mod(floor_div(flat, 4), 3);
    b.store(y, j * 6 + i, b.load(x, plane * 12 + row * 4 + mod(flat, 4)));
    b.end_loop();
    b.end_loop();
    const Kernel kernel = b.finish("transpose");
    std::vector<std::int16_t> in(24);
    for (std::size_t k = 0; k < 24; ++k) in[k] = static_cast<std::int16_t>(100 * k - 700);
    std::vector<std::int16_t> out(24);
    run(kernel, {in.data(), out.data()});
    for (std::size_t c = 0; c < 4; ++c) {
        for (std::size_t r = 0; r < 6; ++r) CHECK(out[c * 6 + r] == in[r * 4 + 3 - c]);
    }
}

TEST_CASE("interpret: reductions and their NaN rules") {
    const float inf = std::numeric_limits<float>::infinity();
    CHECK(reduced(Combiner::sum, {1, 2, 3.5f}) == 6.5f);
    CHECK(reduced(Combiner::sum, {}) == 0.0f);
    // One after the other, in float32: the small ones are lost.
    CHECK(reduced(Combiner::sum, {16777216, 1, 1, 1, 1}) == 16777216.0f);
    CHECK(reduced(Combiner::product, {2, 3, 4}) == 24.0f);
    CHECK(reduced(Combiner::product, {}) == 1.0f);
    CHECK(reduced(Combiner::max, {1, 5, 2}) == 5.0f);
    CHECK(reduced(Combiner::max, {}) == -inf);
    CHECK(reduced(Combiner::min, {1, -5, 2}) == -5.0f);
    CHECK(std::isnan(reduced(Combiner::max, {1, nan32, 2})));
    CHECK(std::isnan(reduced(Combiner::min, {nan32, 1})));
    CHECK(reduced(Combiner::fmax, {1, nan32, 2}) == 2.0f);
    CHECK(reduced(Combiner::fmin, {nan32, 1, 3}) == 1.0f);
    CHECK(std::isnan(reduced(Combiner::fmax, {nan32, nan32})));
    CHECK(position_of(Combiner::argmax, {1, 7, 3, 7}) == 1);
    CHECK(position_of(Combiner::argmin, {4, 2, 2, 9}) == 1);
    CHECK(position_of(Combiner::argmax, {-inf, -inf}) == 0);
    CHECK(position_of(Combiner::argmax, {1, nan32, 9, nan32}) == 1);
    CHECK(position_of(Combiner::argmin, {1, nan32, -9}) == 1);
    CHECK(reduced(Combiner::argmax, {1, 7, 3}) == 7.0f);
    CHECK(std::isnan(reduced(Combiner::argmin, {1, nan32, 3})));
}

TEST_CASE("interpret: a running sum is read before and after each step") {
    Builder b;
    const int x = b.add_buffer({"x", f32, Role::input, Dim(4)});
    const int y = b.add_buffer({"y", f32, Role::output, Dim(8)});
    const int sum = b.add_accumulator(Combiner::sum, f32);
    b.init_acc(sum);
    const Index j = b.begin_loop("j", Dim(4));
    b.store(y, j * 2, b.acc_read(sum));
    b.accumulate(sum, b.load(x, j));
    b.store(y, j * 2 + 1, b.acc_read(sum));
    b.end_loop();
    std::vector<float> values{1, 2, 4, 8}, sums(8);
    run(b.finish("running"), {values.data(), sums.data()});
    CHECK(sums == std::vector<float>{0, 1, 1, 3, 3, 7, 7, 15});
}

TEST_CASE("interpret: argmax over a reversed loop still finds the first") {
    Builder b;
    const int x = b.add_buffer({"x", DType::int32, Role::input, 6});
    const int y = b.add_buffer({"y", i64, Role::output, 1});
    const int best = b.add_accumulator(Combiner::argmax, DType::int32);
    b.init_acc(best);
    const Index j = b.begin_loop("j", 6);
    const Index at = Index(5) - j;
    b.accumulate(best, b.load(x, at), b.index_value(at));
    b.end_loop();
    b.store(y, 0, b.acc_read(best, 1));
    const Kernel kernel = b.finish("argmax");
    std::vector<std::int32_t> in = {3, 8, 1, 8, 8, 2};
    std::int64_t out = -1;
    run(kernel, {in.data(), &out});
    CHECK(out == 1);
}

TEST_CASE("interpret: guarded reductions of bool and integers") {
    Builder b;
    const int x = b.add_buffer({"x", DType::uint8, Role::input, 6});
    const int y = b.add_buffer({"y", DType::boolean, Role::output, 2});
    const int z = b.add_buffer({"z", DType::uint8, Role::output, 1});
    const int all = b.add_accumulator(Combiner::logical_and, DType::boolean);
    const int any = b.add_accumulator(Combiner::logical_or, DType::boolean);
    const int sum = b.add_accumulator(Combiner::sum, DType::uint8);
    for (int acc : {all, any, sum}) b.init_acc(acc);
    const Index j = b.begin_loop("j", 6);
    const ValueId v = b.load(x, j);
    const ValueId large = b.op(ScalarOp::lt, b.constant_int(99, DType::uint8), v);
    b.accumulate(all, large);
    b.accumulate(any, large);
    b.accumulate(sum, v, no_value, large);
    b.end_loop();
    b.store(y, 0, b.acc_read(all));
    b.store(y, 1, b.acc_read(any));
    b.store(z, 0, b.acc_read(sum));
    const Kernel kernel = b.finish("guarded");
    std::vector<std::uint8_t> in = {200, 7, 100, 99, 101, 3};
    std::uint8_t flags[2] = {9, 9};
    std::uint8_t total = 0;
    run(kernel, {in.data(), flags, &total});
    CHECK(flags[0] == 0);
    CHECK(flags[1] == 1);
    CHECK(total == static_cast<std::uint8_t>(200 + 100 + 101));
}

TEST_CASE("interpret: guarded loads give zero and read nothing; padding") {
    const Dim n = Dim::symbol("n");
    Builder b;
    const int x = b.add_buffer({"x", DType::float16, Role::input, n});
    const int y = b.add_buffer({"y", DType::float64, Role::output, n + 4});
    const Index i = b.begin_loop("i", n + 4);
    const ValueId at = b.index_value(i - 2);
    const ValueId low = b.op(ScalarOp::le, b.constant_int(0, i64), at);
    const ValueId high = b.op(ScalarOp::lt, at, b.index_value(n));
    b.store(y, i, b.cast(b.load(x, i - 2, b.op(ScalarOp::bit_and, low, high)), DType::float64));
    b.end_loop();
    const Kernel kernel = b.finish("pad");
    std::vector<std::uint16_t> in = {0x3c00, 0xc000, 0x3555};  // 1, -2, 0.333251953125
    std::vector<double> out(7, -1);
    run(kernel, {in.data(), out.data()}, sizes_for(kernel, 3));
    CHECK(out == std::vector<double>{0, 0, 1, -2, 0.333251953125, 0, 0});
}

TEST_CASE("interpret: gather, and a position out of range is an error") {
    Builder b;
    const int x = b.add_buffer({"x", f32, Role::input, 12});
    const int at = b.add_buffer({"at", DType::int32, Role::input, 3});
    const int y = b.add_buffer({"y", f32, Role::output, 12});
    const Index i = b.begin_loop("i", 3);
    const ValueId row = b.cast(b.load(at, i), i64);
    const Index j = b.begin_loop("j", 4);
    b.store(y, i * 4 + j, b.load(x, Index::value(row) * 4 + j));
    b.end_loop();
    b.end_loop();
    const Kernel kernel = b.finish("gather");
    std::vector<float> in = random_floats(12, 3);
    std::vector<float> out(12);
    std::vector<std::int32_t> rows = {2, 0, 2};
    run(kernel, {in.data(), rows.data(), out.data()});
    for (std::size_t k = 0; k < 12; ++k) CHECK(out[k] == in[static_cast<std::size_t>(rows[k / 4]) * 4 + k % 4]);
    rows[1] = 3;
    CHECK_THROWS_WITH_AS(run(kernel, {in.data(), rows.data(), out.data()}),
                         "interpret: kernel gather: \"%2: float32 = load x[j + 4*%1]\" reaches element 12 of buffer x, "
                         "which has 12 elements",
                         InternalError);
    rows[1] = -1;
    CHECK_THROWS_AS(run(kernel, {in.data(), rows.data(), out.data()}), InternalError);
}

TEST_CASE("interpret: in-place updates, quotients of negative numbers, and a store out of range") {
    Builder b;
    const int w = b.add_buffer({"w", DType::int32, Role::inout, 10});
    const Index i = b.begin_loop("i", 10);
    const ValueId negative = b.index_value(Index(-3) - i);
    const ValueId quotient = b.index_value(floor_div(Index::value(negative), 4));
    const ValueId remainder = b.index_value(mod(Index::value(negative), 4));
    const ValueId both = b.add(b.mul(quotient, b.constant_int(10, i64)), remainder);
    b.store(w, i, b.add(b.load(w, i), b.cast(both, DType::int32)));
    b.end_loop();
    const Kernel kernel = b.finish("update");
    std::vector<std::int32_t> data(10, 1000);
    run(kernel, {data.data()});
    for (int k = 0; k < 10; ++k) {
        const int v = -3 - k;
        const int down = static_cast<int>(std::floor(v / 4.0));
        CHECK(data[static_cast<std::size_t>(k)] == 1000 + down * 10 + (v - 4 * down));
    }

    Builder c;
    const int y = c.add_buffer({"y", f32, Role::output, 5});
    const Index j = c.begin_loop("j", 6);
    c.store(y, j, c.constant(1, f32));
    c.end_loop();
    const Kernel wrong = c.finish("wrong");
    std::vector<float> out(6);
    CHECK_THROWS_WITH_AS(
        run(wrong, {out.data()}),
        "interpret: kernel wrong: \"store y[j], %0\" reaches element 5 of buffer y, which has 5 elements",
        InternalError);
}

TEST_CASE("interpret: stores convert to every type in memory") {
    const auto stored = [](double value, DType dtype) {
        Builder b;
        const int x = b.add_buffer({"x", DType::float64, Role::input, 1});
        const int y = b.add_buffer({"y", dtype, Role::output, 1});
        const int z = b.add_buffer({"z", DType::float64, Role::output, 1});
        b.store(y, 0, b.cast(b.load(x, 0), compute_type(dtype)));
        b.store(z, 0, b.cast(b.load(y, 0), DType::float64));
        double in = value;
        double memory = 0;
        double out = -77;
        run(b.finish("convert"), {&in, &memory, &out});
        return out;
    };
    CHECK(stored(-100, DType::int8) == -100);
    CHECK(stored(-30000, DType::int16) == -30000);
    CHECK(stored(-2e9, DType::int32) == -2e9);
    CHECK(stored(-0x1p60, DType::int64) == -0x1p60);
    CHECK(stored(200, DType::uint8) == 200);
    CHECK(stored(60000, DType::uint16) == 60000);
    CHECK(stored(4e9, DType::uint32) == 4e9);
    CHECK(stored(0x1p63, DType::uint64) == 0x1p63);
    CHECK(stored(0.3, DType::boolean) == 1);
    CHECK(stored(1.0 / 3, DType::float16) == 0.333251953125);
    CHECK(stored(1.0 / 3, DType::bfloat16) == 0.333984375);
    CHECK(stored(1.0 / 3, DType::float32) == static_cast<double>(1.0f / 3.0f));
    CHECK(stored(1.0 / 3, DType::float64) == 1.0 / 3);
}

TEST_CASE("interpret: a copy keeps every bit of a NaN") {
    Builder b;
    const int x = b.add_buffer({"x", f32, Role::input, 1});
    const int y = b.add_buffer({"y", f32, Role::output, 1});
    b.store(y, 0, b.load(x, 0));
    std::uint32_t in = 0x7fa00001;  // signaling
    std::uint32_t out = 0;
    run(b.finish("copy"), {&in, &out});
    CHECK(out == in);
}

TEST_CASE("interpret: misuse is refused") {
    const Dim n = Dim::symbol("n");
    Builder b;
    const int t = b.add_buffer({"t", f32, Role::local, n});
    const int y = b.add_buffer({"y", f32, Role::output, n});
    const Index i = b.begin_loop("i", n);
    b.store(t, 0, b.constant(1, f32));
    b.store(y, i, b.load(t, i));
    b.end_loop();
    const Kernel kernel = b.finish("scratch");
    std::vector<float> out(2);
    CHECK_NOTHROW(run(kernel, {out.data()}, {1}));
    CHECK_THROWS_WITH_AS(run(kernel, {out.data()}, {2}),
                         "interpret: kernel scratch: \"%1: float32 = load t[i]\" reads element 1 of t, which was never "
                         "written",
                         InternalError);
    CHECK_THROWS_WITH_AS(run(kernel, {out.data()}), "interpret: kernel scratch takes 1 sizes, but received 0",
                         InternalError);
    CHECK_THROWS_WITH_AS(run(kernel, {}, {1}), "interpret: kernel scratch: no pointer for buffer y", InternalError);
    CHECK_THROWS_WITH_AS(run(kernel, {out.data(), out.data()}, {1}),
                         "interpret: kernel scratch takes 1 buffers, but received 2", InternalError);
    CHECK_THROWS_AS(run(kernel, {out.data()}, {-1}), InternalError);
    Kernel broken = kernel;
    broken.instrs[0].type = DType::float64;
    CHECK_THROWS_AS(run(broken, {out.data()}, {1}), InternalError);
}
