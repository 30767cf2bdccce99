// Threadgroup memory: filled with NaN before each threadgroup, with guard zones between its parts.
// 32 KiB for variables and arguments of a kernel together, as on Apple's GPUs.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "grid/grid.h"

namespace metal_sim {

inline constexpr std::size_t max_threadgroup_bytes = 32 << 10;

class ThreadgroupMemory {
public:
    ThreadgroupMemory();
    ~ThreadgroupMemory();
    ThreadgroupMemory(const ThreadgroupMemory&) = delete;
    ThreadgroupMemory& operator=(const ThreadgroupMemory&) = delete;

    // Gives each argument and variable of the job its place, and fills in the launch's pointers.
    void lay_out(const GridJob& job, msl_launch& launch);
    void* variable(unsigned id) const;
    void poison();
    // What was written between the parts, after a threadgroup ran.
    std::optional<std::string> damage() const;
    bool contains(const void* address) const;

private:
    struct Part {
        std::string name;
        std::size_t offset = 0, bytes = 0;
    };
    std::byte* place(const std::string& name, std::size_t bytes);

    std::byte* memory_;
    std::size_t used_ = 0;
    std::vector<Part> parts_;
    std::vector<void*> variables_;  // by id
};

}  // namespace metal_sim
