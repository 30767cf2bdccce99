// Devices: where graphs can run, and what is known of each.
// There is always the CPU; other back ends add theirs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "topstitch/export.h"

namespace topstitch {

class DeviceBackend;

struct DeviceInfo {
    std::string name;         // "cpu"
    std::string type;         // "cpu", "metal", "cuda"
    std::string description;  // for people: the processor and what its kernels use of it
    int threads = 1;          // that kernels run on at most
    std::int64_t memory_bytes = 0;
    bool unified_memory = true;  // arrays of the host are used in place
};

// A cheap handle. Equal handles are the same device.
class TOPSTITCH_API Device {
public:
    Device();  // the default device: the CPU, or what TOPSTITCH_DEVICE names
    explicit Device(DeviceBackend& backend) : backend_(&backend) {}
    // By name or type; UserError that lists the devices there are.
    explicit Device(const std::string& name);

    DeviceInfo info() const;
    DeviceBackend& backend() const { return *backend_; }
    friend bool operator==(const Device& a, const Device& b) { return a.backend_ == b.backend_; }

private:
    DeviceBackend* backend_;
};

// All that can be used here, the default one first.
TOPSTITCH_API std::vector<Device> devices();

// Kernels in memory and on disk, over the whole process.
struct KernelCacheStats {
    std::int64_t hits = 0;       // found in memory
    std::int64_t disk_hits = 0;  // read from the cache folder
    std::int64_t compiled = 0;
    std::int64_t evictions = 0;  // from memory
    std::int64_t entries = 0;    // in memory
};

}  // namespace topstitch
