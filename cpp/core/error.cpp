// Out-of-line parts of the exceptions.
// The destructors are here so that each class has one type_info in the shared library.
#include "topstitch/error.h"

namespace topstitch {

std::string SourceLocation::str() const {
    if (!known()) return "";
    return concat(file, ":", line);
}

Error::~Error() = default;
UserError::~UserError() = default;
TypeError::~TypeError() = default;
UnsupportedError::~UnsupportedError() = default;
MemoryError::~MemoryError() = default;
IoError::~IoError() = default;
InternalError::~InternalError() = default;
Cancelled::~Cancelled() = default;

void internal_check(bool condition, const char* what) {
    if (!condition)
        throw InternalError(concat("internal error: ", what, "; this is a defect of topstitch, please report it"));
}

}  // namespace topstitch
