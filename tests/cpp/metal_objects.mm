// See metal_objects.h.
// Exceptions pass through, but none is caught here (docs/metal.md).
#include "metal_objects.h"

#import <Metal/Metal.h>

namespace metal_objects {

namespace {

Object adopt(id object) {
    return Object(static_cast<void*>(object), [](void* released) { [static_cast<id>(released) release]; });
}

id<MTLCommandBuffer> commands_of(const Object& command_buffer) {
    return static_cast<id<MTLCommandBuffer>>(command_buffer.get());
}

}  // namespace

Object system_device() {
    return adopt(MTLCreateSystemDefaultDevice());
}

Object new_queue(const Object& device) {
    return adopt([static_cast<id<MTLDevice>>(device.get()) newCommandQueue]);
}

Object new_buffer(const Object& device, std::size_t bytes, bool shared) {
    const MTLResourceOptions options = shared ? MTLResourceStorageModeShared : MTLResourceStorageModePrivate;
    return adopt([static_cast<id<MTLDevice>>(device.get()) newBufferWithLength:bytes options:options]);
}

void* contents(const Object& buffer) {
    return [static_cast<id<MTLBuffer>>(buffer.get()) contents];
}

Object new_command_buffer(const Object& queue) {
    @autoreleasepool {
        return adopt([[static_cast<id<MTLCommandQueue>>(queue.get()) commandBuffer] retain]);
    }
}

void fill(const Object& command_buffer, const Object& buffer, unsigned char value) {
    @autoreleasepool {
        const auto target = static_cast<id<MTLBuffer>>(buffer.get());
        id<MTLBlitCommandEncoder> encoder = [commands_of(command_buffer) blitCommandEncoder];
        [encoder fillBuffer:target range:NSMakeRange(0, [target length]) value:value];
        [encoder endEncoding];
    }
}

void commit(const Object& command_buffer) {
    [commands_of(command_buffer) commit];
}

void commit_and_wait(const Object& command_buffer) {
    commit(command_buffer);
    [commands_of(command_buffer) waitUntilCompleted];
}

}  // namespace metal_objects
