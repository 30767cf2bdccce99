// A cursor over the text of a graph: tokens, values, and errors with line and column.
// It trusts nothing: every count is bounded by the length of the text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "graph/text.h"
#include "topstitch/attribute.h"

namespace topstitch {

class TextReader {
public:
    // Without `fetch`, an array that is kept outside of the text is an error.
    explicit TextReader(std::string_view text, FetchArray fetch = nullptr) : text_(text), fetch_(std::move(fetch)) {}

    // Blanks and tabs within the line.
    void skip_blanks();
    // The rest of an empty line or of a comment, and any further ones.
    void skip_empty_lines();
    bool at_end() const { return position_ == text_.size(); }
    bool at_line_end() const;  // also before a comment
    // Whether the next character, after blanks, is `c`.
    bool next_is(char c);
    char peek() const { return at_end() ? '\0' : text_[position_]; }

    bool accept(std::string_view token);
    void expect(std::string_view token);
    std::string_view word(const char* what);  // letters, digits and underscores
    std::int64_t integer(const char* what);
    std::string string();  // in double quotes

    // A value of a known kind, as attribute_text() writes it.
    Attribute attribute(AttributeKind kind);
    DType dtype();
    Dim dim();
    Shape shape();

    int line() const { return line_; }
    std::size_t position() const { return position_; }
    // Where fail() points to; by default the present position.
    struct Place {
        int line = 1;
        std::size_t column = 1;
    };
    Place place() const { return {line_, position_ - line_start_ + 1}; }
    [[noreturn]] void fail(const std::string& message) const { fail_at(place(), message); }
    [[noreturn]] static void fail_at(Place place, const std::string& message);
    // "'x'" or "the end of the line", for messages.
    std::string found() const;

private:
    struct DimPart;
    DimPart dim_sum(int depth);
    DimPart dim_product(int depth);
    DimPart dim_factor(int depth);
    double real();
    std::vector<std::int64_t> integers();
    std::string_view number_token();
    bool boolean();
    NDArray array();
    NDArray external_array(DType dtype, const Sizes& sizes);
    void element(const NDArray& array, std::int64_t k);

    std::string_view text_;
    FetchArray fetch_;
    std::size_t position_ = 0;
    std::size_t line_start_ = 0;
    int line_ = 1;
};

}  // namespace topstitch
