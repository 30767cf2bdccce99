// The devices there are, and the handle by which they are named.
// Back ends are asked for here, in one list.
#include "topstitch/device.h"

#include <algorithm>

#include "core/settings.h"
#include "runtime/device.h"
#include "topstitch/error.h"

namespace topstitch {

const MetalBackend* metal_backend = nullptr;

namespace {

std::vector<DeviceBackend*> backends() {
    std::vector<DeviceBackend*> found{&cpu_device()};
    DeviceBackend* metal = metal_backend != nullptr ? metal_backend->system_device() : nullptr;
    if (metal != nullptr) found.push_back(metal);
    return found;
}

bool has_name(const DeviceInfo& info, const std::string& name) {
    return info.name == name || info.type == name;
}

DeviceBackend& backend_named(const std::string& name, const std::string& asked_by) {
    if (name == "cpu") return cpu_device();  // without looking for others
    std::string known;
    for (DeviceBackend* backend : backends()) {
        const DeviceInfo info = backend->info();
        if (has_name(info, name)) return *backend;
        known += concat(known.empty() ? "" : ", ", '"', info.name, '"');
    }
    throw UserError(concat("[Device] there is no device \"", name, "\" here", asked_by, "; there is ", known));
}

DeviceBackend& default_backend() {
    static DeviceBackend& chosen = [&]() -> DeviceBackend& {
        const std::string name = setting(Setting::device);
        return name.empty() ? cpu_device() : backend_named(name, ", which TOPSTITCH_DEVICE asks for");
    }();
    return chosen;
}

}  // namespace

Device::Device() : backend_(&default_backend()) {}

Device::Device(const std::string& name) : backend_(&backend_named(name, "")) {}

DeviceInfo Device::info() const {
    return backend_->info();
}

std::vector<Device> devices() {
    std::vector<DeviceBackend*> all = backends();
    // A name that no device has is an error of whoever needs the default one, not of this list.
    const std::string first = setting(Setting::device);
    std::stable_partition(all.begin(), all.end(), [&](const DeviceBackend* backend) {
        return has_name(backend->info(), first.empty() ? "cpu" : first);
    });
    std::vector<Device> found;
    for (DeviceBackend* backend : all) found.emplace_back(*backend);
    return found;
}

}  // namespace topstitch
