// What all encoders share, and the encoder of copies and fills.
// See sim_encoder.h.
#import "device/sim_encoder.h"

#include <cstring>

using namespace metal_sim;

@implementation SimEncoder
- (id)initWithCommandBuffer:(SimCommandBuffer*)commandBuffer {
    if ((self = [super init])) _commandBuffer = [commandBuffer retain];
    return self;
}
- (void)requireOpen:(const char*)call {
    require(!_ended, call, "endEncoding was called before");
}
- (void)endEncoding {
    [self requireOpen:"-[MTLCommandEncoder endEncoding]"];
    _ended = YES;
    [_commandBuffer encoderEnded];
}
- (void)insertDebugSignpost:(NSString*)string {
    (void)string;
}
- (void)pushDebugGroup:(NSString*)string {
    (void)string;
}
- (void)popDebugGroup {
}
- (void)dealloc {
    [_commandBuffer release];
    [super dealloc];
}
@end

namespace {

constexpr NSUInteger blit_alignment = 4;

void require_range(const char* call, const char* what, SimBuffer* buffer, NSUInteger offset, NSUInteger size) {
    require(buffer != nil, call, std::string("the ") + what + " is nil");
    require(offset <= [buffer length] && size <= [buffer length] - offset, call,
            std::string("bytes ") + std::to_string(offset) + " to " + std::to_string(offset + size) + " of the " +
                what + " do not exist: it has " + std::to_string([buffer length]));
    require(offset % blit_alignment == 0 && size % blit_alignment == 0, call,
            std::string("offset ") + std::to_string(offset) + " and size " + std::to_string(size) + " in the " + what +
                " must be multiples of 4");
    require(size > 0, call, "the size is 0");
}

}  // namespace

@implementation SimBlitEncoder
- (void)copyFromBuffer:(id<MTLBuffer>)sourceBuffer
          sourceOffset:(NSUInteger)sourceOffset
              toBuffer:(id<MTLBuffer>)destinationBuffer
     destinationOffset:(NSUInteger)destinationOffset
                  size:(NSUInteger)size {
    const char* call = "-[MTLBlitCommandEncoder copyFromBuffer:sourceOffset:toBuffer:destinationOffset:size:]";
    [self requireOpen:call];
    auto* source = static_cast<SimBuffer*>(sourceBuffer);
    auto* destination = static_cast<SimBuffer*>(destinationBuffer);
    require_range(call, "source buffer", source, sourceOffset, size);
    require_range(call, "destination buffer", destination, destinationOffset, size);
    const bool apart = sourceOffset + size <= destinationOffset || destinationOffset + size <= sourceOffset;
    require(source != destination || apart, call, "source and destination overlap");
    [_commandBuffer keep:source];
    [_commandBuffer keep:destination];
    const std::byte* from = [source bytes] + sourceOffset;
    std::byte* to = [destination bytes] + destinationOffset;
    [_commandBuffer encode:[from, to, size]() -> std::optional<GridError> {
        std::memcpy(to, from, size);
        return std::nullopt;
    }];
}

- (void)fillBuffer:(id<MTLBuffer>)buffer range:(NSRange)range value:(uint8_t)value {
    const char* call = "-[MTLBlitCommandEncoder fillBuffer:range:value:]";
    [self requireOpen:call];
    auto* filled = static_cast<SimBuffer*>(buffer);
    require_range(call, "buffer", filled, range.location, range.length);
    [_commandBuffer keep:filled];
    std::byte* to = [filled bytes] + range.location;
    [_commandBuffer encode:[to, range, value]() -> std::optional<GridError> {
        std::memset(to, value, range.length);
        return std::nullopt;
    }];
}

- (void)synchronizeResource:(id<MTLResource>)resource {
    (void)resource;
    misuse("-[MTLBlitCommandEncoder synchronizeResource:]",
           "the resource is not managed, so there is nothing to synchronize");
}
@end
