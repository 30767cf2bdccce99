// A strict reader of JSON (RFC 8259) for the few forms that safetensors headers are made of.
// See json.h. Duplicate keys, numbers with a sign or fraction, and strings that are not UTF-8 are refused.
#include "io/json.h"

#include <charconv>
#include <set>

#include "core/utf8.h"
#include "topstitch/error.h"

namespace topstitch {

namespace {

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

void append_utf8(std::string& out, std::uint32_t code) {
    const auto add = [&out](std::uint32_t byte) { out += static_cast<char>(byte); };
    if (code < 0x80) {
        add(code);
    } else if (code < 0x800) {
        add(0xc0U | (code >> 6U));
        add(0x80U | (code & 63U));
    } else if (code < 0x10000) {
        add(0xe0U | (code >> 12U));
        add(0x80U | ((code >> 6U) & 63U));
        add(0x80U | (code & 63U));
    } else {
        add(0xf0U | (code >> 18U));
        add(0x80U | ((code >> 12U) & 63U));
        add(0x80U | ((code >> 6U) & 63U));
        add(0x80U | (code & 63U));
    }
}

}  // namespace

void JsonReader::fail(const std::string& message) const {
    throw UserError(concat("byte ", position_, " of the header: ", message));
}

std::string JsonReader::found() const {
    if (position_ >= text_.size()) return "the end of the header";
    return concat("'", printable(text_.substr(position_, 1)), "'");
}

void JsonReader::skip_blanks() {
    while (position_ < text_.size() && std::string_view(" \t\r\n").find(text_[position_]) != std::string_view::npos)
        ++position_;
}

bool JsonReader::accept(char c) {
    skip_blanks();
    if (position_ >= text_.size() || text_[position_] != c) return false;
    ++position_;
    return true;
}

void JsonReader::expect(char c, const char* what) {
    if (!accept(c)) fail(concat("expected '", c, "' ", what, ", but found ", found()));
}

std::uint32_t JsonReader::hex4() {
    std::uint32_t code = 0;
    const char* first = text_.data() + position_;
    if (text_.size() - position_ < 4) fail("after '\\u' there must be four hexadecimal digits");
    const auto result = std::from_chars(first, first + 4, code, 16);
    if (result.ec != std::errc() || result.ptr != first + 4) fail("after '\\u' there must be four hexadecimal digits");
    position_ += 4;
    return code;
}

void JsonReader::escape(std::string& out) {
    constexpr std::string_view letters = "\"\\/bfnrt";
    constexpr std::string_view meanings = "\"\\/\b\f\n\r\t";
    const char c = position_ < text_.size() ? text_[position_] : '\0';
    if (const std::size_t at = letters.find(c); at != std::string_view::npos) {
        ++position_;
        out += meanings[at];
        return;
    }
    if (c != 'u') fail("after '\\' a string may have '\"', '\\', '/', 'b', 'f', 'n', 'r', 't' or 'u'");
    ++position_;
    std::uint32_t code = hex4();
    if (code >= 0xd800 && code < 0xdc00 && text_.substr(position_).starts_with("\\u")) {
        position_ += 2;
        const std::uint32_t low = hex4();
        if (low < 0xdc00 || low > 0xdfff) fail("the first half of a character is not followed by the second");
        code = 0x10000 + ((code - 0xd800) << 10U) + (low - 0xdc00);
    }
    if (code >= 0xd800 && code < 0xe000) fail("half of a character stands alone");
    append_utf8(out, code);
}

std::string JsonReader::string(const char* what) {
    skip_blanks();
    if (position_ >= text_.size() || text_[position_] != '"') {
        fail(concat("expected ", what, " in double quotes, but found ", found()));
    }
    ++position_;
    std::string out;
    for (;;) {
        if (position_ >= text_.size()) fail("a string has no closing '\"'");
        const auto byte = static_cast<unsigned char>(text_[position_]);
        if (byte < 0x20) fail("a string has a control character, which must be escaped");
        if (byte == '"') {
            ++position_;
            return out;
        }
        if (byte == '\\') {
            ++position_;
            escape(out);
            continue;
        }
        const std::size_t length = utf8_length(text_.substr(position_));
        if (length == 0) fail("a string is not UTF-8");
        out += text_.substr(position_, length);
        position_ += length;
    }
}

std::int64_t JsonReader::whole_number(const char* what) {
    skip_blanks();
    const std::size_t start = position_;
    if (start >= text_.size() || !is_digit(text_[start])) {
        fail(concat("expected ", what, ", a whole number from 0, but found ", found()));
    }
    std::int64_t value = 0;
    const auto result = std::from_chars(text_.data() + start, text_.data() + text_.size(), value);
    if (result.ec != std::errc()) fail(concat(what, " does not fit in 63 bits"));
    position_ = static_cast<std::size_t>(result.ptr - text_.data());
    if (position_ - start > 1 && text_[start] == '0') fail(concat(what, " begins with a zero"));
    if (position_ < text_.size() && std::string_view(".eE").find(text_[position_]) != std::string_view::npos) {
        fail(concat(what, " must be a whole number, without a fraction or an exponent"));
    }
    return value;
}

void JsonReader::object(const char* what, const std::function<void(const std::string& key)>& member) {
    expect('{', what);
    if (accept('}')) return;
    std::set<std::string> seen;
    do {
        const std::string key = string("a key");
        if (!seen.insert(key).second) fail(concat("the key \"", printable(key), "\" is there twice"));
        expect(':', "after a key");
        member(key);
    } while (accept(','));
    expect('}', "or ',' after a value");
}

void JsonReader::end() {
    skip_blanks();
    if (position_ < text_.size()) fail(concat("expected the end of the header, but found ", found()));
}

std::string json_string(std::string_view text, const char* what) {
    if (!is_utf8(text)) {
        throw UserError(
            concat(what, " \"", printable(text), "\" is not UTF-8, which the header of the file must be; rename it"));
    }
    std::string out = "\"";
    for (const char c : text) {
        constexpr std::string_view digits = "0123456789abcdef";
        const auto byte = static_cast<unsigned char>(c);
        if (c == '"' || c == '\\') {
            out += '\\';
            out += c;
        } else if (c == '\n') {
            out += "\\n";
        } else if (byte < 0x20) {
            out += "\\u00";
            out += digits[byte >> 4U];
            out += digits[byte & 15U];
        } else {
            out += c;
        }
    }
    return out + "\"";
}

}  // namespace topstitch
