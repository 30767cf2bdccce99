// Lanes that lie apart in memory, or end in the middle of a vector: squares turned in registers, last vectors that
// begin early, and quotients of the position. Generated code equals the interpreter to the byte, and touches nothing
// else.
#include <doctest/doctest.h>

#include <array>
#include <random>
#include <vector>

#include "test_cpu_support.h"

using namespace topstitch;
using namespace topstitch::cpu;
using namespace topstitch::cpu::testing;
using loopir::BufferParam;
using loopir::Builder;
using loopir::Index;
using loopir::Kernel;
using loopir::ScalarOp;

namespace {

constexpr DType stored_types[] = {DType::float32, DType::float64, DType::int64,   DType::int32,
                                  DType::int16,   DType::uint8,   DType::float16, DType::bfloat16};

Data numbers(DType type, std::int64_t count) {
    Data data;
    data.bytes.resize(static_cast<std::size_t>(count) * size_of(type));
    std::mt19937_64 random(test_seed());
    fill_small(data.bytes.data(), type, static_cast<std::size_t>(count), random);
    return data;
}

Data zeros(DType type, std::int64_t count) {
    Data data;
    data.bytes.resize(static_cast<std::size_t>(count) * size_of(type));
    return data;
}

// y[row, lane] = x[lane * step + row] + x[row]: the lanes read across memory, which the rows walk along.
Kernel transposition(DType type, const Dim& rows, const Dim& lanes, const Dim& step) {
    Builder b;
    const int x = b.add_buffer({"x", type, BufferParam::Role::input, lanes * step + rows});
    const int y = b.add_buffer({"y", type, BufferParam::Role::output, rows * lanes});
    const Index row = b.begin_loop("row", rows);
    const Index lane = b.begin_loop("lane", lanes);
    b.store(y, row * lanes + lane, b.add(b.load(x, lane * step + row), b.load(x, row)));
    b.end_loop();
    b.end_loop();
    return scheduled(b.finish("transposition"), {{"lane", {false, true, 2}}});
}

}  // namespace

TEST_CASE("lanes: squares are turned in registers") {
    int turn = 0;
    for (const DType type : stored_types) {
        for (const TargetInfo& target : targets_for(type, turn++)) {
            for (const auto& [rows, lanes, step] : std::vector<std::array<std::int64_t, 3>>{{8, 8, 8},
                                                                                            {16, 32, 20},
                                                                                            {17, 33, 19},
                                                                                            {7, 40, 7},
                                                                                            {40, 7, 45},
                                                                                            {1, 64, 9},
                                                                                            {64, 1, 64},
                                                                                            {9, 16, 5}}) {
                const Kernel kernel = transposition(type, rows, lanes, step);
                const std::vector<Data> buffers = {numbers(type, lanes * step + rows), zeros(type, rows * lanes)};
                INFO(name_of(type), " ", rows, " by ", lanes, " step ", step, " on ", target.cpu);
                CHECK(check_kernel(kernel, target, buffers, {}) == "");
            }
            const Dim n = Dim::symbol("n");
            const Dim m = Dim::symbol("m");
            const Kernel kernel = transposition(type, n, m, n);
            for (const auto& [rows, lanes] :
                 std::vector<std::array<std::int64_t, 2>>{{8, 16}, {19, 37}, {0, 5}, {5, 0}}) {
                INFO(name_of(type), " open, ", rows, " by ", lanes, " on ", target.cpu);
                const std::vector<Data> buffers = {numbers(type, lanes * rows + rows), zeros(type, rows * lanes)};
                std::vector<std::int64_t> sizes;
                for (const Dim& size : loopir::size_params(kernel))
                    sizes.push_back(size.evaluate([&](std::string_view name) { return name == "n" ? rows : lanes; }));
                CHECK(check_kernel(kernel, target, buffers, sizes) == "");
            }
        }
    }
}

TEST_CASE("lanes: the last vector of a short row begins early") {
    int turn = 0;
    for (const DType type : stored_types) {
        for (const TargetInfo& target : targets_for(type, turn++)) {
            for (std::int64_t row = 1; row <= 37; row += row < 18 ? 1 : 3) {
                // y[i, j] = x[i, j / 2] where j is even, else x[i, (3 j) / 4] of the other parity.
                Builder b;
                const int x = b.add_buffer({"x", type, BufferParam::Role::input, 3 * row});
                const int y = b.add_buffer({"y", type, BufferParam::Role::output, 3 * row});
                const Index i = b.begin_loop("i", 3);
                const Index j = b.begin_loop("j", row);
                const auto even = b.op(ScalarOp::eq, b.index_value(mod(j, 2)), b.constant_int(0, DType::int64));
                const auto near = b.load(x, i * Dim(row) + floor_div(j, 2));
                const auto further = b.load(x, i * Dim(row) + floor_div(j * 3, 4));
                b.store(y, i * Dim(row) + j, b.select(even, near, further));
                b.end_loop();
                b.end_loop();
                const Kernel kernel = scheduled(b.finish("rows"), {{"i", {true}}, {"j", {false, true, 2}}});
                INFO(name_of(type), " rows of ", row, " on ", target.cpu);
                CHECK(check_kernel(kernel, target, {numbers(type, 3 * row), zeros(type, 3 * row)}, {}) == "");
            }
        }
    }
}

TEST_CASE("lanes: what reads what it writes does not run twice") {
    for (const TargetInfo& target : test_targets()) {
        for (const std::int64_t row : {9, 14, 23}) {
            Builder b;
            const int x = b.add_buffer({"x", DType::float32, BufferParam::Role::inout, row});
            const Index j = b.begin_loop("j", row);
            b.store(x, j, b.add(b.load(x, j), b.constant(1.0, DType::float32)));
            b.end_loop();
            const Kernel kernel = scheduled(b.finish("count"), {{"j", {false, true, 1}}});
            INFO("rows of ", row, " on ", target.cpu);
            CHECK(check_kernel(kernel, target, {numbers(DType::float32, row)}, {}) == "");
        }
    }
}
