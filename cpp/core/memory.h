// How much memory there is for this process, and which of it a GPU that shares the host's memory can use in place.
// The limits are those of the system and of the container.
#pragma once

#include <cstddef>

namespace topstitch {

class Buffer;

// Bytes that this process can hope for: more than this is refused at once, where the system might say yes and
// end the process at the first touch.
std::size_t total_memory();

// In builds with a back end for such a GPU, blocks of Buffer::allocate from this size on are whole pages of this size.
inline constexpr std::size_t gpu_page_bytes = 16384;
// The bytes of the whole pages that begin at buffer.data(); 0 if the buffer is not made of any.
std::size_t shared_block_bytes(const Buffer& buffer);
// `observer` is told of such a block just before it goes back to the system; it must not throw.
void observe_freed_blocks(void (*observer)(void* block));

}  // namespace topstitch
