// See toolchain.h.
// The flags make C++ behave as MSL does: 1.0 is a float, half is not computed in float, nothing of the host is
// included.
#include "msl/toolchain.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "metal_sim/control.h"

extern char** environ;

namespace metal_sim::msl {

namespace {

namespace fs = std::filesystem;

std::string read_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

void write_file(const std::string& path, const std::string& text) {
    std::ofstream file(path, std::ios::binary);
    file << text;
    if (!file.flush()) throw std::runtime_error("[metal_sim] cannot write " + path);
}

// Runs a command with its messages going to `log`; returns the exit status.
int run(const std::vector<std::string>& command, const std::string& log) {
    std::vector<char*> arguments;
    for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, log.c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600);
    pid_t child = 0;
    const int failed = posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    if (failed)
        throw std::runtime_error("[metal_sim] cannot run " + command[0] +
                                 "; METAL_SIM_COMPILER names a clang++ of version 19 or later");
    int status = 0;
    while (waitpid(child, &status, 0) < 0) {}
    return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

// FNV-1a, from two starting values.
std::string hash_text(const std::string& text) {
    char digits[40];
    std::uint64_t a = 14695981039346656037u, b = 0x9e3779b97f4a7c15u;
    for (const char c : text) {
        a = (a ^ static_cast<unsigned char>(c)) * 1099511628211u;
        b = (b ^ static_cast<unsigned char>(c)) * 1099511628211u;
    }
    std::snprintf(digits, sizeof digits, "%016lx%016lx", static_cast<unsigned long>(a), static_cast<unsigned long>(b));
    return digits;
}

// What kernels include, and when this library was built, so that a change of either compiles anew.
const std::string& translation_hash() {
    static const std::string hash = [] {
        std::vector<std::string> paths{METAL_SIM_ROOT "/grid/abi.h"};
        for (const auto& entry : fs::recursive_directory_iterator(METAL_SIM_ROOT "/shim")) {
            if (entry.is_regular_file()) paths.push_back(entry.path().string());
        }
        std::sort(paths.begin(), paths.end());
        std::string text;
        for (const std::string& path : paths) text += read_file(path);
        Dl_info self{};
        if (dladdr(reinterpret_cast<const void*>(&hash_text), &self) != 0) {
            text += std::to_string(fs::last_write_time(self.dli_fname).time_since_epoch().count());
        }
        return hash_text(text);
    }();
    return hash;
}

std::string key_text(const CompileRequest& request) {
    std::string key = translation_hash() + settings().compiler + (request.fast_math ? " fast " : " exact ") +
                      std::to_string(request.version) + '\n';
    for (const auto& [name, value] : request.macros) key += name + '=' + value + '\n';
    if (request.constants) {
        for (const auto& [index, bytes] : *request.constants) {
            key += std::to_string(index) + ':' + std::string(bytes.begin(), bytes.end()) + '\n';
        }
        key += "specialised\n";
    }
    return key + request.source;
}

}  // namespace

Workplace::Workplace(const CompileRequest& request) {
    static std::atomic<int> count{0};
    const std::string folder = settings().cache_folder;
    fs::create_directories(folder);
    chmod(folder.c_str(), 0700);
    const std::string base = folder + '/' + hash_text(key_text(request));
    shared_object_ = base + ".so";
    scratch_ = base + '-' + std::to_string(getpid()) + '-' + std::to_string(count++);
}

Workplace::~Workplace() {
    for (const char* suffix : {".metal", ".i", ".cpp", ".so", ".log"}) std::remove(file(suffix).c_str());
}

bool Workplace::is_cached() const {
    return access(shared_object_.c_str(), R_OK) == 0;
}

std::string Workplace::preprocess(const CompileRequest& request) const {
    write_file(file(".metal"), "#line 1 \"program_source\"\n" + request.source);
    std::vector<std::string> command{settings().compiler, "-x", "c++", "-std=c++14", "-E", "-nostdinc", "-undef"};
    command.insert(command.end(),
                   {"-I" METAL_SIM_ROOT "/shim", "-DMETAL_SIM_SCAN", "-D__METAL__=1", "-D__METAL_MACOS__=1"});
    command.push_back("-D__METAL_VERSION__=" + std::to_string(request.version));
    for (const auto& [name, value] : request.macros) command.push_back("-D" + name + '=' + value);
    command.insert(command.end(), {file(".metal"), "-o", file(".i")});
    const int status = run(command, file(".log"));
    const std::string text = read_file(file(".i")), log = read_file(file(".log"));
    if (status != 0) throw std::runtime_error(log);
    return text;
}

void Workplace::build(const std::string& text, const CompileRequest& request) const {
    write_file(file(".cpp"), text);
    std::vector<std::string> command{
        settings().compiler, "-x", "c++", "-std=c++14", "-O1", "-fPIC", "-shared", "-nostdlib", "-nostdinc",
        "-nostdinc++", "-fno-exceptions", "-fno-rtti", "-fvisibility=hidden", "-fno-crash-diagnostics",
        "-fno-math-errno", "-ffp-contract=on",
        // MSL's floating-point literals and 16-bit arithmetic
        "-Xclang", "-cl-single-precision-constant", "-Xclang", "-ffloat16-excess-precision=none", "-Xclang",
        "-fbfloat16-excess-precision=none",
        // what is undefined in a kernel ends the grid with an error
        "-fsanitize=bounds,integer-divide-by-zero,signed-integer-overflow,shift-exponent", "-fsanitize-recover=all",
        // of the compiler's warnings, those that a kernel must not have
        "-Wno-everything", "-Werror=return-type", "-Werror=vla-extension", "-Werror=c++17-extensions",
        "-Werror=return-stack-address", "-Werror=uninitialized", "-Werror=array-bounds", "-I" METAL_SIM_ROOT "/shim",
        "-I" METAL_SIM_ROOT};
    if (request.fast_math) command.insert(command.end(), {"-ffast-math", "-fhonor-nans", "-fhonor-infinities"});
    command.insert(command.end(), {file(".cpp"), "-lgcc", "-o", file(".so")});  // libgcc converts half
    const int status = run(command, file(".log"));
    const std::string log = read_file(file(".log"));
    if (status != 0) throw std::runtime_error(log);
    fs::rename(file(".so"), shared_object_);
}

}  // namespace metal_sim::msl
