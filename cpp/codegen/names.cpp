// Identifiers from the names of people: see names.h.
// Letters and digits are kept, everything else becomes an underscore.
#include "codegen/names.h"

#include <algorithm>
#include <array>

#include "topstitch/error.h"

namespace topstitch::codegen {

namespace {

bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

constexpr std::size_t longest = 48;
constexpr std::array belongings =
    std::to_array<std::string_view>({"_at", "_low", "_next", "_now", "_part", "_safe"});  // of accumulators

}  // namespace

Names::Names(const Dialect& dialect) : dialect_(dialect) {
    for (const DType type : {DType::boolean, DType::int8, DType::int16, DType::int32, DType::int64, DType::uint8,
                             DType::uint16, DType::uint32, DType::uint64, DType::float16, DType::float32}) {
        types_.insert(dialect.type(type));
    }
}

// Values are called v12 and accumulators a12, what belongs to those a12_part or the like; helper functions and shared
// memory end in what they are for.
bool Names::is_ours(std::string_view word) const {
    const std::size_t end = std::min(word.find_first_not_of("0123456789", 1), word.size());
    const std::string_view rest = word.substr(end);
    const bool numbered = end > 1 && (word[0] == 'v' || word[0] == 'a') &&
                          (rest.empty() || std::find(belongings.begin(), belongings.end(), rest) != belongings.end());
    if (numbered || word == "shared_position" || word == "shared_low") return true;
    const std::size_t last = word.rfind('_');
    if (last == std::string_view::npos) return false;
    const std::string_view ending = word.substr(last + 1);
    return ending == "pair" || types_.contains(ending);
}

std::string Names::unique(std::string_view wanted, std::string_view otherwise) {
    std::string name;
    for (const char c : wanted.substr(0, longest)) {
        // No two underscores in a row, and none first: such names belong to compilers.
        if (is_letter(c) || is_digit(c)) {
            name += c;
        } else if (!name.empty() && name.back() != '_') {
            name += '_';
        }
    }
    while (!name.empty() && name.back() == '_') name.pop_back();
    if (name.empty()) name = otherwise;
    if (is_digit(name.front())) name = concat(otherwise, name);
    std::string result = name;
    for (int number = 1; dialect_.is_reserved(result) || is_ours(result) || !taken_.insert(result).second; ++number) {
        result = concat(name, "_", number);
    }
    return result;
}

std::string comment_text(std::string_view text) {
    std::string result;
    for (const char c : text) {
        // A backslash at the end of a line would join the next one to the comment.
        result += static_cast<unsigned char>(c) < ' ' || c == '\\' ? ' ' : c;
    }
    while (!result.empty() && result.back() == ' ') result.pop_back();
    return result;
}

}  // namespace topstitch::codegen
