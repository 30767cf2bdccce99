// log, log2, log10 and log1p.
// x = 2^k (1 + f) with 1 + f in [2/3, 4/3] or [sqrt(1/2), sqrt(2)]; log(x) = k log(2) + log(1 + f).
#include <limits>

#include "loopir/math_functions.h"

namespace topstitch::loopir::math {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

// The base b of a logarithm: log_b(e) and log_b(2), each as a leading part and the rest.
// two_high is short, so that k * two_high is exact; e_high has 32 bits in float64.
struct Base {
    double e_high;
    double e_low;
    double two_high;
    double two_low;
};

constexpr Base natural_single{1, 0, 0x1.62e43p-1, 0};
constexpr Base binary_single{0x1.715476p+0, 0x1.4ae0cp-26, 1, 0};
constexpr Base decimal_single{0x1.bcb7b2p-2, -0x1.5b235ep-27, 0x1.344p-2, 0x1.3509f8p-18};
constexpr Base natural_double{1, 0, 0x1.62e42fefa4p-1, -0x1.8432a1b0e2634p-43};
constexpr Base binary_double{0x1.71547652p+0, 0x1.705fc2eefa2p-33, 1, 0};
constexpr Base decimal_double{0x1.bcb7b152p-2, 0x1.b9438ca9aadd5p-36, 0x1.34413509f8p-2, -0x1.80433b83b532ap-44};

// Some number with k its exponent, such that number * 2^-k is near 1.
struct Exponent {
    V k;      // as a float
    V field;  // k << mantissa bits
};

Exponent exponent_single(V number, V extra) {
    const V bits = bitcast(number, DType::int32);
    const V field = (bits - 0x3f2aaaab) & -0x800000;  // the bits of 2/3
    return {fma(cast(field, DType::float32), 0x1p-23, extra), field};
}

Exponent exponent_double(V number, V extra) {
    const V bits = bitcast(number, DType::uint64);
    const V biased = bits + (0x3ff0000000000000 - 0x3fe6a09e667f3bcd);  // the bits of sqrt(1/2)
    // The exponent becomes the low bits of 2^52 + exponent: there is no conversion from 64 bits in many targets.
    const V k = bitcast((biased >> 52) | 0x4330000000000000, DType::float64) - (0x1p52 + 1023.0);
    return {k + extra, (biased & 0x7ff0000000000000) - 0x3ff0000000000000};
}

Exponent exponent_of(V number, V extra) {
    return number.type() == DType::float32 ? exponent_single(number, extra) : exponent_double(number, extra);
}

// x = 2^k (1 + f); subnormals are scaled into the normal range first.
struct Decomposed {
    V k;
    V f;
};

Decomposed decompose(V x) {
    const bool single = x.type() == DType::float32;
    const V subnormal = x < (single ? 0x1p-126 : 0x1p-1022);
    const V normal = select(subnormal, x * (single ? 0x1p23 : 0x1p52), x);
    const auto [k, field] = exponent_of(normal, select(subnormal, x.like(single ? -23 : -52), 0));
    return {k, bitcast(bitcast(normal, field.type()) - field, x.type()) - 1.0};
}

// The value outside of the domain where `result` holds, 0 < x < inf.
V with_special_cases(V x, V result) {
    const V below = select(equal(x, 0), x.like(-infinity), nan);  // also where x is NaN
    return select(0 < x, select(x < infinity, result, x), below);
}

// log(1 + f) = f + f^2 p(f)
V tail_single(V f) {
    return polynomial(
        f, {-0.499999374, 0.333332002, -0.250077456, 0.200110868, -0.164170951, 0.13996847, -0.15383251, 0.140220761});
}

V log_single(V k, V f, const Base& base) {
    V result;
    if (base.e_high == 1) {
        result = fma(f * f, tail_single(f), f);
    } else {
        const V scaled = f * base.e_high;
        result = fma(f, base.e_high, fma(f, base.e_low, scaled * (f * tail_single(f))));
    }
    if (base.two_low != 0) result = fma(k, base.two_low, result);
    return fma(k, base.two_high, result);
}

// log(1 + f) = f - half_square + correction, with half_square = f^2 / 2.
struct Parts {
    V half_square;
    V correction;
};

// log(1 + f) = 2 atanh(s) with s = f / (2 + f), and 2 s = f - s f.
Parts parts_double(V f) {
    const V s = f / (f + 2.0);
    const V z = s * s;
    const V r = z * polynomial(z, {0.66666666666667351, 0.39999999999409341, 0.28571428743691596, 0.22222198428274278,
                                   0.18183572394330608, 0.15313831291088634, 0.14798263503998038});
    const V half_square = f * (0.5 * f);
    return {half_square, s * (half_square + r)};
}

V log_double(V k, V f, const Base& base) {
    const auto [half_square, correction] = parts_double(f);
    if (base.e_high == 1) { return fma(k, base.two_high, f - (half_square - fma(k, base.two_low, correction))); }
    // log(1 + f) = high + low, where high has 21 bits: its product with e_high is exact.
    const V high = bitcast(bitcast(f - half_square, DType::uint64) & (std::int64_t{-1} << 32), DType::float64);
    const V low = ((f - high) - half_square) + correction;
    const V rest = fma(low + high, base.e_low, fma(k, base.two_low, low * base.e_high));
    const V leading = high * base.e_high;
    const V whole = k * base.two_high;
    const V sum = whole + leading;
    return sum + (rest + ((whole - sum) + leading));
}

V log_base(V x, const Base& single, const Base& twice) {
    const auto [k, f] = decompose(x);
    return with_special_cases(x, x.type() == DType::float32 ? log_single(k, f, single) : log_double(k, f, twice));
}

}  // namespace

V log(V x) {
    return log_base(x, natural_single, natural_double);
}
V log2(V x) {
    return log_base(x, binary_single, binary_double);
}
V log10(V x) {
    return log_base(x, decimal_single, decimal_double);
}

V log1p(V x) {
    // 1 + x = 2^k (1 + f) with f = 2^-k x + (2^-k - 1): exact where k is 0, and rounded once elsewhere.
    const bool single = x.type() == DType::float32;
    const auto [k, field] = exponent_of(x + 1.0, x.like(0));
    const V scale = bitcast((single ? 0x3f800000 : 0x3ff0000000000000) - field, x.type());
    const V f = fma(x, scale, scale - 1.0);
    const V result = single ? log_single(k, f, natural_single) : log_double(k, f, natural_double);
    const V below = select(equal(x, -1), x.like(-infinity), nan);  // also where x is NaN
    const V zero_or_infinite = equal(x, 0) | equal(x, infinity);
    return select(-1 < x, select(zero_or_infinite, x, result), below);
}

}  // namespace topstitch::loopir::math
