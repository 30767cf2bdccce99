// See metal_objects.h.
// Exceptions pass through, but none is caught here (docs/metal.md).
#include "metal_objects.h"

#import <Metal/Metal.h>

namespace metal_objects {

namespace {

Object adopt(id object) {
    return Object(static_cast<void*>(object), [](void* released) { [static_cast<id>(released) release]; });
}

id<MTLSharedEvent> event_of(const Object& event) {
    return static_cast<id<MTLSharedEvent>>(event.get());
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

Object new_event(const Object& device) {
    return adopt([static_cast<id<MTLDevice>>(device.get()) newSharedEvent]);
}

std::uint64_t value_of(const Object& event) {
    return [event_of(event) signaledValue];
}

void set_value(const Object& event, std::uint64_t value) {
    [event_of(event) setSignaledValue:value];
}

void encode_wait(const Object& command_buffer, const Object& event, std::uint64_t value) {
    [commands_of(command_buffer) encodeWaitForEvent:event_of(event) value:value];
}

void encode_signal(const Object& command_buffer, const Object& event, std::uint64_t value) {
    [commands_of(command_buffer) encodeSignalEvent:event_of(event) value:value];
}

void commit(const Object& command_buffer) {
    [commands_of(command_buffer) commit];
}

void commit_and_wait(const Object& command_buffer) {
    commit(command_buffer);
    [commands_of(command_buffer) waitUntilCompleted];
}

}  // namespace metal_objects
