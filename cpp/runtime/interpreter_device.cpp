// A device that interprets the kernels one scalar at a time: the reference that compiled code is compared with.
// Slow by design.
#include "loopir/interpret.h"
#include "runtime/device.h"
#include "topstitch/error.h"

namespace topstitch {

namespace {

class InterpretedKernel : public DeviceKernel {
public:
    explicit InterpretedKernel(loopir::Kernel kernel)
        : kernel_(std::move(kernel)), size_count_(loopir::size_params(kernel_).size()) {
        for (const loopir::BufferParam& buffer : kernel_.buffers) {
            if (buffer.role != loopir::BufferParam::Role::local) ++buffer_count_;
        }
    }
    void launch(void* const* buffers, const std::int64_t* sizes, const LaunchShape&) const override {
        loopir::interpret(kernel_, std::span(buffers, buffer_count_), std::span(sizes, size_count_));
    }
    std::int64_t scratch_bytes(std::span<const std::int64_t>) const override { return 0; }
    double compile_milliseconds() const override { return 0; }
    std::string source(const std::string& kind) const override {
        if (kind == "loopir") return loopir::print(kernel_);
        throw UserError(concat("[source] the interpreter has \"loopir\" only, not \"", kind, "\""));
    }

private:
    loopir::Kernel kernel_;
    std::size_t buffer_count_ = 0;
    std::size_t size_count_ = 0;
};

class InterpreterDevice : public DeviceBackend {
public:
    DeviceInfo info() const override {
        DeviceInfo info;
        info.name = info.type = "interpreter";
        info.description = "the loop IR interpreter, one scalar at a time";
        return info;
    }
    // A common machine, so that schedules have lanes, tiles and split reductions here too.
    stitch::Machine machine() const override {
        stitch::Machine machine{32, 16, 2, 512 << 10, 8 << 20};
        machine.int16_pairs = machine.bfloat16_pairs = machine.matrix_unit = true;
        return machine;
    }
    Compiled compile(std::span<const loopir::Kernel> kernels, const KernelOptions&) override {
        Compiled result;
        for (const loopir::Kernel& kernel : kernels)
            result.kernels.push_back(std::make_shared<const InterpretedKernel>(kernel));
        return result;
    }
    int max_threads() const override { return 1; }
    KernelCacheStats kernel_cache_stats() const override { return {}; }
};

}  // namespace

DeviceBackend& interpreter_device() {
    static InterpreterDevice device;
    return device;
}

}  // namespace topstitch
