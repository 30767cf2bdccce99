// The exceptions that topstitch throws, and the place in user code that they name.
// A message says what was received, what is allowed, and how to mend it.
#pragma once

#include <charconv>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

#include "topstitch/export.h"

namespace topstitch {

// Where the user's code created something; empty when unknown.
struct SourceLocation {
    std::string file;
    int line = 0;

    bool known() const { return line > 0; }
    TOPSTITCH_API std::string str() const;  // "model.py:12", or "" when unknown
};

class TOPSTITCH_API Error : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
    ~Error() override;
};

// The caller can mend it: a bad value (Python: ValueError).
class TOPSTITCH_API UserError : public Error {
public:
    using Error::Error;
    ~UserError() override;
};

// The caller can mend it: a bad type or dtype (Python: TypeError).
class TOPSTITCH_API TypeError : public UserError {
public:
    using UserError::UserError;
    ~TypeError() override;
};

// Well-formed, but not available here (Python: NotImplementedError).
class TOPSTITCH_API UnsupportedError : public Error {
public:
    using Error::Error;
    ~UnsupportedError() override;
};

// Memory could not be had; nothing has been changed (Python: MemoryError).
class TOPSTITCH_API MemoryError : public Error {
public:
    using Error::Error;
    ~MemoryError() override;
};

// The system refused to read or write a file (Python: OSError).
class TOPSTITCH_API IoError : public Error {
public:
    // `code` is what errno was.
    IoError(const std::string& message, int code) : Error(message), code_(code) {}
    ~IoError() override;
    int code() const { return code_; }

private:
    int code_;
};

// A defect of topstitch itself (Python: RuntimeError).
class TOPSTITCH_API InternalError : public Error {
public:
    using Error::Error;
    ~InternalError() override;
};

// Work that was cancelled before it had changed anything (Python: CancelledError).
class TOPSTITCH_API Cancelled : public Error {
public:
    using Error::Error;
    ~Cancelled() override;
};

// Appends `part` as an output stream prints it. Numbers and text do without a stream, which costs ten times as much.
template <typename Part>
void append_text(std::string& text, const Part& part) {
    if constexpr (std::is_convertible_v<const Part&, std::string_view>) {
        text += std::string_view(part);
    } else if constexpr (std::is_same_v<Part, char>) {
        text += part;
    } else if constexpr (std::is_integral_v<Part> && sizeof(Part) > 1) {
        char digits[24];
        text.append(digits, std::to_chars(digits, digits + sizeof digits, part).ptr);
    } else {
        std::ostringstream out;
        out << part;
        text += out.str();
    }
}

// Joins its arguments as an output stream prints them.
template <typename... Parts>
std::string concat(const Parts&... parts) {
    std::string text;
    (append_text(text, parts), ...);
    return text;
}

// Throws InternalError unless `condition` holds; for invariants of our own, not for user input.
TOPSTITCH_API void internal_check(bool condition, const char* what);

}  // namespace topstitch
