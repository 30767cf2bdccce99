// The rounds of Philox 4x32-10, and the assignment of words to elements.
// 32-bit words are kept in 64-bit lanes, whose product of two words is one instruction on vectors.
#include "ops/philox.h"

#include "ops/element_lowering.h"

namespace topstitch::ops {

using loopir::Builder;
using loopir::ScalarOp;
using loopir::ValueId;

namespace {

ValueId number(Builder& b, std::uint64_t value) {
    return b.constant_int(static_cast<std::int64_t>(value), DType::uint64);
}

ValueId low_word(Builder& b, ValueId x) {
    return b.op(ScalarOp::bit_and, x, number(b, 0xFFFFFFFFu));
}

ValueId high_word(Builder& b, ValueId x) {
    return b.op(ScalarOp::shr, x, number(b, 32));
}

}  // namespace

std::array<ValueId, words_per_block> philox(Builder& b, ValueId counter_low, ValueId counter_high, ValueId key) {
    constexpr int rounds = 10;
    constexpr std::uint64_t multipliers[] = {0xD2511F53u, 0xCD9E8D57u};
    constexpr std::uint64_t key_steps[] = {0x9E3779B9u, 0xBB67AE85u};
    std::array<ValueId, words_per_block> x = {low_word(b, counter_low), high_word(b, counter_low),
                                              low_word(b, counter_high), high_word(b, counter_high)};
    std::array<ValueId, 2> keys = {low_word(b, key), high_word(b, key)};
    for (int round = 0; round < rounds; ++round) {
        const ValueId first = b.mul(x[0], number(b, multipliers[0]));
        const ValueId second = b.mul(x[2], number(b, multipliers[1]));
        const auto mixed = [&b](ValueId product, ValueId word, ValueId round_key) {
            return b.op(ScalarOp::bit_xor, b.op(ScalarOp::bit_xor, word, round_key), high_word(b, product));
        };
        x = {mixed(second, x[1], keys[0]), low_word(b, second), mixed(first, x[3], keys[1]), low_word(b, first)};
        for (std::size_t k = 0; k < keys.size(); ++k) keys[k] = low_word(b, b.add(keys[k], number(b, key_steps[k])));
    }
    return x;
}

RandomWords::RandomWords(ElementContext& context, const Indices& at, int words) : context_(context), words_(words) {
    Builder& b = context.b;
    const Index element = row_major_offset(context.op.out_shape(), at);
    const Dim group(blocks_per_group);
    const Index block = floor_div(element, Dim(elements_per_group(words))) * group + mod(element, group);
    part_ = b.index_value(mod(floor_div(element, group), Dim(elements_per_block())));

    const auto state = [&](int k) { return context.operand(0, {Index(k)}).re; };
    const ValueId offset = b.cast(b.index_value(block), DType::uint64);
    const ValueId low = b.add(state(0), offset);
    const ValueId carry = b.cast(b.op(ScalarOp::lt, low, offset), DType::uint64);
    block_ = philox(b, low, b.add(state(1), carry), state(2));
}

ValueId RandomWords::part_is(int k) const {
    return context_.b.op(ScalarOp::eq, part_, context_.b.constant_int(k, DType::int64));
}

ValueId RandomWords::word(int k) const {
    ValueId chosen = block_word((elements_per_block() - 1) * words_ + k);
    for (int part = elements_per_block() - 2; part >= 0; --part) {
        chosen = context_.b.select(part_is(part), block_word(part * words_ + k), chosen);
    }
    return chosen;
}

}  // namespace topstitch::ops
