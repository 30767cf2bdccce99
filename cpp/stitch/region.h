// A region: operations that become one loop nest, each aligned with the region's variables.
// Regions start as single operations and grow by merging (merge.cpp), in the order of partition.cpp.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "stitch/access.h"

namespace topstitch::stitch {

// A loop variable of a region. Row variables are those that the region's reductions run over.
struct RegionVar {
    Dim extent;
    bool row = false;
};

// An operation in a region: its own variables as index expressions over the region's.
struct Member {
    std::vector<Index> own;
    Indices home;  // the output index that one iteration computes
    // `home` may be out of range in some iterations: computed only under the guard of whoever asks.
    bool partial = false;
};

struct Region {
    std::vector<RegionVar> vars;
    std::map<OpId, Member> members;  // ascending ids are a topological order
    bool has_reduce = false;         // or a scan: there is a row
    bool has_contraction = false;
    std::vector<OpId> outputs;  // members that somebody outside reads, or that are results

    std::vector<loopir::VarId> row_vars() const;
    bool depends_on_row(const Indices& at) const;
};

// Why a producer and a consumer were not stitched.
struct Refusal {
    OpId producer = -1;
    OpId consumer = -1;
    std::string reason;
};

struct Partition {
    std::vector<OpAccess> accesses;
    std::vector<Region> regions;  // in an order in which they can run
    std::vector<int> region_of;   // by operation; -1: none (inputs, and views only ever inlined)
    std::vector<Refusal> refusals;
    std::vector<std::vector<OpId>> readers;  // by operation: who requests it, with views looked through
};

struct StitchOptions {
    bool stitch = true;
    // Metal has 31, of which one holds the sizes; kept everywhere, so that regions are the same on every device.
    int max_buffers = 30;
    int max_members = 128;
    // The present value of a dim, for cost decisions.
    std::function<std::int64_t(const Dim&)> estimate;
};

Partition partition(const Program& program, const StitchOptions& options);

// --- Pieces shared by merging and lowering.

// A region of one operation.
Region single(const OpAccess& access, OpId op);
// An index over an operation's own variables, over the region's.
Index over_region(const Index& index, const Member& member);
Indices over_region(const Indices& at, const Member& member);

// The result of an attempt: the merged region, or why not.
struct MergeResult {
    bool merged = false;
    Region region;
    std::string reason;
};

// What merging needs to know about the whole.
struct MergeContext {
    const GraphData& graph;
    const std::vector<OpAccess>& accesses;
    const std::vector<std::vector<OpId>>& readers;
    const std::vector<bool>& required;  // by operation: a result or a variable's new value
    const StitchOptions& options;
};

// Merges `producer` and `consumer`, which requests `tensor` of it at `request` (own variables of `reader`). The merged
// region takes over the members of one of the two; after a refusal both are as they were.
MergeResult merge(const MergeContext& context, Region& producer, Region& consumer, TensorRef tensor, OpId reader,
                  const Request& request);

}  // namespace topstitch::stitch
