// The JSON of safetensors headers, read token by token and written.
// No document is built, so that a hostile header costs no more memory than its own length, at any depth of nesting.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace topstitch {

class JsonReader {
public:
    explicit JsonReader(std::string_view text) : text_(text) {}

    bool accept(char c);  // after blanks
    void expect(char c, const char* what);
    // With its escapes resolved; always UTF-8.
    std::string string(const char* what);
    // A whole number from 0 to 2^63 - 1.
    std::int64_t whole_number(const char* what);
    // The members of an object, each key once: `member` reads the value of its key.
    void object(const char* what, const std::function<void(const std::string& key)>& member);
    // Nothing but blanks is left.
    void end();

    // UserError with the position in bytes.
    [[noreturn]] void fail(const std::string& message) const;

private:
    void skip_blanks();
    std::string found() const;
    std::uint32_t hex4();
    void escape(std::string& out);

    std::string_view text_;
    std::size_t position_ = 0;
};

// In double quotes, escaped. UserError that begins with `what` when the text is not UTF-8.
std::string json_string(std::string_view text, const char* what);

}  // namespace topstitch
