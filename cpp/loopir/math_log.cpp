// log, log2, log10 and log1p.
// x = 2^k (1 + f) with 1 + f in [2/3, 4/3] or [sqrt(1/2), sqrt(2)]; log(x) = k log(2) + log(1 + f).
#include "loopir/math_functions.h"
#include "loopir/math_support.h"

namespace topstitch::loopir::math {

namespace {

// The base b of a logarithm: log_b(e) and log_b(2), each as a leading part and the rest.
// two_high is short, so that k * two_high is exact. e_high has 32 bits in float64; in float32 it is a power of two, so
// that f * e_high is exact.
struct Base {
    double e_high;
    double e_low;
    double two_high;
    double two_low;
};

constexpr Base natural_single{1, 0, 0x1.62e43p-1, 0};
constexpr Base binary_single{1, 0.4426950408889634, 1, 0};
constexpr Base decimal_single{0.5, -0.06570551809674817, 0x1.344p-2, 0x1.3509f8p-18};
constexpr Base natural_double{1, 0, 0x1.62e42fefa4p-1, -0x1.8432a1b0e2634p-43};
constexpr Base binary_double{0x1.71547652p+0, 0x1.705fc2eefa2p-33, 1, 0};
constexpr Base decimal_double{0x1.bcb7b152p-2, 0x1.b9438ca9aadd5p-36, 0x1.34413509f8p-2, -0x1.80433b83b532ap-44};

// x = 2^k (1 + f); subnormals are scaled into the normal range first.
struct Decomposed {
    V k;
    V f;
};

Decomposed decompose(V x) {
    const V subnormal = x < (is_single(x) ? 0x1p-126 : 0x1p-1022);
    const V normal = select(subnormal, x * (is_single(x) ? 0x1p23 : 0x1p52), x);
    const auto [k, field, m] = split_exponent(normal);
    return {k - select(subnormal, x.like(mantissa_bits(x)), 0), m - 1.0};
}

// The value outside of the domain where `result` holds, 0 < x < inf.
V with_special_cases(V x, V result) {
    const V below = select(equal(x, 0), x.like(-infinity), nan);  // also where x is NaN
    return select(0 < x, select(x < infinity, result, x), below);
}

// log_b(1 + f) = f log_b(e) + f^2 tail(f)
V natural_tail(V f) {
    return polynomial(
        f, {-0.499999374, 0.333332002, -0.250077456, 0.200110868, -0.164170951, 0.13996847, -0.15383251, 0.140220761});
}
V binary_tail(V f) {
    return polynomial(f, {-0.721347511, 0.480896711, -0.36067152, 0.288686544, -0.240632221, 0.20209749, -0.175944999,
                          0.201600716, -0.185406953});
}
V decimal_tail(V f) {
    return polynomial(f, {-0.217147246, 0.144764289, -0.108572409, 0.0869053751, -0.0724499524, 0.060808938,
                          -0.052845072, 0.0608105808, -0.0562234893});
}

V log_single(V k, V f, const Base& base, V tail) {
    const V rest = base.e_low == 0 ? f * tail : fma(f, tail, base.e_low);
    // In base 2, k + f is exact where the sum might cancel.
    if (base.two_high == 1) return fma(f, rest, k + f);
    V result = fma(f, rest, base.e_high == 1 ? f : f * base.e_high);
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

}  // namespace

V log(V x) {
    const auto [k, f] = decompose(x);
    return with_special_cases(
        x, is_single(x) ? log_single(k, f, natural_single, natural_tail(f)) : log_double(k, f, natural_double));
}

V log2(V x) {
    const auto [k, f] = decompose(x);
    return with_special_cases(
        x, is_single(x) ? log_single(k, f, binary_single, binary_tail(f)) : log_double(k, f, binary_double));
}

V log10(V x) {
    const auto [k, f] = decompose(x);
    return with_special_cases(
        x, is_single(x) ? log_single(k, f, decimal_single, decimal_tail(f)) : log_double(k, f, decimal_double));
}

V log2_moderate(V x) {
    const auto [k, field, m] = split_exponent(x);
    const V f = m - 1.0;
    const V s = f / (f + 2.0);
    const V p = polynomial(
        s * s, {2.8853900817902027, 0.9617966732010963, 0.5770836114698038, 0.41167112790602922, 0.34075982787833581});
    return with_special_cases(x, fma(s, p, k));
}

V log1p(V x) {
    // 1 + x = u + c exactly = 2^k (1 + f), with f = x where k is 0.
    const V u = x + 1.0;
    const V c = x - (u - 1.0);
    const auto [k, field, m] = split_exponent(u);
    // 2^-k, or 0 where it is subnormal: c is 0 there.
    const V scale_bits = field.like(is_single(x) ? 0x3f800000 : 0x3ff0000000000000) - field;
    const V f = fma(c, float_of(binary(ScalarOp::max, scale_bits, 0)), m - 1.0);
    const V result =
        is_single(x) ? log_single(k, f, natural_single, natural_tail(f)) : log_double(k, f, natural_double);
    const V below = select(equal(x, -1), x.like(-infinity), nan);  // also where x is NaN
    const V zero_or_infinite = equal(x, 0) | equal(x, infinity);
    return select(-1 < x, select(zero_or_infinite, x, result), below);
}

}  // namespace topstitch::loopir::math
