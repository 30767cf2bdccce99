// Compiles loop IR kernels to machine code of this machine with LLVM, and keeps what was compiled.
// The only face of LLVM: no other header of the project includes it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "loopir/kernel.h"
#include "topstitch/device.h"

namespace topstitch::cpu {

// buffers: one pointer for each parameter that is not local. sizes: one for each of size_params.
// scratch: CompiledKernel::scratch_bytes(sizes) bytes, 64-byte aligned, one piece for each thread.
// begin, end: the iterations of the parallel loop to run; for a kernel without one, (0, 1).
using KernelFunction = void (*)(void* const* buffers, const std::int64_t* sizes, void* scratch, std::int64_t begin,
                                std::int64_t end);

class CompiledKernel {
public:
    virtual ~CompiledKernel() = default;
    virtual KernelFunction function() const = 0;
    // Bytes of scratch for each thread, given the size arguments.
    virtual std::int64_t scratch_bytes(std::span<const std::int64_t> sizes) const = 0;
    // Chunks of the parallel loop start at multiples of this (its vector step), 1 without vectors.
    virtual std::int64_t granularity() const = 0;
    virtual double compile_milliseconds() const = 0;
    virtual std::string assembly() const = 0;  // disassembled on request
    virtual std::string llvm_ir() const = 0;
};

// What the machine can do; the schedule is chosen from it.
struct TargetInfo {
    std::string cpu;  // LLVM's name
    std::string features;
    int vector_bytes = 16;
    int vector_registers = 16;
    bool fma = false;
    bool int16_pairs = false;     // instructions multiply pairs of factors and add them up: to int32
    bool bfloat16_pairs = false;  // to float32
    bool matrix_unit = false;     // of bfloat16 numbers, to float32, and bytes, to int32
    bool fuse = true;             // multiply-adds of the program are rounded once, where there is an instruction for it
    int optimization_level = 1;   // 0: quick to compile
    std::int64_t l1_bytes = 32 << 10;
    std::int64_t l2_bytes = 512 << 10;
    std::int64_t l3_bytes = 8 << 20;
};
const TargetInfo& host_target();
// A named target for tests, for instance "x86-64" (SSE2) or "x86-64-v3"; UserError when unknown or not runnable here.
TargetInfo target_named(const std::string& cpu);

// What a call had to do: kernels that it compiled, and that it read from disk.
struct CompileCounts {
    int compiled = 0;
    int from_disk = 0;
};

// Compiles the kernels (on several threads), sharing equal ones within the call, with earlier calls, and through the
// disk cache with other processes.
// Kernels come scheduled and with math unexpanded. Thread-safe.
std::vector<std::shared_ptr<const CompiledKernel>> compile(std::span<const loopir::Kernel> kernels,
                                                           const TargetInfo& target, CompileCounts* counts = nullptr);

KernelCacheStats kernel_cache_stats();

}  // namespace topstitch::cpu
