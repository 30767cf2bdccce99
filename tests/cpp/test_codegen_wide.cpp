// Four neighbours at a time in plain loops, on the simulated device, against the interpreter: every type in memory,
// rows that are no multiple of four, guards, values that all four share, results in place.
#include <doctest/doctest.h>

#include <random>

#include "test_codegen_device.h"
#include "test_codegen_support.h"
#include "test_support.h"

using namespace topstitch;
using namespace topstitch::testing;
using loopir::Builder;
using loopir::Index;
using loopir::Kernel;
using loopir::ScalarOp;
using loopir::ValueId;
using Role = loopir::BufferParam::Role;

namespace {

constexpr std::int64_t rows = 70;
const std::vector<DType> memory_types = {DType::boolean,  DType::int8,   DType::int16,  DType::int32,
                                         DType::uint8,    DType::uint16, DType::uint32, DType::float16,
                                         DType::bfloat16, DType::float32};

// Buffers with `rows` times so many elements as `columns` says, at that size.
std::vector<Data> random_data(const Kernel& kernel, std::int64_t columns) {
    std::mt19937_64 random(test_seed());
    std::vector<Data> buffers;
    for (const loopir::BufferParam& buffer : kernel.buffers) {
        const auto elements = static_cast<std::size_t>(buffer.size.evaluate([&](std::string_view) { return columns; }));
        buffers.emplace_back();
        buffers.back().bytes.resize(elements * size_of(buffer.dtype));
        fill(buffers.back().bytes.data(), buffer.dtype, elements, random);
    }
    return buffers;
}

std::vector<std::int64_t> sizes_of(const Kernel& kernel, std::int64_t columns) {
    std::vector<std::int64_t> sizes;
    for (const Dim& dim : loopir::size_params(kernel)) {
        sizes.push_back(dim.evaluate([&](std::string_view) { return columns; }));
    }
    return sizes;
}

void check_sizes(const Kernel& kernel, const std::vector<std::int64_t>& columns, bool narrow) {
    for (const std::int64_t count : columns) {
        const std::string found =
            check_emitted(kernel, random_data(kernel, count), sizes_of(kernel, count), {.narrow = narrow});
        CHECK_MESSAGE(found.empty(), count, " columns: ", found);
    }
}

Kernel copies(const Dim& columns) {
    Builder b;
    std::vector<int> from, to;
    for (const DType type : memory_types) {
        from.push_back(b.add_buffer({"from", type, Role::input, columns * rows}));
        to.push_back(b.add_buffer({"to", type, Role::output, columns * rows}));
    }
    const Index i = b.begin_loop("i", rows);
    const Index j = b.begin_loop("j", columns);
    for (std::size_t k = 0; k < from.size(); ++k) b.store(to[k], i * columns + j, b.load(from[k], i * columns + j));
    b.end_loop();
    b.end_loop();
    return scheduled(b.finish("copies"), {{"i", {true, false, 1}}, {"j", {false, true, 1}}});
}

// y[i, j] = (x[i, j - 1] if row i is not the third, else 0) * bias[j] + scale[i] + j, added to z in place.
Kernel mixed(const Dim& columns) {
    Builder b;
    const int x = b.add_buffer({"x", DType::float32, Role::input, columns * rows});
    const int bias = b.add_buffer({"bias", DType::float16, Role::input, columns});
    const int scale = b.add_buffer({"scale", DType::float32, Role::input, rows});
    const int y = b.add_buffer({"y", DType::float32, Role::output, columns * rows});
    const int z = b.add_buffer({"z", DType::float32, Role::inout, columns * rows});
    const Index i = b.begin_loop("i", rows);
    const ValueId allowed = b.op(ScalarOp::ne, b.index_value(i), b.constant_int(2, DType::int64));
    const Index j = b.begin_loop("j", columns);
    const ValueId value = b.mul(b.load(x, i * columns + j, allowed), b.load(bias, j));
    const ValueId number = b.cast(b.index_value(j), DType::float32);
    const ValueId result = b.add(b.add(value, b.load(scale, i)), number);
    const ValueId before = b.load(z, i * columns + j);
    b.store(y, i * columns + j, result);
    b.store(z, i * columns + j, b.add(before, result));
    b.end_loop();
    b.end_loop();
    return scheduled(b.finish("mixed"), {{"i", {true, false, 1}}, {"j", {false, true, 1}}});
}

}  // namespace

TEST_CASE("run: four at a time, every type in memory") {
    const Kernel whole = copies(64);
    CHECK(contains(emitted(whole).text, "packed_ushort4"));
    CHECK_FALSE(contains(emitted(whole).text, "load_four"));
    check_sizes(whole, {64}, false);
    const Kernel any = copies(Dim::symbol("n"));
    CHECK(contains(emitted(any).text, "load_four_half(from"));
    check_sizes(any, {1, 3, 4, 61, 66}, true);
}

TEST_CASE("run: four at a time, with guards, shared values and results in place") {
    for (const Dim& columns : {Dim(63), Dim::symbol("n")}) {
        const Kernel kernel = mixed(columns);
        const std::string text = emitted(kernel).text;
        CHECK(contains(text, "store_four_float(z"));
        CHECK(contains(text, " ? load_four_float(x"));
        check_sizes(kernel, {63}, columns.is_known());
    }
}

TEST_CASE("run: what is not four neighbours, or may not wait, is done one by one") {
    const auto is_wide = [](const auto& make) {
        Builder b;
        const int x = b.add_buffer({"x", DType::float32, Role::inout, 20000});
        const int y = b.add_buffer({"y", DType::int64, Role::output, 20000});
        const Index i = b.begin_loop("i", 5000);
        make(b, x, y, i);
        b.end_loop();
        return contains(emitted(scheduled(b.finish("k"), {{"i", {true, true, 1}}})).text, "4(*(device const packed");
    };
    const auto one = [](Builder& b) { return b.constant(1, DType::float32); };
    CHECK(is_wide([&](Builder& b, int x, int, const Index& i) { b.store(x, i, b.add(b.load(x, i), one(b))); }));
    CHECK_FALSE(
        is_wide([&](Builder& b, int x, int, const Index& i) { b.store(x, i * Dim(2), b.load(x, i * Dim(2))); }));
    CHECK_FALSE(is_wide(
        [&](Builder& b, int x, int, const Index& i) { b.store(x, i + Index(9000), b.load(x, Index(4999) - i)); }));
    // Elements of 64 bits.
    CHECK_FALSE(
        is_wide([&](Builder& b, int x, int y, const Index& i) { b.store(y, i, b.cast(b.load(x, i), DType::int64)); }));
    // A load that must see what was stored before it.
    CHECK_FALSE(is_wide([&](Builder& b, int x, int, const Index& i) {
        b.store(x, i, one(b));
        b.store(x, i + Index(10000), b.load(x, i));
    }));
}
