// See sim_event.h.
// A value never goes down: smaller ones that are signalled later are ignored, and setting one is misuse.
#import "device/sim_event.h"

#include <Block.h>

#include <condition_variable>
#include <mutex>
#include <vector>

#include "device/worker.h"

using namespace metal_sim;

namespace {

struct Notification {
    uint64_t value;
    MTLSharedEventListener* listener;
    MTLSharedEventNotificationBlock block;
};

struct EventState {
    std::mutex mutex;
    std::condition_variable changed;
    uint64_t value = 0;
    std::vector<Notification> notifications;
};

}  // namespace

@interface MTLSharedEventListener (Simulation)
- (void)perform:(MTLSharedEventNotificationBlock)block with:(SimEvent*)event value:(uint64_t)value;
@end

@implementation MTLSharedEventListener
- (id)init {
    if ((self = [super init])) _worker = new Worker;
    return self;
}
- (void)perform:(MTLSharedEventNotificationBlock)block with:(SimEvent*)event value:(uint64_t)value {
    [self retain];
    [event retain];
    static_cast<Worker*>(_worker)->submit([self, block, event, value] {
        block(event, value);
        Block_release(block);
        [event release];
        [self release];
    });
}
- (void)dealloc {
    delete static_cast<Worker*>(_worker);
    [super dealloc];
}
@end

@implementation SimEvent
- (id)init {
    if ((self = [super init])) _state = new EventState;
    return self;
}
- (EventState&)state {
    return *static_cast<EventState*>(_state);
}

- (void)signal:(uint64_t)value {
    std::vector<Notification> due;
    {
        EventState& state = [self state];
        const std::lock_guard lock(state.mutex);
        if (value > state.value) state.value = value;
        std::vector<Notification> later;
        for (const Notification& notification : state.notifications) {
            (notification.value <= state.value ? due : later).push_back(notification);
        }
        state.notifications = std::move(later);
        state.changed.notify_all();
    }
    for (const Notification& notification : due) {
        [notification.listener perform:notification.block with:self value:notification.value];
        [notification.listener release];
    }
}

- (BOOL)waitFor:(uint64_t)value timeout:(std::chrono::milliseconds)timeout {
    EventState& state = [self state];
    std::unique_lock lock(state.mutex);
    return state.changed.wait_for(lock, timeout, [&] { return state.value >= value; });
}

- (uint64_t)signaledValue {
    const std::lock_guard lock([self state].mutex);
    return [self state].value;
}
- (void)setSignaledValue:(uint64_t)value {
    require(value >= [self signaledValue], "-[MTLSharedEvent setSignaledValue:]",
            "the value of an event cannot go down");
    [self signal:value];
}
- (BOOL)waitUntilSignaledValue:(uint64_t)value timeoutMS:(uint64_t)milliseconds {
    return [self waitFor:value timeout:std::chrono::milliseconds(milliseconds)];
}
- (void)notifyListener:(MTLSharedEventListener*)listener
               atValue:(uint64_t)value
                 block:(MTLSharedEventNotificationBlock)block {
    require(listener != nil && block != nil, "-[MTLSharedEvent notifyListener:atValue:block:]",
            "the listener or block is nil");
    {
        const std::lock_guard lock([self state].mutex);
        [self state].notifications.push_back({value, [listener retain], Block_copy(block)});
    }
    [self signal:0];  // in case the value was reached already
}
- (void)dealloc {
    for (const Notification& notification : [self state].notifications) {
        [notification.listener release];
        Block_release(notification.block);
    }
    delete static_cast<EventState*>(_state);
    [super dealloc];
}
@end
