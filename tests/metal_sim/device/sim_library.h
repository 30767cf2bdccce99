// Libraries and functions, on top of msl/library.h.
// See MTLLibrary.h.
#pragma once

#import "device/sim_object.h"

#include <memory>

#include "msl/library.h"

namespace metal_sim {

using FunctionConstants = std::map<unsigned, std::vector<unsigned char>>;
// Values by index, and those that were set by name.
struct ConstantValues {
    FunctionConstants by_index;
    std::map<std::string, std::vector<unsigned char>> by_name;
};

}  // namespace metal_sim

@interface SimLibrary : SimObject <MTLLibrary> {
    std::shared_ptr<const metal_sim::msl::Library>* _library;
    metal_sim::msl::CompileRequest* _request;
}
// nil and an error when the source does not compile.
+ (id)libraryWithSource:(NSString*)source options:(MTLCompileOptions*)options error:(NSError**)error;
@end

@interface SimFunction : SimObject <MTLFunction> {
    std::shared_ptr<const metal_sim::msl::Library>* _library;
    const metal_sim::msl::KernelInfo* _kernel;
}
- (id)initWithLibrary:(const std::shared_ptr<const metal_sim::msl::Library>&)library
               kernel:(const metal_sim::msl::KernelInfo*)kernel;
- (const metal_sim::msl::KernelInfo&)kernel;
- (std::string)identity;  // the same for the same code, in each process
@end

@interface MTLFunctionConstantValues (Simulation)
- (const metal_sim::ConstantValues&)simulationValues;
@end

@interface MTLFunctionConstant (Simulation)
- (id)initWithInfo:(const metal_sim::msl::ConstantInfo&)info;
@end
