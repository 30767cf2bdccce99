// See library.h: preprocess, scan, lint, rewrite, compile, load.
// A library that was compiled before is only loaded.
#include "msl/library.h"

#include <dlfcn.h>

#include <algorithm>
#include <stdexcept>

#include "msl/lint.h"
#include "msl/rewrite.h"
#include "msl/scan.h"
#include "msl/source.h"
#include "msl/toolchain.h"

namespace metal_sim::msl {

namespace {

// Headers were left as marks in the text; each becomes an #include of the library's real one.
std::string include_headers(std::string text) {
    constexpr std::string_view mark = "#pragma METAL_SIM_INCLUDE ";
    for (std::size_t at = text.find(mark); at != text.npos; at = text.find(mark, at)) {
        const std::size_t end = text.find('\n', at);
        const std::string name = text.substr(at + mark.size(), end - at - mark.size());
        text.replace(at, end - at, "#include <" + name + ">");
    }
    return text;
}

ConstantBytes constant_bytes(const CompileRequest& request) {
    ConstantBytes result;
    for (const auto& [index, bytes] : *request.constants) {
        std::string text;
        for (const unsigned char byte : bytes) text += std::to_string(byte) + ", ";
        result[index] = text;
    }
    return result;
}

std::string translate(const std::string& preprocessed, const CompileRequest& request) {
    const Source source(preprocessed);
    lint_tokens(source, request.version);
    const Scan scanned = scan(source);
    lint_declarations(source, scanned);
    if (!request.constants) return "#include \"msl/prelude.h\"\n" + include_headers(rewrite(source, scanned, nullptr));
    const ConstantBytes values = constant_bytes(request);
    return "#include \"msl/prelude.h\"\n" + include_headers(rewrite(source, scanned, &values));
}

KernelInfo read_kernel(const msl_kernel& kernel, const std::map<unsigned, unsigned>& variable_bytes) {
    KernelInfo info;
    info.name = kernel.name;
    info.entry = kernel.entry;
    info.parameters.assign(kernel.parameters, kernel.parameters + kernel.parameter_count);
    info.max_threads = kernel.max_threads;
    for (unsigned i = 0; i < kernel.threadgroup_variable_count; ++i) {
        const unsigned id = kernel.threadgroup_variables[i];
        if (const auto found = variable_bytes.find(id); found != variable_bytes.end())
            info.variables.push_back({id, found->second});
    }
    return info;
}

// Kernels call into the simulation, which a host such as Python may have loaded for itself alone.
void show_own_symbols() {
    Dl_info own;
    if (dladdr(reinterpret_cast<const void*>(&show_own_symbols), &own) != 0 && own.dli_fname != nullptr)
        dlopen(own.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
}

std::shared_ptr<Library> load(const std::string& path) {
    static const bool shown = (show_own_symbols(), true);
    (void)shown;
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) throw std::runtime_error(std::string("[metal_sim] ") + dlerror());
    auto library = std::make_shared<Library>();
    // A variable of a kernel template has one entry for each instance; the largest counts.
    std::map<unsigned, unsigned> variable_bytes;
    const auto* sizes = static_cast<const msl_threadgroup_variable_size* const*>(dlsym(handle, "msl_variable_sizes"));
    for (auto* size = sizes[0]; size != sizes[1]; ++size)
        variable_bytes[size->id] = std::max(variable_bytes[size->id], size->bytes);
    for (auto* kernel = static_cast<const msl_kernel*>(dlsym(handle, "msl_kernels")); kernel && kernel->name;
         ++kernel) {
        library->kernels.push_back(read_kernel(*kernel, variable_bytes));
    }
    for (auto* constant = static_cast<const msl_constant*>(dlsym(handle, "msl_constants")); constant && constant->name;
         ++constant) {
        library->constants.push_back({constant->name, constant->type, constant->index, constant->required != 0});
    }
    return library;
}

}  // namespace

std::size_t KernelInfo::threadgroup_bytes() const {
    std::size_t bytes = 0;
    for (const ThreadgroupVariable& variable : variables) bytes += (variable.bytes + 15) / 16 * 16;
    return bytes;
}

const KernelInfo* Library::find(const std::string& name) const {
    const auto found =
        std::find_if(kernels.begin(), kernels.end(), [&](const KernelInfo& kernel) { return kernel.name == name; });
    return found == kernels.end() ? nullptr : &*found;
}

CompileResult compile(const CompileRequest& request) noexcept {
    try {
        const Workplace workplace(request);
        const bool cached = workplace.is_cached();
        if (!cached) workplace.build(translate(workplace.preprocess(request), request), request);
        const auto library = load(workplace.shared_object());
        library->from_cache = cached;
        library->identity = workplace.shared_object();
        return {library, ""};
    } catch (const std::exception& error) { return {nullptr, error.what()}; }
}

}  // namespace metal_sim::msl
