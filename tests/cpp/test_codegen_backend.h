// A device for tests of whole graphs: each kernel becomes Metal source and runs on the simulation, in three orders of
// threads. Kernels without a Metal form are interpreted. It is not the product's Metal device.
#pragma once

#include "runtime/device.h"

namespace topstitch::testing {

// source("metal") of an executable is that of all its kernels.
DeviceBackend& simulated_device();

}  // namespace topstitch::testing
