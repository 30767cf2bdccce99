// See memory.h.
// A copy is made before the launch and brought back after it; whoever wants no copies allocates here.
#include "metal/memory.h"

#include <cstdint>
#include <cstring>

namespace topstitch::metal {

void Binding::copy_back() const {
    if (host_ != nullptr) std::memcpy(host_, buffer_.contents(), bytes_);
}

std::shared_ptr<std::byte> Memory::allocate(std::size_t bytes) {
    const GpuBuffer buffer = gpu_.allocate(bytes);
    std::byte* begin = buffer.contents();
    const std::shared_ptr<Regions> regions = regions_;
    std::shared_ptr<std::byte> owner(begin, [regions](std::byte* freed) {
        GpuBuffer last;  // released after the lock
        const std::lock_guard lock(regions->mutex);
        const auto found = regions->by_begin.find(freed);
        if (found == regions->by_begin.end()) return;  // it was never entered
        last = found->second;
        regions->by_begin.erase(found);
    });
    const std::lock_guard lock(regions->mutex);
    regions->by_begin[begin] = buffer;
    return owner;
}

Binding Memory::bind(void* pointer, std::size_t bytes) const {
    Binding binding;
    binding.bytes_ = bytes;
    const auto* at = static_cast<const std::byte*>(pointer);
    {
        const std::lock_guard lock(regions_->mutex);
        auto after = regions_->by_begin.upper_bound(at);
        if (after != regions_->by_begin.begin()) {
            const GpuBuffer& region = (--after)->second;
            const auto offset = static_cast<std::size_t>(at - region.contents());
            if (offset <= region.bytes() && bytes <= region.bytes() - offset) {
                binding.buffer_ = region;
                binding.offset_ = offset;
                return binding;
            }
        }
    }
    const std::size_t page = Gpu::page_bytes();
    if (bytes > 0 && bytes % page == 0 && reinterpret_cast<std::uintptr_t>(pointer) % page == 0) {
        if (const auto wrapped = gpu_.wrap(pointer, bytes)) {
            binding.buffer_ = *wrapped;
            return binding;
        }
    }
    binding.buffer_ = gpu_.allocate(bytes);
    if (bytes > 0) std::memcpy(binding.buffer_.contents(), pointer, bytes);
    binding.host_ = pointer;
    return binding;
}

std::size_t Memory::allocations() const {
    const std::lock_guard lock(regions_->mutex);
    return regions_->by_begin.size();
}

}  // namespace topstitch::metal
