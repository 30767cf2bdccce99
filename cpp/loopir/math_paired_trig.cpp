// sin, cos, tan and atan2 of float32 in pairs of float32.
// |x| = n pi/2 + r with |r| <= pi/4, from an integer product with the bits of 1 / (2 pi): exact for arguments of any
// size.
#include <array>
#include <bit>
#include <cstdint>

#include "loopir/math_paired.h"
#include "loopir/math_support.h"

namespace topstitch::loopir::math {

namespace {

struct Reduced {
    V quadrant;  // int32: n modulo 4 in the low bits
    Wide r;
};

// 24 zeros, then the fraction of 1 / (2 pi).
constexpr std::array<std::uint32_t, 8> inverse_turn = {0x00000028, 0xbe60db93, 0x91054a7f, 0x09d5f47d,
                                                       0x4d377036, 0xd8a5664f, 0x10e4107f, 0x9458eaf7};

// Words i to i + 2 of inverse_turn, shifted left by the rest of `offset` = 32 i + rest, at most 128.
std::array<V, 3> window(V offset) {
    std::vector<V> words;
    for (const std::uint32_t bits : inverse_turn) words.push_back(offset.like(bits));
    for (const int step : {4, 2, 1}) {
        const V skip = not_equal(offset & (32 * step), 0);
        const auto distance = static_cast<std::size_t>(step);
        const std::size_t left = words.size() - distance;
        for (std::size_t i = 0; i < left; ++i) words[i] = select(skip, words[i + distance], words[i]);
        // Word 4 is the last one that begins a window: of what lies behind it, nothing is looked at.
    }
    const V rest = offset & 31;
    const V complement = 32 - rest;
    const auto shifted = [&](std::size_t i) {
        return cast((words[i] << rest) | (words[i + 1] >> complement), DType::uint64);
    };
    return {shifted(0), shifted(1), shifted(2)};
}

Reduced reduce(V x) {
    // |x| = m 2^e with an integer m of 24 bits. x / (2 pi) modulo 1 is m times the bits from position e on.
    const V magnitude = abs(x);
    const V bits = bitcast(magnitude, DType::uint32);
    const V exponent = bits >> 23;
    const V offset = binary(ScalarOp::max, exponent, 126) - 126;
    const V m = cast((bits & 0x7fffff) | 0x800000, DType::uint64);
    const auto w = window(offset);
    const V turns = ((m * w[0]) << 32) + m * w[1] + ((m * w[2]) >> 32);
    // Two bits of turns are the quadrant. The others are a fraction of a quarter turn, in [-1/2, 1/2) when read as
    // signed.
    const V quadrant = cast((turns + (std::int64_t{1} << 61)) >> 62, DType::int32);
    const V fraction = bitcast(turns << 2, DType::int64);
    const V high = cast(fraction, DType::float32);
    const V low = cast(fraction - cast(high, DType::int64), DType::float32);
    // In units of 2^-64 quarter turns.
    const Wide product = exact_product(high, high.like(half_pi_single));
    const Wide r = fast_sum(product.high, fma(high, half_pi_single_tail, fma(low, half_pi_single, product.low)));
    const V small = magnitude < 0.5 * half_pi;
    const V poisoned = fma(magnitude, 0, r.high * 0x1p-64);  // NaN for infinities and NaN
    return {select(small, quadrant.like(0), quadrant),
            {select(small, magnitude, poisoned), select(small, 0, r.low * 0x1p-64)}};
}

// On [-pi/4, pi/4], as a leading part and what is to be added to it.
struct SinCos {
    Wide sin;
    Wide cos;
};

SinCos sin_cos(const Wide& r) {
    const V s = r.high * r.high;
    const V cube = r.high * s;
    const V half_complement = fma(s, -0.5, 1);
    const V sin = fma(cube, polynomial(s, {-0.166666672, 0.0083333794, -0.000198530644, 2.83250984e-06}),
                      r.low * half_complement);
    const V cos = fma(s, polynomial(s, {-0.5, 0.0416666456, -0.00138873095, 2.44323273e-05}), -(r.high * r.low));
    return {{r.high, sin}, {s.like(1), cos}};
}

V odd(V quadrant) {
    return not_equal(quadrant & 1, 0);
}
V flip_sign(V value, V flip) {
    return bitcast(bitcast(value, DType::int32) ^ (flip & std::int64_t{INT32_MIN}), DType::float32);
}
V sum(const Wide& a) {
    return a.high + a.low;
}

}  // namespace

V sin_paired(V x) {
    const auto [quadrant, r] = reduce(x);
    const auto [sine, cosine] = sin_cos(r);
    return flip_sign(select(odd(quadrant), sum(cosine), sum(sine)), bitcast(x, DType::int32) ^ (quadrant << 30));
}

V cos_paired(V x) {
    const auto [quadrant, r] = reduce(x);
    const auto [sine, cosine] = sin_cos(r);
    return flip_sign(select(odd(quadrant), sum(sine), sum(cosine)), (quadrant + 1) << 30);
}

V tan_paired(V x) {
    const auto [quadrant, r] = reduce(x);
    const auto [sine, cosine] = sin_cos(r);
    const V swap = odd(quadrant);
    const Wide s = fast_sum(sine.high, sine.low);
    const Wide c = fast_sum(cosine.high, cosine.low);
    const Wide above = {select(swap, c.high, s.high), select(swap, c.low, s.low)};
    const Wide below = {select(swap, s.high, c.high), select(swap, s.low, c.low)};
    const V ratio = above.high / below.high;
    const V rest = fma(-ratio, below.high, above.high) + fma(-ratio, below.low, above.low);
    // Of tiny numbers the rest would be lost in the subnormals, and there it is 0.
    const V correction = select(0x1p-60 < abs(above.high), rest / below.high, 0);
    return flip_sign(ratio + correction, bitcast(x, DType::int32) ^ (quadrant << 31));
}

V atan2_paired(V y, V x) {
    const V run = abs(x);
    const V rise = abs(y);
    const V steep = run < rise;
    const V shorter = select(steep, run, rise);
    const V longer = select(steep, rise, run);
    // 0 / 0 counts as 0, inf / inf as 1.
    const V t = select(equal(shorter, longer), select(equal(longer, 0), longer, 1), shorter / longer);
    // What the quotient lacks; nothing where it cannot be told, which is where t is tiny or longer infinite.
    const V lost = fma(-t, longer, shorter) / longer;
    const V square = t * t;
    const V low = select(abs(lost) < 0x1p-20, lost / (square + 1.0), 0);
    const V p = polynomial(square, {-0.3333332689554907, 0.19999670942904246, -0.14279830295166085, 0.1105820324785636,
                                    -0.088110065448807395, 0.067413860864641476, -0.044686726401575436,
                                    0.022536929912493165, -0.0073164800923385259, 0.0011134748705922386});
    const V rest = fma(t * square, p, low);
    // The sign of x counts, also that of -0.
    const V left = bits_of(x) < 0;
    const auto base = [&](double half, double whole) {
        return select(steep, t.like(half), select(left, t.like(whole), 0));
    };
    const V turn = steep ^ left;
    const V signed_t = select(turn, -t, t);
    const V signed_rest = select(turn, -rest, rest) + base(half_pi_single_tail, 2 * half_pi_single_tail);
    const Wide sum = fast_sum(base(half_pi_single, 2 * half_pi_single), signed_t);
    const V zero_base = equal(base(half_pi_single, 2 * half_pi_single), 0);
    const V result = select(zero_base, t + rest, sum.high + (sum.low + signed_rest));
    const V unordered = not_equal(x, x) | not_equal(y, y);
    return with_sign_of(select(unordered, nan, result), y);
}

}  // namespace topstitch::loopir::math
