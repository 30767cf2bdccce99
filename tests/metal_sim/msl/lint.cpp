// See lint.h: one function for each rule.
// Here are those of words and literals; those of declarations and of the call graph are in lint_declarations.cpp.
#include "msl/lint.h"

#include <algorithm>
#include <map>

namespace metal_sim::msl {

namespace {

using std::string_view;

// Words of C++ and of the compiler that MSL does not have.
const std::map<string_view, string_view>& absent_words() {
    static const std::map<string_view, string_view> words{
        {"double", "MSL has no double"},
        {"new", "MSL has no dynamic memory"},
        {"delete", "MSL has no dynamic memory"},
        {"try", "MSL has no exceptions"},
        {"catch", "MSL has no exceptions"},
        {"throw", "MSL has no exceptions"},
        {"noexcept", "MSL has no exceptions"},
        {"virtual", "MSL has no virtual functions"},
        {"goto", "MSL has no goto"},
        {"dynamic_cast", "MSL has no run-time type information"},
        {"typeid", "MSL has no run-time type information"},
        {"thread_local", "MSL has no thread_local"},
        {"asm", "MSL has no inline assembly"},
        {"__asm", "MSL has no inline assembly"},
        {"__asm__", "MSL has no inline assembly"},
        {"wchar_t", "MSL has no wide characters"},
        {"char16_t", "MSL has no wide characters"},
        {"char32_t", "MSL has no wide characters"},
        {"register", "MSL has no register variables"},
        {"mutable", "the simulation allows no mutable members"},
        {"friend", "the simulation allows no friends"},
        {"_Float16", "the type is called half"},
        {"__fp16", "the type is called half"},
        {"__bf16", "the type is called bfloat"},
        {"__int128", "MSL has no 128-bit integers"},
        {"__attribute__", "attributes are written [[...]]"},
        {"__declspec", "attributes are written [[...]]"},
        {"vertex", "only compute is simulated"},
        {"fragment", "only compute is simulated"},
        {"sampler", "textures are not simulated"},
        {"texture1d", "textures are not simulated"},
        {"texture2d", "textures are not simulated"},
        {"texture3d", "textures are not simulated"},
        {"texture_buffer", "textures are not simulated"},
        {"ray_data", "ray tracing is not simulated"},
        {"object_data", "only compute is simulated"},
    };
    return words;
}

// Names that only the simulation and its compiler have.
bool is_reserved(string_view word) {
    for (const string_view prefix : {"__builtin", "__msl", "msl_", "metal_sim", "__has_", "__is_"}) {
        if (word.substr(0, prefix.size()) == prefix) return true;
    }
    return false;
}

void check_words(const Source& source) {
    for (std::size_t i = 0; i < source.size(); ++i) {
        const Token& token = source[i];
        if (token.kind != TokenKind::word) continue;
        const auto absent = absent_words().find(token.text);
        if (absent != absent_words().end()) {
            throw CompileError(token.line, "'" + std::string(token.text) + "': " + std::string(absent->second));
        }
        if (is_reserved(token.text)) {
            throw CompileError(token.line, "'" + std::string(token.text) + "' is not a name of MSL");
        }
        if (token.text == "long" && (source.is(i + 1, "long") || source.is(i + 1, "double"))) {
            throw CompileError(token.line, "MSL has neither long long nor long double; long has 64 bits");
        }
    }
}

void check_literals(const Source& source) {
    for (std::size_t i = 0; i < source.size(); ++i) {
        const Token& token = source[i];
        if (token.kind == TokenKind::text && token.text.front() == '"' &&
            !(source.is(i - 1, "(") && source.is(i - 2, "host_name"))) {
            throw CompileError(token.line, "a string literal outside of host_name");
        }
        if (token.kind != TokenKind::number) continue;
        const string_view text = token.text;
        const bool hexadecimal = text.substr(0, 2) == "0x" || text.substr(0, 2) == "0X";
        const bool floating = text.find('.') != text.npos || (!hexadecimal && text.find_first_of("eE") != text.npos);
        const bool ends_in_l = text.back() == 'L' || text.back() == 'l';
        if (floating && ends_in_l)
            throw CompileError(token.line, "'" + std::string(text) + "': MSL has no long double");
        if (text.find("LL") != text.npos || text.find("ll") != text.npos) {
            throw CompileError(token.line, "'" + std::string(text) + "': MSL has no long long; long has 64 bits");
        }
        if (text.find('\'') != text.npos) throw CompileError(token.line, "a digit separator in a number");
    }
}

// [ begins a lambda where no subscript can stand: after a mark that ends no value, or after return.
void check_lambdas(const Source& source) {
    for (std::size_t i = 1; i < source.size(); ++i) {
        if (!source.is(i, "[") || source.attribute_begins(i) ||
            (source.is(i - 1, "[") && source.attribute_begins(i - 1)))
            continue;
        const Token& before = source[i - 1];
        const bool value = before.kind == TokenKind::word
                               ? before.text != "return" && before.text != "else"
                               : before.text == ")" || before.text == "]" || before.text == ">";
        const std::size_t after = source[i].match + 1;
        if (!value && (source.is(after, "(") || source.is(after, "{"))) {
            throw CompileError(source[i].line, "lambda expressions need MSL 4");
        }
    }
}

void check_version(const Source& source, int version) {
    for (std::size_t i = 0; i < source.size(); ++i) {
        const string_view text = source[i].text;
        if (version < 310 && (text == "bfloat" || text == "bfloat2" || text == "bfloat3" || text == "bfloat4" ||
                              text == "simdgroup_bfloat8x8")) {
            throw CompileError(source[i].line, "'" + std::string(text) + "' needs MSL 3.1");
        }
        if (version < 230 && text == "simdgroup_matrix") {
            throw CompileError(source[i].line, "'simdgroup_matrix' needs MSL 2.3");
        }
        if (version < 300 && text == "atomic_float") {
            throw CompileError(source[i].line, "'atomic_float' needs MSL 3.0");
        }
    }
}

}  // namespace

void lint_tokens(const Source& source, int version) {
    check_words(source);
    check_literals(source);
    check_lambdas(source);
    check_version(source, version);
}

}  // namespace metal_sim::msl
