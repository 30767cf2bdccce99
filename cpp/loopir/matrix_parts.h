// Numbers as sums of bfloat16 numbers, which matrix units multiply: a float32 is the sum of three of them.
// Products of parts, all but the three smallest of nine, are then as exact as float32's own.
#pragma once

#include <array>
#include <cstdint>

#include "loopir/builder.h"

namespace topstitch::loopir {

inline constexpr std::size_t most_matrix_parts = 3;

// The parts of a float32 value as uint32 values, with the number in the upper half and nothing in the lower one.
// They add up to it if it is 0 or its magnitude is at least 2^-102 (below, parts would be subnormal, which matrix units
// take for 0) and less than 2^62 (above, products of parts might overflow, with both signs: to NaN). Other numbers,
// infinities and NaN have no parts: the first stands as NaN, and the others as the upper and the lower half of the
// value's bits.
struct MatrixParts {
    std::array<ValueId, most_matrix_parts> parts;
    ValueId magnitude;  // uint32: grows with it, but that of 0 is the largest
    ValueId exact;      // bool: it has parts
};
MatrixParts split_in_parts(Builder& b, ValueId value);
// The parts of a value that has some, or is NaN: then one of them is.
std::array<ValueId, most_matrix_parts> parts_of(Builder& b, ValueId value);

// What parts stand for, from their words; half: 0 or 1, of each word.
float value_of_parts(const std::array<std::uint32_t, most_matrix_parts>& words, int parts, int half);

// How small the elements of a block are, from the least magnitude of the block and whether all elements have parts:
// a number of which two are added up to see whether the blocks may be multiplied by parts.
ValueId matrix_range(Builder& b, ValueId smallest, ValueId all_exact);
inline constexpr std::int64_t any_matrix_range = 255;  // of a block whose elements all have parts, whatever they meet
// Whether they may not: parts are missing, or the product of the smallest elements is below 2^-100, so that products of
// parts might vanish that float32 still tells apart.
ValueId needs_plain_product(Builder& b, ValueId rows_range, ValueId columns_range);

}  // namespace topstitch::loopir
