// Which buffer of the GPU a pointer of the host lies in. Kernels are launched with pointers; Metal wants buffers.
// Memory that was allocated here is used in place, and so are whole pages of the caller's; the rest is copied.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>

#include "metal/gpu.h"

namespace topstitch::metal {

// Where the GPU finds bytes of the host, for the time of one launch or longer.
class Binding {
public:
    const GpuBuffer& buffer() const { return buffer_; }
    std::size_t offset() const { return offset_; }
    bool in_place() const { return host_ == nullptr; }
    // After the GPU is done: brings back what it wrote, if it worked on a copy.
    void copy_back() const;

private:
    friend class Memory;
    GpuBuffer buffer_;
    std::size_t offset_ = 0;
    void* host_ = nullptr;  // what a copy stands for
    std::size_t bytes_ = 0;
};

class Memory {
public:
    explicit Memory(Gpu gpu) : gpu_(std::move(gpu)) {}

    // Shared with the GPU; freed with the last pointer to it. MemoryError when it cannot be had.
    std::shared_ptr<std::byte> allocate(std::size_t bytes);
    // The bytes that begin at `pointer`; they must stay where they are while the binding lives.
    Binding bind(void* pointer, std::size_t bytes) const;

    std::size_t allocations() const;

private:
    struct Regions {
        mutable std::mutex mutex;
        std::map<const std::byte*, GpuBuffer> by_begin;
    };

    Gpu gpu_;
    std::shared_ptr<Regions> regions_ = std::make_shared<Regions>();  // outlives this while memory is in use
};

}  // namespace topstitch::metal
