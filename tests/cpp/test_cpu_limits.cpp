// Loops with limits: tiles that are cut off at the edge, in lanes, in copies and around reductions.
// Expected numbers come from plain loops over the whole arrays.
#include <doctest/doctest.h>

#include "loopir/print.h"
#include "test_cpu_support.h"
#include "topstitch/error.h"

using namespace topstitch;
using namespace topstitch::cpu;
using namespace topstitch::cpu::testing;
using loopir::Builder;
using loopir::Index;
using loopir::Kernel;
using loopir::ValueId;
using Role = loopir::BufferParam::Role;

namespace {

const Dim n = Dim::symbol("n");

std::vector<float> counted(std::int64_t count) {
    std::vector<float> values;
    for (std::int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>(i % 97 - 40));
    return values;
}

// The size arguments for n = count.
std::vector<std::int64_t> sizes_for(const Kernel& kernel, std::int64_t count) {
    std::vector<std::int64_t> sizes;
    for (const Dim& param : loopir::size_params(kernel)) {
        sizes.push_back(param.evaluate([&](std::string_view) { return count; }));
    }
    return sizes;
}

}  // namespace

TEST_CASE("limits: tiles over a vector, the last one short") {
    for (const std::int64_t tile : {1, 5, 8, 24, 100}) {
        Builder b;
        const int x = b.add_buffer({"x", DType::float32, Role::input, n});
        const int y = b.add_buffer({"y", DType::float32, Role::output, n});
        const Index t = b.begin_loop("t", floor_div(n, Dim(tile)) + Dim(2));  // tiles past the end are empty
        const Index i = b.begin_loop("i", Dim(tile), Index(n) - t * tile);
        b.store(y, t * tile + i, b.add(b.load(x, t * tile + i), b.constant(1, DType::float32)));
        b.end_loop();
        b.end_loop();
        const Kernel plain = b.finish("tiles");
        for (const Kernel& kernel :
             {plain, scheduled(plain, {{"t", {true, false, 1}}, {"i", {false, true, 2}}}),
              scheduled(plain, {{"i", {false, false, 3}}}), scheduled(plain, {{"t", {false, false, 2}}}),
              scheduled(plain, {{"t", {false, true, 1}}})}) {
            for (const std::int64_t count : {0, 1, 4, 5, 9, 16, 23, 24, 25, 101}) {
                std::vector<float> expected = counted(count);
                for (float& value : expected) value += 1;
                const std::vector<Data> buffers = {Data::of(counted(count)),
                                                   Data::of(std::vector<float>(expected.size()))};
                for (const TargetInfo& target : test_targets()) {
                    const auto compiled = compile(std::span(&kernel, 1), target).front();
                    CHECK(run_compiled(kernel, *compiled, buffers, sizes_for(kernel, count), 1)[1].as<float>() ==
                          expected);
                }
                CHECK(run_interpreted(kernel, buffers, sizes_for(kernel, count))[1].as<float>() == expected);
            }
        }
    }
}

TEST_CASE("limits: a sum over blocks, register tiles around it") {
    // y[r, j] = sum over k of x[r, k] * w[k, j], k in blocks of 7, r and j in copies and lanes.
    constexpr std::int64_t rows = 3;
    constexpr std::int64_t columns = 16;
    Builder b;
    const int x = b.add_buffer({"x", DType::float32, Role::input, n * Dim(rows)});
    const int w = b.add_buffer({"w", DType::float32, Role::input, n * Dim(columns)});
    const int y = b.add_buffer({"y", DType::float32, Role::output, Dim(rows * columns)});
    const Index r = b.begin_loop("r", Dim(rows));
    const Index j = b.begin_loop("j", Dim(columns));
    const int sum = b.add_accumulator(loopir::Combiner::sum, DType::float32);
    b.init_acc(sum);
    const Index block = b.begin_loop("block", floor_div(n, Dim(7)) + Dim(1));
    const Index k = b.begin_loop("k", Dim(7), Index(n) - block * 7);
    b.accumulate(sum, b.mul(b.load(x, r * n + block * 7 + k), b.load(w, (block * 7 + k) * columns + j)));
    b.end_loop();
    b.end_loop();
    b.store(y, r * columns + j, b.acc_read(sum));
    b.end_loop();
    b.end_loop();
    const Kernel plain = b.finish("blocks");
    for (const Kernel& kernel :
         {plain, scheduled(plain, {{"r", {false, false, 3}}, {"j", {false, true, 2}}}),
          scheduled(plain, {{"k", {false, true, 2}}}), scheduled(plain, {{"k", {false, false, 4}}})}) {
        for (const std::int64_t count : {0, 1, 6, 7, 8, 20, 21}) {
            const std::vector<float> a = counted(rows * count);
            const std::vector<float> c = counted(columns * count);
            std::vector<float> expected(rows * columns, 0);
            for (std::int64_t p = 0; p < rows; ++p) {
                for (std::int64_t q = 0; q < columns; ++q) {
                    for (std::int64_t s = 0; s < count; ++s) {
                        expected[static_cast<std::size_t>(p * columns + q)] +=
                            a[static_cast<std::size_t>(p * count + s)] * c[static_cast<std::size_t>(s * columns + q)];
                    }
                }
            }
            const std::vector<Data> buffers = {Data::of(a), Data::of(c), Data::of(std::vector<float>(rows * columns))};
            for (const TargetInfo& target : test_targets()) {
                const auto compiled = compile(std::span(&kernel, 1), target).front();
                CHECK(run_compiled(kernel, *compiled, buffers, sizes_for(kernel, count), 1)[2].as<float>() == expected);
            }
            CHECK(run_interpreted(kernel, buffers, sizes_for(kernel, count))[2].as<float>() == expected);
        }
    }
}

TEST_CASE("limits: a value decides whether a loop runs") {
    // y[j] = sum over odd t of sum over k of x[t, k, j].
    constexpr std::int64_t steps = 5;
    constexpr std::int64_t depth = 3;
    Builder b;
    const int x = b.add_buffer({"x", DType::float32, Role::input, n * Dim(steps * depth)});
    const int y = b.add_buffer({"y", DType::float32, Role::output, n});
    const Index j = b.begin_loop("j", n);
    const int sum = b.add_accumulator(loopir::Combiner::sum, DType::float32);
    b.init_acc(sum);
    const Index t = b.begin_loop("t", Dim(steps));
    const ValueId odd = b.op(loopir::ScalarOp::eq, b.index_value(mod(t, 2)), b.constant_int(1, DType::int64));
    const ValueId end = b.select(odd, b.constant_int(depth, DType::int64), b.constant_int(0, DType::int64));
    const Index k = b.begin_loop("k", Dim(depth), Index::value(end));
    b.accumulate(sum, b.load(x, (t * depth + k) * n + j));
    b.end_loop();
    b.end_loop();
    b.store(y, j, b.acc_read(sum));
    b.end_loop();
    const Kernel plain = b.finish("skips");
    for (const Kernel& kernel : {plain, scheduled(plain, {{"j", {true, true, 2}}}),
                                 scheduled(plain, {{"j", {false, true, 1}}, {"t", {false, false, 2}}})}) {
        for (const std::int64_t count : {1, 7, 8, 16, 37}) {
            const std::vector<float> input = counted(count * steps * depth);
            std::vector<float> expected(static_cast<std::size_t>(count), 0);
            for (const std::int64_t step : {1, 3}) {
                for (std::int64_t at = step * depth * count; at < (step + 1) * depth * count; ++at) {
                    expected[static_cast<std::size_t>(at % count)] += input[static_cast<std::size_t>(at)];
                }
            }
            const std::vector<Data> buffers = {Data::of(input), Data::of(std::vector<float>(expected.size()))};
            for (const TargetInfo& target : test_targets()) {
                const auto compiled = compile(std::span(&kernel, 1), target).front();
                CHECK(run_compiled(kernel, *compiled, buffers, sizes_for(kernel, count), 1)[1].as<float>() == expected);
            }
            CHECK(run_interpreted(kernel, buffers, sizes_for(kernel, count))[1].as<float>() == expected);
        }
    }
}

TEST_CASE("limits: they are printed, and refused where they make no sense") {
    const auto kernel = [](bool parallel) {
        Builder b;
        const int y = b.add_buffer({"y", DType::float32, Role::output, n});
        const Index t = b.begin_loop("t", n);
        const Index i = b.begin_loop("i", Dim(4), Index(n) - t * 4);
        b.store(y, t * 4 + i, b.constant(1, DType::float32));
        b.end_loop();
        b.end_loop();
        Kernel built = b.finish("limits");
        return scheduled(std::move(built), {{parallel ? "t" : "none", {true, false, 1}}});
    };
    CHECK(loopir::print(kernel(true)).find("for i in 0..4 below n - 4*t") != std::string::npos);
    Kernel broken = kernel(false);
    auto& outer = std::get<loopir::Loop>(broken.body.stmts.back());
    outer.limit = Index(3);
    outer.parallel = true;
    CHECK_THROWS_AS(loopir::verify(broken), InternalError);
    outer.parallel = false;
    loopir::verify(broken);
    outer.limit = Index::var(outer.var, n);  // its own variable
    CHECK_THROWS_AS(loopir::verify(broken), InternalError);
}
