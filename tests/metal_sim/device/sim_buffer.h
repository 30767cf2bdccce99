// Buffers with a guard page behind them, and heaps, which only account for sizes.
// See MTLBuffer.h and MTLHeap.h.
#pragma once

#import "device/sim_object.h"

#include <cstddef>

@class SimHeap;

@interface SimBuffer : SimObject <MTLBuffer> {
    std::byte* _bytes;
    NSUInteger _length;
    NSUInteger _slack;  // bytes after the end that hold slack_byte
    void* _mapping;     // NULL when the memory is the caller's
    std::size_t _mappingLength;
    MTLResourceOptions _options;
    SimHeap* _heap;
    void (^_deallocator)(void* pointer, NSUInteger length);
}
// nil when there is not enough memory.
- (id)initWithLength:(NSUInteger)length options:(MTLResourceOptions)options heap:(SimHeap*)heap;
- (id)initWithPointer:(void*)pointer
               length:(NSUInteger)length
              options:(MTLResourceOptions)options
          deallocator:(void (^)(void* pointer, NSUInteger length))deallocator;
@property(readonly) std::byte* bytes;  // of private buffers too
@property(readonly) NSUInteger slack;
@end

@interface SimHeap : SimObject <MTLHeap> {
    NSUInteger _size;
    NSUInteger _used;
    MTLStorageMode _storageMode;
}
- (id)initWithSize:(NSUInteger)size storageMode:(MTLStorageMode)storageMode;
- (BOOL)take:(NSUInteger)bytes;
- (void)give:(NSUInteger)bytes;
@end

namespace metal_sim {

inline constexpr NSUInteger page_bytes = 16384;  // of Apple's processors
inline constexpr NSUInteger heap_alignment = 256;
inline constexpr NSUInteger max_buffer_bytes = NSUInteger{1} << 34;

NSUInteger allocated_bytes();  // in all buffers of the device
// Raises misuse for storage modes that are not simulated.
void require_storage(const char* call, MTLResourceOptions options);

}  // namespace metal_sim
