// SipHash-2-4-128 as a stream.
// Words are read in little-endian order.
#include "core/hash128.h"

#include <bit>
#include <cstdio>
#include <cstring>
#include <utility>

namespace topstitch {

namespace {

static_assert(std::endian::native == std::endian::little, "words are read in the byte order of the machine");

void rounds(std::array<std::uint64_t, 4>& v, int count) {
    for (int k = 0; k < count; ++k) {
        v[0] += v[1];
        v[1] = std::rotl(v[1], 13) ^ v[0];
        v[0] = std::rotl(v[0], 32);
        v[2] += v[3];
        v[3] = std::rotl(v[3], 16) ^ v[2];
        v[0] += v[3];
        v[3] = std::rotl(v[3], 21) ^ v[0];
        v[2] += v[1];
        v[1] = std::rotl(v[1], 17) ^ v[2];
        v[2] = std::rotl(v[2], 32);
    }
}

}  // namespace

Hash128::Hash128(std::uint64_t key0, std::uint64_t key1)
    : state_{0x736f6d6570736575U ^ key0, 0x646f72616e646f6dU ^ key1 ^ 0xeeU, 0x6c7967656e657261U ^ key0,
             0x7465646279746573U ^ key1} {}

void Hash128::compress(std::uint64_t word) {
    state_[3] ^= word;
    rounds(state_, 2);
    state_[0] ^= word;
}

void Hash128::add_bytes(const void* data, std::size_t size) {
    const auto* bytes = static_cast<const unsigned char*>(data);
    std::size_t k = 0;
    while (k < size) {
        const std::uint64_t filled = length_ % 8;
        if (filled == 0 && size - k >= 8) {
            std::uint64_t word = 0;
            std::memcpy(&word, bytes + k, 8);
            compress(word);
            k += 8;
            length_ += 8;
            continue;
        }
        pending_ |= static_cast<std::uint64_t>(bytes[k++]) << (8 * filled);
        ++length_;
        if (filled == 7) compress(std::exchange(pending_, 0));
    }
}

void Hash128::add(std::uint64_t value) {
    add_bytes(&value, sizeof(value));
}

void Hash128::add(std::string_view text) {
    add(static_cast<std::uint64_t>(text.size()));
    add_bytes(text.data(), text.size());
}

std::array<std::uint64_t, 2> Hash128::value() const {
    Hash128 last = *this;
    last.compress(pending_ | (length_ << 56));
    const auto fold = [&last] { return last.state_[0] ^ last.state_[1] ^ last.state_[2] ^ last.state_[3]; };
    last.state_[2] ^= 0xeeU;
    rounds(last.state_, 4);
    const std::uint64_t first = fold();
    last.state_[1] ^= 0xddU;
    rounds(last.state_, 4);
    return {first, fold()};
}

std::string Hash128::hex() const {
    const auto words = value();
    std::array<char, 33> digits{};
    std::snprintf(digits.data(), digits.size(), "%016llx%016llx", static_cast<unsigned long long>(words[0]),
                  static_cast<unsigned long long>(words[1]));
    return digits.data();
}

}  // namespace topstitch
