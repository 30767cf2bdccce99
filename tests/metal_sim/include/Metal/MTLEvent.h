// Events: values by which queues, and the host, wait for each other.
// See Metal.h.
#pragma once

#import <Metal/MTLDefines.h>

@protocol MTLDevice;
@protocol MTLSharedEvent;

@protocol MTLEvent <NSObject>
@property(copy, atomic) NSString* label;
@property(readonly) id<MTLDevice> device;
@end

typedef void (^MTLSharedEventNotificationBlock)(id<MTLSharedEvent>, uint64_t value);

// Calls blocks on a thread of its own.
@interface MTLSharedEventListener : NSObject {
    void* _worker;  // of the simulation
}
@end

@protocol MTLSharedEvent <MTLEvent>
@property(readwrite) uint64_t signaledValue;
- (void)notifyListener:(MTLSharedEventListener*)listener
               atValue:(uint64_t)value
                 block:(MTLSharedEventNotificationBlock)block;
- (BOOL)waitUntilSignaledValue:(uint64_t)value timeoutMS:(uint64_t)milliseconds;
@end
