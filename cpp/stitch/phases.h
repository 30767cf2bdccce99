// When the members of a region are computed: a row region walks its row once for each pass.
// A reduction's result is there only after the pass that accumulates it.
#pragma once

#include <map>

#include "stitch/schedule.h"

namespace topstitch::stitch {

struct Phases {
    // By operation: the first pass in which it can be computed (for a reduction: the pass that accumulates it).
    std::map<OpId, int> pass;
    std::map<OpId, bool> row;  // by operation: its value differs along the row
    int passes = 0;            // passes over the row that the region needs
};
Phases find_phases(const Partition& partition, const Region& region);

// Row values that a later pass needs and that are dearer to compute again than to keep.
std::vector<OpId> find_kept(const Partition& partition, const Region& region, const Phases& phases);

}  // namespace topstitch::stitch
