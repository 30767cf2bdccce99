// The schedule of a region: which loops there are, in what order, and which run in parallel, in lanes or
// unrolled. Data only: chosen by choose_schedule, printed in reports, carried out by lowering.
#pragma once

#include <string>
#include <vector>

#include "stitch/region.h"

namespace topstitch::stitch {

// What a schedule is chosen for.
struct Machine {
    int vector_bytes = 16;
    int vector_registers = 16;
    int threads = 1;
    std::int64_t l2_bytes = 512 << 10;
    std::int64_t l3_bytes = 8 << 20;
};

struct LoopSpec {
    std::string name;
    Dim extent;
    bool parallel = false;
    bool vector = false;
    int unroll = 1;
};

struct Schedule {
    std::vector<LoopSpec> outer;  // from the outside in
    std::vector<LoopSpec> rows;   // inside those, run once for each pass over the row
    // Each variable of the region over the loops: loop k of outer ++ rows is variable k here.
    std::vector<Index> region_vars;
    // A reduction with too few outer iterations for the threads is split: its first row loop runs in this
    // many chunks (0: not split), side by side, and a second kernel combines them. The number is fixed, so that
    // the order of summation does not depend on the thread count.
    int chunks = 0;
    // Results larger than the caches are written around them.
    bool streaming = false;

    std::string str() const;  // "parallel i(64) > vector j(4096) x4"
};

// One buffer access of a region: an offset in elements over the region's variables.
struct RegionAccess {
    TensorRef tensor;
    Index offset;
    bool store = false;
};
std::vector<RegionAccess> buffer_accesses(const Program& program, const Partition& partition, const Region& region);

// The number of passes over the row: 1 + the longest chain of reductions of which one needs the other (see lower.cpp).
int count_passes(const Partition& partition, const Region& region);

Schedule choose_schedule(const Program& program, const Partition& partition, const Region& region,
                         const StitchOptions& options, const Machine& machine);

}  // namespace topstitch::stitch
