// Vectors: Clang's own, which have MSL's layout, swizzles and arithmetic; and how they are made from parts.
// A comparison gives a vector of integers here, and bool vectors are not laid out in memory as MSL's are.
#pragma once
#pragma clang system_header

namespace metal {

template <class T, int N>
using vec = T __attribute__((ext_vector_type(N)));

// The element type and length of a vector; a scalar has length 1.
template <class T>
struct __parts {
    using element = T;
    static constexpr int length = 1;
};
template <class T, int N>
struct __parts<T __attribute__((ext_vector_type(N)))> {
    using element = T;
    static constexpr int length = N;
};

template <class... Parts>
struct __total : integral_constant<int, 0> {};
template <class First, class... Rest>
struct __total<First, Rest...> : integral_constant<int, __parts<First>::length + __total<Rest...>::value> {};

template <class V, class Part>
inline void __append(V& result, int& at, Part part, false_type) {
    result[at++] = static_cast<typename __parts<V>::element>(part);
}
template <class V, class Part>
inline void __append(V& result, int& at, Part part, true_type) {
    for (int i = 0; i < __parts<Part>::length; ++i) result[at++] = static_cast<typename __parts<V>::element>(part[i]);
}

template <class V, class Part>
inline V __convert(Part part, true_type) {
    return __builtin_convertvector(part, V);
}
template <class V, class Part>
inline V __convert(Part part, false_type) {
    return (V)(static_cast<typename __parts<V>::element>(part));
}

// float4(): zeros.
template <class V>
inline V __make() {
    return V{};
}
// float4(1): all components the same; float4(half4): converted.
template <class V, class Part>
inline V __make(Part part) {
    static_assert(__parts<Part>::length == 1 || __parts<Part>::length == __parts<V>::length,
                  "vector constructor: wrong number of components");
    return __convert<V>(part, integral_constant<bool, (__parts<Part>::length > 1)>());
}
// float4(a, b.xy, c).
template <class V, class First, class Second, class... Rest>
inline V __make(First first, Second second, Rest... rest) {
    static_assert(__total<First, Second, Rest...>::value == __parts<V>::length,
                  "vector constructor: wrong number of components");
    V result;
    int at = 0;
    __append(result, at, first, integral_constant<bool, (__parts<First>::length > 1)>());
    __append(result, at, second, integral_constant<bool, (__parts<Second>::length > 1)>());
    const int each[] = {0, (__append(result, at, rest, integral_constant<bool, (__parts<Rest>::length > 1)>()), 0)...};
    (void)each;
    return result;
}

// Applies a scalar function to each component.
template <class T, int N, class F>
inline vec<T, N> __map(vec<T, N> a, F f) {
    vec<T, N> result;
    for (int i = 0; i < N; ++i) result[i] = f(a[i]);
    return result;
}
template <class T, int N, class F>
inline vec<T, N> __map(vec<T, N> a, vec<T, N> b, F f) {
    vec<T, N> result;
    for (int i = 0; i < N; ++i) result[i] = f(a[i], b[i]);
    return result;
}
template <class T, int N, class F>
inline vec<T, N> __map(vec<T, N> a, vec<T, N> b, vec<T, N> c, F f) {
    vec<T, N> result;
    for (int i = 0; i < N; ++i) result[i] = f(a[i], b[i], c[i]);
    return result;
}

}  // namespace metal

// The names of vectors. Packed ones need no more alignment than their elements; those of three are plain structs.
#define __MSL_VECTORS(T)                                \
    typedef T T##2 __attribute__((ext_vector_type(2))); \
    typedef T T##3 __attribute__((ext_vector_type(3))); \
    typedef T T##4 __attribute__((ext_vector_type(4)));
#define __MSL_PACKED(T)                                                              \
    typedef T packed_##T##2 __attribute__((ext_vector_type(2), aligned(sizeof(T)))); \
    typedef T packed_##T##4 __attribute__((ext_vector_type(4), aligned(sizeof(T)))); \
    struct packed_##T##3 {                                                           \
        T x, y, z;                                                                   \
    };
#define __MSL_NUMBERS(M) M(char) M(uchar) M(short) M(ushort) M(int) M(uint) M(long) M(ulong) M(half) M(bfloat) M(float)
__MSL_NUMBERS(__MSL_VECTORS)
__MSL_VECTORS(bool)
__MSL_NUMBERS(__MSL_PACKED)
#undef __MSL_NUMBERS
#undef __MSL_PACKED
#undef __MSL_VECTORS

template <class To, class From>
inline To as_type(From value) {
    static_assert(sizeof(To) == sizeof(From), "as_type: the sizes differ");
    return __builtin_bit_cast(To, value);
}
