// The devices there are, and the handle by which they are named.
// Back ends are asked for here, in one list.
#include "topstitch/device.h"

#include "runtime/device.h"
#include "topstitch/error.h"

namespace topstitch {

Device::Device() : backend_(&cpu_device()) {}

Device::Device(const std::string& name) : backend_(nullptr) {
    std::string known;
    for (const Device& device : devices()) {
        const DeviceInfo info = device.info();
        if (info.name == name || info.type == name) {
            backend_ = device.backend_;
            return;
        }
        known += concat(known.empty() ? "" : ", ", '"', info.name, '"');
    }
    throw UserError(concat("[Device] there is no device \"", name, "\" here; there is ", known));
}

DeviceInfo Device::info() const {
    return backend_->info();
}

std::vector<Device> devices() {
    return {Device(cpu_device())};
}

}  // namespace topstitch
