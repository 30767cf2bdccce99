// The arrays of one run where its device can use them: those that it does not reach are copied, and results are brought
// back afterwards.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "graph/graph_data.h"
#include "runtime/device.h"

namespace topstitch {

// An array that a device reaches, packed and not yet written.
NDArray device_array(DeviceBackend& device, DType dtype, const Sizes& shape);

class Staging {
public:
    Staging(DeviceBackend& device, DeviceStream& stream) : device_(device), stream_(stream) {}

    // The same elements, as far apart.
    NDArray input(const NDArray& array) const;
    // What is to be written instead; bring_back() then copies the elements into `array`.
    NDArray result(const NDArray& array);
    // Moves the variable's value to where it is reached, and keeps it there. Its mutex is held.
    void variable(Variable& variable) const;
    void reach(const Buffer& buffer) const;
    // After stream.wait().
    void bring_back() const;

private:
    DeviceBackend& device_;
    DeviceStream& stream_;
    std::vector<std::pair<NDArray, NDArray>> results_;  // from, to
};

}  // namespace topstitch
