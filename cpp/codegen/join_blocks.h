// Sums that are added up in blocks, and the blocks in float64, as sums of one loop each.
// Where a machine keeps the parts of a sum in many accumulators anyway, blocks are only in the way.
#pragma once

#include "loopir/kernel.h"

namespace topstitch::codegen {

// Each "init total; for block: init part; for i below length - block * width: accumulate part; accumulate total, part"
// becomes "init part; for i in 0..length: accumulate part". The arguments of the kernel stay what they are.
loopir::Kernel join_blocks(loopir::Kernel kernel);

}  // namespace topstitch::codegen
