// What MSL has without any #include: address spaces, scalar and vector types. In front of every kernel source.
// Part of the library that kernels on the simulated device see; its own names begin with two underscores.
#pragma once
#pragma clang system_header

#include "grid/abi.h"

// Address spaces are real ones, so that mixing them is a type error. `thread` is the default one.
#define device __attribute__((address_space(1)))
#define constant const __attribute__((address_space(2)))
#define threadgroup __attribute__((address_space(3)))
#define thread
#define kernel
#define METAL_FUNC inline __attribute__((always_inline))

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef _Float16 half;
typedef __bf16 bfloat;
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long int64_t;
typedef unsigned long uint64_t;
typedef unsigned long size_t;
typedef long ptrdiff_t;

constexpr half operator""h(long double value) {
    return static_cast<half>(value);
}
constexpr bfloat operator"" bf(long double value) {
    return static_cast<bfloat>(value);
}

#include "msl/bind.h"
#include "msl/type_traits.h"
#include "msl/vector.h"
