// The exceptions that topstitch throws, and the place in user code that they name.
// A message says what was received, what is allowed, and how to mend it.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

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

// Joins its arguments as an output stream prints them.
template <typename... Parts>
std::string concat(const Parts&... parts) {
    std::ostringstream out;
    (out << ... << parts);
    return out.str();
}

// Throws InternalError unless `condition` holds; for invariants of our own, not for user input.
TOPSTITCH_API void internal_check(bool condition, const char* what);

}  // namespace topstitch
