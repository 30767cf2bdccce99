// <metal_math>, <metal_common>: functions of half, bfloat, float and their vectors, with the host's math library.
// More exact than a GPU's, above all in namespace fast: tolerances must not be taken from here.
#pragma once
#pragma clang system_header

#include "msl/prelude.h"

#define INFINITY (__builtin_inff())
#define NAN (__builtin_nanf(""))
#define HUGE_VALF (__builtin_inff())
#define MAXFLOAT 3.402823466e+38f
#define FLT_MAX 3.402823466e+38f
#define FLT_MIN 1.175494351e-38f
#define FLT_EPSILON 1.192092896e-07f
#define FLT_MANT_DIG 24
#define FLT_DIG 6
#define HALF_MAX 65504.0h
#define MAXHALF 65504.0h
#define HALF_MIN 6.103515625e-05h
#define HALF_EPSILON 9.765625e-04h
#define M_E_F 2.71828182845904523536f
#define M_LOG2E_F 1.44269504088896340736f
#define M_LOG10E_F 0.434294481903251827651f
#define M_LN2_F 0.693147180559945309417f
#define M_LN10_F 2.30258509299404568402f
#define M_PI_F 3.14159265358979323846f
#define M_PI_2_F 1.57079632679489661923f
#define M_PI_4_F 0.785398163397448309616f
#define M_1_PI_F 0.318309886183790671538f
#define M_2_PI_F 0.636619772367581343076f
#define M_2_SQRTPI_F 1.12837916709551257390f
#define M_SQRT2_F 1.41421356237309504880f
#define M_SQRT1_2_F 0.707106781186547524401f

namespace metal {

// One function for float, the 16-bit types through float, and vectors component by component.
#define __MSL_UNARY(name, expression)                                              \
    inline float name(float x) {                                                   \
        return expression;                                                         \
    }                                                                              \
    inline half name(half h) {                                                     \
        return static_cast<half>(name(static_cast<float>(h)));                     \
    }                                                                              \
    inline bfloat name(bfloat h) {                                                 \
        return static_cast<bfloat>(name(static_cast<float>(h)));                   \
    }                                                                              \
    template <class T, int N>                                                      \
    inline enable_if_t<is_floating_point<T>::value, vec<T, N>> name(vec<T, N> v) { \
        return __map(v, [](T x) { return name(x); });                              \
    }

#define __MSL_BINARY(name, expression)                                                          \
    inline float name(float x, float y) {                                                       \
        return expression;                                                                      \
    }                                                                                           \
    inline half name(half x, half y) {                                                          \
        return static_cast<half>(name(static_cast<float>(x), static_cast<float>(y)));           \
    }                                                                                           \
    inline bfloat name(bfloat x, bfloat y) {                                                    \
        return static_cast<bfloat>(name(static_cast<float>(x), static_cast<float>(y)));         \
    }                                                                                           \
    template <class T, int N>                                                                   \
    inline enable_if_t<is_floating_point<T>::value, vec<T, N>> name(vec<T, N> a, vec<T, N> b) { \
        return __map(a, b, [](T x, T y) { return name(x, y); });                                \
    }

#define __MSL_FUNCTIONS                                                                                  \
    __MSL_UNARY(acos, __builtin_acosf(x))                                                                \
    __MSL_UNARY(acosh, __builtin_acoshf(x))                                                              \
    __MSL_UNARY(asin, __builtin_asinf(x))                                                                \
    __MSL_UNARY(asinh, __builtin_asinhf(x))                                                              \
    __MSL_UNARY(atan, __builtin_atanf(x))                                                                \
    __MSL_UNARY(atanh, __builtin_atanhf(x))                                                              \
    __MSL_UNARY(ceil, __builtin_ceilf(x))                                                                \
    __MSL_UNARY(cos, __builtin_cosf(x))                                                                  \
    __MSL_UNARY(cosh, __builtin_coshf(x))                                                                \
    __MSL_UNARY(cospi, (float)__builtin_cos(3.14159265358979323846 * (x - 2 * __builtin_floorf(x / 2)))) \
    __MSL_UNARY(exp, __builtin_expf(x))                                                                  \
    __MSL_UNARY(exp2, __builtin_exp2f(x))                                                                \
    __MSL_UNARY(exp10, __builtin_powf(10.0f, x))                                                         \
    __MSL_UNARY(fabs, __builtin_fabsf(x))                                                                \
    __MSL_UNARY(abs, __builtin_fabsf(x))                                                                 \
    __MSL_UNARY(floor, __builtin_floorf(x))                                                              \
    __MSL_UNARY(fract, __builtin_fminf(x - __builtin_floorf(x), 0x1.fffffep-1f))                         \
    __MSL_UNARY(log, __builtin_logf(x))                                                                  \
    __MSL_UNARY(log2, __builtin_log2f(x))                                                                \
    __MSL_UNARY(log10, __builtin_log10f(x))                                                              \
    __MSL_UNARY(rint, __builtin_rintf(x))                                                                \
    __MSL_UNARY(round, __builtin_roundf(x))                                                              \
    __MSL_UNARY(rsqrt, 1.0f / __builtin_sqrtf(x))                                                        \
    __MSL_UNARY(saturate, __builtin_fminf(__builtin_fmaxf(x, 0.0f), 1.0f))                               \
    __MSL_UNARY(sign, x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x == 0.0f ? x : 0.0f)                         \
    __MSL_UNARY(sin, __builtin_sinf(x))                                                                  \
    __MSL_UNARY(sinh, __builtin_sinhf(x))                                                                \
    __MSL_UNARY(sinpi, (float)__builtin_sin(3.14159265358979323846 * (x - 2 * __builtin_floorf(x / 2)))) \
    __MSL_UNARY(sqrt, __builtin_sqrtf(x))                                                                \
    __MSL_UNARY(tan, __builtin_tanf(x))                                                                  \
    __MSL_UNARY(tanh, __builtin_tanhf(x))                                                                \
    __MSL_UNARY(trunc, __builtin_truncf(x))                                                              \
    __MSL_BINARY(atan2, __builtin_atan2f(x, y))                                                          \
    __MSL_BINARY(copysign, __builtin_copysignf(x, y))                                                    \
    __MSL_BINARY(divide, x / y)                                                                          \
    __MSL_BINARY(fdim, __builtin_fdimf(x, y))                                                            \
    __MSL_BINARY(fmax, __builtin_fmaxf(x, y))                                                            \
    __MSL_BINARY(fmin, __builtin_fminf(x, y))                                                            \
    __MSL_BINARY(fmod, __builtin_fmodf(x, y))                                                            \
    __MSL_BINARY(nextafter, __builtin_nextafterf(x, y))                                                  \
    __MSL_BINARY(pow, __builtin_powf(x, y))                                                              \
    __MSL_BINARY(powr, __builtin_powf(x, y))                                                             \
    __MSL_BINARY(step, y < x ? 0.0f : 1.0f)

__MSL_FUNCTIONS

inline float fma(float a, float b, float c) {
    return __builtin_fmaf(a, b, c);
}
inline half fma(half a, half b, half c) {
    return static_cast<half>(__builtin_fma((double)a, (double)b, (double)c));
}
inline bfloat fma(bfloat a, bfloat b, bfloat c) {
    return static_cast<bfloat>(__builtin_fmaf((float)a, (float)b, (float)c));
}
template <class T, int N>
inline enable_if_t<is_floating_point<T>::value, vec<T, N>> fma(vec<T, N> a, vec<T, N> b, vec<T, N> c) {
    return __map(a, b, c, [](T x, T y, T z) { return fma(x, y, z); });
}
template <class T>
inline enable_if_t<is_floating_point<T>::value, T> mad(T a, T b, T c) {
    return a * b + c;
}
template <class T>
inline enable_if_t<is_floating_point<T>::value, T> mix(T x, T y, T a) {
    return x + (y - x) * a;
}
template <class T, int N>
inline vec<T, N> mix(vec<T, N> x, vec<T, N> y, vec<T, N> a) {
    return x + (y - x) * a;
}
template <class T, int N>
inline vec<T, N> mix(vec<T, N> x, vec<T, N> y, typename __given<T>::type a) {
    return x + (y - x) * a;
}
template <class T>
inline enable_if_t<is_floating_point<T>::value, T> smoothstep(T low, T high, T x) {
    const T t = saturate((x - low) / (high - low));
    return t * t * (T(3) - T(2) * t);
}

inline float ldexp(float x, int k) {
    return __builtin_ldexpf(x, k);
}
inline half ldexp(half x, int k) {
    return static_cast<half>(__builtin_ldexpf(static_cast<float>(x), k));
}
inline int ilogb(float x) {
    return __builtin_ilogbf(x);
}
inline float frexp(float x, thread int& exponent) {
    return __builtin_frexpf(x, &exponent);
}
inline float modf(float x, thread float& whole) {
    return __builtin_modff(x, &whole);
}
inline float sincos(float x, thread float& cosine) {
    cosine = __builtin_cosf(x);
    return __builtin_sinf(x);
}

// min, max and clamp: exact types only, so that max(x, 0) is ambiguous as in MSL.
#define __MSL_ORDERED(T)                          \
    inline T min(T x, T y) {                      \
        return y < x ? y : x;                     \
    }                                             \
    inline T max(T x, T y) {                      \
        return x < y ? y : x;                     \
    }                                             \
    inline T clamp(T x, T low, T high) {          \
        return min(max(x, low), high);            \
    }                                             \
    inline T min3(T x, T y, T z) {                \
        return min(x, min(y, z));                 \
    }                                             \
    inline T max3(T x, T y, T z) {                \
        return max(x, max(y, z));                 \
    }                                             \
    inline T median3(T x, T y, T z) {             \
        return max(min(x, y), min(max(x, y), z)); \
    }
__MSL_ORDERED(char)
__MSL_ORDERED(uchar)
__MSL_ORDERED(short)
__MSL_ORDERED(ushort)
__MSL_ORDERED(int)
__MSL_ORDERED(uint)
__MSL_ORDERED(long)
__MSL_ORDERED(ulong)
#undef __MSL_ORDERED

// Of floating-point values, a NaN gives way to the other operand.
#define __MSL_ORDERED_FLOAT(T)                    \
    inline T min(T x, T y) {                      \
        return fmin(x, y);                        \
    }                                             \
    inline T max(T x, T y) {                      \
        return fmax(x, y);                        \
    }                                             \
    inline T clamp(T x, T low, T high) {          \
        return min(max(x, low), high);            \
    }                                             \
    inline T min3(T x, T y, T z) {                \
        return min(x, min(y, z));                 \
    }                                             \
    inline T max3(T x, T y, T z) {                \
        return max(x, max(y, z));                 \
    }                                             \
    inline T median3(T x, T y, T z) {             \
        return max(min(x, y), min(max(x, y), z)); \
    }
__MSL_ORDERED_FLOAT(half)
__MSL_ORDERED_FLOAT(bfloat)
__MSL_ORDERED_FLOAT(float)
#undef __MSL_ORDERED_FLOAT

template <class T, int N>
inline vec<T, N> min(vec<T, N> a, vec<T, N> b) {
    return __map(a, b, [](T x, T y) { return min(x, y); });
}
template <class T, int N>
inline vec<T, N> max(vec<T, N> a, vec<T, N> b) {
    return __map(a, b, [](T x, T y) { return max(x, y); });
}
template <class T, int N>
inline vec<T, N> clamp(vec<T, N> a, vec<T, N> low, vec<T, N> high) {
    return __map(a, low, high, [](T x, T y, T z) { return clamp(x, y, z); });
}

// Of float only, as in MSL.
#undef __MSL_UNARY
#undef __MSL_BINARY
#define __MSL_UNARY(name, expression)                     \
    inline float name(float x) {                          \
        return expression;                                \
    }                                                     \
    template <int N>                                      \
    inline vec<float, N> name(vec<float, N> v) {          \
        return __map(v, [](float x) { return name(x); }); \
    }
#define __MSL_BINARY(name, expression)                                   \
    inline float name(float x, float y) {                                \
        return expression;                                               \
    }                                                                    \
    template <int N>                                                     \
    inline vec<float, N> name(vec<float, N> a, vec<float, N> b) {        \
        return __map(a, b, [](float x, float y) { return name(x, y); }); \
    }
namespace fast {
__MSL_FUNCTIONS
using metal::clamp;
using metal::fma;
using metal::max;
using metal::min;
}  // namespace fast
namespace precise {
__MSL_FUNCTIONS
using metal::clamp;
using metal::fma;
using metal::max;
using metal::min;
}  // namespace precise
#undef __MSL_FUNCTIONS
#undef __MSL_UNARY
#undef __MSL_BINARY

}  // namespace metal
