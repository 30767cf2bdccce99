// Command buffers and queues.
// See MTLCommandBuffer.h and MTLCommandQueue.h.
#pragma once

#import "device/sim_object.h"

#include <functional>
#include <optional>

@class SimQueue;

namespace metal_sim {

// One step of a command buffer, performed by the queue's thread.
using Command = std::function<std::optional<GridError>()>;
struct CommandBufferState;
struct QueueState;

}  // namespace metal_sim

@interface SimCommandBuffer : SimObject <MTLCommandBuffer> {
    SimQueue* _queue;
    metal_sim::CommandBufferState* _state;
    BOOL _retainedReferences;
}
- (id)initWithQueue:(SimQueue*)queue retainedReferences:(BOOL)retainedReferences;

// For encoders.
- (void)encode:(const metal_sim::Command&)command;
- (void)keep:(id)object;  // until the commands are done, unless references are not retained
- (void)encoderEnded;

// For the queue.
- (BOOL)isCommitted;
- (void)execute;
@end

@interface SimQueue : SimObject <MTLCommandQueue> {
    metal_sim::QueueState* _state;
}
- (id)initWithMaxCommandBufferCount:(NSUInteger)count;
- (void)enqueue:(SimCommandBuffer*)commandBuffer;
- (void)commandBufferCommitted;  // one that was enqueued
- (void)commandBufferDone;
@end
