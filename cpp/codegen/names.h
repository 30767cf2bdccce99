// Names in emitted source: those of the graph where they can stand in a program, each only once.
// Whatever a graph is called, the source compiles.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>

#include "codegen/dialect.h"

namespace topstitch::codegen {

class Names {
public:
    explicit Names(const Dialect& dialect);

    // `wanted` as an identifier that is no word of the language and not given away yet; `otherwise` if it is empty.
    std::string unique(std::string_view wanted, std::string_view otherwise);

private:
    bool is_ours(std::string_view word) const;

    const Dialect& dialect_;
    std::set<std::string, std::less<>> types_;
    std::set<std::string> taken_;
};

// In one line, without what would end a comment.
std::string comment_text(std::string_view text);

}  // namespace topstitch::codegen
