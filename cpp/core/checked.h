// Integer arithmetic that notices overflow.
// Sizes come from users, so every product of sizes goes through here.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

namespace topstitch {

inline std::optional<std::int64_t> checked_add(std::int64_t a, std::int64_t b) {
    using Limits = std::numeric_limits<std::int64_t>;
    if (b > 0 ? a > Limits::max() - b : a < Limits::min() - b) return std::nullopt;
    return a + b;
}

inline std::optional<std::int64_t> checked_sub(std::int64_t a, std::int64_t b) {
    using Limits = std::numeric_limits<std::int64_t>;
    if (b < 0 ? a > Limits::max() + b : a < Limits::min() + b) return std::nullopt;
    return a - b;
}

inline std::optional<std::int64_t> checked_mul(std::int64_t a, std::int64_t b) {
#if defined(__GNUC__)
    std::int64_t product = 0;
    if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
    return product;
#else
    using Limits = std::numeric_limits<std::int64_t>;
    if (a == 0 || b == 0) return 0;
    if (a == -1) return b == Limits::min() ? std::nullopt : std::optional(-b);
    if (b == -1) return a == Limits::min() ? std::nullopt : std::optional(-a);
    const bool negative = (a < 0) != (b < 0);
    const std::int64_t limit = negative ? Limits::min() : Limits::max();
    if (b > 0 ? (negative ? a < limit / b : a > limit / b) : (negative ? a > limit / b : a < limit / b))
        return std::nullopt;
    return a * b;
#endif
}

// Rounds toward negative infinity; requires b != 0 and not (lowest / -1).
inline std::int64_t floor_quotient(std::int64_t a, std::int64_t b) {
    const std::int64_t quotient = a / b;
    return quotient - ((a % b != 0 && ((a < 0) != (b < 0))) ? 1 : 0);
}

}  // namespace topstitch
