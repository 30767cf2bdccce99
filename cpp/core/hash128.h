// SipHash-2-4 with 128 bits of result and a fixed key: the same on every machine, in every build.
// For structural hashes and cache keys; the reference is Aumasson and Bernstein, "SipHash: a fast short-input PRF".
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace topstitch {

class Hash128 {
public:
    explicit Hash128(std::uint64_t key0 = 0, std::uint64_t key1 = 0);

    void add_bytes(const void* data, std::size_t size);
    void add(std::uint64_t value);    // as 8 bytes
    void add(std::string_view text);  // with its length, so that "ab", "c" differs from "a", "bc"

    // The result for all that was added; more may be added afterwards.
    std::array<std::uint64_t, 2> value() const;
    std::string hex() const;  // 32 digits

private:
    void compress(std::uint64_t word);

    std::array<std::uint64_t, 4> state_;
    std::uint64_t pending_ = 0;  // the bytes that do not fill a word yet
    std::uint64_t length_ = 0;
};

}  // namespace topstitch
