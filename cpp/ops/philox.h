// Philox 4x32-10, the counter-based generator that all random numbers come from, as loop IR: which words of the stream
// belong to which element of a tensor.
#pragma once

#include <array>

#include "graph/op_def.h"

namespace topstitch::ops {

// A random state: uint64 {counter low, counter high, key}. Block b of a draw is Philox(counter + b, key): four words.
inline constexpr int state_size = 3;
inline constexpr int words_per_block = 4;

// Lane l of 16 takes its words from block l of a group of 16 blocks. Elements that lie 16 apart share a block, so that
// a loop over vectors of 16 lanes (or of 8) which takes some vectors together computes each block once.
inline constexpr int blocks_per_group = 16;

// The words of the element `at`, when each element takes `words` (1, 2 or 4). Words are uint64 values below 2^32.
class RandomWords {
public:
    // The state is input 0 of the operation.
    RandomWords(ElementContext& context, const Indices& at, int words);

    loopir::ValueId word(int k) const;  // of this element
    loopir::ValueId block_word(int k) const { return block_[static_cast<std::size_t>(k)]; }
    int elements_per_block() const { return words_per_block / words_; }
    // Whether this element is the k-th of those that share the block.
    loopir::ValueId part_is(int k) const;

private:
    ElementContext& context_;
    int words_;
    loopir::ValueId part_ = loopir::no_value;  // an int64
    std::array<loopir::ValueId, words_per_block> block_{};
};

// The four words of Philox 4x32-10 (J. K. Salmon et al., Parallel random numbers: as easy as 1, 2, 3; SC 2011) for a
// counter of 128 bits and a key of 64 (uint64 values).
std::array<loopir::ValueId, words_per_block> philox(loopir::Builder& b, loopir::ValueId counter_low,
                                                    loopir::ValueId counter_high, loopir::ValueId key);

// How many elements take their words from one group of blocks.
inline constexpr std::int64_t elements_per_group(int words) {
    return std::int64_t{blocks_per_group} * words_per_block / words;
}

}  // namespace topstitch::ops
