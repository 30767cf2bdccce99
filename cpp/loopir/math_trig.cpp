// sin, cos and tan, for arguments of any size.
// |x| = n pi/2 + r with |r| <= pi/4, where x 2/pi modulo 4 is found by float64 products (float32) or integers
// (float64).
#include <array>
#include <bit>
#include <cstdint>

#include "loopir/math_functions.h"
#include "loopir/math_paired.h"
#include "loopir/math_support.h"

namespace topstitch::loopir::math {

namespace {

struct Reduced {
    V quadrant;  // an integer as wide as x: n modulo 4 in the low bits
    V r;         // float64
    V tail;      // float64 arguments: r + tail is closer
};

// --- float32: |x| = 2^i z with an integer z, so that |x| 2/pi = z (2^i 2/pi modulo 4) modulo 4. Of the factor some 100
// bits are enough: no float32 number comes closer than 2^-30 to a multiple of pi/2.

// One number for each of the ranges below 2^50 (i = 0), 2^77 (27), 2^104 (54) and 2^128 (81).
using PerRange = std::array<double, 4>;
constexpr PerRange scale = {1, 0x1p-27, 0x1p-54, 0x1p-81};
constexpr PerRange fused_high = {0x1.45f306dc9c883p-1, -0x1.1b1bbead603d9p-1, 0x1.4a7f09d5f47d5p+0,
                                 -0x1.505c1596447e5p+0};
constexpr PerRange fused_low = {-0x1.6b01ec5417056p-55, 0x1.5f47d4d377037p-55, -0x1.6447e493ad4cep-55,
                                0x1.b14acc9e21c82p-54};
// Without FMA: the products of z (24 bits) with the first two pieces are exact.
constexpr PerRange split_high = {0x1.45f306cp-1, -0x1.1b1bbecp-1, 0x1.4a7f09ep+0, -0x1.505c15ap+0};
constexpr PerRange split_middle = {0x1.c9c882cp-29, 0x1.29fc274p-29, -0x1.4170564p-29, 0x1.377036cp-29};
constexpr PerRange split_low = {-0x1.ac07b1505c159p-57, 0x1.7d1f534ddc0dbp-57, -0x1.911f924eb5336p-57,
                                0x1.8a5664f10e41p-57};

// Adding it rounds to an integer, which is then in the low bits of the sum.
constexpr double magic = 6755399441055744.0;  // 1.5 * 2^52

Reduced reduce_single(V x) {
    const V magnitude = cast(abs(x), DType::float64);
    const V first = magnitude < 0x1p50;
    const V second = magnitude < 0x1p77;
    const V third = magnitude < 0x1p104;
    const auto choose = [&](const PerRange& c) {
        return select(first, magnitude.like(c[0]),
                      select(second, magnitude.like(c[1]), select(third, magnitude.like(c[2]), c[3])));
    };
    const V z = magnitude * choose(scale);
    V quadrant;
    V fraction;  // of a quarter turn
    if (x.emit->has_fma()) {
        const V high = choose(fused_high);
        const V sum = fma(z, high, magic);
        quadrant = bitcast(sum, DType::int64);
        fraction = fma(z, choose(fused_low), fma(z, high, magic - sum));
    } else {
        const V product = z * choose(split_high);
        const V sum = product + magic;
        const V next = (product - (sum - magic)) + z * choose(split_middle);
        const V next_sum = next + magic;
        quadrant = bitcast(sum, DType::int64) + bitcast(next_sum, DType::int64);
        fraction = (next - (next_sum - magic)) + z * choose(split_low);
    }
    return {cast(quadrant, DType::int32), fraction * half_pi, {}};
}

// --- float64: |x| = m 2^e with an integer m; x / (2 pi) modulo 1 is the product of m with the bits of 1 / (2 pi) from
// position e on. 192 of them are enough: no float64 number comes closer than 2^-62 to a multiple of pi/2.

// 53 zeros, then the fraction of 1 / (2 pi).
constexpr std::array<std::uint64_t, 19> inverse_turn = {
    0x0000000000000145, 0xf306dc9c882a53f8, 0x4eafa3ea69bb81b6, 0xc52b3278872083fc, 0xa2c757bd778ac36e,
    0x48dc74849ba5c00c, 0x925dd413a32439fc, 0x3bd63962534e7dd1, 0x046bea5d768909d3, 0x38e04d68befc8273,
    0x23ac7306a673e939, 0x08bf177bf250763f, 0xf12fffbc0b301fde, 0x5e2316b414da3eda, 0x6cfd9e4f96136e9e,
    0x8c7ecd3cbfd45aea, 0x4f758fd7cbe2f67a, 0x0e73ef14a525d4d7, 0xf6bf623f1aba10ac};

// Words i to i + 2 of inverse_turn followed by its other words, shifted left by the rest of `offset` = 64 i + rest.
std::array<V, 3> window(V offset) {
    // Offset 1024 is taken as word 15 and 64 more bits: then four bits of index are enough.
    const V word = (offset - (offset >> 10)) >> 6;
    const auto bit_set = [&](int bit) { return not_equal(word & bit, 0); };
    std::vector<V> words;
    for (const std::uint64_t bits : inverse_turn) words.push_back(offset.like(static_cast<std::int64_t>(bits)));
    for (const int step : {8, 4, 2, 1}) {
        const V skip = bit_set(step);
        const std::size_t left = static_cast<std::size_t>(step) + 3;
        for (std::size_t i = 0; i < left; ++i)
            words[i] = select(skip, words[i + static_cast<std::size_t>(step)], words[i]);
    }
    const V rest = offset - (word << 6);
    const V complement = 64 - rest;
    const auto shifted = [&](std::size_t i) { return (words[i] << rest) | (words[i + 1] >> complement); };
    return {shifted(0), shifted(1), shifted(2)};
}

// The 128 bits after the binary point of m * 2^-192 * (w0, w1, w2), for m of 53 bits.
struct Fraction {
    V high;
    V low;
};

Fraction multiply(V m, const std::array<V, 3>& w) {
    const V mask = m.like(0xffffffff);
    const V m_high = m >> 32;
    const V m_low = m & mask;
    const auto high = [](V word) { return word >> 32; };
    const auto low = [&](V word) { return word & mask; };
    // The third word adds to the low half only; what is left out is a few units of its last place.
    const V third = m_high * high(w[2]) + high(m_low * high(w[2])) + high(m_high * low(w[2]));
    const V product = m_low * low(w[1]);
    const V middle = m_low * high(w[1]) + high(product);
    const V second = m_high * low(w[1]) + low(middle);
    const V second_low = (second << 32) | low(product);
    const V second_high = m_high * high(w[1]) + high(middle) + high(second);
    const V first = m_low * low(w[0]) + ((m_low * high(w[0]) + m_high * low(w[0])) << 32);
    const V sum = second_low + third;
    const V carry = cast(sum < third, DType::uint64);
    return {first + second_high + carry, sum};
}

Reduced reduce_double(V x) {
    const V magnitude = abs(x);
    const V bits = bitcast(magnitude, DType::uint64);
    const V offset = (bits >> 52) - 1022;  // e + 53: counted from the first zero of inverse_turn
    const V m = (bits & 0xfffffffffffff) | 0x10000000000000;
    const auto [turns, turns_low] = multiply(m, window(offset));
    // Two bits of turns are the quadrant. The others are a fraction of a quarter turn, in [-1/2, 1/2) when read as
    // signed.
    const V quadrant = (turns + (std::int64_t{1} << 61)) >> 62;
    const V high = (turns << 2) | (turns_low >> 62);
    const V low = turns_low << 2;
    // Bits become the mantissa of a number with the wanted last place; its leading 1 is subtracted.
    const auto number = [](V mantissa, double one, double offset_of_zero) {
        return bitcast(mantissa | std::bit_cast<std::int64_t>(one), DType::float64) - offset_of_zero;
    };
    const V top = number((high >> 32) ^ 0x80000000, 0x1p20, 0x1p20 + 0.5);
    const V next = number(high & 0xffffffff, 0x1p-12, 0x1p-12);
    const V last = number(low >> 12, 0x1p-64, 0x1p-64);
    const V leading = top + next;
    const V trailing = (next - (leading - top)) + last;
    const V fraction = leading + trailing;
    const V fraction_tail = trailing - (fraction - leading);
    const auto [r, error] = exact_product(fraction, fraction.like(half_pi));
    const V tail = error + fma(fraction, half_pi_tail, fraction_tail * half_pi);
    const V small = magnitude < 0.5 * half_pi;
    const V poisoned = fma(magnitude, 0, r);  // NaN for infinities and NaN
    return {select(small, quadrant.like(0), quadrant), select(small, magnitude, poisoned),
            select(small, r.like(0), tail)};
}

// --- The functions on [-pi/4, pi/4].

struct SinCos {
    V sin;
    V cos;
};

// In the type of r, with the accuracy of float32.
SinCos reduced_single(V r) {
    const V s = r * r;
    const V sin = fma(r * s, polynomial(s, {-0.166666672, 0.0083333794, -0.000198530644, 2.83250984e-06}), r);
    const V cos = fma(s, polynomial(s, {-0.5, 0.0416666456, -0.00138873095, 2.44323273e-05}), 1);
    return {sin, cos};
}

SinCos reduced_double(V r, V tail) {
    const V s = r * r;
    const V sin_rest = polynomial(s, {-0.1666666666666663, 0.0083333333333218407, -0.00019841269829358509,
                                      2.755731353850335e-06, -2.5050734387172591e-08, 1.5895433099271745e-10});
    const V sin = r + fma(r * s, sin_rest, fma(s, -0.5, 1) * tail);
    const V cos_rest = polynomial(s, {0.041666666666666595, -0.0013888888888873309, 2.4801587288967137e-05,
                                      -2.7557314203694958e-07, 2.0875703226141557e-09, -1.1358621482767851e-11});
    const V half_square = 0.5 * s;
    const V whole = 1.0 - half_square;
    const V cos = whole + (((1.0 - whole) - half_square) + fma(s * s, cos_rest, -(r * tail)));
    return {sin, cos};
}

V odd(V quadrant) {
    return not_equal(quadrant & 1, 0);
}
// `value` with its sign flipped where the highest bit of `flip` is set.
V flip_sign(V value, V flip) {
    const bool single = value.type() == DType::float32;
    const V sign = flip & (single ? std::int64_t{INT32_MIN} : INT64_MIN);
    return bitcast(bitcast(value, flip.type()) ^ sign, value.type());
}

}  // namespace

V sin(V x) {
    if (is_paired(x)) return sin_paired(x);
    const bool single = x.type() == DType::float32;
    const auto [quadrant, r, tail] = single ? reduce_single(x) : reduce_double(x);
    const auto [sine, cosine] = single ? reduced_single(cast(r, DType::float32)) : reduced_double(r, tail);
    const V sign = bitcast(x, quadrant.type()) ^ (quadrant << (single ? 30 : 62));
    return flip_sign(select(odd(quadrant), cosine, sine), sign);
}

V cos(V x) {
    if (is_paired(x)) return cos_paired(x);
    const bool single = x.type() == DType::float32;
    const auto [quadrant, r, tail] = single ? reduce_single(x) : reduce_double(x);
    const auto [sine, cosine] = single ? reduced_single(cast(r, DType::float32)) : reduced_double(r, tail);
    const V sign = (quadrant + 1) << (single ? 30 : 62);
    return flip_sign(select(odd(quadrant), sine, cosine), sign);
}

V tan(V x) {
    if (is_paired(x)) return tan_paired(x);
    const bool single = x.type() == DType::float32;
    const auto [quadrant, r, tail] = single ? reduce_single(x) : reduce_double(x);
    // float32 keeps r in float64 up to the quotient.
    const auto [sine, cosine] = single ? reduced_single(r) : reduced_double(r, tail);
    const V swap = odd(quadrant);
    const V quotient = cast(select(swap, cosine, sine) / select(swap, sine, cosine), x.type());
    return flip_sign(quotient, bitcast(x, quadrant.type()) ^ (quadrant << (single ? 31 : 63)));
}

}  // namespace topstitch::loopir::math
