// MSL text after preprocessing, as tokens with their brackets matched, and as a list of its declarations.
// All rules and rewriting work on this; no types are known, those are left to the C++ compiler.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace metal_sim::msl {

// What a Metal compiler would print, with the line of the user's source.
class CompileError : public std::runtime_error {
public:
    CompileError(int line, const std::string& message)
        : std::runtime_error("program_source:" + std::to_string(line) + ": error: " + message) {}
};

enum class TokenKind { end, word, number, text, mark };

struct Token {
    TokenKind kind = TokenKind::end;
    std::string_view text;
    std::size_t begin = 0, end = 0;  // in the source's text
    int line = 0;                    // in the user's source
    std::size_t match = 0;           // of ( [ {, the index of the closing token, and the other way round
};

enum class DeclarationKind { function, type, other };

// Something at program scope or in a namespace.
struct Declaration {
    DeclarationKind kind = DeclarationKind::other;
    std::size_t begin = 0, end = 0;  // tokens, `end` not included
    std::size_t name = 0;            // of a function: the token
    std::size_t parameters = 0;      // of a function: the ( token
    std::size_t body = 0;            // of a function: the { token, or 0 without a body
    std::string scope;               // "outer::inner::" of the namespaces around it
};

class Source {
public:
    explicit Source(std::string text);
    Source(const Source&) = delete;
    Source& operator=(const Source&) = delete;

    const std::string& text() const { return text_; }
    std::size_t size() const { return tokens_.size(); }
    // An empty token beyond the end.
    const Token& operator[](std::size_t i) const { return i < tokens_.size() ? tokens_[i] : end_; }
    bool is(std::size_t i, std::string_view text) const { return (*this)[i].text == text; }
    const std::vector<Declaration>& declarations() const { return declarations_; }

    // Whether [[ begins at token i; and the token after its ]].
    bool attribute_begins(std::size_t i) const;
    std::size_t attribute_end(std::size_t i) const { return (*this)[i].match + 1; }
    // The token after the > that closes the < at token i; i + 1 when none does.
    std::size_t skip_angles(std::size_t i) const;
    // Tokens of [begin, end) joined by spaces.
    std::string join(std::size_t begin, std::size_t end) const;
    // The parts of [begin, end) between commas outside of brackets, as pairs of tokens.
    std::vector<std::pair<std::size_t, std::size_t>> split(std::size_t begin, std::size_t end) const;

private:
    void tokenize();
    void match_brackets();
    void find_declarations(std::size_t begin, std::size_t end, const std::string& scope);
    std::size_t read_declaration(std::size_t begin, std::size_t end, const std::string& scope);
    void describe_function(Declaration& declaration) const;

    std::string text_;
    std::vector<Token> tokens_;
    std::vector<Declaration> declarations_;
    Token end_;
};

}  // namespace metal_sim::msl
