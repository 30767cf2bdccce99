// One step of a hash that lives in this process: joins a value to what was hashed before.
// What is stored in files or compared between processes is hashed by core/hash128.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace topstitch {

// The finishing step of splitmix64 (G. Steele, D. Lea and C. Flood, 2014), so that small numbers reach all bits.
inline std::size_t mixed_hash(std::size_t seed, std::size_t value) {
    std::uint64_t bits = seed * 0x9e3779b97f4a7c15ULL + value;
    bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9ULL;
    bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebULL;
    return static_cast<std::size_t>(bits ^ (bits >> 31));
}

}  // namespace topstitch
