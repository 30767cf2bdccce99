// What tests of several folders use to look at messages.
// Everything about one folder is in that folder's own header.
#pragma once

#include <string>

#include "topstitch/error.h"

namespace topstitch {

// What `action` throws, or "" when nothing.
template <typename Exception = UserError, typename Action>
std::string message_of(const Action& action) {
    try {
        action();
    } catch (const Exception& error) { return error.what(); }
    return "";
}

inline bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

}  // namespace topstitch
