// See sim_buffer.h.
// Memory is a mapping of its own: a page that faults lies behind it, and what is freed faults.
#import "device/sim_buffer.h"

#include <Block.h>
#include <sys/mman.h>

#include <atomic>
#include <cstring>

#include "metal_sim/control.h"

namespace metal_sim {

namespace {

constexpr std::size_t guard_bytes = 4096;
constexpr std::size_t element_alignment = 32;  // of the largest vector type
std::atomic<NSUInteger> allocated{0};

constexpr std::size_t rounded(std::size_t bytes, std::size_t to) {
    return (bytes + to - 1) / to * to;
}

}  // namespace

NSUInteger allocated_bytes() {
    return allocated;
}

void require_storage(const char* call, MTLResourceOptions options) {
    const auto mode = static_cast<MTLStorageMode>((options >> 4) & 15);
    require(mode == MTLStorageModeShared || mode == MTLStorageModePrivate, call,
            "storage mode " + std::to_string(mode) + " is not simulated for buffers; use shared or private");
}

}  // namespace metal_sim

using namespace metal_sim;

@implementation SimBuffer
@synthesize bytes = _bytes;
@synthesize length = _length;
@synthesize slack = _slack;

- (id)initWithLength:(NSUInteger)length options:(MTLResourceOptions)options heap:(SimHeap*)heap {
    if (!(self = [super init])) return nil;
    _options = options;
    if (length > max_buffer_bytes || allocated + length > settings().memory_bytes) {
        [self release];
        return nil;
    }
    const std::size_t data = rounded(length, guard_bytes);
    _mappingLength = data + 2 * guard_bytes;
    void* mapping = mmap(NULL, _mappingLength, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED || (heap && ![heap take:length])) {
        if (mapping != MAP_FAILED) munmap(mapping, _mappingLength);
        [self release];
        return nil;
    }
    _mapping = mapping;
    _length = length;
    _heap = [heap retain];
    allocated += length;
    auto* first = static_cast<std::byte*>(_mapping) + guard_bytes;
    mprotect(first, data, PROT_READ | PROT_WRITE);
    _bytes = settings().buffers_end_at_guard ? first + data - rounded(length, element_alignment) : first;
    _slack = static_cast<NSUInteger>(first + data - (_bytes + length));
    std::memset(_bytes + length, static_cast<int>(slack_byte), _slack);
    return self;
}

- (id)initWithPointer:(void*)pointer
               length:(NSUInteger)length
              options:(MTLResourceOptions)options
          deallocator:(void (^)(void* pointer, NSUInteger length))deallocator {
    if (!(self = [super init])) return nil;
    _options = options;
    _bytes = static_cast<std::byte*>(pointer);
    _length = length;
    if (deallocator) _deallocator = Block_copy(deallocator);
    return self;
}

- (void)dealloc {
    if (_mapping) munmap(_mapping, _mappingLength);
    if (_deallocator) {
        _deallocator(_bytes, _length);
        Block_release(_deallocator);
    } else if (_mapping) {
        allocated -= _length;
        [_heap give:_length];
    }
    [_heap release];
    [super dealloc];
}

- (void*)contents {
    return [self storageMode] == MTLStorageModePrivate ? NULL : _bytes;
}
- (uint64_t)gpuAddress {
    return reinterpret_cast<uint64_t>(_bytes);
}
- (MTLResourceOptions)resourceOptions {
    return _options;
}
- (MTLCPUCacheMode)cpuCacheMode {
    return static_cast<MTLCPUCacheMode>(_options & 15);
}
- (MTLStorageMode)storageMode {
    return static_cast<MTLStorageMode>((_options >> 4) & 15);
}
- (MTLHazardTrackingMode)hazardTrackingMode {
    return static_cast<MTLHazardTrackingMode>((_options >> 8) & 3);
}
- (id<MTLHeap>)heap {
    return _heap;
}
- (NSUInteger)allocatedSize {
    return rounded(_length, page_bytes);
}
- (MTLPurgeableState)setPurgeableState:(MTLPurgeableState)state {
    (void)state;
    return MTLPurgeableStateNonVolatile;
}
- (void)addDebugMarker:(NSString*)marker range:(NSRange)range {
    (void)marker;
    require(NSMaxRange(range) <= _length, "-[MTLBuffer addDebugMarker:range:]", "the range leaves the buffer");
}
- (void)removeAllDebugMarkers {
}
@end

@implementation MTLHeapDescriptor
@synthesize size = _size;
@synthesize storageMode = _storageMode;
@synthesize type = _type;
- (id)init {
    if ((self = [super init])) _storageMode = MTLStorageModePrivate;
    return self;
}
- (id)copyWithZone:(NSZone*)zone {
    MTLHeapDescriptor* copy = [[MTLHeapDescriptor allocWithZone:zone] init];
    copy->_size = _size;
    copy->_storageMode = _storageMode;
    copy->_type = _type;
    return copy;
}
@end

@implementation SimHeap
@synthesize size = _size;
@synthesize storageMode = _storageMode;

- (id)initWithSize:(NSUInteger)size storageMode:(MTLStorageMode)storageMode {
    if ((self = [super init])) {
        _size = size;
        _storageMode = storageMode;
    }
    return self;
}
- (MTLHeapType)type {
    return MTLHeapTypeAutomatic;
}
- (BOOL)take:(NSUInteger)bytes {
    @synchronized(self) {
        const NSUInteger rounded_bytes = rounded(bytes, heap_alignment);
        if (_used + rounded_bytes > _size) return NO;
        _used += rounded_bytes;
        return YES;
    }
}
- (void)give:(NSUInteger)bytes {
    @synchronized(self) {
        _used -= rounded(bytes, heap_alignment);
    }
}
- (NSUInteger)usedSize {
    @synchronized(self) {
        return _used;
    }
}
- (NSUInteger)currentAllocatedSize {
    return _size;
}
- (NSUInteger)maxAvailableSizeWithAlignment:(NSUInteger)alignment {
    const NSUInteger free = _size - [self usedSize];
    return alignment > 1 ? free / alignment * alignment : free;
}
- (id<MTLBuffer>)newBufferWithLength:(NSUInteger)length options:(MTLResourceOptions)options {
    const char* call = "-[MTLHeap newBufferWithLength:options:]";
    require(length > 0, call, "a buffer cannot have length 0");
    require(static_cast<MTLStorageMode>((options >> 4) & 15) == _storageMode, call,
            "the storage mode of the buffer must be that of the heap");
    return [[SimBuffer alloc] initWithLength:length options:options heap:self];
}
@end
