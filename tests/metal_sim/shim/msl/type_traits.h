// <metal_type_traits>, and array.
// See prelude.h.
#pragma once
#pragma clang system_header

namespace metal {

template <class T, T v>
struct integral_constant {
    static constexpr T value = v;
    constexpr operator T() const { return v; }
};
using true_type = integral_constant<bool, true>;
using false_type = integral_constant<bool, false>;

template <class A, class B>
struct is_same : false_type {};
template <class A>
struct is_same<A, A> : true_type {};
template <class A, class B>
constexpr bool is_same_v = is_same<A, B>::value;

template <bool condition, class T = void>
struct enable_if {};
template <class T>
struct enable_if<true, T> {
    using type = T;
};
template <bool condition, class T = void>
using enable_if_t = typename enable_if<condition, T>::type;

template <bool condition, class A, class B>
struct conditional {
    using type = A;
};
template <class A, class B>
struct conditional<false, A, B> {
    using type = B;
};
template <bool condition, class A, class B>
using conditional_t = typename conditional<condition, A, B>::type;

template <class T>
struct remove_cv {
    using type = T;
};
template <class T>
struct remove_cv<const T> {
    using type = T;
};
template <class T>
struct remove_cv<volatile T> {
    using type = T;
};
template <class T>
struct remove_cv<const volatile T> {
    using type = T;
};
template <class T>
using remove_cv_t = typename remove_cv<T>::type;

template <class T>
struct is_floating_point
    : integral_constant<bool, is_same<T, float>::value || is_same<T, half>::value || is_same<T, bfloat>::value> {};
template <class T>
struct is_signed
    : integral_constant<bool, is_same<T, char>::value || is_same<T, short>::value || is_same<T, int>::value ||
                                  is_same<T, long>::value || is_same<T, int8_t>::value || is_floating_point<T>::value> {
};
template <class T>
struct is_unsigned
    : integral_constant<bool, is_same<T, uchar>::value || is_same<T, ushort>::value || is_same<T, uint>::value ||
                                  is_same<T, ulong>::value || is_same<T, bool>::value> {};
template <class T>
struct is_integral
    : integral_constant<bool, (is_signed<T>::value && !is_floating_point<T>::value) || is_unsigned<T>::value> {};
template <class T>
constexpr bool is_floating_point_v = is_floating_point<T>::value;
template <class T>
constexpr bool is_integral_v = is_integral<T>::value;
template <class T>
constexpr bool is_signed_v = is_signed<T>::value;
template <class T>
constexpr bool is_unsigned_v = is_unsigned<T>::value;

// A parameter from which no template argument is deduced.
template <class T>
struct __given {
    using type = T;
};

template <class T, size_t N>
struct array {
    T __elements[N];
    constexpr size_t size() const { return N; }
    T& operator[](size_t i) { return __elements[i]; }
    constexpr const T& operator[](size_t i) const { return __elements[i]; }
};

}  // namespace metal
