// Compute pipelines.
// See MTLComputePipeline.h.
#pragma once

#import "device/sim_library.h"

@interface SimPipeline : SimObject <MTLComputePipelineState> {
    SimFunction* _function;
    NSUInteger _maxThreads;
    BOOL _wholeSimdgroups;
}
// nil and an error when the kernel needs more than the device has.
+ (id)newPipelineWithDescriptor:(MTLComputePipelineDescriptor*)descriptor error:(NSError**)error;
- (const metal_sim::msl::KernelInfo&)kernel;
@property(readonly) BOOL wholeSimdgroups;  // promised by the descriptor
@end

namespace metal_sim {

inline constexpr NSUInteger max_threads_per_threadgroup = 1024;

}  // namespace metal_sim
