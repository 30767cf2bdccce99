// <metal_relational>: questions about floating-point values, select, any and all.
// A comparison of vectors gives vectors of integers here; select, any and all take those.
#pragma once
#pragma clang system_header

#include "msl/prelude.h"

namespace metal {

template <class T>
inline enable_if_t<is_floating_point<T>::value, bool> isnan(T x) {
    return __builtin_isnan((float)x);
}
template <class T>
inline enable_if_t<is_floating_point<T>::value, bool> isinf(T x) {
    return __builtin_isinf((float)x);
}
template <class T>
inline enable_if_t<is_floating_point<T>::value, bool> isfinite(T x) {
    return __builtin_isfinite((float)x);
}
template <class T>
inline enable_if_t<is_floating_point<T>::value, bool> isnormal(T x) {
    const float smallest = is_same<T, half>::value ? 0x1p-14f : 0x1p-126f;
    return __builtin_isfinite((float)x) && __builtin_fabsf((float)x) >= smallest;
}
template <class T>
inline enable_if_t<is_floating_point<T>::value, bool> signbit(T x) {
    return __builtin_signbit((float)x);
}
template <class T>
inline enable_if_t<is_floating_point<T>::value, bool> isordered(T x, T y) {
    return !isnan(x) && !isnan(y);
}
template <class T>
inline enable_if_t<is_floating_point<T>::value, bool> isunordered(T x, T y) {
    return isnan(x) || isnan(y);
}

// b where the condition is true.
template <class T>
inline enable_if_t<__parts<T>::length == 1, T> select(T a, T b, bool condition) {
    return condition ? b : a;
}
template <class T, int N, class C>
inline vec<T, N> select(vec<T, N> a, vec<T, N> b, vec<C, N> condition) {
    static_assert(is_integral<C>::value, "select: the condition of a vector is the result of a comparison");
    vec<T, N> result;
    for (int i = 0; i < N; ++i) result[i] = condition[i] ? b[i] : a[i];
    return result;
}

template <class C, int N>
inline enable_if_t<is_integral<C>::value, bool> any(vec<C, N> condition) {
    for (int i = 0; i < N; ++i) {
        if (condition[i]) return true;
    }
    return false;
}
template <class C, int N>
inline enable_if_t<is_integral<C>::value, bool> all(vec<C, N> condition) {
    for (int i = 0; i < N; ++i) {
        if (!condition[i]) return false;
    }
    return true;
}

}  // namespace metal
