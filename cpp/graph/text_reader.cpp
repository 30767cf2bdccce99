// Tokens of the text of graphs, and errors that say where they are.
// The values of attributes are in text_values.cpp.
#include "graph/text_reader.h"

#include <charconv>

#include "topstitch/error.h"

namespace topstitch {

namespace {

bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

int hex_value(char c) {
    if (is_digit(c)) return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

}  // namespace

void TextReader::fail_at(Place place, const std::string& message) {
    throw UserError(concat("graph text, line ", place.line, ", column ", place.column, ": ", message));
}

std::string TextReader::found() const {
    if (at_end()) return "the end of the text";
    const char c = peek();
    if (c == '\n') return "the end of the line";
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte > 0x7e) return concat("byte ", static_cast<int>(byte));
    return concat("'", c, "'");
}

void TextReader::skip_blanks() {
    while (!at_end() && (peek() == ' ' || peek() == '\t' || peek() == '\r')) ++position_;
}

void TextReader::skip_empty_lines() {
    for (;;) {
        skip_blanks();
        if (peek() == '#') {
            const std::size_t end = text_.find('\n', position_);
            position_ = end == std::string_view::npos ? text_.size() : end;
        }
        if (at_end() || peek() != '\n') return;
        ++position_;
        ++line_;
        line_start_ = position_;
    }
}

bool TextReader::at_line_end() const {
    return at_end() || peek() == '\n' || peek() == '#';
}

bool TextReader::next_is(char c) {
    skip_blanks();
    return !at_end() && peek() == c;
}

bool TextReader::accept(std::string_view token) {
    skip_blanks();
    if (!text_.substr(position_).starts_with(token)) return false;
    position_ += token.size();
    return true;
}

void TextReader::expect(std::string_view token) {
    if (!accept(token)) fail(concat("expected '", token, "', but found ", found()));
}

std::string_view TextReader::word(const char* what) {
    skip_blanks();
    const std::size_t start = position_;
    while (!at_end() && (is_letter(peek()) || (position_ > start && is_digit(peek())))) ++position_;
    if (position_ == start) fail(concat("expected ", what, ", but found ", found()));
    return text_.substr(start, position_ - start);
}

std::int64_t TextReader::integer(const char* what) {
    skip_blanks();
    std::int64_t value = 0;
    const char* first = text_.data() + position_;
    const char* last = text_.data() + text_.size();
    const auto result = std::from_chars(first, last, value);
    if (result.ec == std::errc::result_out_of_range) fail(concat(what, " does not fit in 64 bits"));
    if (result.ec != std::errc()) fail(concat("expected ", what, ", but found ", found()));
    position_ += static_cast<std::size_t>(result.ptr - first);
    return value;
}

std::string TextReader::string() {
    skip_blanks();
    const Place start = place();
    expect("\"");
    std::string value;
    for (;;) {
        if (at_end() || peek() == '\n') fail_at(start, "this string has no closing '\"' in its line");
        const char c = text_[position_++];
        if (c == '"') return value;
        if (c != '\\') {
            value += c;
            continue;
        }
        const char escape = peek();
        if (!at_end()) ++position_;
        if (escape == '"' || escape == '\\') {
            value += escape;
        } else if (escape == 'n') {
            value += '\n';
        } else if (escape == 'r') {
            value += '\r';
        } else if (escape == 't') {
            value += '\t';
        } else if (escape == 'x' && text_.size() - position_ >= 2 && hex_value(text_[position_]) >= 0 &&
                   hex_value(text_[position_ + 1]) >= 0) {
            value += static_cast<char>(hex_value(text_[position_]) * 16 + hex_value(text_[position_ + 1]));
            position_ += 2;
        } else {
            fail("after '\\' a string may have '\"', '\\', 'n', 'r', 't' or 'x' and two hexadecimal digits");
        }
    }
}

}  // namespace topstitch
