// Values for the function constants of a library.
// See Metal.h.
#pragma once

#import <Metal/MTLDataType.h>

@interface MTLFunctionConstantValues : NSObject <NSCopying> {
    void* _values;  // of the simulation
}
- (void)setConstantValue:(const void*)value type:(MTLDataType)type atIndex:(NSUInteger)index;
- (void)setConstantValues:(const void*)values type:(MTLDataType)type withRange:(NSRange)range;
- (void)setConstantValue:(const void*)value type:(MTLDataType)type withName:(NSString*)name;
- (void)reset;
@end
