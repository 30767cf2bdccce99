// Binary archives: which pipelines they hold. Their code stays in the simulation's own cache.
// See MTLBinaryArchive.h.
#pragma once

#include <set>

#import "device/sim_object.h"

@interface SimArchive : SimObject <MTLBinaryArchive> {
    std::set<std::string>* _pipelines;
}
// nil and an error when there is a URL, and its file is no archive.
+ (id)newArchiveWithURL:(NSURL*)url error:(NSError**)error;
- (BOOL)holds:(const std::string&)pipeline;
@end

namespace metal_sim {

// Whether one of the descriptor's archives holds its pipeline.
bool is_archived(MTLComputePipelineDescriptor* descriptor);

}  // namespace metal_sim
