// The handle of a compiled graph: runs here, on a queue, or as part of a command buffer.
// See executable.h.
#include "topstitch/executable.h"

#include <algorithm>

#include "core/disk_cache.h"
#include "runtime/executable_impl.h"
#include "runtime/staging.h"
#include "runtime/submission.h"

namespace topstitch {

namespace {

// Additions of a run that lasts some milliseconds in vectors, and a quarter of a second one by one: as long as a person
// who presses Ctrl-C does not notice.
constexpr std::int64_t short_work = std::int64_t{1} << 28;

// A run that heeds the cancelling of what it is part of.
RunControl control_of(Submission& running) {
    RunControl control;
    control.cancelled = &running.cancelled;
    control.changed = &running.changed;
    return control;
}

// A run that checks, compiles and runs when its turn comes.
std::shared_ptr<Submission> submission_for(const Executable& executable, std::vector<NDArray> inputs,
                                           std::vector<NDArray> results) {
    auto submission = std::make_shared<Submission>();
    submission->commands.push_back(
        {Command::Kind::run,
         [executable, inputs = std::move(inputs), results = std::move(results)](Submission& running) {
             const std::shared_ptr<ExecutableImpl>& impl = executable.impl();
             const PreparedRun prepared = impl->prepare(*executable.graph().data(), inputs, results);
             running.results = *ExecutableImpl::execute(prepared, inputs, results, control_of(running));
         },
         nullptr, 0});
    return submission;
}

}  // namespace

std::vector<Tensor> Executable::feeds() const {
    std::vector<Tensor> tensors;
    for (TensorRef ref : impl_->signature().feeds) tensors.emplace_back(graph_, ref);
    return tensors;
}

std::vector<Tensor> Executable::targets() const {
    std::vector<Tensor> tensors;
    for (TensorRef ref : impl_->signature().targets) tensors.emplace_back(graph_, ref);
    return tensors;
}

Graph Executable::graph() const {
    return Graph(graph_);
}

std::vector<NDArray> Executable::run(std::span<const NDArray> inputs, std::span<const NDArray> results) const {
    return *ExecutableImpl::execute(impl_->prepare(*graph_, inputs, results), inputs, results, {});
}

std::optional<std::vector<NDArray>> Executable::run_if_short(std::span<const NDArray> inputs,
                                                             std::span<const NDArray> results) const {
    const std::optional<PreparedRun> prepared = impl_->prepare_if_compiled(inputs, results);
    if (!prepared) return std::nullopt;
    RunControl control;
    control.work_limit = short_work;
    control.wait_for_variables = false;
    return ExecutableImpl::execute(*prepared, inputs, results, control);
}

void Executable::prepare(std::span<const NDArray> inputs, std::span<const NDArray> results) const {
    static_cast<void>(impl_->prepare(*graph_, inputs, results));
}

bool Executable::is_compiled_for(std::span<const NDArray> inputs, std::span<const NDArray> results) const {
    return impl_->prepare_if_compiled(inputs, results).has_value();
}

Job Executable::run_async(std::vector<NDArray> inputs, std::vector<NDArray> results,
                          const std::optional<Queue>& queue) const {
    const Device& device = impl_->signature().options.device;
    if (queue && !(queue->device() == device))
        throw UserError("[run_async] the queue belongs to another device than the executable");
    const Queue& chosen = queue ? *queue : default_queue(device);
    return submit(chosen.state(), submission_for(*this, std::move(inputs), std::move(results)));
}

Job Executable::run_detached(std::vector<NDArray> inputs, std::vector<NDArray> results) const {
    auto submission = submission_for(*this, std::move(inputs), std::move(results));
    perform_detached(submission);
    return Job(std::move(submission));
}

std::vector<NDArray> Executable::encode(CommandBuffer& commands, std::vector<NDArray> inputs,
                                        std::vector<NDArray> results) const {
    commands.check_open("encode");
    if (!(commands.queue().device() == impl_->signature().options.device))
        throw UserError("[encode] the command buffer's queue belongs to another device than the executable");
    PreparedRun prepared = impl_->prepare(*graph_, inputs, results);
    if (results.empty()) {
        const CompiledProgram& program = prepared.variant->program();
        for (const Sizes& shape : program.result_shapes(prepared.symbols))
            results.push_back(
                device_array(impl_->signature().options.device.backend(), program.result_dtype(results.size()), shape));
    }
    commands.submission()->commands.push_back(
        {Command::Kind::run,
         [executable = *this, prepared = std::move(prepared), inputs = std::move(inputs),
          results](Submission& running) {
             static_cast<void>(ExecutableImpl::execute(prepared, inputs, results, control_of(running)));
             running.results.insert(running.results.end(), results.begin(), results.end());
         },
         nullptr, 0});
    return results;
}

int Executable::variants() const {
    return impl_->variants();
}

Report Executable::report() const {
    const std::shared_ptr<const Variant> variant = impl_->latest();
    if (variant == nullptr)
        throw UserError(
            "[report] the executable has not been compiled yet: run it, or specialize it for sizes of the dims that "
            "are open");
    return variant->report();
}

std::string Executable::source(const std::string& kind) const {
    const std::shared_ptr<const Variant> variant = impl_->latest();
    if (variant == nullptr)
        throw UserError(
            "[source] the executable has not been compiled yet: run it, or specialize it for sizes of the dims that "
            "are open");
    return variant->program().source(kind);
}

std::string Executable::explain() const {
    return impl_->explain();
}

CacheStatistics cache_statistics() {
    KernelCacheStats kernels;
    for (const Device& device : devices()) {
        const KernelCacheStats more = device.backend().kernel_cache_stats();
        kernels.hits += more.hits;
        kernels.disk_hits += more.disk_hits;
        kernels.compiled += more.compiled;
        kernels.evictions += more.evictions;
        kernels.entries += more.entries;
    }
    return {executable_cache_stats(), program_cache_stats(), kernels, disk_cache_folder()};
}

void clear_caches() {
    clear_program_cache();
}

}  // namespace topstitch
