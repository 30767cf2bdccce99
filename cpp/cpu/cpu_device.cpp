// The CPU behind the device interface: kernels from the JIT, launches on the thread pool.
// See runtime/device.h.
#include "core/memory.h"
#include "cpu/jit.h"
#include "cpu/thread_pool.h"
#include "runtime/device.h"
#include "topstitch/error.h"
#include "topstitch/executable.h"

namespace topstitch {

namespace {

class CpuKernel : public DeviceKernel {
public:
    CpuKernel(std::shared_ptr<const cpu::CompiledKernel> compiled, const loopir::Kernel& kernel)
        : compiled_(std::move(compiled)),
          function_(compiled_->function()),
          granularity_(compiled_->granularity()),
          loop_ir_(loopir::print(kernel)) {}

    void launch(void* const* buffers, const std::int64_t* sizes, const LaunchShape& shape) const override {
        const auto piece = [&](int thread) {
            return static_cast<std::byte*>(shape.scratch) + thread * shape.scratch_stride;
        };
        if (shape.threads <= 1) {
            function_(buffers, sizes, piece(0), 0, shape.parallel_extent);
            return;
        }
        cpu::parallel_for(shape.parallel_extent, granularity_, shape.threads,
                          [&](int thread, std::int64_t begin, std::int64_t end) {
                              function_(buffers, sizes, piece(thread), begin, end);
                          });
    }
    std::int64_t scratch_bytes(std::span<const std::int64_t> sizes) const override {
        return compiled_->scratch_bytes(sizes);
    }
    double compile_milliseconds() const override { return compiled_->compile_milliseconds(); }
    std::string source(const std::string& kind) const override {
        if (kind == "loopir") return loop_ir_;
        if (kind == "llvm") return compiled_->llvm_ir();
        if (kind == "asm") return compiled_->assembly();
        throw UserError(concat("[source] the CPU has \"loopir\", \"llvm\" and \"asm\", not \"", kind, "\""));
    }

private:
    std::shared_ptr<const cpu::CompiledKernel> compiled_;
    cpu::KernelFunction function_;
    std::int64_t granularity_;
    std::string loop_ir_;
};

class CpuDevice : public DeviceBackend {
public:
    DeviceInfo info() const override {
        const cpu::TargetInfo& target = cpu::host_target();
        DeviceInfo info;
        info.name = info.type = "cpu";
        info.description = concat(target.cpu, ", vectors of ", 8 * target.vector_bytes, " bits");
        info.threads = cpu::num_threads();
        info.memory_bytes = static_cast<std::int64_t>(total_memory());
        return info;
    }
    stitch::Machine machine() const override {
        const cpu::TargetInfo& target = cpu::host_target();
        stitch::Machine machine;
        machine.vector_bytes = target.vector_bytes;
        machine.vector_registers = target.vector_registers;
        machine.threads = cpu::num_threads();
        machine.int16_pairs = target.int16_pairs;
        machine.bfloat16_pairs = target.bfloat16_pairs;
        machine.matrix_unit = target.matrix_unit;
        machine.l2_bytes = target.l2_bytes;
        machine.l3_bytes = target.l3_bytes;
        return machine;
    }
    Compiled compile(std::span<const loopir::Kernel> kernels, const KernelOptions& options) override {
        cpu::TargetInfo target = cpu::host_target();
        target.fuse = options.fused_multiply_add;
        target.optimization_level = options.optimization_level;
        cpu::CompileCounts counts;
        const auto compiled = cpu::compile(kernels, target, &counts);
        Compiled result;
        for (std::size_t k = 0; k < kernels.size(); ++k) {
            result.kernels.push_back(std::make_shared<const CpuKernel>(compiled[k], kernels[k]));
        }
        result.newly_compiled = counts.compiled;
        result.from_disk = counts.from_disk;
        return result;
    }
    KernelCacheStats kernel_cache_stats() const override { return cpu::kernel_cache_stats(); }
    int max_threads() const override { return cpu::num_threads(); }
};

}  // namespace

DeviceBackend& cpu_device() {
    static CpuDevice device;
    return device;
}

int num_threads() {
    return cpu::num_threads();
}

void set_num_threads(int threads) {
    if (threads < 1) throw UserError(concat("[set_num_threads] at least 1 thread is needed, not ", threads));
    cpu::set_num_threads(threads);
}

}  // namespace topstitch
