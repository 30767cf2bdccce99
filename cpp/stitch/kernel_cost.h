// What one launch of a kernel moves and computes, for profiles.
// Counted from the loop IR, as expressions over the dims.
#pragma once

#include "loopir/kernel.h"

namespace topstitch::stitch {

struct KernelCounts {
    Dim bytes_read;     // of the buffers that are read, once each
    Dim bytes_written;  // the same of those written
    Dim flops;          // floating-point additions, multiplications, ...; a function such as exp counts as one
};

// Loops that end early at a limit count in full.
KernelCounts count(const loopir::Kernel& kernel);

}  // namespace topstitch::stitch
