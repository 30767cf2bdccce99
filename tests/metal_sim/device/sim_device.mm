// The device: an Apple GPU of family 8 by what it says of itself, and a thread of the host in truth.
// See MTLDevice.h.
#include <cstring>

#import "device/sim_archive.h"
#import "device/sim_buffer.h"
#import "device/sim_command_buffer.h"
#import "device/sim_event.h"
#import "device/sim_library.h"
#import "device/sim_pipeline.h"
#include "device/worker.h"
#include "grid/threadgroup_memory.h"
#include "metal_sim/control.h"

#include <Block.h>

using namespace metal_sim;

@interface SimDevice : SimObject <MTLDevice>
@end

namespace metal_sim {

id<MTLDevice> shared_device() {
    static SimDevice* device = [[SimDevice alloc] init];
    return device;
}

}  // namespace metal_sim

@implementation SimDevice
- (NSString*)name {
    return @"Metal simulation on the host";
}
- (uint64_t)registryID {
    return 1;
}
- (BOOL)hasUnifiedMemory {
    return YES;
}
- (BOOL)isLowPower {
    return NO;
}
- (BOOL)isRemovable {
    return NO;
}
- (uint64_t)recommendedMaxWorkingSetSize {
    return settings().memory_bytes;
}
- (NSUInteger)currentAllocatedSize {
    return allocated_bytes();
}
- (NSUInteger)maxBufferLength {
    return max_buffer_bytes;
}
- (NSUInteger)maxThreadgroupMemoryLength {
    return max_threadgroup_bytes;
}
- (MTLSize)maxThreadsPerThreadgroup {
    return MTLSizeMake(max_threads_per_threadgroup, max_threads_per_threadgroup, max_threads_per_threadgroup);
}
- (BOOL)supportsFamily:(MTLGPUFamily)gpuFamily {
    return (gpuFamily >= MTLGPUFamilyApple1 && gpuFamily <= MTLGPUFamilyApple8) || gpuFamily == MTLGPUFamilyMac2 ||
           (gpuFamily >= MTLGPUFamilyCommon1 && gpuFamily <= MTLGPUFamilyCommon3) || gpuFamily == MTLGPUFamilyMetal3;
}

- (id<MTLCommandQueue>)newCommandQueue {
    return [[SimQueue alloc] initWithMaxCommandBufferCount:64];
}
- (id<MTLCommandQueue>)newCommandQueueWithMaxCommandBufferCount:(NSUInteger)count {
    require(count > 0, "-[MTLDevice newCommandQueueWithMaxCommandBufferCount:]", "the count is 0");
    return [[SimQueue alloc] initWithMaxCommandBufferCount:count];
}

// Memory

- (MTLSizeAndAlign)heapBufferSizeAndAlignWithLength:(NSUInteger)length options:(MTLResourceOptions)options {
    (void)options;
    const MTLSizeAndAlign result = {(length + heap_alignment - 1) / heap_alignment * heap_alignment, heap_alignment};
    return result;
}
- (id<MTLHeap>)newHeapWithDescriptor:(MTLHeapDescriptor*)descriptor {
    const char* call = "-[MTLDevice newHeapWithDescriptor:]";
    require(descriptor != nil, call, "the descriptor is nil");
    require([descriptor size] > 0, call, "the size is 0");
    require([descriptor type] == MTLHeapTypeAutomatic, call, "only automatic heaps are simulated");
    require_storage(call, [descriptor storageMode] << 4);
    return [[SimHeap alloc] initWithSize:[descriptor size] storageMode:[descriptor storageMode]];
}
- (id<MTLBuffer>)newBufferWithLength:(NSUInteger)length options:(MTLResourceOptions)options {
    const char* call = "-[MTLDevice newBufferWithLength:options:]";
    require(length > 0, call, "a buffer cannot have length 0");
    require_storage(call, options);
    return [[SimBuffer alloc] initWithLength:length options:options heap:nil];
}
- (id<MTLBuffer>)newBufferWithBytes:(const void*)pointer length:(NSUInteger)length options:(MTLResourceOptions)options {
    const char* call = "-[MTLDevice newBufferWithBytes:length:options:]";
    require(length > 0, call, "a buffer cannot have length 0");
    require(pointer != NULL, call, "the pointer is NULL");
    require_storage(call, options);
    SimBuffer* buffer = [[SimBuffer alloc] initWithLength:length options:options heap:nil];
    if (buffer) std::memcpy([buffer bytes], pointer, length);
    return buffer;
}
- (id<MTLBuffer>)newBufferWithBytesNoCopy:(void*)pointer
                                   length:(NSUInteger)length
                                  options:(MTLResourceOptions)options
                              deallocator:(void (^)(void* pointer, NSUInteger length))deallocator {
    const char* call = "-[MTLDevice newBufferWithBytesNoCopy:length:options:deallocator:]";
    require(pointer != NULL, call, "the pointer is NULL");
    require(reinterpret_cast<uintptr_t>(pointer) % page_bytes == 0, call,
            "the pointer is not aligned to a page of 16384 bytes");
    require(length > 0 && length % page_bytes == 0, call,
            "length " + std::to_string(length) + " is not a multiple of the page of 16384 bytes");
    require(((options >> 4) & 15) == MTLStorageModeShared, call, "memory of the host can only be shared");
    return [[SimBuffer alloc] initWithPointer:pointer length:length options:options deallocator:deallocator];
}

// Code

- (id<MTLLibrary>)newLibraryWithSource:(NSString*)source options:(MTLCompileOptions*)options error:(NSError**)error {
    require(source != nil, "-[MTLDevice newLibraryWithSource:options:error:]", "the source is nil");
    return [[SimLibrary libraryWithSource:source options:options error:error] retain];
}
- (void)newLibraryWithSource:(NSString*)source
                     options:(MTLCompileOptions*)options
           completionHandler:(MTLNewLibraryCompletionHandler)completionHandler {
    const char* call = "-[MTLDevice newLibraryWithSource:options:completionHandler:]";
    require(source != nil && completionHandler != nil, call, "the source or the handler is nil");
    NSString* copied = [source copy];
    MTLCompileOptions* kept = [options copy];
    MTLNewLibraryCompletionHandler handler = Block_copy(completionHandler);
    [self inBackground:[copied, kept, handler] {
        NSError* error = nil;
        handler([SimLibrary libraryWithSource:copied options:kept error:&error], error);
        Block_release(handler);
        [copied release];
        [kept release];
    }];
}
- (void)inBackground:(const std::function<void()>&)task {
    static auto* worker = new Worker;  // never destroyed: it may be at work when the process ends
    worker->submit(task);
}

- (id<MTLComputePipelineState>)newComputePipelineStateWithFunction:(id<MTLFunction>)computeFunction
                                                             error:(NSError**)error {
    require(computeFunction != nil, "-[MTLDevice newComputePipelineStateWithFunction:error:]", "the function is nil");
    MTLComputePipelineDescriptor* descriptor = [[[MTLComputePipelineDescriptor alloc] init] autorelease];
    [descriptor setComputeFunction:computeFunction];
    return [SimPipeline newPipelineWithDescriptor:descriptor error:error];
}
- (void)newComputePipelineStateWithFunction:(id<MTLFunction>)computeFunction
                          completionHandler:(MTLNewComputePipelineStateCompletionHandler)completionHandler {
    const char* call = "-[MTLDevice newComputePipelineStateWithFunction:completionHandler:]";
    require(computeFunction != nil && completionHandler != nil, call, "the function or the handler is nil");
    id<MTLFunction> function = [computeFunction retain];
    MTLNewComputePipelineStateCompletionHandler handler = Block_copy(completionHandler);
    [self inBackground:[self, function, handler] {
        NSError* error = nil;
        id<MTLComputePipelineState> state = [self newComputePipelineStateWithFunction:function error:&error];
        handler(state, error);
        Block_release(handler);
        [state release];
        [function release];
    }];
}
- (id<MTLComputePipelineState>)newComputePipelineStateWithDescriptor:(MTLComputePipelineDescriptor*)descriptor
                                                             options:(MTLPipelineOption)options
                                                          reflection:(void*)reflection
                                                               error:(NSError**)error {
    const char* call = "-[MTLDevice newComputePipelineStateWithDescriptor:options:reflection:error:]";
    require([descriptor computeFunction] != nil, call, "the descriptor or its function is nil");
    const bool from_archive = options == MTLPipelineOptionFailOnBinaryArchiveMiss;
    require((from_archive || options == MTLPipelineOptionNone) && reflection == NULL, call,
            "reflection and options other than FailOnBinaryArchiveMiss are not simulated");
    require([descriptor maxTotalThreadsPerThreadgroup] <= max_threads_per_threadgroup, call,
            "maxTotalThreadsPerThreadgroup is more than 1024");
    if (from_archive && !is_archived(descriptor)) {
        set_error(error, MTLBinaryArchiveDomain, MTLBinaryArchiveErrorNone,
                  "no archive has the pipeline of '" + text([[descriptor computeFunction] name]) + "'");
        return nil;
    }
    return [SimPipeline newPipelineWithDescriptor:descriptor error:error];
}
- (id<MTLBinaryArchive>)newBinaryArchiveWithDescriptor:(MTLBinaryArchiveDescriptor*)descriptor error:(NSError**)error {
    require(descriptor != nil, "-[MTLDevice newBinaryArchiveWithDescriptor:error:]", "the descriptor is nil");
    return [SimArchive newArchiveWithURL:[descriptor url] error:error];
}

// Events

- (id<MTLEvent>)newEvent {
    return [[SimEvent alloc] init];
}
- (id<MTLSharedEvent>)newSharedEvent {
    return [[SimEvent alloc] init];
}
@end

id<MTLDevice> MTLCreateSystemDefaultDevice(void) {
    return [shared_device() retain];
}
NSArray* MTLCopyAllDevices(void) {
    return [[NSArray alloc] initWithObjects:shared_device(), nil];
}
