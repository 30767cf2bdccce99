// <metal_geometric>: products and lengths of vectors.
// See prelude.h.
#pragma once
#pragma clang system_header

#include "msl/math.h"

namespace metal {

template <class T, int N>
inline enable_if_t<is_floating_point<T>::value, T> dot(vec<T, N> a, vec<T, N> b) {
    T sum = 0;
    for (int i = 0; i < N; ++i) sum += a[i] * b[i];
    return sum;
}
template <class T, int N>
inline enable_if_t<is_floating_point<T>::value, T> length_squared(vec<T, N> a) {
    return dot(a, a);
}
template <class T, int N>
inline enable_if_t<is_floating_point<T>::value, T> length(vec<T, N> a) {
    return sqrt(dot(a, a));
}
template <class T, int N>
inline enable_if_t<is_floating_point<T>::value, T> distance_squared(vec<T, N> a, vec<T, N> b) {
    return length_squared(a - b);
}
template <class T, int N>
inline enable_if_t<is_floating_point<T>::value, T> distance(vec<T, N> a, vec<T, N> b) {
    return length(a - b);
}
template <class T, int N>
inline enable_if_t<is_floating_point<T>::value, vec<T, N>> normalize(vec<T, N> a) {
    return a * rsqrt(dot(a, a));
}
template <class T>
inline enable_if_t<is_floating_point<T>::value, vec<T, 3>> cross(vec<T, 3> a, vec<T, 3> b) {
    return a.yzx * b.zxy - a.zxy * b.yzx;
}

}  // namespace metal
