// Compiles MSL and loads the result: what MTLLibrary and MTLFunction are made of.
// No exception leaves these functions: Objective-C++ with GCC's run-time library cannot catch them by type.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "grid/abi.h"
#include "grid/grid.h"

namespace metal_sim::msl {

struct CompileRequest {
    std::string source;
    std::map<std::string, std::string> macros;
    bool fast_math = true;
    int version = 310;  // of the language: 100 * major + 10 * minor
    std::optional<std::map<unsigned, std::vector<unsigned char>>> constants;  // of a specialised function
};

struct ConstantInfo {
    std::string name, type;
    unsigned index = 0;
    bool required = false;
};

struct KernelInfo {
    std::string name;
    msl_entry entry = nullptr;
    std::vector<msl_parameter> parameters;
    unsigned max_threads = 0;  // 0 when the kernel does not say
    std::vector<ThreadgroupVariable> variables;

    std::size_t threadgroup_bytes() const;  // of the variables together
};

// Lives as long as the process: code that may run is never unloaded.
struct Library {
    std::vector<KernelInfo> kernels;
    std::vector<ConstantInfo> constants;
    bool from_cache = false;
    std::string identity;  // the same for the same source and options, in each process

    const KernelInfo* find(const std::string& name) const;
};

struct CompileResult {
    std::shared_ptr<const Library> library;  // null on failure
    std::string log;                         // then says why
};

CompileResult compile(const CompileRequest& request) noexcept;

}  // namespace metal_sim::msl
