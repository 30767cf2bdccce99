// <metal_integer>: functions of integers and their vectors.
// See prelude.h; min, max and clamp are in math.h.
#pragma once
#pragma clang system_header

#include "msl/math.h"

namespace metal {

template <class T>
constexpr int __bits = 8 * sizeof(T);

// Scalars and vectors: `expression` computes one component in T.
#define __MSL_INTEGER1(name, expression)                                     \
    template <class T>                                                       \
    inline enable_if_t<is_integral<T>::value, T> name(T x) {                 \
        return expression;                                                   \
    }                                                                        \
    template <class T, int N>                                                \
    inline enable_if_t<is_integral<T>::value, vec<T, N>> name(vec<T, N> v) { \
        return __map(v, [](T x) { return name(x); });                        \
    }
#define __MSL_INTEGER2(name, expression)                                                  \
    template <class T>                                                                    \
    inline enable_if_t<is_integral<T>::value, T> name(T x, T y) {                         \
        return expression;                                                                \
    }                                                                                     \
    template <class T, int N>                                                             \
    inline enable_if_t<is_integral<T>::value, vec<T, N>> name(vec<T, N> a, vec<T, N> b) { \
        return __map(a, b, [](T x, T y) { return name(x, y); });                          \
    }

template <class T>
inline T __reversed(T x) {
    T result = 0;
    for (int i = 0; i < __bits<T>; ++i) result = static_cast<T>(result | (((x >> i) & 1) << (__bits<T> - 1 - i)));
    return result;
}
template <class T>
inline int __population(T x) {
    int count = 0;
    for (int i = 0; i < __bits<T>; ++i) count += (x >> i) & 1;
    return count;
}
template <class T>
inline int __leading(T x) {
    int count = 0;
    while (count < __bits<T> && !((x >> (__bits<T> - 1 - count)) & 1)) ++count;
    return count;
}
template <class T>
inline int __trailing(T x) {
    int count = 0;
    while (count < __bits<T> && !((x >> count) & 1)) ++count;
    return count;
}
template <class T>
inline T __saturated(__int128 x) {
    const __int128 high = is_signed<T>::value ? ((__int128)1 << (__bits<T> - 1)) - 1 : ((__int128)1 << __bits<T>)-1;
    const __int128 low = is_signed<T>::value ? -high - 1 : 0;
    return static_cast<T>(x < low ? low : x > high ? high : x);
}
template <class T>
inline T __rotated(T x, T by) {
    const int n = static_cast<int>(static_cast<__int128>(by) & (__bits<T> - 1));
    unsigned __int128 bits = (unsigned __int128)x & (((unsigned __int128)1 << __bits<T>)-1);
    return static_cast<T>((bits << n) | (bits >> (__bits<T> - n)));
}

__MSL_INTEGER1(popcount, static_cast<T>(__population(x)))
__MSL_INTEGER1(clz, static_cast<T>(__leading(x)))
__MSL_INTEGER1(ctz, static_cast<T>(__trailing(x)))
__MSL_INTEGER1(reverse_bits, __reversed(x))
// The absolute value of the smallest integer is that integer itself.
__MSL_INTEGER1(abs, x < 0 ? static_cast<T>(-static_cast<__int128>(x)) : x)
__MSL_INTEGER2(absdiff, static_cast<T>(x < y ? static_cast<__int128>(y) - x : static_cast<__int128>(x) - y))
__MSL_INTEGER2(addsat, __saturated<T>(static_cast<__int128>(x) + y))
__MSL_INTEGER2(subsat, __saturated<T>(static_cast<__int128>(x) - y))
__MSL_INTEGER2(hadd, static_cast<T>((static_cast<__int128>(x) + y) >> 1))
__MSL_INTEGER2(rhadd, static_cast<T>((static_cast<__int128>(x) + y + 1) >> 1))
__MSL_INTEGER2(mulhi, static_cast<T>((static_cast<__int128>(x) * static_cast<__int128>(y)) >> __bits<T>))
__MSL_INTEGER2(rotate, __rotated(x, y))
#undef __MSL_INTEGER1
#undef __MSL_INTEGER2

// Bits [offset, offset + bits) of x, sign-extended when T has a sign.
template <class T>
inline enable_if_t<is_integral<T>::value, T> extract_bits(T x, uint offset, uint bits) {
    if (bits == 0) return 0;
    const __int128 shifted = (__int128)((unsigned __int128)x << (128 - offset - bits));
    return static_cast<T>(is_signed<T>::value ? shifted >> (128 - bits)
                                              : (__int128)((unsigned __int128)shifted >> (128 - bits)));
}
template <class T>
inline enable_if_t<is_integral<T>::value, T> insert_bits(T base, T insert, uint offset, uint bits) {
    const unsigned __int128 mask = (((unsigned __int128)1 << bits) - 1) << offset;
    return static_cast<T>(((unsigned __int128)base & ~mask) | (((unsigned __int128)insert << offset) & mask));
}

}  // namespace metal
