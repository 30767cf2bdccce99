// Products of packed tiles for tests: the kernel of one, and blocks of small whole numbers in parts.
// All sums are exact in float32, in any order.
#pragma once

#include <bit>
#include <cstdint>
#include <random>
#include <vector>

#include "loopir/builder.h"

namespace topstitch::loopir {

struct TileShape {
    int parts = 1, row_tiles = 1, column_tiles = 1;
    std::int64_t steps = 1;  // in memory
    std::int64_t sums_row = 0;
    DType rows_type = DType::bfloat16, columns_type = DType::bfloat16;
    bool bytes() const { return rows_type != DType::bfloat16; }
    std::int64_t rows() const { return row_tiles * matrix_tile; }
    std::int64_t columns() const { return column_tiles * matrix_tile; }
    std::int64_t group() const { return matrix_tile * matrix_word(rows_type); }
    std::int64_t products() const { return steps * group(); }
};

// Multiplies so many steps as `count` says. flags: whether it adds to the sums, whether it multiplies plainly.
inline Kernel tile_product(const TileShape& shape) {
    Builder b;
    const auto words = [&](std::int64_t elements) { return Dim(shape.steps * shape.parts * elements * matrix_tile); };
    const int rows = b.add_buffer({"rows", DType::uint32, BufferParam::Role::input, words(shape.rows())});
    const int columns = b.add_buffer({"columns", DType::uint32, BufferParam::Role::input, words(shape.columns())});
    const int flags = b.add_buffer({"flags", DType::boolean, BufferParam::Role::input, 2});
    const int count = b.add_buffer({"count", DType::int64, BufferParam::Role::input, 1});
    MultiplyTiles product;
    const Dim size = (shape.rows() - 1) * shape.sums_row + shape.columns();
    const DType sums_type = shape.bytes() ? DType::int32 : DType::float32;
    product.sums = b.add_buffer({"sums", sums_type, BufferParam::Role::inout, size});
    product.rows = rows;
    product.columns = columns;
    product.rows_type = shape.rows_type;
    product.columns_type = shape.columns_type;
    product.sums_row = shape.sums_row;
    product.steps = Index::value(b.load(count, Index(0)));
    product.row_tiles = shape.row_tiles;
    product.column_tiles = shape.column_tiles;
    product.parts = shape.parts;
    product.adds = b.load(flags, Index(0));
    if (shape.parts > 1) product.plain = b.load(flags, Index(1));
    b.multiply_tiles(product);
    return b.finish("tiles");
}

// One factor: its elements' parts, and the words that hold them.
class TileFactor {
public:
    TileFactor(const TileShape& shape, bool is_rows)
        : shape_(shape),
          is_rows_(is_rows),
          elements_(is_rows ? shape.rows() : shape.columns()),
          words_(static_cast<std::size_t>(shape.steps * shape.parts * elements_ * matrix_tile)) {}

    // The lowest bits, so many as an element of a word has.
    void set_bits(std::int64_t element, std::int64_t k, int part, std::uint32_t bits) {
        const std::int64_t in_word = matrix_word(shape_.rows_type);
        const std::int64_t word = k % shape_.group() / in_word;
        const std::int64_t at = is_rows_ ? element * matrix_tile + word : word * elements_ + element;
        const std::int64_t block = (k / shape_.group() * shape_.parts + part) * elements_ * matrix_tile;
        const auto width = static_cast<std::uint32_t>(32 / in_word);
        const std::uint32_t mask = (1U << width) - 1;
        const std::uint32_t shift = static_cast<std::uint32_t>(k % in_word) * width;
        std::uint32_t& target = words_[static_cast<std::size_t>(block + at)];
        target = (target & ~(mask << shift)) | (bits & mask) << shift;
    }
    // The part is the upper half of a float32 number.
    void set(std::int64_t element, std::int64_t k, int part, std::uint32_t bits) {
        set_bits(element, k, part, bits >> 16);
    }
    // A number that has no parts.
    void set_whole(std::int64_t element, std::int64_t k, float value) {
        const auto bits = std::bit_cast<std::uint32_t>(value);
        set(element, k, 0, 0x7fc00000U);
        set(element, k, 1, bits);
        set(element, k, 2, bits << 16);
    }
    const std::vector<std::uint32_t>& words() const { return words_; }

    // Gives every element parts, of which those that meet are never left out, and returns the elements.
    std::vector<double> fill(std::mt19937_64& random) {
        std::vector<double> values;
        std::uniform_int_distribution<int> digit(-7, 7);
        const bool is_signed = (is_rows_ ? shape_.rows_type : shape_.columns_type) == DType::int8;
        std::uniform_int_distribution<int> byte(is_signed ? -128 : 0, is_signed ? 127 : 255);
        for (std::int64_t element = 0; element < elements_; ++element) {
            for (std::int64_t k = 0; k < shape_.products(); ++k) {
                if (shape_.bytes()) {
                    const int value = byte(random);
                    set_bits(element, k, 0, static_cast<std::uint32_t>(value));
                    values.push_back(value);
                    continue;
                }
                const bool has_third = k % 4 == (is_rows_ ? 1 : 3);
                const float parts[] = {16.F * static_cast<float>(digit(random)),
                                       k % 2 == 0 ? static_cast<float>(digit(random)) : 0.F,
                                       has_third ? static_cast<float>(digit(random)) / 8 : 0.F};
                double sum = 0;
                for (int part = 0; part < shape_.parts; ++part) {
                    set(element, k, part, std::bit_cast<std::uint32_t>(parts[part]));
                    sum += static_cast<double>(parts[part]);
                }
                values.push_back(sum);
            }
        }
        return values;
    }

private:
    TileShape shape_;
    bool is_rows_;
    std::int64_t elements_;
    std::vector<std::uint32_t> words_;
};

// All numbers of tiles and parts, and all types; `steps` in memory.
inline std::vector<TileShape> tile_shapes(std::int64_t steps) {
    std::vector<TileShape> shapes;
    for (const int row_tiles : {1, 2}) {
        for (const int column_tiles : {1, 2}) {
            const std::int64_t width = column_tiles * matrix_tile;
            shapes.push_back({1, row_tiles, column_tiles, steps, width});
            shapes.push_back({3, row_tiles, column_tiles, steps, width + 5});
            for (const DType rows : {DType::int8, DType::uint8}) {
                for (const DType columns : {DType::int8, DType::uint8})
                    shapes.push_back({1, row_tiles, column_tiles, steps, width + 1, rows, columns});
            }
        }
    }
    return shapes;
}

}  // namespace topstitch::loopir
