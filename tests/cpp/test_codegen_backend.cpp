// Copies buffers of the runtime into those of the simulation, and back.
// See test_codegen_backend.h.
#include "test_codegen_backend.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "test_codegen_device.h"
#include "topstitch/error.h"

namespace topstitch::testing {

namespace {

using Role = loopir::BufferParam::Role;

class SimulatedKernel : public DeviceKernel {
public:
    SimulatedKernel(loopir::Kernel kernel, std::optional<codegen::Source> source)
        : kernel_(std::move(kernel)), source_(std::move(source)), params_(loopir::size_params(kernel_)) {}

    void launch(void* const* buffers, const std::int64_t* sizes, const LaunchShape&) const override {
        const std::vector<std::int64_t> arguments(sizes, sizes + params_.size());
        std::vector<Data> data;
        for (const loopir::BufferParam& buffer : kernel_.buffers) {
            if (buffer.role == Role::local) continue;
            const auto elements = static_cast<std::size_t>(evaluated(buffer.size, arguments));
            const auto* bytes = static_cast<const std::byte*>(buffers[data.size()]);
            data.emplace_back();
            data.back().bytes.assign(bytes, bytes + elements * size_of(buffer.dtype));
        }
        data = source_ ? run_in_each_order(*source_, data, arguments) : run_interpreted(kernel_, data, arguments);
        std::size_t slot = 0;
        for (const loopir::BufferParam& buffer : kernel_.buffers) {
            if (buffer.role == Role::local) continue;
            if (buffer.role != Role::input) {
                std::memcpy(buffers[slot], data[slot].bytes.data(), data[slot].bytes.size());
            }
            ++slot;
        }
    }
    std::int64_t scratch_bytes(std::span<const std::int64_t>) const override { return 0; }
    std::string source(const std::string&) const override { return source_ ? source_->text : ""; }
    double compile_milliseconds() const override { return 0; }

private:
    std::int64_t evaluated(const Dim& dim, const std::vector<std::int64_t>& arguments) const {
        if (dim.is_known()) return dim.value();
        const auto found = std::find(params_.begin(), params_.end(), dim);
        if (found == params_.end()) throw InternalError(concat("test: no argument gives ", dim.str()));
        return arguments[static_cast<std::size_t>(found - params_.begin())];
    }

    loopir::Kernel kernel_;
    std::optional<codegen::Source> source_;
    std::vector<Dim> params_;
};

class SimulatedDevice : public DeviceBackend {
public:
    DeviceInfo info() const override {
        DeviceInfo info;
        info.name = info.type = "simulation";
        return info;
    }
    stitch::Machine machine() const override {
        stitch::Machine machine;
        machine.threads = 16;
        machine.packs_products = false;
        machine.row_bytes = codegen::msl_dialect().limits().group_bytes / 2;
        machine.group_bytes = codegen::msl_dialect().limits().group_bytes;
        return machine;
    }
    Compiled compile(std::span<const loopir::Kernel> kernels, const KernelOptions& options) override {
        Compiled result;
        for (const loopir::Kernel& kernel : kernels) {
            // Launches of tests are small enough for indices of 32 bits; every other kernel has wider ones.
            narrow_ = !narrow_;
            auto emitted = codegen::emit(kernel, codegen::msl_dialect(), {options.fused_multiply_add, narrow_});
            auto* source = std::get_if<codegen::Source>(&emitted);
            result.kernels.push_back(std::make_shared<const SimulatedKernel>(
                kernel, source == nullptr ? std::nullopt : std::optional(std::move(*source))));
        }
        return result;
    }
    int max_threads() const override { return 1; }
    KernelCacheStats kernel_cache_stats() const override { return {}; }

private:
    bool narrow_ = false;
};

}  // namespace

DeviceBackend& simulated_device() {
    static SimulatedDevice device;
    return device;
}

}  // namespace topstitch::testing
