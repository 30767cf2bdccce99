// See sim_command_buffer.h.
// States follow each other as on a device; handlers run on the queue's thread.
#import "device/sim_command_buffer.h"

#include <Block.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <vector>

#import "device/sim_encoder.h"
#import "device/sim_event.h"
#include "metal_sim/control.h"

using namespace metal_sim;

namespace metal_sim {

struct CommandBufferState {
    mutable std::mutex mutex;
    std::condition_variable changed;
    MTLCommandBufferStatus status = MTLCommandBufferStatusNotEnqueued;
    bool handlers_done = false;
    bool encoding = false;  // an encoder is open
    NSError* error = nil;
    double start = 0, end = 0;
    std::vector<Command> commands;
    std::vector<Command> signals;  // performed even after an error, so that nobody waits for ever
    std::vector<id> kept;
    std::vector<MTLCommandBufferHandler> scheduled, completed;
};

namespace {

double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void call_handlers(std::vector<MTLCommandBufferHandler>& handlers, id<MTLCommandBuffer> buffer) {
    for (const MTLCommandBufferHandler handler : handlers) {
        handler(buffer);
        Block_release(handler);
    }
    handlers.clear();
}

}  // namespace

}  // namespace metal_sim

@implementation MTLCommandBufferDescriptor
@synthesize retainedReferences = _retainedReferences;
@synthesize errorOptions = _errorOptions;
- (id)init {
    if ((self = [super init])) _retainedReferences = YES;
    return self;
}
- (id)copyWithZone:(NSZone*)zone {
    MTLCommandBufferDescriptor* copy = [[MTLCommandBufferDescriptor allocWithZone:zone] init];
    copy->_retainedReferences = _retainedReferences;
    copy->_errorOptions = _errorOptions;
    return copy;
}
@end

@implementation SimCommandBuffer
@synthesize retainedReferences = _retainedReferences;

- (id)initWithQueue:(SimQueue*)queue retainedReferences:(BOOL)retainedReferences {
    if ((self = [super init])) {
        _queue = [queue retain];
        _state = new CommandBufferState;
        _retainedReferences = retainedReferences;
    }
    return self;
}
- (void)dealloc {
    if (_state->status < MTLCommandBufferStatusCommitted) [_queue commandBufferDone];  // given up
    for (id object : _state->kept) [object release];
    for (const MTLCommandBufferHandler handler : _state->scheduled) Block_release(handler);
    for (const MTLCommandBufferHandler handler : _state->completed) Block_release(handler);
    [_state->error release];
    delete _state;
    [_queue release];
    [super dealloc];
}

- (id<MTLCommandQueue>)commandQueue {
    return _queue;
}
- (MTLCommandBufferErrorOption)errorOptions {
    return MTLCommandBufferErrorOptionNone;
}
- (MTLCommandBufferStatus)status {
    const std::lock_guard lock(_state->mutex);
    return _state->status;
}
- (NSError*)error {
    const std::lock_guard lock(_state->mutex);
    return [[_state->error retain] autorelease];
}
- (CFTimeInterval)kernelStartTime {
    return [self GPUStartTime];
}
- (CFTimeInterval)kernelEndTime {
    return [self GPUEndTime];
}
- (CFTimeInterval)GPUStartTime {
    const std::lock_guard lock(_state->mutex);
    return _state->start;
}
- (CFTimeInterval)GPUEndTime {
    const std::lock_guard lock(_state->mutex);
    return _state->end;
}

// Encoding

- (void)requireOpen:(const char*)call {
    require([self status] < MTLCommandBufferStatusCommitted, call, "the command buffer was committed");
    require(!_state->encoding, call, "an encoder of the command buffer is still open: call endEncoding");
}
- (void)encode:(const Command&)command {
    _state->commands.push_back(command);
}
- (void)keep:(id)object {
    if (_retainedReferences) _state->kept.push_back([object retain]);
}
- (void)encoderEnded {
    _state->encoding = false;
}
- (id<MTLBlitCommandEncoder>)blitCommandEncoder {
    [self requireOpen:"-[MTLCommandBuffer blitCommandEncoder]"];
    _state->encoding = true;
    return [[[SimBlitEncoder alloc] initWithCommandBuffer:self] autorelease];
}
- (id<MTLComputeCommandEncoder>)computeCommandEncoder {
    return [self computeCommandEncoderWithDispatchType:MTLDispatchTypeSerial];
}
- (id<MTLComputeCommandEncoder>)computeCommandEncoderWithDispatchType:(MTLDispatchType)dispatchType {
    [self requireOpen:"-[MTLCommandBuffer computeCommandEncoder]"];
    _state->encoding = true;
    return [[[SimComputeEncoder alloc] initWithCommandBuffer:self dispatchType:dispatchType] autorelease];
}
- (void)encodeWaitForEvent:(id<MTLEvent>)event value:(uint64_t)value {
    const char* call = "-[MTLCommandBuffer encodeWaitForEvent:value:]";
    [self requireOpen:call];
    require(event != nil, call, "the event is nil");
    auto* waited = static_cast<SimEvent*>(event);
    _state->kept.push_back([waited retain]);
    [self encode:[waited, value]() -> std::optional<GridError> {
        if ([waited waitFor:value timeout:settings().timeout]) return std::nullopt;
        return GridError{GridFailure::timeout, "waited for value " + std::to_string(value) +
                                                   " of an event, which has " + std::to_string([waited signaledValue])};
    }];
}
- (void)encodeSignalEvent:(id<MTLEvent>)event value:(uint64_t)value {
    const char* call = "-[MTLCommandBuffer encodeSignalEvent:value:]";
    [self requireOpen:call];
    require(event != nil, call, "the event is nil");
    auto* signalled = static_cast<SimEvent*>(event);
    _state->kept.push_back([signalled retain]);
    const Command command = [signalled, value]() -> std::optional<GridError> {
        [signalled signal:value];
        return std::nullopt;
    };
    _state->commands.push_back(command);
    _state->signals.push_back(command);
}
- (void)pushDebugGroup:(NSString*)string {
    (void)string;
}
- (void)popDebugGroup {
}

// Handlers and waiting

- (void)addScheduledHandler:(MTLCommandBufferHandler)block {
    require([self status] < MTLCommandBufferStatusCommitted, "-[MTLCommandBuffer addScheduledHandler:]",
            "the command buffer was committed");
    _state->scheduled.push_back(Block_copy(block));
}
- (void)addCompletedHandler:(MTLCommandBufferHandler)block {
    require([self status] < MTLCommandBufferStatusCommitted, "-[MTLCommandBuffer addCompletedHandler:]",
            "the command buffer was committed");
    _state->completed.push_back(Block_copy(block));
}
- (void)waitUntilScheduled {
    require([self isCommitted], "-[MTLCommandBuffer waitUntilScheduled]", "the command buffer was never committed");
    std::unique_lock lock(_state->mutex);
    _state->changed.wait(lock, [&] { return _state->status >= MTLCommandBufferStatusScheduled; });
}
- (void)waitUntilCompleted {
    require([self isCommitted], "-[MTLCommandBuffer waitUntilCompleted]", "the command buffer was never committed");
    std::unique_lock lock(_state->mutex);
    _state->changed.wait(lock, [&] { return _state->handlers_done; });
}

// Execution

- (void)setStatus:(MTLCommandBufferStatus)status {
    const std::lock_guard lock(_state->mutex);
    _state->status = status;
    _state->changed.notify_all();
}
- (BOOL)isCommitted {
    return [self status] >= MTLCommandBufferStatusCommitted;
}
- (void)enqueue {
    require([self status] == MTLCommandBufferStatusNotEnqueued, "-[MTLCommandBuffer enqueue]",
            "the command buffer was enqueued or committed before");
    [self setStatus:MTLCommandBufferStatusEnqueued];
    [_queue enqueue:self];
}
- (void)commit {
    const char* call = "-[MTLCommandBuffer commit]";
    require(![self isCommitted], call, "the command buffer was committed before");
    require(!_state->encoding, call, "an encoder of the command buffer is still open: call endEncoding");
    const bool enqueued = [self status] == MTLCommandBufferStatusEnqueued;
    [self setStatus:MTLCommandBufferStatusCommitted];
    if (enqueued) {
        [_queue commandBufferCommitted];
    } else {
        [_queue enqueue:self];
    }
}

- (void)execute {
    [self setStatus:MTLCommandBufferStatusScheduled];
    call_handlers(_state->scheduled, self);
    const double start = now();
    std::optional<GridError> error;
    if (settings().out_of_memory) error = GridError{GridFailure::out_of_memory, "Insufficient Memory"};
    for (const Command& command : _state->commands) {
        if (error || (error = command())) break;
    }
    if (error) {
        for (const Command& signal : _state->signals) signal();
    }
    _state->commands.clear();
    _state->signals.clear();
    {
        const std::lock_guard lock(_state->mutex);
        _state->start = start;
        _state->end = now();
        _state->status = error ? MTLCommandBufferStatusError : MTLCommandBufferStatusCompleted;
        if (error) {
            _state->error =
                [make_error(MTLCommandBufferErrorDomain, command_buffer_error(error->kind), error->message) retain];
        }
    }
    call_handlers(_state->completed, self);
    for (id object : _state->kept) [object release];
    _state->kept.clear();
    [_queue commandBufferDone];
    const std::lock_guard lock(_state->mutex);
    _state->handlers_done = true;
    _state->changed.notify_all();
}
@end
