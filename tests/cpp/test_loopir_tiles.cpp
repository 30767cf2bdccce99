// Products of packed tiles: splitting numbers in parts, the interpreter against sums in float64, what is refused.
// Expected bits follow from IEEE 754 and the limits that matrix_parts.h names.
#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "loopir/interpret.h"
#include "loopir/matrix_parts.h"
#include "loopir/print.h"
#include "test_kernel_support.h"
#include "test_tiles_support.h"
#include "topstitch/error.h"

using namespace topstitch;
using namespace topstitch::loopir;
using topstitch::testing::Data;
using topstitch::testing::run_interpreted;
using topstitch::testing::test_seed;

namespace {

using Role = BufferParam::Role;

bool has_parts(float x) {
    return x == 0 || (std::fabs(x) >= 0x1p-102F && std::fabs(x) < 0x1p62F);
}

// Every exponent with mantissas at the edges of the parts, both signs, and bits at random.
std::vector<float> many_floats() {
    std::vector<float> values;
    std::mt19937_64 random(test_seed());
    for (std::uint32_t exponent = 0; exponent < 256; ++exponent) {
        for (const std::uint32_t mantissa :
             {0x0U, 0x1U, 0x7fU, 0x80U, 0x7fffU, 0x8000U, 0x8001U, 0x8080U, 0x7f8000U, 0x7f7fffU, 0x7fffffU, 0x400000U,
              static_cast<std::uint32_t>(random()) & 0x7fffffU, static_cast<std::uint32_t>(random()) & 0x7fffffU}) {
            for (const std::uint32_t sign : {0U, 0x80000000U})
                values.push_back(std::bit_cast<float>(sign | exponent << 23 | mantissa));
        }
    }
    return values;
}

// The words of each value's parts, its magnitude, and whether it is exact.
std::vector<Data> split(const std::vector<float>& values) {
    const Dim count = static_cast<std::int64_t>(values.size());
    Builder b;
    const int x = b.add_buffer({"x", DType::float32, Role::input, count});
    std::array<int, most_matrix_parts> parts{};
    for (int& part : parts) part = b.add_buffer({"part", DType::uint32, Role::output, count});
    const int magnitude = b.add_buffer({"magnitude", DType::uint32, Role::output, count});
    const int exact = b.add_buffer({"exact", DType::boolean, Role::output, count});
    const Index i = b.begin_loop("i", count);
    const MatrixParts found = split_in_parts(b, b.load(x, i));
    for (std::size_t p = 0; p < parts.size(); ++p) b.store(parts[p], i, found.parts[p]);
    b.store(magnitude, i, found.magnitude);
    b.store(exact, i, found.exact);
    b.end_loop();
    const Data words = Data::of(std::vector<std::uint32_t>(values.size()));
    const Data flags = Data::of(std::vector<std::uint8_t>(values.size()));
    return run_interpreted(b.finish("split"), {Data::of(values), words, words, words, words, flags}, {});
}

std::string message_after(const std::function<void(MultiplyTiles&, Kernel&)>& damage) {
    Kernel kernel = tile_product({3, 1, 1, 1, matrix_tile});
    for (Stmt& stmt : kernel.body.stmts) {
        if (auto* product = std::get_if<MultiplyTiles>(&stmt)) damage(*product, kernel);
    }
    try {
        verify(kernel);
    } catch (const InternalError& error) { return error.what(); }
    return "(accepted)";
}

}  // namespace

TEST_CASE("tiles: the parts of a number add up to it, or hold its bits") {
    const std::vector<float> values = many_floats();
    const std::vector<Data> result = split(values);
    const auto exact = result[5].as<std::uint8_t>();
    std::array<std::vector<std::uint32_t>, most_matrix_parts> parts;
    for (std::size_t p = 0; p < parts.size(); ++p) parts[p] = result[p + 1].as<std::uint32_t>();
    for (std::size_t i = 0; i < values.size(); ++i) {
        CAPTURE(values[i]);
        REQUIRE(static_cast<bool>(exact[i]) == has_parts(values[i]));
        std::array<std::uint32_t, most_matrix_parts> low{};
        std::array<std::uint32_t, most_matrix_parts> high{};
        double sum = 0;
        for (std::size_t p = 0; p < parts.size(); ++p) {
            const std::uint32_t bits = parts[p][i];
            const auto part = std::bit_cast<float>(bits);
            REQUIRE((bits & 0xffffU) == 0);
            if (exact[i] != 0) REQUIRE((part == 0 || std::isnormal(part)));
            sum += static_cast<double>(part);
            low[p] = bits >> 16 | 0xabcd0000U;  // beside another number
            high[p] = bits | 0x1234U;
        }
        if (exact[i] != 0) REQUIRE(sum == static_cast<double>(values[i]));
        if (exact[i] == 0) REQUIRE(std::isnan(std::bit_cast<float>(parts[0][i])));
        for (const float whole : {value_of_parts(low, 3, 0), value_of_parts(high, 3, 1)}) {
            const bool same = std::bit_cast<std::uint32_t>(whole) == std::bit_cast<std::uint32_t>(values[i]);
            REQUIRE((same || (whole == 0 && values[i] == 0)));  // a sum that is 0 has no sign
        }
    }
}

TEST_CASE("tiles: blocks are multiplied plainly where parts are missing or products small") {
    const std::vector<float> values = {0.F,
                                       -0.F,
                                       1.F,
                                       0x1p-50F,
                                       -0x1.8p-50F,
                                       0x1p-51F,
                                       0x1p-102F,
                                       0x1p-103F,
                                       0x1p61F,
                                       0x1p62F,
                                       0x1p2F,
                                       0x1.fffffep1F,
                                       std::numeric_limits<float>::infinity(),
                                       std::nanf("")};
    const Dim count = static_cast<std::int64_t>(values.size());
    Builder b;
    const int x = b.add_buffer({"x", DType::float32, Role::input, count});
    const int y = b.add_buffer({"y", DType::boolean, Role::output, count * count});
    const Index i = b.begin_loop("i", count);
    const Index j = b.begin_loop("j", count);
    const auto range = [&](const Index& at) {
        const MatrixParts parts = split_in_parts(b, b.load(x, at));
        return matrix_range(b, parts.magnitude, parts.exact);
    };
    b.store(y, i * count + j, needs_plain_product(b, range(i), range(j)));
    b.end_loop();
    b.end_loop();
    const std::vector<std::uint8_t> flags(values.size() * values.size());
    const auto plain =
        run_interpreted(b.finish("plain"), {Data::of(values), Data::of(flags)}, {})[1].as<std::uint8_t>();
    for (std::size_t k = 0; k < plain.size(); ++k) {
        const float left = values[k / values.size()];
        const float right = values[k % values.size()];
        CAPTURE(left);
        CAPTURE(right);
        bool expected = !has_parts(left) || !has_parts(right);
        // A power of two counts as the number before it.
        const auto exponent = [](float x) { return std::ilogb(std::nextafter(std::fabs(x), 0.F)); };
        if (!expected && left != 0 && right != 0) expected = exponent(left) + exponent(right) < -100;
        CHECK(static_cast<bool>(plain[k]) == expected);
    }
}

TEST_CASE("tiles: the interpreter multiplies packed blocks") {
    std::mt19937_64 random(test_seed());
    for (const TileShape& shape : tile_shapes(2)) {
        const Kernel kernel = tile_product(shape);
        CAPTURE(print(kernel));
        TileFactor rows(shape, true);
        TileFactor columns(shape, false);
        const std::vector<double> left = rows.fill(random);
        const std::vector<double> right = columns.fill(random);
        const auto size = static_cast<std::size_t>((shape.rows() - 1) * shape.sums_row + shape.columns());
        const auto sums = [&](const std::vector<double>& values) {
            return shape.bytes() ? Data::of(std::vector<std::int32_t>(values.begin(), values.end()))
                                 : Data::of(std::vector<float>(values.begin(), values.end()));
        };
        for (const std::int64_t steps : {-3, 0, 1, 2}) {
            CAPTURE(steps);
            for (const int flags : {0, 1, 2, 3}) {
                std::vector<double> expected(size, 3);
                for (std::int64_t i = 0; i < shape.rows(); ++i) {
                    for (std::int64_t j = 0; j < shape.columns(); ++j) {
                        double sum = flags % 2 == 1 ? 3 : 0;
                        for (std::int64_t k = 0; k < steps * shape.group(); ++k) {
                            sum += left[static_cast<std::size_t>(i * shape.products() + k)] *
                                   right[static_cast<std::size_t>(j * shape.products() + k)];
                        }
                        expected[static_cast<std::size_t>(i * shape.sums_row + j)] = sum;
                    }
                }
                const std::vector<std::uint8_t> flag_bytes = {static_cast<std::uint8_t>(flags % 2),
                                                              static_cast<std::uint8_t>(flags / 2)};
                const std::vector<Data> result =
                    run_interpreted(kernel,
                                    {Data::of(rows.words()), Data::of(columns.words()), Data::of(flag_bytes),
                                     Data::of(std::vector{steps}), sums(std::vector<double>(size, 3))},
                                    {});
                CHECK(result[4].bytes == sums(expected).bytes);
            }
        }
    }
}

TEST_CASE("tiles: sums of bytes wrap") {
    const TileShape shape{1, 1, 1, 1, matrix_tile, DType::uint8, DType::uint8};
    TileFactor rows(shape, true);
    TileFactor columns(shape, false);
    rows.set_bits(0, 0, 0, 255);
    columns.set_bits(0, 0, 0, 255);
    constexpr std::int32_t most = std::numeric_limits<std::int32_t>::max();
    const std::vector<Data> result =
        run_interpreted(tile_product(shape),
                        {Data::of(rows.words()), Data::of(columns.words()), Data::of(std::vector<std::uint8_t>{1, 0}),
                         Data::of(std::vector<std::int64_t>{1}), Data::of(std::vector<std::int32_t>(256, most))},
                        {});
    CHECK(result[4].as<std::int32_t>()[0] == std::numeric_limits<std::int32_t>::min() + 65024);
    CHECK(result[4].as<std::int32_t>()[1] == most);
}

TEST_CASE("tiles: the interpreter refuses steps that are not in memory") {
    const TileShape shape{1, 1, 1, 1, matrix_tile};
    const TileFactor rows(shape, true);
    const TileFactor columns(shape, false);
    CHECK_THROWS_WITH_AS(
        run_interpreted(tile_product(shape),
                        {Data::of(rows.words()), Data::of(columns.words()), Data::of(std::vector<std::uint8_t>{0, 0}),
                         Data::of(std::vector<std::int64_t>{2}), Data::of(std::vector<float>(256))},
                        {}),
        doctest::Contains("which has 256 elements"), InternalError);
}

TEST_CASE("tiles: text") {
    CHECK(
        print(tile_product({3, 2, 1, 1, 20})) ==
        "kernel tiles(rows: input uint32[1536], columns: input uint32[768], flags: input bool[2], count: input "
        "int64[1], sums: inout float32[636])\n"
        "  %0: int64 = load count[0]\n"
        "  %1: bool = load flags[0]\n"
        "  %2: bool = load flags[1]\n"
        "  multiply rows[0] bfloat16 by columns[0] bfloat16 to sums[0] row 20, tiles 2 by 1, parts 3, steps %0 adds %1 "
        "plain %2\n");
}

TEST_CASE("tiles: what the verifier refuses") {
    const auto refused = [](const std::function<void(MultiplyTiles&, Kernel&)>& damage, const char* reason) {
        const std::string message = message_after(damage);
        CAPTURE(message);
        CHECK(message.find(reason) != std::string::npos);
    };
    CHECK(message_after([](MultiplyTiles&, Kernel&) {}) == "(accepted)");
    refused([](MultiplyTiles&, Kernel& k) { k.buffers[0].dtype = DType::int32; }, "must be words of uint32");
    refused([](MultiplyTiles& p, Kernel&) { p.columns = p.sums; }, "must be words of uint32");
    refused([](MultiplyTiles&, Kernel& k) { k.buffers[4].dtype = DType::float64; },
            "the sums must be float32, but are float64");
    refused([](MultiplyTiles& p, Kernel&) { p.rows_type = DType::int8; }, "both bytes, but one is bfloat16");
    refused([](MultiplyTiles& p, Kernel&) { p.columns_type = DType::float16; }, "but one is float16");
    refused([](MultiplyTiles& p, Kernel&) { p.rows_type = p.columns_type = DType::uint8; }, "bytes have one part");
    refused([](MultiplyTiles&, Kernel& k) { k.buffers[4].role = Role::input; }, "is an input and cannot be written");
    refused([](MultiplyTiles& p, Kernel&) { p.rows = 9; }, "buffer 9 does not exist");
    refused([](MultiplyTiles& p, Kernel&) { p.parts = 2; }, "1 or 3 parts, not 2");
    refused([](MultiplyTiles& p, Kernel&) { p.row_tiles = 3; }, "1 or 2 tiles are multiplied, not 3");
    refused([](MultiplyTiles& p, Kernel&) { p.column_tiles = 0; }, "1 or 2 tiles are multiplied, not 0");
    refused([](MultiplyTiles& p, Kernel&) { p.sums_row = 15; }, "rows of sums overlap");
    refused([](MultiplyTiles& p, Kernel&) { p.adds = 0; }, "must be bool");
    refused([](MultiplyTiles& p, Kernel&) { p.plain = 77; }, "does not exist");
    refused([](MultiplyTiles& p, Kernel&) { p.steps = Index::value(1); }, "must be int64");
    refused([](MultiplyTiles& p, Kernel&) { p.rows_at = Index::var(5, 3); }, "does not exist");
}

TEST_CASE("tiles: no product in lanes") {
    for (const bool vector : {true, false}) {
        Builder b;
        const int words = b.add_buffer({"words", DType::uint32, Role::input, 1024});
        const int sums = b.add_buffer({"sums", DType::float32, Role::output, 1024});
        const Index i = b.begin_loop("i", 4);
        MultiplyTiles product;
        product.rows = product.columns = words;
        product.rows_at = product.columns_at = product.sums_at = i * Dim(256);
        product.sums = sums;
        product.sums_row = matrix_tile;
        product.steps = 1;
        b.multiply_tiles(product);
        b.end_loop();
        const Kernel kernel = b.finish("lanes");
        const testing::LoopSchedule lanes{false, vector, vector ? 1 : 2};
        CHECK_THROWS_WITH_AS(verify(testing::scheduled(kernel, {{"i", lanes}})),
                             doctest::Contains("one after the other"), InternalError);
    }
}
