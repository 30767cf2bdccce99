// The well-formed byte sequences of UTF-8, by the table of the Unicode standard (3-7).
// See utf8.h.
#include "core/utf8.h"

namespace topstitch {

std::size_t utf8_length(std::string_view text) {
    if (text.empty()) return 0;
    const auto byte = [text](std::size_t k) { return k < text.size() ? static_cast<unsigned char>(text[k]) : 0U; };
    const auto continues = [&byte](std::size_t k, unsigned low = 0x80, unsigned high = 0xbf) {
        return byte(k) >= low && byte(k) <= high;
    };
    const unsigned first = byte(0);
    if (first < 0x80) return 1;
    if (first >= 0xc2 && first <= 0xdf) return continues(1) ? 2 : 0;
    if (first >= 0xe0 && first <= 0xef) {
        const bool second = continues(1, first == 0xe0 ? 0xa0 : 0x80, first == 0xed ? 0x9f : 0xbf);
        return second && continues(2) ? 3 : 0;
    }
    if (first >= 0xf0 && first <= 0xf4) {
        const bool second = continues(1, first == 0xf0 ? 0x90 : 0x80, first == 0xf4 ? 0x8f : 0xbf);
        return second && continues(2) && continues(3) ? 4 : 0;
    }
    return 0;
}

bool is_utf8(std::string_view text) {
    while (!text.empty()) {
        const std::size_t length = utf8_length(text);
        if (length == 0) return false;
        text.remove_prefix(length);
    }
    return true;
}

std::string printable(std::string_view text, std::size_t longest) {
    constexpr std::string_view digits = "0123456789abcdef";
    std::string out;
    for (std::size_t k = 0; k < text.size();) {
        const std::size_t length = utf8_length(text.substr(k));
        if (out.size() + 4 > longest) return out + "...";
        const auto byte = static_cast<unsigned char>(text[k]);
        if (length == 0 || byte < 0x20 || byte == 0x7f) {
            out += "\\x";
            out += digits[byte >> 4U];
            out += digits[byte & 15U];
            ++k;
            continue;
        }
        out += text.substr(k, length);
        k += length;
    }
    return out;
}

}  // namespace topstitch
