// The device interface: what a back end does for the runtime.
// It compiles kernels and launches them on memory of the host, which the device shares (the CPU, Metal).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "loopir/kernel.h"
#include "runtime/outside_event.h"
#include "stitch/schedule.h"
#include "topstitch/device.h"
#include "topstitch/error.h"
#include "topstitch/ndarray.h"

namespace topstitch {

// What one run does on a device that works beside the host, in order. Launches are only begun; whoever reads or writes
// memory of the run on the host waits first. Destroyed, it waits for what has begun.
class DeviceStream {
public:
    virtual ~DeviceStream() = default;
    // Whether kernels can use the memory of the buffer where it is; it must then outlive the stream.
    virtual bool reaches(const Buffer& buffer) = 0;
    // Between memory that it reaches.
    virtual void copy(void* to, const void* from, std::size_t bytes) = 0;
    // A few bytes of the host's, which are read at once.
    virtual void write(void* to, const void* data, std::size_t bytes) = 0;
    // Until all that was begun is done; an exception when something failed.
    virtual void wait() = 0;
    // In commands of the caller's, instead of waiting: they are complete, and `used` lives until the GPU is done.
    virtual void leave_to_caller(std::shared_ptr<void> used) = 0;
};

// How one launch is spread over threads, and in which stream: that of the kernel's device, none where launches are over
// when they return.
struct LaunchShape {
    std::int64_t parallel_extent = 1;
    int threads = 1;
    void* scratch = nullptr;          // threads pieces
    std::int64_t scratch_stride = 0;  // bytes between the pieces, a multiple of 64
    DeviceStream* stream = nullptr;
};

class DeviceKernel {
public:
    virtual ~DeviceKernel() = default;
    virtual void launch(void* const* buffers, const std::int64_t* sizes, const LaunchShape& shape) const = 0;
    virtual std::int64_t scratch_bytes(std::span<const std::int64_t> sizes) const = 0;
    virtual std::string source(const std::string& kind) const = 0;  // UserError for a kind the device has not
    virtual double compile_milliseconds() const = 0;                // what it took when it was made
    virtual std::string remark() const { return ""; }               // what users should know: that it runs elsewhere
    // For these sizes it runs on the host, and waits for the device before.
    virtual bool waits(std::span<const std::int64_t> sizes) const {
        static_cast<void>(sizes);
        return false;
    }
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
    // One for each run; none where launches are over when they return, and reach all memory.
    virtual std::unique_ptr<DeviceStream> new_stream() { return nullptr; }
    // One that adds to commands of the caller's: for Metal an id<MTLCommandBuffer>.
    virtual std::unique_ptr<DeviceStream> stream_into(void* command_buffer) {
        static_cast<void>(command_buffer);
        throw UserError(concat("[encode] the device \"", info().name, "\" has no command buffers of the caller's"));
    }
    // Memory that streams reach.
    virtual std::shared_ptr<Buffer> allocate(std::size_t bytes) { return Buffer::allocate(bytes); }
};

// The CPU, which is always there. Defined by the CPU back end.
DeviceBackend& cpu_device();
// What the Metal back end gives to the runtime.
struct MetalBackend {
    // The device over the system's GPU; null if there is none that can be used.
    DeviceBackend* (*system_device)();
    // That over the caller's id<MTLDevice> and, if not null, id<MTLCommandQueue>. The same for the same ones.
    DeviceBackend& (*device_over)(void* device, void* queue);
    // The memory of the caller's id<MTLBuffer>.
    std::shared_ptr<Buffer> (*memory)(DeviceBackend& device, void* buffer);
    // The id<MTLBuffer> that a pointer into `buffer` is in, and the bytes before it.
    std::pair<void*, std::size_t> (*place)(DeviceBackend& device, const Buffer& buffer, const void* pointer);
    // Over the caller's id<MTLSharedEvent>.
    std::shared_ptr<OutsideEvent> (*event)(void* shared_event);
};
// Null in programs without it: it enters itself as the program is loaded.
extern const MetalBackend* metal_backend;

// The loop IR interpreter: slow, for comparison.
DeviceBackend& interpreter_device();

}  // namespace topstitch
