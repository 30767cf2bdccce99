// The table of element types, and the software conversions of float16 and bfloat16.
// The conversions use integer arithmetic only, so that every compiler gives the same bits.
#include "topstitch/dtype.h"

#include <array>
#include <bit>

namespace topstitch {

namespace {

constexpr std::array<DType, 14> dtypes = {
    DType::boolean, DType::int8,   DType::int16,   DType::int32,    DType::int64,   DType::uint8,   DType::uint16,
    DType::uint32,  DType::uint64, DType::float16, DType::bfloat16, DType::float32, DType::float64, DType::complex64,
};

}  // namespace

std::span<const DType> all_dtypes() {
    return dtypes;
}

std::size_t size_of(DType dtype) {
    switch (dtype) {
        case DType::boolean:
        case DType::int8:
        case DType::uint8:
            return 1;
        case DType::int16:
        case DType::uint16:
        case DType::float16:
        case DType::bfloat16:
            return 2;
        case DType::int32:
        case DType::uint32:
        case DType::float32:
            return 4;
        case DType::int64:
        case DType::uint64:
        case DType::float64:
        case DType::complex64:
            return 8;
    }
    return 0;
}

std::string_view name_of(DType dtype) {
    switch (dtype) {
        case DType::boolean:
            return "bool";
        case DType::int8:
            return "int8";
        case DType::int16:
            return "int16";
        case DType::int32:
            return "int32";
        case DType::int64:
            return "int64";
        case DType::uint8:
            return "uint8";
        case DType::uint16:
            return "uint16";
        case DType::uint32:
            return "uint32";
        case DType::uint64:
            return "uint64";
        case DType::float16:
            return "float16";
        case DType::bfloat16:
            return "bfloat16";
        case DType::float32:
            return "float32";
        case DType::float64:
            return "float64";
        case DType::complex64:
            return "complex64";
    }
    return "";
}

std::optional<DType> dtype_from_name(std::string_view name) {
    for (const DType dtype : dtypes) {
        if (name_of(dtype) == name) return dtype;
    }
    return std::nullopt;
}

bool is_floating(DType dtype) {
    return is_half(dtype) || dtype == DType::float32 || dtype == DType::float64;
}

bool is_integer(DType dtype) {
    return is_signed_integer(dtype) || is_unsigned_integer(dtype);
}

bool is_signed_integer(DType dtype) {
    return dtype == DType::int8 || dtype == DType::int16 || dtype == DType::int32 || dtype == DType::int64;
}

bool is_unsigned_integer(DType dtype) {
    return dtype == DType::uint8 || dtype == DType::uint16 || dtype == DType::uint32 || dtype == DType::uint64;
}

bool is_complex(DType dtype) {
    return dtype == DType::complex64;
}

bool is_half(DType dtype) {
    return dtype == DType::float16 || dtype == DType::bfloat16;
}

DType compute_type(DType dtype) {
    return is_half(dtype) || is_complex(dtype) ? DType::float32 : dtype;
}

float half_to_float(std::uint16_t bits) {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
    const std::uint32_t exponent = (bits >> 10) & 0x1fu;
    std::uint32_t fraction = bits & 0x3ffu;
    if (exponent == 0x1f) {  // infinity, or NaN made quiet
        const std::uint32_t quiet = fraction != 0 ? 0x400000u : 0u;
        return std::bit_cast<float>(sign | 0x7f800000u | quiet | (fraction << 13));
    }
    if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
    if (fraction == 0) return std::bit_cast<float>(sign);
    // Subnormal: fraction * 2^-24, normalised by shifting its leading bit to position 10.
    const int shift = std::countl_zero(fraction) - 21;
    fraction = (fraction << shift) & 0x3ffu;
    return std::bit_cast<float>(sign | (static_cast<std::uint32_t>(113 - shift) << 23) | (fraction << 13));
}

std::uint16_t float_to_half(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
    const std::uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {  // NaN: quiet, with the upper bits of its payload
        return static_cast<std::uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
    }
    if (magnitude >= 0x47800000u) return static_cast<std::uint16_t>(sign | 0x7c00u);  // 65536 and above
    if (magnitude >= 0x38800000u) {                                                   // normal, from 2^-14
        // Adding just below half of the dropped bits, and one more when the kept part is odd, rounds to
        // nearest even; the carry runs on into the exponent, up to infinity.
        const std::uint32_t odd = (magnitude >> 13) & 1u;
        const std::uint32_t rounded = magnitude - (112u << 23) + 0xfffu + odd;
        return static_cast<std::uint16_t>(sign | (rounded >> 13));
    }
    if (magnitude < 0x33000000u) return sign;  // below 2^-25: zero
    // Subnormal result: the significand, shifted so that one unit is 2^-24.
    const std::uint32_t exponent = magnitude >> 23;
    const std::uint32_t significand = (magnitude & 0x7fffffu) | 0x800000u;
    const std::uint32_t shift = 126u - exponent;  // 14 to 24
    const std::uint32_t kept = significand >> shift;
    const std::uint32_t dropped = significand & ((1u << shift) - 1u);
    const std::uint32_t half = 1u << (shift - 1);
    const bool up = dropped > half || (dropped == half && (kept & 1u) != 0);
    return static_cast<std::uint16_t>(sign | (kept + (up ? 1u : 0u)));
}

float bfloat_to_float(std::uint16_t bits) {
    std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
    if ((wide & 0x7fffffffu) > 0x7f800000u) wide |= 0x400000u;  // NaN made quiet
    return std::bit_cast<float>(wide);
}

std::uint16_t float_to_bfloat(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
    const std::uint32_t odd = (bits >> 16) & 1u;
    return static_cast<std::uint16_t>((bits + 0x7fffu + odd) >> 16);
}

}  // namespace topstitch
