// <metal_atomic>: atomic objects in device and threadgroup memory. Plain reads and writes are exact here,
// because all threads of a grid run on one thread of the host.
#pragma once
#pragma clang system_header

#include "msl/prelude.h"

namespace metal {

enum memory_order { memory_order_relaxed };

template <class T>
struct atomic {
    static_assert(is_same<T, int>::value || is_same<T, uint>::value || is_same<T, bool>::value ||
                      is_same<T, float>::value || is_same<T, ulong>::value,
                  "atomic<T>: T is int, uint, bool, float or ulong");
    T __value;
};
using atomic_int = atomic<int>;
using atomic_uint = atomic<uint>;
using atomic_bool = atomic<bool>;
using atomic_float = atomic<float>;
using atomic_ulong = atomic<ulong>;

// Which functions a type has: a float is added up only, an ulong only compared.
template <class T>
constexpr bool __atomic_moves = !is_same<T, ulong>::value;
template <class T>
constexpr bool __atomic_adds = is_same<T, int>::value || is_same<T, uint>::value || is_same<T, float>::value;
template <class T>
constexpr bool __atomic_bits = is_same<T, int>::value || is_same<T, uint>::value;

// The sum without the undefined overflow of signed integers: atomics wrap.
inline int __wrapped(int a, int b, bool subtract) {
    return (int)(subtract ? (uint)a - (uint)b : (uint)a + (uint)b);
}
inline uint __wrapped(uint a, uint b, bool subtract) {
    return subtract ? a - b : a + b;
}
inline float __wrapped(float a, float b, bool subtract) {
    return subtract ? a - b : a + b;
}

// `float_too`: whether atomic_float can be in this address space.
#define __MSL_FETCH(space, name, allowed, expression)                                                                \
    template <class T>                                                                                               \
    inline enable_if_t<allowed, T> atomic_fetch_##name##_explicit(volatile space atomic<T>* object,                  \
                                                                  typename __given<T>::type operand, memory_order) { \
        const T old = object->__value;                                                                               \
        object->__value = expression;                                                                                \
        return old;                                                                                                  \
    }
#define __MSL_ATOMICS(space, float_too)                                                                            \
    template <class T>                                                                                             \
    inline enable_if_t<__atomic_moves<T> && (float_too || !is_same<T, float>::value), T> atomic_load_explicit(     \
        const volatile space atomic<T>* object, memory_order) {                                                    \
        return object->__value;                                                                                    \
    }                                                                                                              \
    template <class T>                                                                                             \
    inline enable_if_t<__atomic_moves<T> && (float_too || !is_same<T, float>::value), void> atomic_store_explicit( \
        volatile space atomic<T>* object, typename __given<T>::type desired, memory_order) {                       \
        object->__value = desired;                                                                                 \
    }                                                                                                              \
    template <class T>                                                                                             \
    inline enable_if_t<__atomic_moves<T> && (float_too || !is_same<T, float>::value), T> atomic_exchange_explicit( \
        volatile space atomic<T>* object, typename __given<T>::type desired, memory_order) {                       \
        const T old = object->__value;                                                                             \
        object->__value = desired;                                                                                 \
        return old;                                                                                                \
    }                                                                                                              \
    template <class T>                                                                                             \
    inline enable_if_t<__atomic_moves<T> && (float_too || !is_same<T, float>::value), bool>                        \
    atomic_compare_exchange_weak_explicit(volatile space atomic<T>* object, thread T* expected,                    \
                                          typename __given<T>::type desired, memory_order, memory_order) {         \
        const T old = object->__value;                                                                             \
        if (__builtin_memcmp(&old, expected, sizeof old) == 0) {                                                   \
            object->__value = desired;                                                                             \
            return true;                                                                                           \
        }                                                                                                          \
        *expected = old;                                                                                           \
        return false;                                                                                              \
    }                                                                                                              \
    __MSL_FETCH(space, add, __atomic_adds<T> && (float_too || !is_same<T, float>::value),                          \
                __wrapped(old, operand, false))                                                                    \
    __MSL_FETCH(space, sub, __atomic_adds<T> && (float_too || !is_same<T, float>::value),                          \
                __wrapped(old, operand, true))                                                                     \
    __MSL_FETCH(space, and, __atomic_bits<T>, old& operand)                                                        \
    __MSL_FETCH(space, or, __atomic_bits<T>, old | operand)                                                        \
    __MSL_FETCH(space, xor, __atomic_bits<T>, old ^ operand)                                                       \
    __MSL_FETCH(space, min, __atomic_bits<T>, operand < old ? operand : old)                                       \
    __MSL_FETCH(space, max, __atomic_bits<T>, old < operand ? operand : old)
__MSL_ATOMICS(device, true)
__MSL_ATOMICS(threadgroup, false)
#undef __MSL_ATOMICS
#undef __MSL_FETCH

// 64 bits: the smaller or larger value only, without a result, in device memory.
inline void atomic_min_explicit(volatile device atomic_ulong* object, ulong operand, memory_order) {
    if (operand < object->__value) object->__value = operand;
}
inline void atomic_max_explicit(volatile device atomic_ulong* object, ulong operand, memory_order) {
    if (object->__value < operand) object->__value = operand;
}

}  // namespace metal
