// Where the intermediate results of a run lie in its one piece of memory.
// Those that live at different times may lie in the same place.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace topstitch {

inline constexpr std::size_t arena_alignment = 64;

constexpr std::size_t aligned(std::size_t bytes) {
    return (bytes + arena_alignment - 1) / arena_alignment * arena_alignment;
}

// Offsets in one arena for buffers that live at different times: first fit over those that overlap in time.
class ArenaLayout {
public:
    std::size_t place(std::size_t bytes, int first, int last) {
        bytes = aligned(std::max<std::size_t>(bytes, 1));
        std::vector<std::pair<std::size_t, std::size_t>> taken;
        for (const Block& block : blocks_) {
            if (block.last >= first && block.first <= last)
                taken.emplace_back(block.offset, block.offset + block.bytes);
        }
        std::sort(taken.begin(), taken.end());
        std::size_t offset = 0;
        for (const auto& [begin, end] : taken) {
            if (offset + bytes <= begin) break;
            offset = std::max(offset, end);
        }
        blocks_.push_back({offset, bytes, first, last});
        total_ = std::max(total_, offset + bytes);
        return offset;
    }
    std::size_t total() const { return total_; }

private:
    struct Block {
        std::size_t offset, bytes;
        int first, last;
    };
    std::vector<Block> blocks_;
    std::size_t total_ = 0;
};

}  // namespace topstitch
