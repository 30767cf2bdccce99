// Products in the memory of a group, and rows that a team of lanes shares out, among other loops of a kernel: as Metal
// source on the simulated device in three orders of threads, against the interpreter.
#include <doctest/doctest.h>

#include <random>
#include <string>
#include <vector>

#include "test_codegen_device.h"
#include "test_codegen_support.h"
#include "test_support.h"

using namespace topstitch;
using namespace topstitch::testing;
using loopir::Builder;
using loopir::Combiner;
using loopir::Index;
using loopir::Kernel;
using loopir::ValueId;
using Role = loopir::BufferParam::Role;

namespace {

constexpr DType f32 = DType::float32;
constexpr std::int64_t groups = 2;

struct Nest {
    std::int64_t rows = 16, columns = 24, steps = 8;
    bool left_across = false, right_across = false;
    bool adds = false;
    bool scaled = false;  // which is more than a product
};

// For each group: both factors into its memory, their product, and that out again.
Kernel product_kernel(const Nest& nest) {
    Builder b;
    const std::int64_t left_size = nest.rows * nest.steps, right_size = nest.steps * nest.columns;
    const std::int64_t size = nest.rows * nest.columns;
    const int x = b.add_buffer({"x", f32, Role::input, groups * left_size});
    const int w = b.add_buffer({"w", f32, Role::input, groups * right_size});
    const int y = b.add_buffer({"y", f32, Role::output, groups * size});
    // Lines are 4 elements further apart than they are long.
    const std::int64_t left_pitch = (nest.left_across ? nest.rows : nest.steps) + 4;
    const std::int64_t right_pitch = (nest.right_across ? nest.steps : nest.columns) + 4;
    const std::int64_t pitch = nest.columns + 4;
    const int left = b.add_buffer({"left", f32, Role::local, (nest.left_across ? nest.steps : nest.rows) * left_pitch});
    const int right =
        b.add_buffer({"right", f32, Role::local, (nest.right_across ? nest.columns : nest.steps) * right_pitch});
    const int result = b.add_buffer({"result", f32, Role::local, nest.rows * pitch});
    const auto at = [](bool across, std::int64_t line, const Index& i, const Index& j) {
        return across ? j * Dim(line) + i : i * Dim(line) + j;
    };
    const Index g = b.begin_loop("g", groups);
    const auto fill = [&](int to, int from, std::int64_t rows, std::int64_t columns, bool across, std::int64_t line) {
        const Index i = b.begin_loop("fill_row", rows);
        const Index j = b.begin_loop("fill", columns);
        b.store(to, at(across, line, i, j), b.load(from, g * Dim(rows * columns) + i * Dim(columns) + j));
        b.end_loop();
        b.end_loop();
    };
    fill(left, x, nest.rows, nest.steps, nest.left_across, left_pitch);
    fill(right, w, nest.steps, nest.columns, nest.right_across, right_pitch);
    if (nest.adds) fill(result, x, nest.rows, nest.steps, false, pitch);
    const Index i = b.begin_loop("i", nest.rows);
    const Index j = b.begin_loop("j", nest.columns);
    const int sum = b.add_accumulator(Combiner::sum, f32);
    b.init_acc(sum);
    const Index k = b.begin_loop("k", nest.steps);
    b.accumulate(sum, b.mul(b.load(left, at(nest.left_across, left_pitch, i, k)),
                            b.load(right, at(nest.right_across, right_pitch, k, j))));
    b.end_loop();
    ValueId value = b.acc_read(sum);
    if (nest.scaled) value = b.mul(value, b.constant(0.5, f32));
    if (nest.adds) value = b.add(b.load(result, i * Dim(pitch) + j), value);
    b.store(result, i * Dim(pitch) + j, value);
    b.end_loop();
    b.end_loop();
    const Index row = b.begin_loop("row", nest.rows);
    const Index column = b.begin_loop("column", nest.columns);
    b.store(y, g * Dim(size) + row * Dim(nest.columns) + column, b.load(result, row * Dim(pitch) + column));
    b.end_loop();
    b.end_loop();
    b.end_loop();
    return scheduled(
        b.finish("product"),
        {{"g", {true, false, 1}}, {"fill", {false, true, 1}}, {"j", {false, true, 1}}, {"column", {false, true, 1}}});
}

std::vector<Data> random_buffers(const Kernel& kernel) {
    std::mt19937_64 random(test_seed());
    std::vector<Data> buffers;
    for (const loopir::BufferParam& buffer : kernel.buffers) {
        if (buffer.role == Role::local) continue;
        buffers.emplace_back();
        const auto count = static_cast<std::size_t>(buffer.size.value());
        buffers.back().bytes.resize(count * size_of(buffer.dtype));
        fill_small(buffers.back().bytes.data(), buffer.dtype, count, random);
    }
    return buffers;
}

bool has_matrices(const Kernel& kernel) {
    return contains(emitted(kernel).text, "simdgroup_multiply_accumulate");
}

void check_nest(const Nest& nest, bool as_matrices) {
    const Kernel kernel = product_kernel(nest);
    CHECK(has_matrices(kernel) == as_matrices);
    const std::string found = check_emitted(kernel, random_buffers(kernel), {});
    CHECK_MESSAGE(found.empty(), found);
}

}  // namespace

TEST_CASE("matrices: factors whose lines are rows or columns, results that are new or added to") {
    check_nest({}, true);
    check_nest({.left_across = true}, true);
    check_nest({.right_across = true}, true);
    check_nest({.rows = 40, .columns = 32, .steps = 64, .left_across = true, .right_across = true}, true);
    check_nest({.rows = 8, .columns = 16, .steps = 16, .adds = true}, true);
}

TEST_CASE("matrices: what is no product of whole matrices stays a loop") {
    check_nest({.rows = 12}, false);
    check_nest({.columns = 20}, false);
    check_nest({.steps = 7}, false);
    check_nest({.scaled = true}, false);
}

TEST_CASE("teams: rows with sums, extremes and places of their own, one pass after the other") {
    for (const std::int64_t rows : {4, 8, 16}) {
        const std::int64_t columns = 45;
        Builder b;
        const int x = b.add_buffer({"x", f32, Role::input, groups * rows * columns});
        const int largest = b.add_buffer({"largest", f32, Role::output, groups * rows});
        const int y = b.add_buffer({"y", f32, Role::output, groups * rows * columns});
        const int held = b.add_buffer({"held", f32, Role::local, rows * columns});
        const int last = b.add_buffer({"last", f32, Role::local, rows});
        const Index g = b.begin_loop("g", groups);
        const Index e = b.begin_loop("e", rows * columns);
        b.store(held, e, b.load(x, g * Dim(rows * columns) + e));
        b.end_loop();
        const Index row = b.begin_loop("row", rows);
        const int most = b.add_accumulator(Combiner::max, f32);
        b.init_acc(most);
        const Index first = b.begin_loop("first", columns);
        b.accumulate(most, b.load(held, row * Dim(columns) + first));
        b.end_loop();
        b.store(last, row, b.acc_read(most));
        b.store(largest, g * Dim(rows) + row, b.acc_read(most));
        // What another lane has stored is read by all.
        const Index second = b.begin_loop("second", columns);
        b.store(held, row * Dim(columns) + second, b.sub(b.load(held, row * Dim(columns) + second), b.load(last, row)));
        b.end_loop();
        const int sum = b.add_accumulator(Combiner::sum, f32);
        b.init_acc(sum);
        // Backwards, so that lanes read what others wrote.
        const Index third = b.begin_loop("third", columns, row + 20);
        b.accumulate(sum, b.load(held, row * Dim(columns) + Index(columns - 1) - third));
        b.end_loop();
        const Index fourth = b.begin_loop("fourth", columns);
        b.store(y, g * Dim(rows * columns) + row * Dim(columns) + fourth,
                b.add(b.load(held, row * Dim(columns) + fourth), b.acc_read(sum)));
        b.end_loop();
        b.end_loop();
        b.end_loop();
        const Kernel kernel =
            scheduled(b.finish("rows"), {{"g", {true, false, 1}}, {"e", {false, true, 1}}, {"row", {false, true, 1}}});
        CHECK(contains(emitted(kernel).text, "int(thread_index) % "));
        const std::string found = check_emitted(kernel, random_buffers(kernel), {});
        CHECK_MESSAGE(found.empty(), found);
    }
}
