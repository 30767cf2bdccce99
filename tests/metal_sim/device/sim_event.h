// Events, between queues and with the host.
// See MTLEvent.h.
#pragma once

#import "device/sim_object.h"

#include <chrono>

@interface SimEvent : SimObject <MTLSharedEvent> {
    void* _state;
}
- (void)signal:(uint64_t)value;
// NO when the value was not reached in time.
- (BOOL)waitFor:(uint64_t)value timeout:(std::chrono::milliseconds)timeout;
@end
