// What all encoders have in common.
// See Metal.h.
#pragma once

#import <Metal/MTLResource.h>

@protocol MTLCommandEncoder <NSObject>
@property(copy, atomic) NSString* label;
@property(readonly) id<MTLDevice> device;
- (void)endEncoding;
- (void)insertDebugSignpost:(NSString*)string;
- (void)pushDebugGroup:(NSString*)string;
- (void)popDebugGroup;
@end
