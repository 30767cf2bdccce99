// The queue: performs command buffers in the order in which they were enqueued, on a thread of its own.
// See sim_command_buffer.h.
#include <condition_variable>
#include <deque>
#include <mutex>

#import "device/sim_command_buffer.h"
#include "device/worker.h"
#include "metal_sim/control.h"

using namespace metal_sim;

namespace metal_sim {

struct QueueState {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<SimCommandBuffer*> order;  // retained
    NSUInteger max_unfinished = 64;
    NSUInteger unfinished = 0;
    Worker worker;
};

}  // namespace metal_sim

@implementation SimQueue
- (id)initWithMaxCommandBufferCount:(NSUInteger)count {
    if ((self = [super init])) {
        _state = new QueueState;
        _state->max_unfinished = count;
    }
    return self;
}
- (void)dealloc {
    delete _state;
    [super dealloc];
}

- (id<MTLCommandBuffer>)commandBuffer {
    return [self newCommandBufferWithReferences:YES call:"-[MTLCommandQueue commandBuffer]"];
}
- (id<MTLCommandBuffer>)commandBufferWithUnretainedReferences {
    return [self newCommandBufferWithReferences:NO call:"-[MTLCommandQueue commandBufferWithUnretainedReferences]"];
}
- (id<MTLCommandBuffer>)commandBufferWithDescriptor:(MTLCommandBufferDescriptor*)descriptor {
    const char* call = "-[MTLCommandQueue commandBufferWithDescriptor:]";
    require(descriptor != nil, call, "the descriptor is nil");
    return [self newCommandBufferWithReferences:[descriptor retainedReferences] call:call];
}

// Blocks while there are as many unfinished ones as the queue may have, as on a device; but not for ever.
- (SimCommandBuffer*)newCommandBufferWithReferences:(BOOL)retained
                                               call:(const char*)call __attribute__((ns_returns_not_retained)) {
    {
        std::unique_lock lock(_state->mutex);
        const bool free = _state->changed.wait_for(lock, settings().timeout,
                                                   [&] { return _state->unfinished < _state->max_unfinished; });
        require(free, call,
                "there are " + std::to_string(_state->unfinished) + " unfinished command buffers, and none finishes");
        ++_state->unfinished;
    }
    return [[[SimCommandBuffer alloc] initWithQueue:self retainedReferences:retained] autorelease];
}

- (void)enqueue:(SimCommandBuffer*)commandBuffer {
    {
        const std::lock_guard lock(_state->mutex);
        _state->order.push_back([commandBuffer retain]);
    }
    if ([commandBuffer isCommitted]) [self commandBufferCommitted];
}
- (void)commandBufferCommitted {
    [self retain];
    _state->worker.submit([self] {
        [self performCommitted];
        [self release];
    });
}

// Performs what is committed at the front; what was enqueued first and is not committed yet holds up the rest.
- (void)performCommitted {
    for (;;) {
        SimCommandBuffer* next = nil;
        {
            const std::lock_guard lock(_state->mutex);
            if (_state->order.empty() || ![_state->order.front() isCommitted]) return;
            next = _state->order.front();
            _state->order.pop_front();
        }
        [next execute];
        [next release];
    }
}

- (void)commandBufferDone {
    const std::lock_guard lock(_state->mutex);
    --_state->unfinished;
    _state->changed.notify_all();
}
@end
