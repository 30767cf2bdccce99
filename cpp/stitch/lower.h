// Lowers a region with its schedule to loop IR kernels: one, and others that pack a factor or combine a split
// reduction. The bodies of the operations are asked for elements; where an operand comes from is decided here.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "stitch/schedule.h"

namespace topstitch::stitch {

// What a kernel parameter is bound to.
struct KernelArgument {
    TensorRef tensor;  // of the program
    int scratch = -1;  // or: scratch buffer of the region (partial results of a split reduction)
};

struct LoweredKernel {
    loopir::Kernel kernel;
    std::vector<KernelArgument> arguments;  // for the parameters that are not local, in order
    Dim parallel_extent = 1;                // iterations of the parallel loop
};

struct LoweredRegion {
    struct Scratch {
        DType dtype = DType::float32;
        Dim size;  // elements
    };
    std::vector<LoweredKernel> kernels;  // in the order in which they run
    std::vector<Scratch> scratch;
    std::vector<OpId> kept;   // row values kept in local memory
    std::optional<Dim> work;  // additions, roughly, where the region's variables do not tell
};

// `in_place`: outputs (by operation) that take the storage of an input tensor which they replace.
LoweredRegion lower(const Program& program, const Partition& partition, const Region& region, const Schedule& schedule,
                    const std::map<OpId, TensorRef>& in_place, const std::string& name);

}  // namespace topstitch::stitch
