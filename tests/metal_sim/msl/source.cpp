// See source.h.
// The tokens are those of C++, except that > never joins another mark, so that template arguments close.
#include "msl/source.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>

namespace metal_sim::msl {

namespace {

constexpr std::array<std::string_view, 19> joined_marks{
    "::", "->", "&&", "||", "==", "!=", "<=", "<<", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "++", "--", ".*"};

bool is_word_start(char c) {
    return std::isalpha(static_cast<unsigned char>(c)) || c == '_';
}

bool is_word(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
}

// Where the token that begins at `i` ends, and its kind.
std::pair<std::size_t, TokenKind> token_end(const std::string& text, std::size_t i) {
    const auto next = [&](std::size_t at) { return at < text.size() ? text[at] : '\0'; };
    std::size_t end = i + 1;
    if (is_word_start(text[i])) {
        while (is_word(next(end))) ++end;
        return {end, TokenKind::word};
    }
    const auto digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
    if (digit(text[i]) || (text[i] == '.' && digit(next(i + 1)))) {
        const auto exponent_sign = [&](std::size_t at) {
            const char before = static_cast<char>(std::tolower(static_cast<unsigned char>(text[at - 1])));
            const bool hexadecimal = text[i] == '0' && (next(i + 1) == 'x' || next(i + 1) == 'X');
            return (next(at) == '+' || next(at) == '-') && before == (hexadecimal ? 'p' : 'e');
        };
        while (is_word(next(end)) || next(end) == '.' || exponent_sign(end)) ++end;
        return {end, TokenKind::number};
    }
    if (text[i] == '"' || text[i] == '\'') {
        while (end < text.size() && text[end] != text[i]) end += text[end] == '\\' ? 2 : 1;
        return {std::min(end + 1, text.size()), TokenKind::text};
    }
    const auto two = std::string_view(text).substr(i, 2);
    const bool joined = std::find(joined_marks.begin(), joined_marks.end(), two) != joined_marks.end();
    return {joined ? i + 2 : i + 1, TokenKind::mark};
}

}  // namespace

Source::Source(std::string text) : text_(std::move(text)) {
    tokenize();
    match_brackets();
    find_declarations(0, tokens_.size(), "");
}

void Source::tokenize() {
    int line = 1;
    bool line_begins = true;
    for (std::size_t i = 0; i < text_.size();) {
        if (text_[i] == '\n') {
            ++line;
            line_begins = true;
            ++i;
        } else if (std::isspace(static_cast<unsigned char>(text_[i]))) {
            ++i;
        } else if (line_begins && text_[i] == '#') {  // "# 12 "file"" says that the next line is line 12
            const std::size_t end = std::min(text_.find('\n', i), text_.size());
            int marked = 0;
            const auto read = std::from_chars(text_.data() + i + 2, text_.data() + end, marked);
            if (read.ec == std::errc()) line = marked - 1;
            i = end;
        } else {
            const auto [end, kind] = token_end(text_, i);
            tokens_.push_back({kind, std::string_view(text_).substr(i, end - i), i, end, line, 0});
            line_begins = false;
            i = end;
        }
    }
}

void Source::match_brackets() {
    constexpr std::string_view open = "([{", close = ")]}";
    std::vector<std::size_t> stack;
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
        if (tokens_[i].kind != TokenKind::mark || tokens_[i].text.size() != 1) continue;
        const char mark = tokens_[i].text[0];
        if (open.find(mark) != open.npos) stack.push_back(i);
        if (close.find(mark) == close.npos) continue;
        if (stack.empty() || close[open.find(tokens_[stack.back()].text[0])] != mark) {
            throw CompileError(tokens_[i].line, "'" + std::string(1, mark) + "' closes nothing");
        }
        tokens_[i].match = stack.back();
        tokens_[stack.back()].match = i;
        stack.pop_back();
    }
    if (!stack.empty()) {
        throw CompileError(tokens_[stack.back()].line,
                           "'" + std::string(tokens_[stack.back()].text) + "' is never closed");
    }
}

bool Source::attribute_begins(std::size_t i) const {
    return is(i, "[") && is(i + 1, "[") && (*this)[i + 2].kind == TokenKind::word;
}

std::size_t Source::skip_angles(std::size_t i) const {
    int depth = 0;
    for (std::size_t j = i; j < tokens_.size(); ++j) {
        if (is(j, "<")) ++depth;
        if (is(j, ">") && --depth == 0) return j + 1;
        if (is(j, ";") || is(j, "{")) break;
        if (is(j, "(") || is(j, "[")) j = tokens_[j].match;
    }
    return i + 1;
}

std::string Source::join(std::size_t begin, std::size_t end) const {
    std::string joined;
    for (std::size_t i = begin; i < end; ++i) joined.append(i > begin ? " " : "").append((*this)[i].text);
    return joined;
}

std::vector<std::pair<std::size_t, std::size_t>> Source::split(std::size_t begin, std::size_t end) const {
    std::vector<std::pair<std::size_t, std::size_t>> parts;
    std::size_t part = begin;
    for (std::size_t i = begin; i < end; ++i) {
        if (is(i, "(") || is(i, "[") || is(i, "{")) {
            i = tokens_[i].match;
        } else if (is(i, "<")) {
            i = skip_angles(i) - 1;
        } else if (is(i, ",")) {
            parts.emplace_back(part, i);
            part = i + 1;
        }
    }
    if (part < end) parts.emplace_back(part, end);
    return parts;
}

void Source::find_declarations(std::size_t begin, std::size_t end, const std::string& scope) {
    while (begin < end) begin = read_declaration(begin, end, scope);
}

// Reads one declaration; returns the token after it.
std::size_t Source::read_declaration(std::size_t begin, std::size_t end, const std::string& scope) {
    if (is(begin, ";")) return begin + 1;
    if (is(begin, "namespace")) {
        std::size_t open = begin + 1;
        while (open < end && !is(open, "{") && !is(open, ";")) ++open;
        if (is(open, "{")) {
            const std::string name = open > begin + 1 ? join(begin + 1, open) + "::" : "";
            find_declarations(open + 1, tokens_[open].match, scope + name);
            return tokens_[open].match + 1;
        }
    }
    Declaration declaration;
    declaration.begin = begin;
    declaration.scope = scope;
    bool assigned = false;
    std::size_t i = begin;
    for (; i < end && !is(i, ";"); ++i) {
        if (is(i, "=")) assigned = true;
        if (is(i, "template") && is(i + 1, "<")) i = skip_angles(i + 1) - 1;
        if (is(i, "struct") || is(i, "class") || is(i, "union") || is(i, "enum"))
            declaration.kind = DeclarationKind::type;
        if (is(i, "(") && !assigned && declaration.kind == DeclarationKind::other && declaration.parameters == 0 &&
            !is(i - 1, "alignas")) {
            declaration.kind = DeclarationKind::function;
            declaration.parameters = i;
        }
        if (is(i, "{") && declaration.kind == DeclarationKind::function) {
            declaration.body = i;
            i = tokens_[i].match;
            break;
        }
        if (is(i, "(") || is(i, "[") || is(i, "{")) i = tokens_[i].match;
    }
    declaration.end = std::min(i + 1, end);
    if (declaration.kind == DeclarationKind::function) describe_function(declaration);
    declarations_.push_back(declaration);
    return declaration.end;
}

// The name is the word before the parameters or, in an instantiation, before the template arguments in front of them.
void Source::describe_function(Declaration& declaration) const {
    std::size_t name = declaration.parameters - 1;
    if (is(name, ">")) {
        int depth = 0;
        for (; name > declaration.begin; --name) {
            if (is(name, ">")) ++depth;
            if (is(name, "<") && --depth == 0) break;
        }
        --name;
    }
    declaration.name = name;
}

}  // namespace metal_sim::msl
