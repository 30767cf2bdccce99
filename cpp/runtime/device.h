// The device interface: what a back end does for the runtime.
// Compile kernels, launch one; memory is the host's here (the CPU, and Metal's unified memory).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "loopir/kernel.h"
#include "stitch/schedule.h"
#include "topstitch/device.h"

namespace topstitch {

// How one launch is spread over threads.
struct LaunchShape {
    std::int64_t parallel_extent = 1;
    int threads = 1;
    void* scratch = nullptr;          // threads pieces
    std::int64_t scratch_stride = 0;  // bytes between the pieces, a multiple of 64
};

class DeviceKernel {
public:
    virtual ~DeviceKernel() = default;
    virtual void launch(void* const* buffers, const std::int64_t* sizes, const LaunchShape& shape) const = 0;
    virtual std::int64_t scratch_bytes(std::span<const std::int64_t> sizes) const = 0;
    virtual std::string source(const std::string& kind) const = 0;  // UserError for a kind the device has not
    virtual double compile_milliseconds() const = 0;                // what it took when it was made
};

// How kernels are to be compiled; part of what they are found by.
struct KernelOptions {
    int optimization_level = 1;
    bool fused_multiply_add = true;
};

class DeviceBackend {
public:
    virtual ~DeviceBackend() = default;
    virtual DeviceInfo info() const = 0;
    virtual stitch::Machine machine() const = 0;
    struct Compiled {
        std::vector<std::shared_ptr<const DeviceKernel>> kernels;
        int newly_compiled = 0;
        int from_disk = 0;
    };
    virtual Compiled compile(std::span<const loopir::Kernel> kernels, const KernelOptions& options) = 0;
    virtual int max_threads() const = 0;
    virtual KernelCacheStats kernel_cache_stats() const = 0;
};

// The CPU, which is always there. Defined by the CPU back end.
DeviceBackend& cpu_device();
// The loop IR interpreter: slow, for comparison.
DeviceBackend& interpreter_device();

}  // namespace topstitch
