// Metal behind the device interface: kernels as MSL, compiled by the system, launched in the stream of a run.
// Kernels that have no MSL form run on the CPU, in the same memory.
#include <algorithm>
#include <mutex>
#include <optional>
#include <variant>

#include "codegen/emit.h"
#include "core/exit_gate.h"
#include "core/fork_gate.h"
#include "core/log.h"
#include "core/memory.h"
#include "metal/shared_event.h"
#include "metal/stream.h"
#include "runtime/device.h"
#include "topstitch/error.h"
#include "topstitch/executable.h"

namespace topstitch::metal {

namespace {

constexpr std::int64_t most_groups = std::int64_t{1} << 31;  // along an axis; far below what memory allows
constexpr int threads_of_group = 256;
constexpr std::size_t most_sizes = 4096 / sizeof(std::int64_t);  // what setBytes takes

// How many threads of a row and of rows make a group, for grids of single threads.
Extents group_extents(const Pipeline& pipeline, std::int64_t x, std::int64_t y) {
    const std::int64_t most = std::min(pipeline.max_threads, threads_of_group);
    const std::int64_t wide = std::min(most, (x + 31) / 32 * 32);
    return {static_cast<std::size_t>(wide), static_cast<std::size_t>(std::clamp<std::int64_t>(y, 1, most / wide))};
}

std::size_t quotient_up(std::int64_t count, std::size_t size) {
    return (static_cast<std::size_t>(count) + size - 1) / size;
}

class MetalKernel : public DeviceKernel {
public:
    MetalKernel(SharedGpu& gpu, const loopir::Kernel& kernel, const KernelOptions& options)
        : gpu_(gpu), kernel_(kernel), options_(options) {
        for (const loopir::BufferParam& buffer : kernel.buffers) {
            if (buffer.role != loopir::BufferParam::Role::local) ++buffer_count_;
        }
        auto emitted = emit(true);
        if (const auto* refusal = std::get_if<codegen::Refusal>(&emitted)) {
            refusal_ = refusal->reason;
            fallback();
            return;
        }
        narrow_ = load(std::get<codegen::Source>(std::move(emitted)));
        const std::string unfit = why_unfit(*narrow_.pipeline, narrow_.source.launch);
        if (unfit.empty()) return;
        refusal_ = unfit;
        fallback();
    }

    void launch(void* const* buffers, const std::int64_t* sizes, const LaunchShape& shape) const override {
        const std::span size_arguments(sizes, narrow_.source.sizes.size());
        if (const Form* form = form_for(size_arguments)) {
            encode(*form, buffers, size_arguments, static_cast<Stream&>(*shape.stream));
            return;
        }
        shape.stream->wait();
        fallback().launch(buffers, sizes, shape);
    }
    std::int64_t scratch_bytes(std::span<const std::int64_t> sizes) const override {
        return waits(sizes) ? fallback().scratch_bytes(sizes) : 0;
    }
    double compile_milliseconds() const override {
        return narrow_.pipeline != nullptr ? narrow_.pipeline->compile_milliseconds : fallback().compile_milliseconds();
    }
    bool waits(std::span<const std::int64_t> sizes) const override { return form_for(sizes) == nullptr; }
    std::string remark() const override {
        return refusal_.empty() ? "" : concat("runs on the CPU, in the same memory: ", refusal_);
    }
    std::string source(const std::string& kind) const override {
        if (kind == "loopir") return loopir::print(kernel_);
        if (kind == "msl") return refusal_.empty() ? narrow_.source.text : concat("// ", remark(), "\n");
        if (!refusal_.empty()) return fallback().source(kind);
        throw UserError(concat("[source] Metal has \"loopir\" and \"msl\", not \"", kind, "\""));
    }

private:
    struct Form {
        codegen::Source source;
        std::shared_ptr<const Pipeline> pipeline;
    };

    std::variant<codegen::Source, codegen::Refusal> emit(bool narrow) const {
        return codegen::emit(kernel_, codegen::msl_dialect(), {options_.fused_multiply_add, narrow});
    }
    Form load(codegen::Source source) const {
        auto pipeline = gpu_.pipelines->get(source.text, source.entry);
        return {std::move(source), std::move(pipeline)};
    }

    // Whatever the sizes: why this GPU cannot run it as it is; empty if it can.
    std::string why_unfit(const Pipeline& pipeline, const codegen::Launch& launch) const {
        if (narrow_.source.sizes.size() > most_sizes) {
            return concat("it depends on ", narrow_.source.sizes.size(), " sizes, and ", most_sizes, " can be passed");
        }
        if (launch.simd_width > 0 && launch.simd_width != pipeline.simd_width) {
            return concat("the GPU has simdgroups of ", pipeline.simd_width, " threads, not of ", launch.simd_width);
        }
        if (launch.groups && launch.group_threads > pipeline.max_threads) {
            return concat("a group of ", launch.group_threads, " threads is needed, and ", pipeline.max_threads,
                          " is the most that have registers enough");
        }
        return "";
    }

    // For sizes: group memory and extents of the grid within the limits.
    bool fits_machine(const codegen::Launch& launch, std::span<const std::int64_t> sizes) const {
        std::int64_t bytes = launch.static_group_bytes;
        for (const codegen::SizeExpr& length : launch.group_bytes) bytes += group_length(length, sizes);
        return bytes <= gpu_.gpu.limits().threadgroup_bytes && launch.x.evaluate(sizes) <= most_groups &&
               launch.y.evaluate(sizes) <= most_groups;
    }
    static std::int64_t group_length(const codegen::SizeExpr& bytes, std::span<const std::int64_t> sizes) {
        constexpr std::int64_t unit = 16;
        const std::int64_t needed = std::min(bytes.evaluate(sizes), most_groups);
        return std::max(unit, (needed + unit - 1) / unit * unit);
    }

    void encode(const Form& form, void* const* buffers, std::span<const std::int64_t> sizes, Stream& stream) const {
        const codegen::Launch& launch = form.source.launch;
        const std::int64_t x = launch.x.evaluate(sizes);
        const std::int64_t y = launch.y.evaluate(sizes);
        if (x == 0 || y == 0) return;
        stream.commands().set_pipeline(*form.pipeline);
        for (int k = 0; k < buffer_count_; ++k) stream.bind(buffers[k], static_cast<unsigned>(k));
        if (form.source.sizes_slot >= 0) {
            stream.commands().set_bytes(sizes.data(), sizes.size_bytes(),
                                        static_cast<unsigned>(form.source.sizes_slot));
        }
        for (std::size_t k = 0; k < launch.group_bytes.size(); ++k) {
            stream.commands().set_threadgroup_memory(
                static_cast<std::size_t>(group_length(launch.group_bytes[k], sizes)), static_cast<unsigned>(k));
        }
        if (launch.groups) {
            stream.dispatch({static_cast<std::size_t>(x)}, {static_cast<std::size_t>(launch.group_threads)});
            return;
        }
        const Extents threads = group_extents(*form.pipeline, x, y);
        stream.dispatch({quotient_up(x, threads.x), quotient_up(y, threads.y)}, threads);
    }

    // The form for these sizes; null where the GPU has none, and the CPU runs the kernel.
    const Form* form_for(std::span<const std::int64_t> sizes) const {
        if (!refusal_.empty() || !fits_machine(narrow_.source.launch, sizes)) return nullptr;
        if (narrow_.source.fits_narrow(sizes)) return &narrow_;
        const Form& form = wide();
        return form.pipeline != nullptr ? &form : nullptr;
    }
    // Without a pipeline where this GPU cannot run it.
    const Form& wide() const {
        const std::lock_guard lock(mutex_);
        if (!wide_) {
            wide_ = load(std::get<codegen::Source>(emit(false)));
            // It needs more registers than the narrow one.
            if (!why_unfit(*wide_->pipeline, wide_->source.launch).empty()) wide_->pipeline = nullptr;
        }
        return *wide_;
    }
    const DeviceKernel& fallback() const {
        const std::lock_guard lock(mutex_);
        if (fallback_ == nullptr) fallback_ = cpu_device().compile({&kernel_, 1}, options_).kernels.front();
        return *fallback_;
    }

    SharedGpu& gpu_;
    const loopir::Kernel kernel_;
    const KernelOptions options_;
    int buffer_count_ = 0;
    std::string refusal_;
    Form narrow_;
    mutable std::mutex mutex_;
    mutable std::optional<Form> wide_;                      // for sizes beyond 32 bits
    mutable std::shared_ptr<const DeviceKernel> fallback_;  // on the CPU
};

class MetalDevice : public DeviceBackend {
public:
    MetalDevice(SharedGpu gpu, std::string name, bool own_queue)
        : shared_(std::move(gpu)), name_(std::move(name)), own_queue_(own_queue) {}

    DeviceInfo info() const override {
        const GpuLimits& limits = shared_.gpu.limits();
        DeviceInfo info;
        info.name = name_;
        info.type = "metal";
        info.description = limits.name;
        info.threads = cpu_device().max_threads();  // of kernels that run on the CPU
        info.memory_bytes = limits.memory_bytes;
        info.unified_memory = limits.unified_memory;
        return info;
    }
    // Rows and attention in groups of threads, products one result at a time: what the emitter makes grids of.
    stitch::Machine machine() const override {
        stitch::Machine machine;
        machine.vector_bytes = 32;
        machine.vector_registers = 12;
        machine.threads = 32;
        machine.l2_bytes = 8 << 10;
        machine.packs_products = false;
        machine.row_bytes = 16 << 10;
        machine.group_bytes = codegen::msl_dialect().limits().group_bytes;
        return machine;
    }
    Compiled compile(std::span<const loopir::Kernel> kernels, const KernelOptions& options) override {
        Compiled result;
        const std::int64_t before = shared_.pipelines->stats().compiled;
        for (const loopir::Kernel& kernel : kernels) {
            const ExitGate exit_gate;  // of each, as for the CPU's kernels
            result.kernels.push_back(std::make_shared<const MetalKernel>(shared_, kernel, options));
        }
        result.newly_compiled = static_cast<int>(shared_.pipelines->stats().compiled - before);
        return result;
    }
    int max_threads() const override { return cpu_device().max_threads(); }
    KernelCacheStats kernel_cache_stats() const override { return shared_.pipelines->stats(); }
    std::unique_ptr<DeviceStream> new_stream() override {
        check_process();
        return std::make_unique<Stream>(shared_);
    }
    std::unique_ptr<DeviceStream> stream_into(void* command_buffer) override {
        check_process();
        return std::make_unique<Stream>(shared_, GpuCommands::into(command_buffer, shared_.gpu));
    }
    std::shared_ptr<Buffer> allocate(std::size_t bytes) override {
        const GpuLimits& limits = shared_.gpu.limits();
        if (bytes > static_cast<std::size_t>(limits.buffer_bytes)) {
            throw MemoryError(concat("[metal] a result, or the intermediate results of a run, need ", bytes,
                                     " bytes, and \"", limits.name, "\" allows ", limits.buffer_bytes,
                                     " in one piece; nothing has been changed"));
        }
        return Buffer::allocate(std::max(bytes, gpu_page_bytes));
    }

    SharedGpu& shared() { return shared_; }
    bool own_queue() const { return own_queue_; }

private:
    void check_process() const {
        if (generation_ == fork_generation()) return;
        throw UnsupportedError(
            "[metal] this process was forked from one that used the GPU, which Metal does not allow; "
            "start it with spawn, or run on the device \"cpu\"");
    }

    SharedGpu shared_;
    std::string name_;
    bool own_queue_;
    std::uint32_t generation_ = fork_generation();
};

// All that there are; none is ever destroyed, since arrays may outlive every static object.
struct Devices {
    std::mutex mutex;
    std::vector<MetalDevice*> all;
};

Devices& known_devices() {
    static auto* devices = new Devices;
    return *devices;
}

// `callers_queue`: the queue is the caller's, and so it is what counts; else any queue of ours will do.
DeviceBackend& device_over(const Gpu& gpu, bool callers_queue) {
    Devices& devices = known_devices();
    const std::lock_guard lock(devices.mutex);
    const SharedGpu* same = nullptr;
    for (MetalDevice* known : devices.all) {
        const Gpu& other = known->shared().gpu;
        const bool fits = callers_queue ? other.metal_queue() == gpu.metal_queue() : known->own_queue();
        if (other.metal_device() != gpu.metal_device()) continue;
        if (fits) return *known;
        same = &known->shared();
    }
    const std::string name = devices.all.empty() ? "metal" : concat("metal:", devices.all.size());
    devices.all.push_back(
        new MetalDevice(same != nullptr ? SharedGpu(gpu, *same) : SharedGpu(gpu), name, !callers_queue));
    return *devices.all.back();
}

SharedGpu& gpu_of(DeviceBackend& device) {
    auto* metal = dynamic_cast<MetalDevice*>(&device);
    if (metal == nullptr) throw UserError(concat("[metal] \"", device.info().name, "\" is not a Metal device"));
    return metal->shared();
}

DeviceBackend* system_device() {
    static DeviceBackend* const device = []() -> DeviceBackend* {
        try {
            return &device_over(Gpu::system(), false);
        } catch (const UnsupportedError& reason) {
            log_line(LogLevel::info, reason.what());
            return nullptr;
        }
    }();
    return device;
}

DeviceBackend& device_over_objects(void* device, void* queue) {
    return device_over(Gpu(device, queue), queue != nullptr);
}

std::shared_ptr<Buffer> memory_of(DeviceBackend& device, void* buffer) {
    SharedGpu& gpu = gpu_of(device);
    const GpuBuffer shared = gpu.gpu.share(buffer);
    if (!gpu.memory->add(shared)) {
        throw UserError(
            "[metal] the buffer lies in memory that the device knows already, as that of results does; use the "
            "array that it came from");
    }
    return Buffer::borrow(shared.contents(), shared.bytes(), false,
                          [&gpu, begin = shared.contents()] { gpu.memory->leave(begin); });
}

std::pair<void*, std::size_t> place_of(DeviceBackend& device, const Buffer& buffer, const void* pointer) {
    SharedGpu& gpu = gpu_of(device);
    if (shared_block_bytes(buffer) > 0) gpu.memory->enter(buffer);  // stays as long as the block
    const std::optional<Place> place = gpu.memory->find(pointer);
    if (!place) {
        throw UserError(
            "[metal] the array does not lie in a buffer of this device; results of graphs that run on it do");
    }
    return {place->buffer.metal_buffer(), place->offset};
}

constexpr MetalBackend back_end{&system_device, &device_over_objects, &memory_of, &place_of, &shared_event};
[[maybe_unused]] const bool entered = (metal_backend = &back_end, true);

}  // namespace

}  // namespace topstitch::metal
