// Which buffer of the GPU a pointer of the host lies in. Kernels are launched with pointers; Metal wants buffers.
// Memory of whole pages is used in place: blocks of our pool, the caller's MTLBuffers, page-aligned memory of others.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <optional>

#include "metal/gpu.h"
#include "topstitch/ndarray.h"

namespace topstitch::metal {

// A place in a buffer of the GPU.
struct Place {
    GpuBuffer buffer;
    std::size_t offset = 0;
};

class Memory {
public:
    explicit Memory(Gpu gpu);
    ~Memory();
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;

    // Whether the GPU can use the memory where it is. What is entered for somebody else's memory must be left again,
    // once for each time, while that memory lives; blocks of our pool leave by themselves.
    enum class Entry { none, lasting, borrowed };
    Entry enter(const Buffer& buffer);
    void leave(const Buffer& buffer);
    void leave(const std::byte* memory);
    // The caller's own buffer; to be left once for each time. False, and nothing is done, when it overlaps other
    // memory.
    bool add(const GpuBuffer& buffer);

    // Where `pointer` is; none if it lies in nothing that was entered.
    std::optional<Place> find(const void* pointer) const;

    std::size_t regions() const;

private:
    struct Region {
        GpuBuffer buffer;
        int borrowers = 0;  // of somebody else's memory
        bool lasting = false;
    };
    using Regions = std::map<const std::byte*, Region>;
    static void forget_block(void* block);
    void remove(const std::byte* begin);
    bool overlaps(const std::byte* begin, std::size_t bytes);

    Gpu gpu_;
    mutable std::mutex mutex_;
    Regions regions_;
};

}  // namespace topstitch::metal
