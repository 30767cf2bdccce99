// What the rest needs to know of an MSL source: its kernels, function constants and threadgroup variables.
// Found in its tokens; whatever has to do with types is left to the C++ compiler.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "msl/source.h"

namespace metal_sim::msl {

// The attributes of kernel parameters that the simulation knows, in the order of msl_kind.
constexpr std::array<std::string_view, 17> parameter_kinds{
    "buffer",
    "threadgroup",
    "thread_position_in_grid",
    "threads_per_grid",
    "thread_position_in_threadgroup",
    "threads_per_threadgroup",
    "threadgroup_position_in_grid",
    "threadgroups_per_grid",
    "dispatch_threads_per_threadgroup",
    "grid_origin",
    "thread_index_in_threadgroup",
    "thread_index_in_simdgroup",
    "simdgroup_index_in_threadgroup",
    "simdgroups_per_threadgroup",
    "dispatch_simdgroups_per_threadgroup",
    "threads_per_simdgroup",
    "thread_execution_width",
};

struct Parameter {
    unsigned kind = 0;   // msl_kind
    unsigned index = 0;  // of buffer and threadgroup
};

// One entry of an attribute list: [[name(argument)]].
struct Attribute {
    std::string_view name;
    std::string argument;  // as written
    std::size_t token = 0;
};

struct Kernel {
    std::string name;        // by which it is found in the library
    std::string expression;  // the function, or the instance of a template
    const Declaration* definition = nullptr;
    std::vector<Parameter> parameters;
    std::string max_threads = "0";
};

struct FunctionConstant {
    std::string name, type;
    unsigned index = 0;
    std::size_t attribute = 0, after = 0;  // tokens: its [[ and what follows ]]
    bool required = true;                  // unless the source asks is_function_constant_defined
};

// threadgroup T name[n]; in a function.
struct VariableDeclaration {
    std::size_t begin = 0, end = 0;  // tokens of the declaration, with its ;
    const Declaration* function = nullptr;
    struct Declarator {
        unsigned id = 0;
        std::string name, type;  // type with its array bounds
    };
    std::vector<Declarator> declarators;
};

struct Scan {
    std::vector<Kernel> kernels;
    std::vector<FunctionConstant> constants;
    std::vector<VariableDeclaration> variables;
    std::vector<const Declaration*> kernel_definitions;  // templates too
};

// CompileError when an attribute, a kernel's parameters or a declaration break a rule.
Scan scan(const Source& source);

std::vector<Attribute> attributes_at(const Source& source, std::size_t i);
// Whether a declaration is that of a kernel: `kernel` or [[kernel]] before its name.
bool is_kernel(const Source& source, const Declaration& declaration);

}  // namespace metal_sim::msl
