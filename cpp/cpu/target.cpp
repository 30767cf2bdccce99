// What the machine can do: LLVM's host detection, named targets for tests, and the sizes of the caches.
// A named target must be runnable here, since its code will be.
#include "cpu/target.h"

#include <llvm/MC/MCSubtargetInfo.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/TargetParser/Host.h>
#include <llvm/TargetParser/Triple.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <mutex>

#if defined(__APPLE__)
#include <sys/sysctl.h>
#elif defined(__linux__) && defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "core/settings.h"
#include "topstitch/error.h"

namespace topstitch::cpu {

namespace {

#if defined(__linux__)
std::string read_word(const std::string& path) {
    std::ifstream file(path);
    std::string word;
    file >> word;
    return word;
}
#endif

// Bytes of the data or unified cache of `level`, or `fallback` when the system does not say.
std::int64_t cache_bytes(int level, std::int64_t fallback) {
#if defined(__linux__)
    for (int index = 0; index < 8; ++index) {
        const std::string folder = concat("/sys/devices/system/cpu/cpu0/cache/index", index, "/");
        const std::string found = read_word(folder + "level");
        if (found.empty()) break;
        if (found != concat(level) || read_word(folder + "type") == "Instruction") continue;
        const std::string size = read_word(folder + "size");  // "32K"
        std::int64_t bytes = 0;
        std::size_t i = 0;
        for (; i < size.size() && std::isdigit(static_cast<unsigned char>(size[i])); ++i)
            bytes = 10 * bytes + (size[i] - '0');
        if (i < size.size() && size[i] == 'K') bytes <<= 10;
        if (i < size.size() && size[i] == 'M') bytes <<= 20;
        if (bytes > 0) return bytes;
    }
#elif defined(__APPLE__)
    const char* names[] = {"hw.perflevel0.l1dcachesize", "hw.perflevel0.l2cachesize", "hw.l3cachesize"};
    std::int64_t bytes = 0;
    std::size_t size = sizeof bytes;
    if (sysctlbyname(names[level - 1], &bytes, &size, nullptr, 0) == 0 && bytes > 0) return bytes;
#endif
    return fallback;
}

// Whether this process may use the matrix unit: Linux wants to be asked, since its registers take 8 KiB in each saved
// state. It says no where a signal stack is too small for them.
bool matrix_unit_allowed() {
#if defined(__linux__) && defined(__x86_64__)
    constexpr long request_permission = 0x1023;  // ARCH_REQ_XCOMP_PERM
    constexpr long tile_data = 18;
    return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
#else
    return false;
#endif
}

const llvm::Target& native_target() {
    static const llvm::Target* const target = [] {
        llvm::InitializeNativeTarget();
        llvm::InitializeNativeTargetAsmPrinter();
        std::string error;
        const llvm::Target* found = llvm::TargetRegistry::lookupTarget(native_triple(), error);
        if (found == nullptr) throw InternalError(concat("LLVM: no code generator for this machine: ", error));
        return found;
    }();
    return *target;
}

std::unique_ptr<llvm::MCSubtargetInfo> subtarget(const std::string& cpu, const std::string& features) {
    std::unique_ptr<llvm::MCSubtargetInfo> info(native_target().createMCSubtargetInfo(native_triple(), cpu, features));
    if (info == nullptr) throw InternalError(concat("LLVM: no description of the CPU '", cpu, "'"));
    return info;
}

// Fills in what follows from the CPU's name and features.
TargetInfo describe(const std::string& cpu, const std::string& features) {
    TargetInfo target;
    target.cpu = cpu;
    target.features = features;
    const auto info = subtarget(cpu, features);
    const auto has = [&](const char* feature) { return info->checkFeatures(concat("+", feature)); };
    if (native_triple().isX86()) {
        // All of the server subset, or none: its pieces alone make 512-bit code slower, not faster.
        const bool avx512 = has("avx512f") && has("avx512bw") && has("avx512dq") && has("avx512vl");
        target.vector_bytes = avx512 ? 64 : has("avx2") ? 32 : 16;
        target.vector_registers = avx512 ? 32 : 16;
        target.fma = has("fma") || avx512;
        target.int16_pairs = true;  // since SSE2
        target.matrix_unit = avx512 && has("amx-tile") && has("amx-bf16") && has("amx-int8") && matrix_unit_allowed();
        // Where Intel has the instruction, it takes twice as long as the float32 multiply-adds that it replaces.
        target.bfloat16_pairs = avx512 && has("avx512bf16") && cpu.starts_with("znver");
    } else {
        target.vector_bytes = 16;
        target.vector_registers = 32;
        target.fma = true;
    }
    target.l1_bytes = cache_bytes(1, target.l1_bytes);
    target.l2_bytes = cache_bytes(2, target.l2_bytes);
    target.l3_bytes = cache_bytes(3, target.l3_bytes);
    return target;
}

// The features by which this machine differs from what its CPU's name implies (a virtual machine may hide some).
// Kept short: LLVM hashes the text over and over while it generates code.
std::string unusual_features(const std::string& cpu) {
    const auto here = llvm::sys::getHostCPUFeatures();
    const auto implied = subtarget(cpu, "");
    std::vector<std::string> parts;
    for (const auto& feature : here) {
        const std::string name = feature.first().str();
        if (implied->checkFeatures("+" + name) != feature.second) parts.push_back((feature.second ? "+" : "-") + name);
    }
    std::sort(parts.begin(), parts.end());  // equal machines, equal text
    std::string features;
    for (const std::string& part : parts) features += (features.empty() ? "" : ",") + part;
    return features;
}

TargetInfo detect_host() {
    const std::string cpu = llvm::sys::getHostCPUName().str();
    return describe(cpu, unusual_features(cpu));
}

const TargetInfo& detected_host() {
    static const TargetInfo target = detect_host();
    return target;
}

}  // namespace

const llvm::Target& llvm_target() {
    return native_target();
}

const llvm::Triple& native_triple() {
    static const llvm::Triple triple(llvm::sys::getProcessTriple());
    return triple;
}

TargetFeatures features_of(const TargetInfo& target) {
    const auto info = subtarget(target.cpu, target.features);
    const auto has = [&](const char* feature) { return info->checkFeatures(concat("+", feature)); };
    TargetFeatures features;
    features.int16_pairs = target.int16_pairs;
    features.bfloat16_pairs = target.bfloat16_pairs;
    features.vector_lanes = static_cast<unsigned>(target.vector_bytes) / 4;
    if (native_triple().isX86()) {
        features.rounding = has("sse4.1");
        features.half = has("f16c");
        features.masked_words = has("avx2");
        features.masked_bytes = has("avx512bw") && has("avx512vl");
        features.matrix_unit = has("amx-tile") && has("amx-bf16") && has("amx-int8");
        features.x86 = true;
    } else {
        features.rounding = true;
        features.half = true;
    }
    return features;
}

TargetInfo described_target(const std::string& cpu) {
    // Asking about an unknown name would make LLVM print a complaint.
    const auto info = subtarget("", "");
    if (!info->isCPUStringValid(cpu)) {
        throw UserError(concat("target: '", cpu, "' is not a CPU that LLVM knows for ",
                               native_triple().getArchName().str(), "; use a name such as ",
                               native_triple().isX86() ? "x86-64-v3" : "generic",
                               ", or leave it empty for this machine (", detected_host().cpu, ")"));
    }
    return describe(cpu, "");
}

TargetInfo target_named(const std::string& cpu) {
    if (cpu == detected_host().cpu) return detected_host();
    TargetInfo target = described_target(cpu);
    const auto here = llvm::sys::getHostCPUFeatures();
    for (const llvm::SubtargetFeatureKV* feature : subtarget(cpu, "")->getEnabledProcessorFeatures()) {
        const auto found = here.find(feature->key());
        if (found != here.end() && !found->second) {
            throw UserError(concat("target: '", cpu, "' needs ", feature->key(), ", which this machine (",
                                   detected_host().cpu, ") does not have; choose a smaller target"));
        }
    }
    return target;
}

const TargetInfo& host_target() {
    static const TargetInfo target = [] {
        const std::string chosen = setting(Setting::target_cpu);
        return chosen.empty() ? detected_host() : target_named(chosen);
    }();
    return target;
}

}  // namespace topstitch::cpu
