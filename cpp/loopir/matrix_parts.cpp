// Splitting float32 numbers in parts, and finding out when that does not do.
// Rounding is to nearest, ties away from 0: what is left of a number then fits into the parts that follow.
#include "loopir/matrix_parts.h"

#include <bit>
#include <cmath>

namespace topstitch::loopir {

namespace {

constexpr std::int64_t upper_half = 0xffff0000;
// Biased exponents, as the bits above the 24th of a number without its sign.
constexpr std::int64_t lowest = 127 - 102;
constexpr std::int64_t highest = 127 + 62;
// Ranges are exponents, of zeros the highest, or this.
constexpr std::int64_t no_parts = 0x1000;
constexpr std::int64_t smallest_product = 2 * 127 - 100;

float number(std::uint32_t bits) {
    return std::bit_cast<float>(bits);
}

}  // namespace

std::array<ValueId, most_matrix_parts> parts_of(Builder& b, ValueId value) {
    const auto bits = [&b](std::int64_t number) { return b.constant_int(number, DType::uint32); };
    const auto rounded = [&](ValueId number) {
        const ValueId word = b.add(b.bitcast(number, DType::uint32), bits(0x8000));
        return b.op(ScalarOp::bit_and, word, bits(upper_half));
    };
    const auto left = [&](ValueId number, ValueId part) { return b.sub(number, b.bitcast(part, DType::float32)); };
    const ValueId first = rounded(value);
    const ValueId after_first = left(value, first);
    const ValueId second = rounded(after_first);
    return {first, second, b.bitcast(left(after_first, second), DType::uint32)};
}

MatrixParts split_in_parts(Builder& b, ValueId value) {
    const auto bits = [&b](std::int64_t number) { return b.constant_int(number, DType::uint32); };
    const ValueId whole = b.bitcast(value, DType::uint32);
    const auto [first, second, third] = parts_of(b, value);

    MatrixParts result;
    const ValueId without_sign = b.op(ScalarOp::shl, whole, bits(1));
    result.magnitude = b.sub(without_sign, bits(1));
    const ValueId in_range =
        b.op(ScalarOp::lt, b.sub(without_sign, bits(lowest << 24)), bits((highest - lowest) << 24));
    result.exact = b.op(ScalarOp::bit_or, in_range, b.op(ScalarOp::eq, without_sign, bits(0)));
    const auto either = [&](ValueId part, ValueId otherwise) { return b.select(result.exact, part, otherwise); };
    result.parts = {either(first, bits(0x7fc00000)), either(second, b.op(ScalarOp::bit_and, whole, bits(upper_half))),
                    either(third, b.op(ScalarOp::shl, whole, bits(16)))};
    return result;
}

float value_of_parts(const std::array<std::uint32_t, most_matrix_parts>& words, int parts, int half) {
    const auto part = [&](std::size_t p) {
        return half == 0 ? words[p] << 16 : words[p] & static_cast<std::uint32_t>(upper_half);
    };
    if (parts == 1) return number(part(0));
    if (std::isnan(number(part(0)))) return number(part(1) | part(2) >> 16);
    return number(part(0)) + number(part(1)) + number(part(2));
}

ValueId matrix_range(Builder& b, ValueId smallest, ValueId all_exact) {
    const auto bits = [&b](std::int64_t number) { return b.constant_int(number, DType::uint32); };
    return b.select(all_exact, b.op(ScalarOp::shr, smallest, bits(24)), bits(no_parts));
}

ValueId needs_plain_product(Builder& b, ValueId rows_range, ValueId columns_range) {
    const auto bits = [&b](std::int64_t number) { return b.constant_int(number, DType::uint32); };
    const ValueId sum = b.add(rows_range, columns_range);
    const ValueId small = b.op(ScalarOp::lt, sum, bits(smallest_product));
    return b.op(ScalarOp::bit_or, small, b.op(ScalarOp::le, bits(no_parts), sum));
}

}  // namespace topstitch::loopir
