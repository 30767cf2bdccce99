// Encoders, which check everything that Metal's validation layer checks and turn calls into commands.
// See MTLComputeCommandEncoder.h and MTLBlitCommandEncoder.h.
#pragma once

#import "device/sim_buffer.h"
#import "device/sim_command_buffer.h"
#import "device/sim_pipeline.h"

namespace metal_sim {

struct Bindings;

}  // namespace metal_sim

@interface SimEncoder : SimObject <MTLCommandEncoder> {
    SimCommandBuffer* _commandBuffer;
    BOOL _ended;
}
- (id)initWithCommandBuffer:(SimCommandBuffer*)commandBuffer;
- (void)requireOpen:(const char*)call;
@end

@interface SimComputeEncoder : SimEncoder <MTLComputeCommandEncoder> {
    MTLDispatchType _dispatchType;
    SimPipeline* _pipeline;
    metal_sim::Bindings* _bindings;
}
- (id)initWithCommandBuffer:(SimCommandBuffer*)commandBuffer dispatchType:(MTLDispatchType)dispatchType;
@end

@interface SimBlitEncoder : SimEncoder <MTLBlitCommandEncoder>
@end
