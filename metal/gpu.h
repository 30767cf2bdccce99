// A Metal device, its buffers, pipelines and command buffers, as C++ values.
// Everything that the back end asks of Metal.framework goes through here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "metal/handle.h"

namespace topstitch::metal {

struct GpuLimits {
    std::string name;
    std::int64_t memory_bytes = 0;  // that should be in use at most
    std::int64_t buffer_bytes = 0;  // of one buffer
    int threadgroup_bytes = 0;
    int threads_per_threadgroup = 0;
    bool unified_memory = false;
};

// Memory that host and GPU share. Copies are the same memory.
class GpuBuffer {
public:
    GpuBuffer() = default;
    GpuBuffer(Handle buffer, std::byte* contents, std::size_t bytes)
        : buffer_(std::move(buffer)), contents_(contents), bytes_(bytes) {}

    void* metal_buffer() const { return buffer_.get(); }  // id<MTLBuffer>
    std::byte* contents() const { return contents_; }
    std::size_t bytes() const { return bytes_; }

private:
    Handle buffer_;
    std::byte* contents_ = nullptr;
    std::size_t bytes_ = 0;
};

// A kernel that can be dispatched.
struct Pipeline {
    Handle state;      // id<MTLComputePipelineState>
    std::string name;  // of the kernel
    int max_threads = 0;
    int simd_width = 0;
    int threadgroup_bytes = 0;  // of its variables
    double compile_milliseconds = 0;
};

struct CompiledPipeline {
    Pipeline pipeline;
    std::string archive;        // the bytes of one that holds it, if it was compiled and could be archived
    bool from_archive = false;  // it was in the archive given
};

// Three extents, of a grid or a threadgroup.
struct Extents {
    std::size_t x = 1, y = 1, z = 1;
};

struct GpuError {
    std::string text;
    bool out_of_memory = false;
};

// Work that is encoded, then committed once. Not to be shared between threads before it is committed.
class GpuCommands {
public:
    explicit GpuCommands(Handle buffer) : buffer_(std::move(buffer)) {}
    GpuCommands(GpuCommands&&) = default;
    GpuCommands& operator=(GpuCommands&&) = delete;
    ~GpuCommands() { end_encoding(); }

    // Into the caller's id<MTLCommandBuffer>, which is retained and not committed here. UserError when that is another
    // device's, or was committed before.
    static GpuCommands into(void* command_buffer, const class Gpu& gpu);

    void set_pipeline(const Pipeline& pipeline);
    void set_buffer(const GpuBuffer& buffer, std::size_t offset, unsigned index);
    void set_bytes(const void* bytes, std::size_t size, unsigned index);  // at most 4096
    void set_threadgroup_memory(std::size_t bytes, unsigned index);       // a multiple of 16
    void dispatch_groups(Extents groups, Extents threads_per_group);

    void commit();
    // Before it is committed: what was encoded is complete, and `done` is called when the GPU is done with it.
    void end(const std::function<void()>& done);
    // Waits for what was committed, and tells what the GPU reported.
    std::optional<GpuError> finish();

private:
    void end_encoding();
    void* encoder();

    Handle buffer_;   // id<MTLCommandBuffer>
    Handle encoder_;  // id<MTLComputeCommandEncoder>, while one is open
};

class Gpu {
public:
    // The system's own; UnsupportedError when there is none, or none that is recent enough.
    static Gpu system();
    // The caller's id<MTLDevice> and, if not null, id<MTLCommandQueue>, which are retained. UserError when the queue is
    // another device's.
    explicit Gpu(void* device, void* queue = nullptr);

    void* metal_device() const { return device_.get(); }
    void* metal_queue() const { return queue_.get(); }
    const GpuLimits& limits() const { return limits_; }

    // MemoryError when it cannot be had. Nobody has written into it yet.
    GpuBuffer allocate(std::size_t bytes) const;
    // Uses memory of the host in place: address and size must be multiples of page_bytes(). It must outlive the buffer.
    // Nothing when the system refuses, as for memory that may not be written.
    std::optional<GpuBuffer> wrap(void* memory, std::size_t bytes) const;
    static std::size_t page_bytes();
    // The caller's id<MTLBuffer>, which is retained. UserError when it is another device's, or the host cannot read it.
    GpuBuffer share(void* buffer) const;

    // `archive`: what an earlier call for the same source gave, or empty; null where none is used or made.
    // InternalError with the compiler's words, and the lines that they are about.
    CompiledPipeline compile(const std::string& source, const std::string& function,
                             const std::string* archive = nullptr) const;
    // Which archives can be used: those of the same GPU and system.
    std::string archive_version() const;
    GpuCommands new_commands() const;

private:
    Handle device_;
    Handle queue_;
    GpuLimits limits_;
};

}  // namespace topstitch::metal
