// Buffers of memory that kernels read and write.
// See Metal.h.
#pragma once

#import <Metal/MTLResource.h>

@protocol MTLBuffer <MTLResource>
@property(readonly) NSUInteger length;
@property(readonly) uint64_t gpuAddress;
- (void*)contents;  // NULL for private storage
- (void)addDebugMarker:(NSString*)marker range:(NSRange)range;
- (void)removeAllDebugMarkers;
@end
