// Numbers, strings and bytes as text.
// Independent of the locale; exact in both directions.
#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <locale>
#include <sstream>
#include <version>

#include "core/utf8.h"
#include "graph/text.h"

namespace topstitch {

namespace {

template <typename T>
using BitsOf = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;

template <typename T>
constexpr BitsOf<T> usual_nan = std::bit_cast<BitsOf<T>>(std::numeric_limits<T>::quiet_NaN());

std::string hex(std::uint64_t value) {
    std::array<char, 17> digits{};
    std::snprintf(digits.data(), digits.size(), "%llx", static_cast<unsigned long long>(value));
    return digits.data();
}

template <typename T>
std::string shortest(T value) {
    std::array<char, 64> buffer{};
#if defined(__cpp_lib_to_chars)
    const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
    return std::string(buffer.data(), result.ptr);
#else
    std::ostringstream out;
    out.imbue(std::locale::classic());
    out.precision(std::numeric_limits<T>::max_digits10);
    out << value;
    return out.str();
#endif
}

template <typename T>
std::string write_real(T value) {
    if (std::isnan(value)) {
        const auto bits = std::bit_cast<BitsOf<T>>(value);
        return bits == usual_nan<T> ? "nan" : "nan(0x" + hex(bits) + ")";
    }
    if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
    std::string text = shortest(value);
    if (text.find_first_of(".e") == std::string::npos) text += ".0";
    return text;
}

template <typename T>
std::optional<T> read_nan_bits(std::string_view text) {
    if (!text.starts_with("nan(0x") || !text.ends_with(")")) return std::nullopt;
    text = text.substr(6, text.size() - 7);
    BitsOf<T> bits = 0;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), bits, 16);
    if (result.ec != std::errc() || result.ptr != text.data() + text.size()) return std::nullopt;
    const T value = std::bit_cast<T>(bits);
    return std::isnan(value) ? std::optional(value) : std::nullopt;
}

template <typename T>
std::optional<T> read_real(std::string_view text) {
    if (text == "nan") return std::bit_cast<T>(usual_nan<T>);
    if (text == "inf") return std::numeric_limits<T>::infinity();
    if (text == "-inf") return -std::numeric_limits<T>::infinity();
    if (text.starts_with("nan")) return read_nan_bits<T>(text);
    // What follows must be a plain decimal number.
    if (text.empty() || text.find_first_not_of("+-0123456789.eE") != std::string_view::npos) return std::nullopt;
    T value = 0;
#if defined(__cpp_lib_to_chars)
    const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
    if (result.ec != std::errc() || result.ptr != text.data() + text.size()) return std::nullopt;
#else
    std::istringstream in{std::string(text)};
    in.imbue(std::locale::classic());
    in >> value;
    if (in.fail() || in.peek() != std::istringstream::traits_type::eof()) return std::nullopt;
#endif
    return value;
}

constexpr std::string_view base64_alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

std::array<std::int8_t, 256> base64_values() {
    std::array<std::int8_t, 256> values{};
    values.fill(-1);
    for (std::size_t k = 0; k < base64_alphabet.size(); ++k) {
        values[static_cast<unsigned char>(base64_alphabet[k])] = static_cast<std::int8_t>(k);
    }
    return values;
}

}  // namespace

std::string real_text(double value) {
    return write_real(value);
}

std::string real_text(float value) {
    return write_real(value);
}

std::optional<double> read_double(std::string_view text) {
    return read_real<double>(text);
}

std::optional<float> read_float(std::string_view text) {
    return read_real<float>(text);
}

std::string quoted(std::string_view text) {
    std::string out = "\"";
    for (std::size_t k = 0; k < text.size();) {
        const char c = text[k];
        const auto byte = static_cast<unsigned char>(c);
        const std::size_t length = utf8_length(text.substr(k));
        if (c == '"' || c == '\\') {
            out += '\\';
            out += c;
        } else if (c == '\n') {
            out += "\\n";
        } else if (c == '\r') {
            out += "\\r";
        } else if (c == '\t') {
            out += "\\t";
        } else if (byte < 0x20 || byte == 0x7f || length == 0) {
            out += byte < 0x10 ? "\\x0" : "\\x";
            out += hex(byte);
        } else {
            out += text.substr(k, length);
        }
        k += std::max<std::size_t>(length, 1);
    }
    return out + "\"";
}

std::string base64_encode(const void* data, std::size_t bytes) {
    const auto* source = static_cast<const unsigned char*>(data);
    std::string text;
    text.reserve((bytes + 2) / 3 * 4);
    for (std::size_t i = 0; i < bytes; i += 3) {
        const std::size_t count = std::min<std::size_t>(3, bytes - i);
        std::uint32_t group = 0;
        for (std::size_t k = 0; k < 3; ++k) group = (group << 8) | (k < count ? source[i + k] : 0U);
        for (std::size_t k = 0; k < 4; ++k) {
            text += k <= count ? base64_alphabet[(group >> (18 - 6 * k)) & 63U] : '=';
        }
    }
    return text;
}

std::optional<std::string> base64_decode(std::string_view text) {
    static const std::array<std::int8_t, 256> values = base64_values();
    if (text.size() % 4 != 0) return std::nullopt;
    std::string bytes;
    bytes.reserve(text.size() / 4 * 3);
    for (std::size_t i = 0; i < text.size(); i += 4) {
        std::size_t padding = 0;
        if (i + 4 == text.size() && text[i + 3] == '=') padding = text[i + 2] == '=' ? 2 : 1;
        std::uint32_t group = 0;
        for (std::size_t k = 0; k < 4; ++k) {
            const std::int8_t value =
                k < 4 - padding ? values[static_cast<unsigned char>(text[i + k])] : std::int8_t{0};
            if (value < 0) return std::nullopt;
            group = (group << 6) | static_cast<std::uint32_t>(value);
        }
        for (std::size_t k = 0; k < 3 - padding; ++k) bytes += static_cast<char>((group >> (16 - 8 * k)) & 255U);
    }
    return bytes;
}

}  // namespace topstitch
