// See memory.h.
// A wrap of a block stays as long as the block: making one takes the system longer than a small kernel.
#include "metal/memory.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/memory.h"

namespace topstitch::metal {

namespace {

// All that there are: a block that goes back to the system must leave each of them.
struct Instances {
    std::mutex mutex;
    std::vector<Memory*> all;
};

Instances& instances() {
    static auto* made = new Instances;  // blocks are freed until the process ends
    return *made;
}

// The region that holds the byte; regions.end() if none does.
template <typename Regions>
auto region_of(Regions& regions, const std::byte* pointer) {
    auto after = regions.upper_bound(pointer);
    if (after == regions.begin()) return regions.end();
    const auto found = --after;
    const auto offset = static_cast<std::size_t>(pointer - found->first);
    return offset < std::max<std::size_t>(found->second.buffer.bytes(), 1) ? found : regions.end();
}

}  // namespace

Memory::Memory(Gpu gpu) : gpu_(std::move(gpu)) {
    const std::lock_guard lock(instances().mutex);
    instances().all.push_back(this);
    observe_freed_blocks(&Memory::forget_block);
}

Memory::~Memory() {
    const std::lock_guard lock(instances().mutex);
    std::erase(instances().all, this);
}

void Memory::forget_block(void* block) {
    const std::lock_guard lock(instances().mutex);
    for (Memory* memory : instances().all) memory->remove(static_cast<std::byte*>(block));
}

bool Memory::overlaps(const std::byte* begin, std::size_t bytes) {
    if (region_of(regions_, begin) != regions_.end()) return true;
    const auto next = regions_.upper_bound(begin);
    return next != regions_.end() && next->first < begin + bytes;
}

Memory::Entry Memory::enter(const Buffer& buffer) {
    auto* begin = static_cast<std::byte*>(buffer.data());
    const std::size_t block = shared_block_bytes(buffer);
    const std::size_t bytes = block > 0 ? block : buffer.bytes();
    const std::lock_guard lock(mutex_);
    if (const auto known = region_of(regions_, begin); known != regions_.end()) {
        const auto offset = static_cast<std::size_t>(begin - known->first);
        if (buffer.bytes() > known->second.buffer.bytes() - offset) return Entry::none;
        if (known->second.lasting) return Entry::lasting;
        ++known->second.borrowers;
        return Entry::borrowed;
    }
    const std::size_t page = Gpu::page_bytes();
    const bool whole_pages = reinterpret_cast<std::uintptr_t>(begin) % page == 0 && bytes % page == 0 && bytes > 0;
    if (!whole_pages || buffer.readonly() || overlaps(begin, bytes)) return Entry::none;
    const std::optional<GpuBuffer> wrapped = gpu_.wrap(begin, bytes);
    if (!wrapped) return Entry::none;
    const bool lasting = block > 0;
    regions_[begin] = {*wrapped, lasting ? 0 : 1, lasting};
    return lasting ? Entry::lasting : Entry::borrowed;
}

void Memory::leave(const Buffer& buffer) {
    leave(static_cast<const std::byte*>(buffer.data()));
}

void Memory::leave(const std::byte* memory) {
    GpuBuffer last;  // released after the lock
    const std::lock_guard lock(mutex_);
    const auto known = region_of(regions_, memory);
    if (known == regions_.end() || known->second.lasting || --known->second.borrowers > 0) return;
    last = known->second.buffer;
    regions_.erase(known);
}

bool Memory::add(const GpuBuffer& buffer) {
    const std::lock_guard lock(mutex_);
    const auto known = regions_.find(buffer.contents());
    if (known != regions_.end() && known->second.buffer.metal_buffer() == buffer.metal_buffer()) {
        if (known->second.lasting) return false;
        ++known->second.borrowers;
        return true;
    }
    if (overlaps(buffer.contents(), std::max<std::size_t>(buffer.bytes(), 1))) return false;
    regions_[buffer.contents()] = {buffer, 1, false};
    return true;
}

void Memory::remove(const std::byte* begin) {
    GpuBuffer last;  // released after the lock
    const std::lock_guard lock(mutex_);
    const auto known = regions_.find(begin);
    if (known == regions_.end()) return;
    last = known->second.buffer;
    regions_.erase(known);
}

std::optional<Place> Memory::find(const void* pointer) const {
    const std::lock_guard lock(mutex_);
    const auto* at = static_cast<const std::byte*>(pointer);
    const auto known = region_of(regions_, at);
    if (known == regions_.end()) return std::nullopt;
    return Place{known->second.buffer, static_cast<std::size_t>(at - known->first)};
}

std::size_t Memory::regions() const {
    const std::lock_guard lock(mutex_);
    return regions_.size();
}

}  // namespace topstitch::metal
