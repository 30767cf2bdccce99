// <metal_limits>: the range of each type.
// See prelude.h.
#pragma once
#pragma clang system_header

#include "msl/prelude.h"

#define CHAR_BIT 8
#define SCHAR_MAX 127
#define SCHAR_MIN (-128)
#define CHAR_MAX 127
#define CHAR_MIN (-128)
#define UCHAR_MAX 255
#define SHRT_MAX 32767
#define SHRT_MIN (-32768)
#define USHRT_MAX 65535
#define INT_MAX 2147483647
#define INT_MIN (-2147483647 - 1)
#define UINT_MAX 4294967295u
#define LONG_MAX 9223372036854775807l
#define LONG_MIN (-9223372036854775807l - 1)
#define ULONG_MAX 18446744073709551615ul

namespace metal {

template <class T>
struct numeric_limits;

#define __MSL_INTEGER_LIMITS(T, low, high)          \
    template <>                                     \
    struct numeric_limits<T> {                      \
        static constexpr bool is_integer = true;    \
        static constexpr T min() { return low; }    \
        static constexpr T lowest() { return low; } \
        static constexpr T max() { return high; }   \
    };
__MSL_INTEGER_LIMITS(bool, false, true)
__MSL_INTEGER_LIMITS(char, CHAR_MIN, CHAR_MAX)
__MSL_INTEGER_LIMITS(uchar, 0, UCHAR_MAX)
__MSL_INTEGER_LIMITS(short, SHRT_MIN, SHRT_MAX)
__MSL_INTEGER_LIMITS(ushort, 0, USHRT_MAX)
__MSL_INTEGER_LIMITS(int, INT_MIN, INT_MAX)
__MSL_INTEGER_LIMITS(uint, 0, UINT_MAX)
__MSL_INTEGER_LIMITS(long, LONG_MIN, LONG_MAX)
__MSL_INTEGER_LIMITS(ulong, 0, ULONG_MAX)
#undef __MSL_INTEGER_LIMITS

#define __MSL_FLOAT_LIMITS(T, smallest, largest, step)                                \
    template <>                                                                       \
    struct numeric_limits<T> {                                                        \
        static constexpr bool is_integer = false;                                     \
        static constexpr T min() { return static_cast<T>(smallest); }                 \
        static constexpr T max() { return static_cast<T>(largest); }                  \
        static constexpr T lowest() { return static_cast<T>(-(largest)); }            \
        static constexpr T epsilon() { return static_cast<T>(step); }                 \
        static constexpr T infinity() { return static_cast<T>(__builtin_inff()); }    \
        static constexpr T quiet_NaN() { return static_cast<T>(__builtin_nanf("")); } \
    };
__MSL_FLOAT_LIMITS(float, 0x1p-126f, 0x1.fffffep127f, 0x1p-23f)
__MSL_FLOAT_LIMITS(half, 0x1p-14f, 65504.0f, 0x1p-10f)
__MSL_FLOAT_LIMITS(bfloat, 0x1p-126f, 0x1.fep127f, 0x1p-7f)
#undef __MSL_FLOAT_LIMITS

}  // namespace metal
