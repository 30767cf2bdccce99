// Scalar conversions between doubles, integers and element types.
// 16-bit floats are rounded once from the wide value, by rounding to odd on the way through float32.
#include "core/scalar_convert.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace topstitch {

namespace {

template <typename T>
void put(void* target, T value) {
    std::memcpy(target, &value, sizeof(T));
}

template <typename T>
T get(const void* source) {
    T value;
    std::memcpy(&value, source, sizeof(T));
    return value;
}

template <typename T>
T saturate(double value) {
    using Limits = std::numeric_limits<T>;
    if (std::isnan(value)) return 0;
    // The bounds as powers of two are exact in a double, the largest value itself need not be.
    if (value <= static_cast<double>(Limits::min())) return Limits::min();
    if (value >= std::ldexp(1.0, Limits::digits)) return Limits::max();
    return static_cast<T>(value);
}

// The wide value in float32, where an inexact result is made odd: a later rounding to fewer bits then
// comes out as if done from the wide value.
float to_odd(double value) {
    const auto narrow = static_cast<float>(value);
    if (std::isnan(value) || static_cast<double>(narrow) == value) return narrow;
    auto bits = std::bit_cast<std::uint32_t>(narrow);
    if ((bits & 1u) != 0) return narrow;
    const bool too_large = std::fabs(static_cast<double>(narrow)) > std::fabs(value);
    return std::bit_cast<float>(too_large ? bits - 1 : bits + 1);
}

// The same on the way from 64 bits to the 53 of a double.
double to_odd_double(std::int64_t value) {
    constexpr std::int64_t exact = std::int64_t{1} << 53;
    constexpr std::int64_t dropped = 0x7ff;
    if (value >= -exact && value <= exact) return static_cast<double>(value);
    if ((value & dropped) != 0) value = (value & ~dropped) | (dropped + 1);
    return static_cast<double>(value);
}

}  // namespace

void store_scalar(double value, DType dtype, void* target) {
    switch (dtype) {
        case DType::boolean:
            return put<std::uint8_t>(target, value != 0 ? 1 : 0);
        case DType::int8:
            return put(target, saturate<std::int8_t>(value));
        case DType::int16:
            return put(target, saturate<std::int16_t>(value));
        case DType::int32:
            return put(target, saturate<std::int32_t>(value));
        case DType::int64:
            return put(target, saturate<std::int64_t>(value));
        case DType::uint8:
            return put(target, saturate<std::uint8_t>(value));
        case DType::uint16:
            return put(target, saturate<std::uint16_t>(value));
        case DType::uint32:
            return put(target, saturate<std::uint32_t>(value));
        case DType::uint64:
            return put(target, saturate<std::uint64_t>(value));
        case DType::float16:
            return put(target, float_to_half(to_odd(value)));
        case DType::bfloat16:
            return put(target, float_to_bfloat(to_odd(value)));
        case DType::float32:
            return put(target, static_cast<float>(value));
        case DType::float64:
            return put(target, value);
        case DType::complex64:
            put(target, static_cast<float>(value));
            return put(static_cast<char*>(target) + sizeof(float), 0.0f);
    }
}

void store_scalar(std::int64_t value, DType dtype, void* target) {
    switch (dtype) {
        case DType::int8:
        case DType::uint8:
            return put(target, static_cast<std::uint8_t>(value));
        case DType::int16:
        case DType::uint16:
            return put(target, static_cast<std::uint16_t>(value));
        case DType::int32:
        case DType::uint32:
            return put(target, static_cast<std::uint32_t>(value));
        case DType::int64:
        case DType::uint64:
            return put(target, static_cast<std::uint64_t>(value));
        case DType::boolean:
            return put<std::uint8_t>(target, value != 0 ? 1 : 0);
        case DType::float32:
            return put(target, static_cast<float>(value));
        case DType::complex64:
            put(target, static_cast<float>(value));
            return put(static_cast<char*>(target) + sizeof(float), 0.0f);
        case DType::float64:
            return put(target, static_cast<double>(value));
        case DType::float16:
        case DType::bfloat16:
            return store_scalar(to_odd_double(value), dtype, target);
    }
}

double load_scalar(const void* source, DType dtype) {
    switch (dtype) {
        case DType::boolean:
            return get<std::uint8_t>(source) != 0 ? 1 : 0;
        case DType::int8:
            return get<std::int8_t>(source);
        case DType::int16:
            return get<std::int16_t>(source);
        case DType::int32:
            return get<std::int32_t>(source);
        case DType::int64:
            return static_cast<double>(get<std::int64_t>(source));
        case DType::uint8:
            return get<std::uint8_t>(source);
        case DType::uint16:
            return get<std::uint16_t>(source);
        case DType::uint32:
            return get<std::uint32_t>(source);
        case DType::uint64:
            return static_cast<double>(get<std::uint64_t>(source));
        case DType::float16:
            return half_to_float(get<std::uint16_t>(source));
        case DType::bfloat16:
            return bfloat_to_float(get<std::uint16_t>(source));
        case DType::float32:
        case DType::complex64:
            return get<float>(source);
        case DType::float64:
            return get<double>(source);
    }
    return 0;
}

}  // namespace topstitch
