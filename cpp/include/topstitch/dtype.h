// Element types: their names, sizes and classes, and the conversions of the 16-bit floats.
// DType is closed: a switch over it has no default, so that a new type fails to compile until handled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "topstitch/export.h"

namespace topstitch {

enum class DType : std::uint8_t {
    boolean,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
    float16,
    bfloat16,
    float32,
    float64,
    complex64,
};

TOPSTITCH_API std::span<const DType> all_dtypes();

// Bytes of one element.
TOPSTITCH_API std::size_t size_of(DType dtype);

// NumPy's name: "bool", "int8", ..., "bfloat16", "complex64".
TOPSTITCH_API std::string_view name_of(DType dtype);
TOPSTITCH_API std::optional<DType> dtype_from_name(std::string_view name);

TOPSTITCH_API bool is_floating(DType dtype);  // float16, bfloat16, float32, float64
TOPSTITCH_API bool is_integer(DType dtype);   // signed or unsigned, not bool
TOPSTITCH_API bool is_signed_integer(DType dtype);
TOPSTITCH_API bool is_unsigned_integer(DType dtype);
TOPSTITCH_API bool is_complex(DType dtype);
TOPSTITCH_API bool is_half(DType dtype);  // float16, bfloat16: stored in 16 bits, computed in float32

// The type in which values of `dtype` are computed: float32 for the 16-bit floats and complex64, else itself.
TOPSTITCH_API DType compute_type(DType dtype);

// IEEE conversions, rounding to nearest even; NaN stays NaN.
TOPSTITCH_API float half_to_float(std::uint16_t bits);
TOPSTITCH_API std::uint16_t float_to_half(float value);
TOPSTITCH_API float bfloat_to_float(std::uint16_t bits);
TOPSTITCH_API std::uint16_t float_to_bfloat(float value);

}  // namespace topstitch
