// Whether bytes are UTF-8, and text that is, whatever bytes it came from.
// Names come from users and files from anywhere, while JSON and Python's strings hold characters.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace topstitch {

// The bytes of the character that `text` begins with; 0 when it begins with none (also for overlong forms, surrogates
// and what lies beyond U+10FFFF).
std::size_t utf8_length(std::string_view text);
bool is_utf8(std::string_view text);

// For messages: \xHH in place of control characters and of bytes that are no UTF-8, and at most `longest` bytes of it.
std::string printable(std::string_view text, std::size_t longest = 200);

}  // namespace topstitch
