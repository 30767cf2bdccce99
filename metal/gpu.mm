// See gpu.h. Errors are found inside of an autorelease pool and thrown outside of it, and nothing is caught here:
// not every Objective-C run-time library can do that (docs/metal.md).
#include "metal/gpu.h"

#import <Metal/Metal.h>
#include <unistd.h>

#include <algorithm>

#include "metal/objc_ptr.h"
#include "topstitch/error.h"

namespace topstitch::metal {

namespace {

constexpr std::size_t apple_page_bytes = 16384;

id<MTLDevice> device_of(const Handle& handle) {
    return static_cast<id<MTLDevice>>(handle.get());
}

MTLSize size_of(Extents extents) {
    return MTLSizeMake(extents.x, extents.y, extents.z);
}

GpuLimits limits_of(id<MTLDevice> device) {
    GpuLimits limits;
    limits.name = [[device name] UTF8String];
    limits.memory_bytes = static_cast<std::int64_t>([device recommendedMaxWorkingSetSize]);
    limits.buffer_bytes = static_cast<std::int64_t>([device maxBufferLength]);
    limits.threadgroup_bytes = static_cast<int>([device maxThreadgroupMemoryLength]);
    limits.threads_per_threadgroup = static_cast<int>([device maxThreadsPerThreadgroup].width);
    limits.unified_memory = [device hasUnifiedMemory];
    return limits;
}

}  // namespace

void* Handle::retain(void* object) {
    return [static_cast<id>(object) retain];
}

void Handle::release(void* object) {
    [static_cast<id>(object) release];
}

Gpu Gpu::system() {
    const Handle device = Handle::adopt(MTLCreateSystemDefaultDevice());
    if (!device) throw UnsupportedError("[metal] this machine has no Metal device; run on the device \"cpu\"");
    return Gpu(device.get());
}

Gpu::Gpu(void* device, void* queue) : device_(Handle::share(device)), queue_(Handle::share(queue)) {
    bool recent = false;
    bool foreign = false;
    @autoreleasepool {
        recent = [device_of(device_) supportsFamily:MTLGPUFamilyMetal3];
        limits_ = limits_of(device_of(device_));
        if (queue_) foreign = [static_cast<id<MTLCommandQueue>>(queue) device] != device_of(device_);
        if (recent && !queue_) queue_ = Handle::adopt([device_of(device_) newCommandQueue]);
    }
    if (foreign) throw UserError("[metal] the command queue belongs to another device; make one with the device given");
    if (!recent) {
        throw UnsupportedError(concat("[metal] the GPU \"", limits_.name,
                                      "\" or its system is too old: Metal 3 is needed; run on the device \"cpu\""));
    }
}

std::size_t Gpu::page_bytes() {
    return std::max(apple_page_bytes, static_cast<std::size_t>(getpagesize()));
}

GpuBuffer Gpu::allocate(std::size_t bytes) const {
    const std::size_t at_least_one = std::max<std::size_t>(bytes, 1);
    Handle buffer;
    void* contents = nullptr;
    if (at_least_one <= static_cast<std::size_t>(limits_.buffer_bytes)) {
        @autoreleasepool {
            id<MTLBuffer> made = [device_of(device_) newBufferWithLength:at_least_one
                                                                 options:MTLResourceStorageModeShared];
            buffer = Handle::adopt(made);
            contents = [made contents];
        }
    }
    if (!buffer) {
        throw MemoryError(concat("[metal] ", bytes, " bytes cannot be had on \"", limits_.name, "\", which allows ",
                                 limits_.buffer_bytes, " in one buffer and ", limits_.memory_bytes,
                                 " altogether; nothing has been changed"));
    }
    return {buffer, static_cast<std::byte*>(contents), bytes};
}

std::optional<GpuBuffer> Gpu::wrap(void* memory, std::size_t bytes) const {
    const bool whole_pages = reinterpret_cast<std::uintptr_t>(memory) % page_bytes() == 0 && bytes % page_bytes() == 0;
    internal_check(memory != nullptr && bytes > 0 && whole_pages, "metal: memory to wrap is not made of whole pages");
    Handle buffer;
    @autoreleasepool {
        buffer = Handle::adopt([device_of(device_) newBufferWithBytesNoCopy:memory
                                                                     length:bytes
                                                                    options:MTLResourceStorageModeShared
                                                                deallocator:nil]);
    }
    if (!buffer) return std::nullopt;
    return GpuBuffer(buffer, static_cast<std::byte*>(memory), bytes);
}

GpuBuffer Gpu::share(void* buffer) const {
    const auto shared = Handle::share(buffer);
    void* contents = nullptr;
    std::size_t bytes = 0;
    bool own = false;
    bool visible = false;
    @autoreleasepool {
        const auto given = static_cast<id<MTLBuffer>>(buffer);
        own = [given device] == device_of(device_);
        visible = [given storageMode] == MTLStorageModeShared;
        bytes = [given length];
        if (visible) contents = [given contents];
    }
    if (!own) throw UserError("[metal] the buffer belongs to another device; make it with the device of the graph");
    if (!visible) {
        throw UserError("[metal] the buffer's storage mode must be shared, since arrays are read by the host too; make "
                        "it with MTLResourceStorageModeShared, or copy it into such a buffer with a blit");
    }
    return {shared, static_cast<std::byte*>(contents), bytes};
}

GpuCommands Gpu::new_commands() const {
    @autoreleasepool {
        return GpuCommands(Handle::share([static_cast<id<MTLCommandQueue>>(queue_.get()) commandBuffer]));
    }
}

GpuCommands GpuCommands::into(void* command_buffer, const Gpu& gpu) {
    bool own = false;
    bool open = false;
    @autoreleasepool {
        const auto given = static_cast<id<MTLCommandBuffer>>(command_buffer);
        own = [given device] == static_cast<id<MTLDevice>>(gpu.metal_device());
        open = [given status] < MTLCommandBufferStatusCommitted;
    }
    if (!own) throw UserError("[encode] the command buffer belongs to another device than the executable");
    if (!open) throw UserError("[encode] the command buffer has been committed; encode into a new one");
    return GpuCommands(Handle::share(command_buffer));
}

void GpuCommands::end(const std::function<void()>& done) {
    @autoreleasepool {
        end_encoding();
        const std::function<void()> callback = done;  // the block keeps a copy
        [static_cast<id<MTLCommandBuffer>>(buffer_.get()) addCompletedHandler:^(id<MTLCommandBuffer>) { callback(); }];
    }
}

void* GpuCommands::encoder() {
    if (!encoder_) {
        @autoreleasepool {
            encoder_ = Handle::share([static_cast<id<MTLCommandBuffer>>(buffer_.get()) computeCommandEncoder]);
        }
    }
    return encoder_.get();
}

void GpuCommands::set_pipeline(const Pipeline& pipeline) {
    const auto encoder = static_cast<id<MTLComputeCommandEncoder>>(this->encoder());
    [encoder setComputePipelineState:static_cast<id<MTLComputePipelineState>>(pipeline.state.get())];
}

void GpuCommands::set_buffer(const GpuBuffer& buffer, std::size_t offset, unsigned index) {
    const auto encoder = static_cast<id<MTLComputeCommandEncoder>>(this->encoder());
    [encoder setBuffer:static_cast<id<MTLBuffer>>(buffer.metal_buffer()) offset:offset atIndex:index];
}

void GpuCommands::set_bytes(const void* bytes, std::size_t size, unsigned index) {
    [static_cast<id<MTLComputeCommandEncoder>>(encoder()) setBytes:bytes length:size atIndex:index];
}

void GpuCommands::set_threadgroup_memory(std::size_t bytes, unsigned index) {
    [static_cast<id<MTLComputeCommandEncoder>>(encoder()) setThreadgroupMemoryLength:bytes atIndex:index];
}

void GpuCommands::dispatch_groups(Extents groups, Extents threads_per_group) {
    const auto encoder = static_cast<id<MTLComputeCommandEncoder>>(this->encoder());
    [encoder dispatchThreadgroups:size_of(groups) threadsPerThreadgroup:size_of(threads_per_group)];
}

void GpuCommands::end_encoding() {
    if (!encoder_) return;
    [static_cast<id<MTLComputeCommandEncoder>>(encoder_.get()) endEncoding];
    encoder_ = {};
}

void GpuCommands::commit() {
    @autoreleasepool {
        end_encoding();
        [static_cast<id<MTLCommandBuffer>>(buffer_.get()) commit];
    }
}

std::optional<GpuError> GpuCommands::finish() {
    @autoreleasepool {
        const auto buffer = static_cast<id<MTLCommandBuffer>>(buffer_.get());
        [buffer waitUntilCompleted];
        NSError* error = [buffer error];
        if (!error) return std::nullopt;
        const bool of_command_buffer = [[error domain] isEqualToString:MTLCommandBufferErrorDomain];
        return GpuError{[[error localizedDescription] UTF8String],
                        of_command_buffer && [error code] == MTLCommandBufferErrorOutOfMemory};
    }
}

}  // namespace topstitch::metal
