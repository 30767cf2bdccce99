// Tests of the dtype table, and of the 16-bit conversions over every bit pattern.
// The reference is exact arithmetic in double: scaling by powers of two and nearbyint.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <string>

#include "core/scalar_convert.h"
#include "topstitch/dtype.h"

using namespace topstitch;

namespace {

struct Format {
    int fraction_bits;
    int min_exponent;  // of normal numbers
    int max_exponent;
};
constexpr Format half_format{10, -14, 15};
constexpr Format bfloat_format{7, -126, 127};

// The value of a bit pattern by the definition of the format.
double decode(std::uint16_t bits, const Format& format) {
    const int fraction = bits & ((1 << format.fraction_bits) - 1);
    const int exponent = (bits & 0x7fff) >> format.fraction_bits;
    const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
    const int top = format.max_exponent + 1 - format.min_exponent + 1;
    if (exponent == top) return fraction != 0 ? std::nan("") : sign * INFINITY;
    const int scale = std::max(exponent, 1) - 1 + format.min_exponent - format.fraction_bits;
    const double significand = fraction + (exponent == 0 ? 0 : 1 << format.fraction_bits);
    return sign * std::ldexp(significand, scale);
}

// The nearest value of the format, ties to even.
double round_to_format(double value, const Format& format) {
    if (value == 0 || !std::isfinite(value)) return value;
    const int exponent = std::max(std::ilogb(value), format.min_exponent);
    const int scale = exponent - format.fraction_bits;
    const double rounded = std::ldexp(std::nearbyint(std::ldexp(value, -scale)), scale);
    return std::fabs(rounded) >= std::ldexp(1.0, format.max_exponent + 1) ? std::copysign(INFINITY, value) : rounded;
}

bool same(double a, double b) {
    if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
    return a == b && std::signbit(a) == std::signbit(b);
}

// Failures of one kind are counted: a CHECK for each of millions of values would take minutes.
template <typename Decode, typename Encode>
void check_format(const Format& format, Decode to_float, Encode from_float) {
    int wrong_decode = 0;
    int wrong_round_trip = 0;
    int wrong_rounding = 0;
    for (std::uint32_t pattern = 0; pattern < 0x10000; ++pattern) {
        const auto bits = static_cast<std::uint16_t>(pattern);
        const double value = decode(bits, format);
        const float decoded = to_float(bits);
        if (!same(decoded, value)) ++wrong_decode;
        if (!std::isnan(value) && from_float(decoded) != bits) ++wrong_round_trip;
        if (std::isnan(value)) {
            const double again = decode(from_float(decoded), format);
            if (!std::isnan(again) || std::signbit(again) != std::signbit(value)) ++wrong_round_trip;
        }
        // The middle between this value and the next, and its neighbours in float32.
        const double next = decode(static_cast<std::uint16_t>(bits + 1), format);
        if (!std::isfinite(value)) continue;
        const auto middle = static_cast<float>(std::isfinite(next) ? value / 2 + next / 2 : value * 1.001953125);
        for (const float probe : {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, middle * 2)}) {
            if (!same(decode(from_float(probe), format), round_to_format(probe, format))) ++wrong_rounding;
        }
    }
    // A stride through all of float32, coprime to its powers of two.
    for (std::uint64_t pattern = 0; pattern < (std::uint64_t{1} << 32); pattern += 2053) {
        const auto probe = std::bit_cast<float>(static_cast<std::uint32_t>(pattern));
        if (!same(decode(from_float(probe), format), round_to_format(probe, format))) ++wrong_rounding;
    }
    CHECK(wrong_decode == 0);
    CHECK(wrong_round_trip == 0);
    CHECK(wrong_rounding == 0);
}

}  // namespace

TEST_CASE("float16 conversions are exact for every pattern") {
    check_format(half_format, half_to_float, float_to_half);
    CHECK(float_to_half(65519.99f) == 0x7bff);
    CHECK(float_to_half(65520.0f) == 0x7c00);
    CHECK(float_to_half(0x1p-25f) == 0x0000);
    CHECK(float_to_half(std::nextafter(0x1p-25f, 1.0f)) == 0x0001);
    CHECK(float_to_half(-0.0f) == 0x8000);
    CHECK(half_to_float(0x3555) == 0.333251953125f);
}

TEST_CASE("bfloat16 conversions are exact for every pattern") {
    check_format(bfloat_format, bfloat_to_float, float_to_bfloat);
    CHECK(float_to_bfloat(std::numeric_limits<float>::max()) == 0x7f80);
    CHECK(float_to_bfloat(1.0f) == 0x3f80);
    CHECK(float_to_bfloat(std::bit_cast<float>(0x7f800001u)) == 0x7fc0);  // a NaN whose upper bits are all of infinity
}

TEST_CASE("NaN payloads are kept as far as they fit") {
    CHECK(float_to_half(std::bit_cast<float>(0x7fc02000u)) == 0x7e01);
    CHECK(float_to_half(std::bit_cast<float>(0xff800001u)) == 0xfe00);
    CHECK(std::bit_cast<std::uint32_t>(half_to_float(0x7c01)) == 0x7fc02000u);
}

TEST_CASE("the dtype table is consistent") {
    std::set<std::string> names;
    for (const DType dtype : all_dtypes()) {
        CAPTURE(name_of(dtype));
        names.insert(std::string(name_of(dtype)));
        CHECK(dtype_from_name(name_of(dtype)) == dtype);
        const int classes = (dtype == DType::boolean) + is_integer(dtype) + is_floating(dtype) + is_complex(dtype);
        CHECK(classes == 1);
        CHECK(is_integer(dtype) == (is_signed_integer(dtype) != is_unsigned_integer(dtype)));
    }
    CHECK(names == std::set<std::string>{"bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32",
                                         "uint64", "float16", "bfloat16", "float32", "float64", "complex64"});
    CHECK(!dtype_from_name("float"));
    CHECK(!dtype_from_name(""));
    CHECK(size_of(DType::boolean) == 1);
    CHECK(size_of(DType::bfloat16) == 2);
    CHECK(size_of(DType::uint32) == 4);
    CHECK(size_of(DType::complex64) == 8);
    CHECK(compute_type(DType::float16) == DType::float32);
    CHECK(compute_type(DType::bfloat16) == DType::float32);
    CHECK(compute_type(DType::complex64) == DType::float32);
    CHECK(compute_type(DType::float64) == DType::float64);
    CHECK(compute_type(DType::int8) == DType::int8);
}

TEST_CASE("scalars convert with one rounding, saturation and wrap-around") {
    const auto stored = [](auto value, DType dtype) {
        std::uint64_t bits = 0;
        store_scalar(value, dtype, &bits);
        return bits;
    };
    // Just above the middle of two halves: float32 in between would give a tie and round to even.
    CHECK(stored(1.0 + 0x1p-11 + 0x1p-40, DType::float16) == 0x3c01);
    CHECK(stored(1.0 + 0x1p-11, DType::float16) == 0x3c00);
    CHECK(stored(1.0 + 0x1p-8 + 0x1p-40, DType::bfloat16) == 0x3f81);
    CHECK(stored((std::int64_t{1} << 55) + (std::int64_t{1} << 47) + 1, DType::bfloat16) == 0x5b01);
    CHECK(stored(1e300, DType::float16) == 0x7c00);
    CHECK(stored(-1e-300, DType::float16) == 0x8000);

    CHECK(stored(300.0, DType::uint8) == 255);
    CHECK(stored(-3.7, DType::uint8) == 0);
    CHECK(stored(-3.7, DType::int8) == 0xfd);
    CHECK(stored(std::nan(""), DType::int32) == 0);
    CHECK(stored(INFINITY, DType::int64) == 0x7fffffffffffffffu);
    CHECK(stored(1e19, DType::uint64) == 10000000000000000000u);
    CHECK(stored(0.25, DType::boolean) == 1);

    CHECK(stored(std::int64_t{-1}, DType::uint16) == 0xffff);
    CHECK(stored(std::int64_t{0x1234567890}, DType::int32) == 0x34567890);
    CHECK(stored(std::int64_t{16777217}, DType::float32) == std::bit_cast<std::uint32_t>(16777216.0f));
    CHECK(stored(std::int64_t{256}, DType::boolean) == 1);
}
