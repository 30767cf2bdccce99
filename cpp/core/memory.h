// How much memory there is for this process.
// As the system and the container's limits have it.
#pragma once

#include <cstddef>

namespace topstitch {

// Bytes that this process can hope for: more than this is refused at once, where the system might say yes and
// end the process at the first touch.
std::size_t total_memory();

}  // namespace topstitch
