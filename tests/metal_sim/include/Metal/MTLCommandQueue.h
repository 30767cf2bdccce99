// Queues: command buffers are performed in the order in which they were enqueued.
// See Metal.h.
#pragma once

#import <Metal/MTLCommandBuffer.h>

@protocol MTLCommandQueue <NSObject>
@property(copy, atomic) NSString* label;
@property(readonly) id<MTLDevice> device;
- (id<MTLCommandBuffer>)commandBuffer;
- (id<MTLCommandBuffer>)commandBufferWithDescriptor:(MTLCommandBufferDescriptor*)descriptor;
- (id<MTLCommandBuffer>)commandBufferWithUnretainedReferences;
@end
