// The linter's rules of declarations: address spaces, what may stand at program scope, kernels and who calls whom.
// See lint.h.
#include <algorithm>
#include <map>
#include <set>

#include "grid/abi.h"
#include "msl/lint.h"

namespace metal_sim::msl {

namespace {

using std::string_view;

constexpr std::array<string_view, 17> scalar_types{"bool", "char",   "uchar",     "short",    "ushort", "int",
                                                   "uint", "long",   "ulong",     "half",     "bfloat", "float",
                                                   "void", "size_t", "ptrdiff_t", "unsigned", "signed"};

constexpr std::array<string_view, 6> other_attributes{"kernel",       "host_name", "max_total_threads_per_threadgroup",
                                                      "maybe_unused", "unroll",    "function_constant"};

void check_attributes(const Source& source) {
    const auto in = [](const auto& names, string_view name) {
        return std::find(names.begin(), names.end(), name) != names.end();
    };
    for (std::size_t i = 0; i < source.size(); ++i) {
        if (!source.attribute_begins(i)) continue;
        for (const Attribute& attribute : attributes_at(source, i)) {
            if (!in(other_attributes, attribute.name) && !in(parameter_kinds, attribute.name)) {
                throw CompileError(source[i].line, "unknown attribute '" + std::string(attribute.name) + "'");
            }
        }
    }
}

bool is_scalar_type(string_view word) {
    return std::find(scalar_types.begin(), scalar_types.end(), word) != scalar_types.end();
}

bool is_address_space(string_view word) {
    return word == "device" || word == "constant" || word == "threadgroup" || word == "thread";
}

// All words of the source that name types: those of MSL, and those that it declares itself.
std::set<string_view> type_names(const Source& source) {
    std::set<string_view> names{"vec",
                                "atomic",
                                "atomic_int",
                                "atomic_uint",
                                "atomic_bool",
                                "atomic_float",
                                "simdgroup_matrix",
                                "simdgroup_float8x8",
                                "simdgroup_half8x8",
                                "simdgroup_bfloat8x8",
                                "uint8_t",
                                "int8_t",
                                "uint16_t",
                                "int16_t",
                                "uint32_t",
                                "int32_t",
                                "uint64_t",
                                "int64_t",
                                "array"};
    names.insert(scalar_types.begin(), scalar_types.end());
    for (std::size_t i = 0; i < source.size(); ++i) {
        const string_view text = source[i].text;
        if (text == "struct" || text == "typename" || text == "class" || text == "using" || text == "enum" ||
            text == "union") {
            names.insert(source[i + 1].text);
        }
        if (text == "typedef") {
            std::size_t end = i;
            while (end < source.size() && !source.is(end, ";")) ++end;
            names.insert(source[end - 1].text);
        }
    }
    return names;
}

bool names_type(const std::set<string_view>& types, string_view word) {
    const string_view base = word.substr(0, 7) == "packed_" ? word.substr(7) : word;
    return is_vector_type(base) || types.count(word) > 0;
}

// If the > at token i closes template arguments of a type, the token of its name; else i.
std::size_t template_name(const Source& source, const std::set<string_view>& types, std::size_t i) {
    int depth = 0;
    for (std::size_t j = i; j > 0; --j) {
        if (source.is(j, ">")) ++depth;
        if (source.is(j, "<") && --depth == 0) return names_type(types, source[j - 1].text) ? j - 1 : i;
        if (source.is(j, ";") || source.is(j, "{")) break;
    }
    return i;
}

// Every pointer and reference says in which address space what it points to lies.
void check_pointers(const Source& source) {
    const auto types = type_names(source);
    for (std::size_t i = 1; i < source.size(); ++i) {
        if (!source.is(i, "*") && !source.is(i, "&")) continue;
        bool spelled = false;
        std::size_t type = i - 1;
        while (type > 0 &&
               (source.is(type, "const") || source.is(type, "volatile") || is_address_space(source[type].text))) {
            spelled = spelled || is_address_space(source[type].text);
            --type;
        }
        if (source.is(type, ">")) type = template_name(source, types, type);
        if (!names_type(types, source[type].text)) continue;  // a product, or an "and"
        const auto qualifies = [&](string_view word) {
            return names_type(types, word) || is_address_space(word) || word == "const" || word == "volatile" ||
                   word == "metal" || word == "::" || word == "static" || word == "inline" || word == "constexpr";
        };
        for (std::size_t j = type; j-- > 0 && qualifies(source[j].text);)
            spelled = spelled || is_address_space(source[j].text);
        if (!spelled) {
            throw CompileError(source[i].line, "pointer or reference type '" + source.join(type, i + 1) +
                                                   "' needs an address space: device, constant, threadgroup or thread");
        }
    }
}

// A variable at program scope lies in constant memory.
void check_program_scope(const Source& source) {
    for (const Declaration& declaration : source.declarations()) {
        if (declaration.kind != DeclarationKind::other) continue;
        bool allowed = false;
        for (std::size_t i = declaration.begin; i < declaration.end && !source.is(i, "="); ++i) {
            const string_view text = source[i].text;
            allowed = allowed || text == "constant" || text == "using" || text == "typedef" || text == "static_assert";
        }
        if (!allowed) {
            throw CompileError(source[declaration.begin].line,
                               "program scope variable must reside in constant address space");
        }
    }
}

void check_static_locals(const Source& source) {
    for (const Declaration& function : source.declarations()) {
        if (function.body == 0) continue;
        for (std::size_t i = function.body; i < function.end; ++i) {
            if (source.is(i, "static") && !source.is(i + 1, "constant") && !source.is(i + 1, "constexpr")) {
                throw CompileError(source[i].line, "a static variable in a function must be constant");
            }
            const bool statement = source.is(i - 1, ";") || source.is(i - 1, "{") || source.is(i - 1, "}");
            const string_view text = source[i].text;
            if (statement && (text == "device" || text == "constant")) {
                std::size_t end = i;
                bool pointer = false;
                for (; !source.is(end, ";") && !source.is(end, "=") && end < function.end; ++end) {
                    pointer = pointer || source.is(end, "*") || source.is(end, "&");
                }
                if (!pointer) {
                    throw CompileError(source[i].line, "a variable in a function cannot be in the address space '" +
                                                           std::string(text) + "'");
                }
            }
            if (statement && text.substr(0, 7) == "atomic_" && source[i + 1].kind == TokenKind::word) {
                throw CompileError(source[i].line, "an atomic variable must be in device or threadgroup memory");
            }
        }
    }
}

// float (*f)(float), and the type float (*)(float).
void check_function_pointers(const Source& source) {
    for (std::size_t i = 1; i + 2 < source.size(); ++i) {
        if (!source.is(i, "(") || !(source.is(i + 1, "*") || source.is(i + 1, "&"))) continue;
        const std::size_t close = source[i].match;
        const bool named = source[i + 2].kind == TokenKind::word && close == i + 3;
        const bool after_type = source[i - 1].kind == TokenKind::word || source.is(i - 1, "*") || source.is(i - 1, ">");
        if ((named || close == i + 2) && source.is(close + 1, "(") && after_type) {
            throw CompileError(source[i].line, "MSL has no pointers to functions");
        }
    }
}

void check_variadic_functions(const Source& source) {
    for (const Declaration& declaration : source.declarations()) {
        if (declaration.kind != DeclarationKind::function) continue;
        const std::size_t close = source[declaration.parameters].match;
        const bool dots = source.is(close - 1, ".") && source.is(close - 2, ".") && source.is(close - 3, ".");
        if (dots && (source.is(close - 4, ",") || source.is(close - 4, "("))) {
            throw CompileError(source[close].line, "MSL has no variadic functions");
        }
    }
}

// Who calls whom, by name. A name that is defined more than once is left out: its overloads may call each other.
void check_calls(const Source& source, const Scan& scan) {
    std::map<string_view, int> definitions;
    std::map<string_view, std::set<string_view>> calls;
    for (const Declaration& function : source.declarations()) {
        if (function.body != 0) ++definitions[source[function.name].text];
    }
    std::set<string_view> kernels;
    for (const Declaration* kernel : scan.kernel_definitions) kernels.insert(source[kernel->name].text);
    for (const Declaration& function : source.declarations()) {
        if (function.body == 0) continue;
        for (std::size_t i = function.body; i < function.end; ++i) {
            const string_view name = source[i].text;
            if (source[i].kind != TokenKind::word || !(source.is(i + 1, "(") || source.is(i + 1, "<"))) continue;
            if (source.is(i - 1, ".") || source.is(i - 1, "->")) continue;
            if (kernels.count(name) > 0) {
                throw CompileError(source[i].line, "kernel function '" + std::string(name) + "' cannot be called");
            }
            if (definitions.count(name) > 0) calls[source[function.name].text].insert(name);
        }
    }
    for (const Declaration& function : source.declarations()) {
        if (function.body == 0 || definitions[source[function.name].text] > 1) continue;
        const string_view start = source[function.name].text;
        std::set<string_view> reached;
        std::vector<string_view> open(calls[start].begin(), calls[start].end());
        while (!open.empty()) {
            const string_view name = open.back();
            open.pop_back();
            if (definitions[name] > 1 || !reached.insert(name).second) continue;
            open.insert(open.end(), calls[name].begin(), calls[name].end());
        }
        if (reached.count(start) > 0) {
            throw CompileError(source[function.name].line,
                               "function '" + std::string(start) + "' calls itself: MSL has no recursion");
        }
    }
}

// All positions and sizes of a grid in one kernel are scalars, or vectors of one length.
void check_grid_parameters(const Source& source, const Scan& scan) {
    for (const Declaration* kernel : scan.kernel_definitions) {
        char length = 0;
        const std::size_t open = kernel->parameters;
        for (const auto& [begin, end] : source.split(open + 1, source[open].match)) {
            for (std::size_t i = begin; i < end; ++i) {
                if (!source.attribute_begins(i)) continue;
                const auto kind = std::find(parameter_kinds.begin(), parameter_kinds.end(), source[i + 2].text) -
                                  parameter_kinds.begin();
                if (kind < msl_thread_position_in_grid || kind > msl_grid_origin) continue;
                const string_view type = source[source.is(begin, "const") ? begin + 1 : begin].text;
                const char last = type.back() >= '2' && type.back() <= '3' ? type.back() : '1';
                if (length != 0 && last != length) {
                    throw CompileError(source[i].line,
                                       "kernel '" + std::string(source[kernel->name].text) +
                                           "': positions and sizes of the grid must all be scalars, or all "
                                           "vectors of one length");
                }
                length = last;
            }
        }
    }
}

void check_kernel_results(const Source& source, const Scan& scan) {
    for (const Declaration* kernel : scan.kernel_definitions) {
        if (!source.is(kernel->name - 1, "void") && !source.attribute_begins(kernel->begin)) {
            throw CompileError(source[kernel->name].line,
                               "kernel '" + std::string(source[kernel->name].text) + "' must return void");
        }
    }
}

}  // namespace

bool is_vector_type(string_view word) {
    return word.size() > 1 && word.back() >= '2' && word.back() <= '4' &&
           is_scalar_type(word.substr(0, word.size() - 1));
}

void lint_declarations(const Source& source, const Scan& scan) {
    check_attributes(source);
    check_pointers(source);
    check_program_scope(source);
    check_static_locals(source);
    check_function_pointers(source);
    check_variadic_functions(source);
    check_kernel_results(source, scan);
    check_grid_parameters(source, scan);
    check_calls(source, scan);
}

}  // namespace metal_sim::msl
