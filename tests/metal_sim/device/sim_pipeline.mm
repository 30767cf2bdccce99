// See sim_pipeline.h.
// A kernel needs no work here; what is checked are the limits of the device.
#import "device/sim_pipeline.h"

#include <algorithm>

#include "grid/threadgroup_memory.h"

using namespace metal_sim;

@implementation MTLComputePipelineDescriptor
@synthesize label = _label;
@synthesize computeFunction = _computeFunction;
@synthesize threadGroupSizeIsMultipleOfThreadExecutionWidth = _threadGroupSizeIsMultipleOfThreadExecutionWidth;
@synthesize maxTotalThreadsPerThreadgroup = _maxTotalThreadsPerThreadgroup;
@synthesize supportIndirectCommandBuffers = _supportIndirectCommandBuffers;
@synthesize binaryArchives = _binaryArchives;

- (void)reset {
    [self setLabel:nil];
    [self setComputeFunction:nil];
    [self setBinaryArchives:nil];
    _threadGroupSizeIsMultipleOfThreadExecutionWidth = NO;
    _maxTotalThreadsPerThreadgroup = 0;
    _supportIndirectCommandBuffers = NO;
}
- (id)copyWithZone:(NSZone*)zone {
    MTLComputePipelineDescriptor* copy = [[MTLComputePipelineDescriptor allocWithZone:zone] init];
    [copy setLabel:_label];
    [copy setComputeFunction:_computeFunction];
    [copy setBinaryArchives:_binaryArchives];
    copy->_threadGroupSizeIsMultipleOfThreadExecutionWidth = _threadGroupSizeIsMultipleOfThreadExecutionWidth;
    copy->_maxTotalThreadsPerThreadgroup = _maxTotalThreadsPerThreadgroup;
    copy->_supportIndirectCommandBuffers = _supportIndirectCommandBuffers;
    return copy;
}
- (void)dealloc {
    [self reset];
    [super dealloc];
}
@end

@implementation MTLBinaryArchiveDescriptor
@synthesize url = _url;
- (id)copyWithZone:(NSZone*)zone {
    MTLBinaryArchiveDescriptor* copy = [[MTLBinaryArchiveDescriptor allocWithZone:zone] init];
    [copy setUrl:_url];
    return copy;
}
- (void)dealloc {
    [_url release];
    [super dealloc];
}
@end

@implementation SimPipeline
@synthesize wholeSimdgroups = _wholeSimdgroups;

+ (id)newPipelineWithDescriptor:(MTLComputePipelineDescriptor*)descriptor error:(NSError**)error {
    auto* function = static_cast<SimFunction*>([descriptor computeFunction]);
    const msl::KernelInfo& kernel = [function kernel];
    if (kernel.threadgroup_bytes() > max_threadgroup_bytes) {
        set_error(error, MTLLibraryErrorDomain, MTLLibraryErrorCompileFailure,
                  "kernel '" + kernel.name + "' has " + std::to_string(kernel.threadgroup_bytes()) +
                      " bytes of threadgroup variables, but the device has " + std::to_string(max_threadgroup_bytes));
        return nil;
    }
    SimPipeline* pipeline = [[SimPipeline alloc] init];
    pipeline->_function = [function retain];
    pipeline->_maxThreads = max_threads_per_threadgroup;
    for (const NSUInteger limit : {NSUInteger{kernel.max_threads}, [descriptor maxTotalThreadsPerThreadgroup]}) {
        if (limit > 0) pipeline->_maxThreads = std::min(pipeline->_maxThreads, limit);
    }
    pipeline->_wholeSimdgroups = [descriptor threadGroupSizeIsMultipleOfThreadExecutionWidth];
    [pipeline setLabel:[descriptor label]];
    return pipeline;
}
- (const msl::KernelInfo&)kernel {
    return [_function kernel];
}
- (NSUInteger)maxTotalThreadsPerThreadgroup {
    return _maxThreads;
}
- (NSUInteger)threadExecutionWidth {
    return msl_simd_width;
}
- (NSUInteger)staticThreadgroupMemoryLength {
    return [_function kernel].threadgroup_bytes();
}
- (BOOL)supportIndirectCommandBuffers {
    return NO;
}
- (void)dealloc {
    [_function release];
    [super dealloc];
}
@end
