// Runs a grid: every thread of every threadgroup, with barriers and simdgroup operations, on one host thread.
// Grids of all queues run one at a time, so that atomics are exact and threadgroup memory is there once.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "grid/abi.h"

namespace metal_sim {

// A buffer as it was bound, so that an error can name it.
struct BoundBuffer {
    unsigned index = 0;
    std::byte* begin = nullptr;
    std::size_t bytes = 0;
    std::size_t slack = 0;  // bytes after the end that are ours and hold slack_byte
};

inline constexpr auto slack_byte = std::byte{0xc3};

struct ThreadgroupVariable {
    unsigned id = 0;
    std::size_t bytes = 0;
};

struct GridJob {
    std::string kernel;
    msl_entry entry = nullptr;
    msl_launch launch{};  // without what differs between threadgroups
    std::array<std::size_t, msl_buffer_slots> threadgroup_bytes{};
    std::vector<ThreadgroupVariable> variables;
    std::vector<BoundBuffer> buffers;
};

enum class GridFailure { divergence, out_of_bounds, page_fault, arithmetic, timeout, out_of_memory };

struct GridError {
    GridFailure kind;
    std::string message;
};

// Nothing when all threads returned.
std::optional<GridError> run_grid(const GridJob& job);

}  // namespace metal_sim
