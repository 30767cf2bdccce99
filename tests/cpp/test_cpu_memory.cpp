// Loads and stores in all forms: strides, guards, gathers, quotients and remainders, locals, in-place updates.
// Buffers end at a forbidden page, so that reading one element too many fails as well.
#include <doctest/doctest.h>

#include "test_cpu_support.h"
#include "topstitch/error.h"

using namespace topstitch;
using namespace topstitch::cpu;
using namespace topstitch::cpu::testing;
using loopir::Builder;
using loopir::floor_div;
using loopir::Index;
using loopir::Kernel;
using loopir::mod;
using loopir::ScalarOp;
using loopir::ValueId;
using Role = loopir::BufferParam::Role;

namespace {

const Dim n = Dim::symbol("n");

Data filled(DType type, std::int64_t count, std::mt19937_64& random) {
    Data data;
    data.bytes.resize(static_cast<std::size_t>(std::max<std::int64_t>(0, count)) * size_of(type));
    fill(data.bytes.data(), type, static_cast<std::size_t>(std::max<std::int64_t>(0, count)), random);
    return data;
}

Data numbers(const std::vector<std::int64_t>& values) {
    return Data::of(values);
}

void expect(const Kernel& kernel, const std::vector<Data>& buffers, const std::vector<std::int64_t>& sizes) {
    for (const TargetInfo& target : test_targets()) {
        const std::string difference = check_kernel(kernel, target, buffers, sizes);
        CHECK_MESSAGE(difference.empty(), difference);
    }
}

// Every way of running one loop over "i".
std::vector<Kernel> ways(const Kernel& kernel, bool parallel = true) {
    return {scheduled(kernel, {{"i", {parallel, true, 1}}}), scheduled(kernel, {{"i", {parallel, true, 2}}}, true),
            scheduled(kernel, {{"i", {parallel, false, 3}}}), kernel};
}

}  // namespace

TEST_CASE("memory: strided loads") {
    std::mt19937_64 random(test_seed());
    for (const DType type : {DType::uint8, DType::float16, DType::float32, DType::int64}) {
        for (const std::int64_t stride : {0, 1, 2, 3, 4, 5, -1, -2, -3}) {
            Builder b;
            const int x = b.add_buffer({"x", type, Role::input, Dim::symbol("size")});
            const int y = b.add_buffer({"y", type, Role::output, n});
            const Index i = b.begin_loop("i", n);
            // Backwards from the last element: the constant is an argument.
            const Index start = stride < 0 ? Index(Dim(-stride) * n - 1 - (-stride - 1)) : Index(2);
            b.store(y, i, b.load(x, start + i * stride));
            b.end_loop();
            for (const Kernel& kernel : ways(b.finish("strided"))) {
                for (const std::int64_t count : {0, 1, 3, 7, 8, 9, 16, 17, 31, 40, 67, 100}) {
                    const std::int64_t size =
                        stride < 0 ? -stride * count : std::max<std::int64_t>(3, 3 + stride * (count - 1));
                    std::vector<std::int64_t> sizes;
                    for (const Dim& param : loopir::size_params(kernel)) {
                        sizes.push_back(
                            param.evaluate([&](std::string_view name) { return name == "n" ? count : size; }));
                    }
                    expect(kernel, {filled(type, size, random), filled(type, count, random)}, sizes);
                }
            }
        }
    }
}

TEST_CASE("memory: strided stores leave the gaps alone") {
    std::mt19937_64 random(test_seed());
    for (const DType type : {DType::boolean, DType::bfloat16, DType::float32, DType::float64}) {
        for (const std::int64_t stride : {1, 2, 3, -1}) {
            Builder b;
            const int x = b.add_buffer({"x", type, Role::input, n});
            const int y = b.add_buffer({"y", type, Role::output, Dim::symbol("size")});
            const Index i = b.begin_loop("i", n);
            b.store(y, (stride < 0 ? Index(n - 1) : Index(1)) + i * stride, b.load(x, i));
            b.end_loop();
            for (const Kernel& kernel : ways(b.finish("strided_store"))) {
                for (const std::int64_t count : {0, 1, 5, 8, 19, 33, 64, 70}) {
                    const std::int64_t size = std::max<std::int64_t>(1, stride * count + 1);
                    std::vector<std::int64_t> sizes;
                    for (const Dim& param : loopir::size_params(kernel)) {
                        sizes.push_back(param.evaluate(
                            [&](std::string_view name) { return name == "n" ? count : std::max(size, count); }));
                    }
                    expect(kernel, {filled(type, count, random), filled(type, std::max(size, count), random)}, sizes);
                }
            }
        }
    }
}

TEST_CASE("memory: a symbolic stride") {
    std::mt19937_64 random(test_seed());
    const Dim s = Dim::symbol("s");
    Builder b;
    const int x = b.add_buffer({"x", DType::float32, Role::input, n * s});
    const int y = b.add_buffer({"y", DType::float32, Role::output, n * s});
    const Index i = b.begin_loop("i", n);
    b.store(y, i * s, b.load(x, i * s));
    b.end_loop();
    for (const Kernel& kernel : ways(b.finish("symbolic_stride"))) {
        for (const std::int64_t stride : {1, 2, 7}) {
            std::vector<std::int64_t> sizes;
            for (const Dim& param : loopir::size_params(kernel)) {
                sizes.push_back(param.evaluate([&](std::string_view name) { return name == "n" ? 37 : stride; }));
            }
            expect(kernel, {filled(DType::float32, 37 * stride, random), filled(DType::float32, 37 * stride, random)},
                   sizes);
        }
    }
}

TEST_CASE("memory: padding, that is guarded loads that would otherwise leave the buffer") {
    std::mt19937_64 random(test_seed());
    for (const DType type : {DType::boolean, DType::int16, DType::float16, DType::float32, DType::float64}) {
        for (const std::int64_t direction : {1, -1, 2, 0}) {
            // y[i] = 3 <= i < n - 2 ? x[...] : 0, where x has n - 5 elements (or as many as the direction needs).
            Builder b;
            const int x = b.add_buffer({"x", type, Role::input, Dim::symbol("size")});
            const int y = b.add_buffer({"y", type, Role::output, n});
            const Index i = b.begin_loop("i", n);
            const ValueId position = b.index_value(i);
            const ValueId inside =
                b.op(ScalarOp::bit_and, b.op(ScalarOp::le, b.constant_int(3, DType::int64), position),
                     b.op(ScalarOp::lt, position, b.index_value(Index(n - 2))));
            const Index at = direction < 0 ? Index(n - 3) - i : (i - 3) * direction;
            b.store(y, i, b.load(x, at, inside));
            b.end_loop();
            for (const Kernel& kernel : ways(b.finish("padding"))) {
                for (const std::int64_t count : {0, 1, 5, 6, 7, 13, 16, 24, 37, 64, 75}) {
                    const std::int64_t elements = std::max<std::int64_t>(0, count - 5);
                    const std::int64_t size = direction == 0  ? 1
                                              : elements == 0 ? 0
                                                              : std::abs(direction) * (elements - 1) + 1;
                    std::vector<std::int64_t> sizes;
                    for (const Dim& param : loopir::size_params(kernel)) {
                        sizes.push_back(
                            param.evaluate([&](std::string_view name) { return name == "n" ? count : size; }));
                    }
                    expect(kernel, {filled(type, size, random), filled(type, count, random)}, sizes);
                }
            }
        }
    }
}

TEST_CASE("memory: guarded stores") {
    std::mt19937_64 random(test_seed());
    for (const DType type : {DType::uint8, DType::bfloat16, DType::int32, DType::float64}) {
        for (const std::int64_t stride : {1, -1, 2}) {
            Builder b;
            const int x = b.add_buffer({"x", type, Role::input, n});
            const int p = b.add_buffer({"p", DType::boolean, Role::input, n});
            const int y = b.add_buffer({"y", type, Role::output, Dim(2) * n});
            const Index i = b.begin_loop("i", n);
            b.store(y, stride < 0 ? Index(n - 1) - i : i * stride, b.load(x, i), b.load(p, i));
            b.end_loop();
            for (const Kernel& kernel : ways(b.finish("guarded_store"))) {
                for (const std::int64_t count : {0, 1, 4, 8, 15, 32, 45}) {
                    std::vector<std::int64_t> sizes;
                    for (const Dim& param : loopir::size_params(kernel)) {
                        sizes.push_back(param.evaluate([&](std::string_view) { return count; }));
                    }
                    expect(kernel,
                           {filled(type, count, random), filled(DType::boolean, count, random),
                            filled(type, 2 * count, random)},
                           sizes);
                }
            }
        }
    }
}

TEST_CASE("memory: quotients and remainders") {
    std::mt19937_64 random(test_seed());
    const auto forms = std::vector<std::function<Index(const Index&)>>{
        [](const Index& i) { return mod(i, 8); },
        [](const Index& i) { return mod(i, 64); },
        [](const Index& i) { return mod(i, 5); },
        [](const Index& i) { return mod(i, 768); },
        [](const Index& i) { return floor_div(i, 16); },
        [](const Index& i) { return floor_div(i, 3); },
        [](const Index& i) { return floor_div(i, 7) + mod(i, 7) * 9; },
        [](const Index& i) { return mod(floor_div(i, 2), 5) * 3 + mod(i + 3, 32); },
        [](const Index& i) { return mod(i * 4, 24) + floor_div(i * 4 + 8, 12); },
        [](const Index& i) { return mod(i, 3) * (-1) + floor_div(i, 100) + 2; },
        // Negative dividends: the quotient is rounded down, the remainder is not negative.
        [](const Index& i) { return floor_div(i - Index(30), 7) + 10; },
        [](const Index& i) { return mod(i * 3 - Index(100), 32) + mod(Index(50) - i, 9); },
        [](const Index& i) { return floor_div(Index(40) - i * 2, 8) + 60; },
    };
    for (std::size_t form = 0; form < forms.size(); ++form) {
        for (const bool known : {false, true}) {
            const std::int64_t count = 203;
            Builder b;
            const int x = b.add_buffer({"x", DType::float32, Role::input, Dim(1000)});
            const int y = b.add_buffer({"y", DType::float32, Role::output, known ? Dim(count) : n});
            const Index i = b.begin_loop("i", known ? Dim(count) : n);
            b.store(y, i, b.load(x, forms[form](i)));
            b.end_loop();
            for (const Kernel& kernel : ways(b.finish("quotients"))) {
                const std::vector<std::int64_t> sizes = known ? std::vector<std::int64_t>{} : std::vector{count};
                expect(kernel, {filled(DType::float32, 1000, random), filled(DType::float32, count, random)}, sizes);
            }
        }
    }
}

TEST_CASE("memory: quotients and remainders by sizes, also of nothing") {
    std::mt19937_64 random(test_seed());
    const Dim m = Dim::symbol("m");
    Builder b;  // y[i] = x[(i % m) * n + i / m]: the transpose of n x m, flattened
    const int x = b.add_buffer({"x", DType::int32, Role::input, m * n});
    const int y = b.add_buffer({"y", DType::int32, Role::output, m * n});
    const Index i = b.begin_loop("i", m * n);
    b.store(y, i, b.load(x, mod(i, m) * n + floor_div(i, m)));
    b.end_loop();
    for (const Kernel& kernel : ways(b.finish("transpose"))) {
        for (const auto& [rows, columns] :
             {std::pair<std::int64_t, std::int64_t>{3, 17}, {8, 8}, {1, 40}, {40, 1}, {0, 5}, {5, 0}}) {
            std::vector<std::int64_t> sizes;
            for (const Dim& param : loopir::size_params(kernel)) {
                sizes.push_back(param.evaluate([&](std::string_view name) { return name == "m" ? rows : columns; }));
            }
            expect(kernel, {filled(DType::int32, rows * columns, random), filled(DType::int32, rows * columns, random)},
                   sizes);
        }
    }
}

TEST_CASE("memory: gathers, guarded by the bounds") {
    std::mt19937_64 random(test_seed());
    for (const DType type : {DType::uint8, DType::float16, DType::float32, DType::int64}) {
        Builder b;  // y[i, j] = inside ? x[index[i] * 3 + j] : 0
        const int x = b.add_buffer({"x", type, Role::input, Dim(30)});
        const int index = b.add_buffer({"index", DType::int64, Role::input, n});
        const int y = b.add_buffer({"y", type, Role::output, n * 3});
        const Index i = b.begin_loop("i", n);
        const ValueId row = b.load(index, i);
        const ValueId inside = b.op(ScalarOp::bit_and, b.op(ScalarOp::le, b.constant_int(0, DType::int64), row),
                                    b.op(ScalarOp::lt, row, b.constant_int(10, DType::int64)));
        const Index j = b.begin_loop("j", Dim(3));
        b.store(y, i * 3 + j, b.load(x, Index::value(row) * 3 + j, inside));
        b.end_loop();
        b.end_loop();
        std::vector<Kernel> kernels = ways(b.finish("gather"));
        kernels.push_back(scheduled(kernels.back(), {{"j", {false, true, 1}}}));
        for (const Kernel& kernel : kernels) {
            std::vector<std::int64_t> rows;
            for (int k = 0; k < 43; ++k) rows.push_back(static_cast<std::int64_t>(random() % 14) - 2);
            std::vector<std::int64_t> sizes;
            for (const Dim& param : loopir::size_params(kernel)) {
                sizes.push_back(param.evaluate([](std::string_view) { return 43; }));
            }
            expect(kernel, {filled(type, 30, random), numbers(rows), filled(type, 129, random)}, sizes);
        }
    }
}

TEST_CASE("memory: two loops, either of them in lanes") {
    std::mt19937_64 random(test_seed());
    const Dim m = Dim::symbol("m");
    Builder b;  // z[i, j] = x[j, i] + row[j] - column[i]
    const int x = b.add_buffer({"x", DType::float32, Role::input, m * n});
    const int row = b.add_buffer({"row", DType::float32, Role::input, m});
    const int column = b.add_buffer({"column", DType::float32, Role::input, n});
    const int z = b.add_buffer({"z", DType::float32, Role::output, m * n});
    const Index i = b.begin_loop("i", n);
    const Index j = b.begin_loop("j", m);
    const ValueId sum = b.add(b.load(x, j * n + i), b.load(row, j));
    b.store(z, i * m + j, b.sub(sum, b.load(column, i)));
    b.end_loop();
    b.end_loop();
    const Kernel plain = b.finish("two_loops");
    for (const Schedule& schedule :
         {Schedule{}, Schedule{{"j", {false, true, 1}}}, Schedule{{"i", {true, true, 1}}},
          Schedule{{"i", {true, true, 3}}}, Schedule{{"i", {true, false, 4}}, {"j", {false, true, 2}}},
          Schedule{{"i", {true, true, 2}}, {"j", {false, false, 3}}},
          Schedule{{"i", {false, false, 2}}, {"j", {false, false, 2}}}}) {
        const Kernel kernel = scheduled(plain, schedule, true);
        for (const auto& [rows, columns] :
             {std::pair<std::int64_t, std::int64_t>{1, 1}, {7, 20}, {33, 5}, {16, 16}, {0, 3}, {3, 0}}) {
            std::vector<std::int64_t> sizes;
            for (const Dim& param : loopir::size_params(kernel)) {
                sizes.push_back(param.evaluate([&](std::string_view name) { return name == "n" ? rows : columns; }));
            }
            expect(kernel,
                   {filled(DType::float32, rows * columns, random), filled(DType::float32, columns, random),
                    filled(DType::float32, rows, random), filled(DType::float32, rows * columns, random)},
                   sizes);
        }
    }
}

TEST_CASE("memory: locals, shared by a row or private to lanes and copies") {
    std::mt19937_64 random(test_seed());
    const Dim m = Dim::symbol("m");
    for (const DType type : {DType::uint8, DType::float16, DType::float32, DType::float64}) {
        Builder b;  // t[j] = x[i, j] + 1; y[i, j] = t[m - 1 - j] * t[j]
        const int x = b.add_buffer({"x", type, Role::input, m * n});
        const int t = b.add_buffer({"t", type, Role::local, m});
        const int y = b.add_buffer({"y", type, Role::output, m * n});
        const int u = b.add_buffer({"u", DType::boolean, Role::local, Dim(2)});
        const Index i = b.begin_loop("i", n);
        const Index j = b.begin_loop("j", m);
        const ValueId value = b.load(x, i * m + j);
        b.store(t, j, b.add(value, b.constant(1, b.type(value))));
        b.end_loop();
        b.store(u, Index(1), b.op(ScalarOp::lt, b.index_value(i), b.constant_int(5, DType::int64)));
        const Index k = b.begin_loop("k", m);
        const ValueId product = b.mul(b.load(t, Index(m - 1) - k), b.load(t, k));
        b.store(y, i * m + k, b.select(b.load(u, Index(1)), product, b.load(t, k)));
        b.end_loop();
        b.end_loop();
        const Kernel plain = b.finish("locals");
        for (const Schedule& schedule :
             {Schedule{}, Schedule{{"i", {true, true, 1}}}, Schedule{{"i", {true, true, 2}}},
              Schedule{{"i", {true, false, 3}}},
              Schedule{{"i", {true, false, 1}}, {"j", {false, true, 2}}, {"k", {false, true, 1}}},
              Schedule{{"i", {true, false, 2}}, {"j", {false, true, 1}}, {"k", {false, true, 2}}}}) {
            const Kernel kernel = scheduled(plain, schedule);
            for (const auto& [rows, columns] :
                 {std::pair<std::int64_t, std::int64_t>{1, 1}, {11, 9}, {37, 3}, {4, 35}, {0, 2}, {2, 0}}) {
                std::vector<std::int64_t> sizes;
                for (const Dim& param : loopir::size_params(kernel)) {
                    sizes.push_back(
                        param.evaluate([&](std::string_view name) { return name == "n" ? rows : columns; }));
                }
                expect(kernel, {filled(type, rows * columns, random), filled(type, rows * columns, random)}, sizes);
            }
        }
    }
}

TEST_CASE("memory: updates in place") {
    std::mt19937_64 random(test_seed());
    Builder b;
    const int w = b.add_buffer({"w", DType::float32, Role::inout, n});
    const int g = b.add_buffer({"g", DType::float32, Role::input, n});
    const Index i = b.begin_loop("i", n);
    b.store(w, i, b.sub(b.load(w, i), b.mul(b.load(g, i), b.constant(0.1, DType::float32))));
    b.end_loop();
    for (const Kernel& kernel : ways(b.finish("update"))) {
        for (std::int64_t count = 0; count <= 40; ++count) {
            expect(kernel, {filled(DType::float32, count, random), filled(DType::float32, count, random)}, {count});
        }
    }
}

TEST_CASE("memory: one place for all iterations gets the last") {
    std::mt19937_64 random(test_seed());
    Builder b;
    const int x = b.add_buffer({"x", DType::int32, Role::input, n});
    const int p = b.add_buffer({"p", DType::boolean, Role::input, n});
    const int y = b.add_buffer({"y", DType::int32, Role::output, Dim(2)});
    const Index i = b.begin_loop("i", n);
    b.store(y, Index(0), b.load(x, i));
    b.store(y, Index(1), b.load(x, i), b.load(p, i));
    b.end_loop();
    for (const Kernel& kernel : ways(b.finish("last"), false)) {
        for (const std::int64_t count : {0, 1, 8, 13, 40, 71}) {
            expect(kernel,
                   {filled(DType::int32, count, random), filled(DType::boolean, count, random),
                    filled(DType::int32, 2, random)},
                   {count});
        }
    }
}

TEST_CASE("memory: positions as data") {
    std::mt19937_64 random(test_seed());
    const auto forms = std::vector<std::function<Index(const Index&)>>{
        [](const Index& i) { return i * 3 + 5; }, [](const Index& i) { return mod(i, 7); },
        [](const Index& i) { return floor_div(i, 4) * (-2) + mod(i, 16); }, [](const Index& i) { return i * n - 1; }};
    for (const auto& form : forms) {
        for (const DType type : {DType::int64, DType::int32, DType::float32}) {
            Builder b;
            const int y = b.add_buffer({"y", type, Role::output, n});
            const Index i = b.begin_loop("i", n);
            b.store(y, i, b.cast(b.index_value(form(i)), type));
            b.end_loop();
            for (const Kernel& kernel : ways(b.finish("positions"))) {
                for (const std::int64_t count : {1, 8, 21, 100}) expect(kernel, {filled(type, count, random)}, {count});
            }
        }
    }
}
