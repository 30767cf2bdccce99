// Compiles a Program, and runs it.
// A run validates, reserves all memory, and only then starts the first kernel: it happens or changes nothing.
#include "runtime/compiled_program.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <limits>
#include <set>

#include "core/fork_gate.h"
#include "graph/function.h"
#include "passes/passes.h"
#include "runtime/arena_layout.h"
#include "runtime/staging.h"

namespace topstitch {

namespace {

// Below this much work (in additions) for each thread, waking it costs more than it saves.
constexpr std::int64_t work_per_thread = 1 << 15;
constexpr std::size_t max_idle_contexts = 16;
constexpr int deterministic_threads = 8;

double milliseconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

// What schedules are made for. Results that may not depend on the number of threads are scheduled for a fixed one.
stitch::Machine scheduling_machine(const DeviceBackend& device, const CompileOptions& options) {
    stitch::Machine machine = device.machine();
    if (options.threads > 0) machine.threads = std::min(machine.threads, options.threads);
    if (options.deterministic) machine.threads = deterministic_threads;
    if (options.math == MathMode::strict)
        machine.bfloat16_pairs = machine.matrix_unit = machine.minimal_filters = false;
    return machine;
}

// In place; what loops carry is updated in place as well, but is nobody's afterwards.
bool writes_variable(const stitch::Plan& plan, const stitch::PlanStep& step) {
    if (step.kernel < 0) return false;
    std::size_t next = 0;
    for (const loopir::BufferParam& param : plan.kernels[static_cast<std::size_t>(step.kernel)].buffers) {
        if (param.role == loopir::BufferParam::Role::local) continue;
        const stitch::PlanBuffer& buffer = plan.buffers[static_cast<std::size_t>(step.buffers[next++])];
        if (param.role != loopir::BufferParam::Role::input && buffer.kind == stitch::PlanBuffer::Kind::variable)
            return true;
    }
    return false;
}

}  // namespace

CompiledProgram::CompiledProgram(Program program, const Hints& hints, const CompileOptions& options,
                                 DeviceBackend& device)
    : device_(&device), max_threads_(options.threads) {
    const auto start = std::chrono::steady_clock::now();
    each_operation(*program.graph, [this](const OpNode& node) { locations_.push_back(node.location); });
    std::vector<DimEquality> assumed = program.assumptions;
    HintedAssumptions assumptions(hints, assumed);
    {
        // Bodies ask about dims too, so the assumptions hold until everything is lowered.
        const ScopedDimAssumptions scope(&assumptions);
        require_decided(program);
        program = canonicalize(program, options.stitch);
        require_decided(program);
        report_.pass_milliseconds = milliseconds_since(start);
        stitch::StitchOptions stitch_options;
        stitch_options.stitch = options.stitch;
        stitch_options.estimate = [&assumptions](const Dim& dim) { return assumptions.hint(dim); };
        plan_ = stitch::make_plan(program, stitch_options, scheduling_machine(device, options));
    }
    assumptions_ = assumed;
    find_extents(program);
    std::vector<std::int64_t> symbols;
    for (const auto& [name, value] : hints) {
        symbol_names_.push_back(name);
        symbols.push_back(value);
    }
    if (!accepts(symbols)) throw NeedsExactSizes("[compile] an extent is negative for these sizes");
    report_.stitch_milliseconds = milliseconds_since(start);

    KernelOptions kernel_options;
    kernel_options.optimization_level = options.optimization_level;
    kernel_options.fused_multiply_add = options.math == MathMode::standard;
    DeviceBackend::Compiled compiled = device.compile(plan_.kernels, kernel_options);
    kernels_ = std::move(compiled.kernels);
    report_.kernels = static_cast<int>(kernels_.size());
    report_.kernels_compiled = compiled.newly_compiled;
    report_.kernels_from_disk = compiled.from_disk;
    add_steps();
    if (const auto stream = device.new_stream()) {
        for (NDArray& constant : plan_.constants) constant = Staging(device, *stream).input(constant);
    }

    auto context = std::make_unique<Context>();
    prepare(*context, symbols);
    fill_report(*context, assumptions);
    contexts_.push_back(std::move(context));
    report_.compile_milliseconds = milliseconds_since(start);
}

void CompiledProgram::add_steps() {
    for (const stitch::PlanStep& step : plan_.steps) {
        Step made;
        made.control = step.control;
        if (step.kernel >= 0) made.kernel = kernels_[static_cast<std::size_t>(step.kernel)].get();
        made.buffers = step.buffers;
        for (const Dim& size : step.sizes) made.sizes.push_back(dim_slot(size));
        made.parallel_extent = dim_slot(step.parallel_extent);
        made.work = dim_slot(step.work);
        made.bytes_read = dim_slot(step.counts.bytes_read);
        made.bytes_written = dim_slot(step.counts.bytes_written);
        made.flops = dim_slot(step.counts.flops);
        made.writes_state = writes_variable(plan_, step);
        steps_.push_back(std::move(made));
    }
    for (const stitch::PlanBuffer& buffer : plan_.buffers) buffer_elements_.push_back(dim_slot(buffer.elements));
    for (const stitch::PlanControl& control : plan_.controls) control_lengths_.push_back(dim_slot(control.length));
    for (const TensorType& type : plan_.results) {
        std::vector<int> slots;
        for (const Dim& dim : type.shape.dims()) slots.push_back(dim_slot(dim));
        result_dims_.push_back(std::move(slots));
    }
}

void CompiledProgram::fill_report(const Context& context, HintedAssumptions& assumptions) {
    for (const stitch::RegionReport& region : plan_.regions) {
        Report::Region entry;
        entry.name = region.name;
        entry.operations = region.operations;
        entry.schedule = region.schedule;
        entry.kept = region.kept;
        entry.in_place = region.in_place;
        entry.bytes_read = assumptions.hint(region.bytes_read);
        entry.bytes_written = assumptions.hint(region.bytes_written);
        entry.bytes_saved = assumptions.hint(region.bytes_saved);
        report_.regions.push_back(std::move(entry));
    }
    for (std::size_t s = 0; s < steps_.size(); ++s) {
        if (steps_[s].kernel == nullptr) continue;
        report_.kernel_milliseconds.emplace_back(plan_.regions[static_cast<std::size_t>(plan_.steps[s].region)].name,
                                                 steps_[s].kernel->compile_milliseconds());
        const std::string remark = steps_[s].kernel->remark();
        if (!remark.empty()) report_.regions[static_cast<std::size_t>(plan_.steps[s].region)].remark = remark;
    }
    report_.kept_apart = plan_.refusals;
    report_.arena_bytes = static_cast<std::int64_t>(context.arena_bytes);
}

int CompiledProgram::dim_slot(const Dim& dim) {
    const auto [at, fresh] = dim_slots_.emplace(dim.str(), static_cast<int>(dims_.size()));
    if (fresh) dims_.push_back(dim);
    return at->second;
}

std::int64_t CompiledProgram::evaluate(const Dim& dim, std::span<const std::int64_t> symbols) const {
    if (dim.is_known()) return dim.value();
    return dim.evaluate([&](std::string_view name) {
        const auto at = std::find(symbol_names_.begin(), symbol_names_.end(), name);
        internal_check(at != symbol_names_.end(), "a compiled dim names an unknown symbol");
        return symbols[static_cast<std::size_t>(at - symbol_names_.begin())];
    });
}

bool CompiledProgram::accepts(std::span<const std::int64_t> symbols) const {
    return std::all_of(assumptions_.begin(), assumptions_.end(),
                       [&](const DimEquality& equality) {
                           return evaluate(equality.a, symbols) == evaluate(equality.b, symbols);
                       }) &&
           std::all_of(extents_.begin(), extents_.end(),
                       [&](const Dim& extent) { return evaluate(extent, symbols) >= 0; });
}

// A window that is larger than its axis gives a negative number of windows: the sizes are refused by the operation,
// then, when they are compiled as numbers.
void CompiledProgram::find_extents(const Program& program) {
    std::set<std::string> seen;
    const auto add = [&](const std::vector<Dim>& dims) {
        for (const Dim& dim : dims) {
            if (provably_nonnegative(dim) || !seen.insert(dim.str()).second) continue;
            extents_.push_back(dim);
        }
    };
    for (const OpNode& node : program.graph->ops) {
        for (const TensorType& type : node.outputs) add(type.shape.dims());
    }
    add(plan_.extents);
}

void CompiledProgram::prepare(Context& context, std::span<const std::int64_t> symbols) const {
    const int available = device_->max_threads();
    const int limit = max_threads_ > 0 ? std::min(max_threads_, available) : available;
    if (context.ready && context.thread_limit == limit &&
        std::equal(symbols.begin(), symbols.end(), context.symbols.begin(), context.symbols.end()))
        return;
    context.ready = false;
    context.symbols.assign(symbols.begin(), symbols.end());
    context.dims.clear();
    for (const Dim& dim : dims_) context.dims.push_back(evaluate(dim, symbols));

    context.result_shapes.clear();
    for (const std::vector<int>& slots : result_dims_) {
        Sizes shape;
        for (int slot : slots) shape.push_back(context.dims[static_cast<std::size_t>(slot)]);
        num_elements(shape);  // UserError when it cannot be addressed
        context.result_shapes.push_back(std::move(shape));
    }

    ArenaLayout layout;
    context.arena_offsets.assign(plan_.buffers.size(), 0);
    for (std::size_t k = 0; k < plan_.buffers.size(); ++k) {
        const stitch::PlanBuffer& buffer = plan_.buffers[k];
        if (buffer.kind != stitch::PlanBuffer::Kind::arena) continue;
        const std::int64_t elements = context.dims[static_cast<std::size_t>(buffer_elements_[k])];
        std::int64_t bytes = 0;
        if (__builtin_mul_overflow(elements, static_cast<std::int64_t>(size_of(buffer.dtype)), &bytes)) {
            throw MemoryError(
                concat("[run] an intermediate result of ", elements, " elements cannot be held in memory"));
        }
        context.arena_offsets[k] = layout.place(static_cast<std::size_t>(bytes), buffer.first_use, buffer.last_use);
    }
    context.thread_limit = limit;
    int most_threads = 1;
    std::int64_t scratch = 0;
    context.threads.clear();
    context.sizes.resize(steps_.size());
    for (std::size_t s = 0; s < steps_.size(); ++s) {
        const Step& step = steps_[s];
        if (step.kernel == nullptr) {
            const int length = control_lengths_[static_cast<std::size_t>(step.control)];
            check_loop(context.dims[static_cast<std::size_t>(length)]);
            context.threads.push_back(1);
            continue;
        }
        const std::int64_t work = context.dims[static_cast<std::size_t>(step.work)];
        const auto threads = static_cast<int>(std::clamp<std::int64_t>(work / work_per_thread, 1, limit));
        context.threads.push_back(threads);
        most_threads = std::max(most_threads, threads);
        std::vector<std::int64_t>& sizes = context.sizes[s];
        sizes.clear();
        for (int slot : step.sizes) sizes.push_back(context.dims[static_cast<std::size_t>(slot)]);
        scratch = std::max(scratch, step.kernel->scratch_bytes(sizes));
    }
    context.work = work_of(context, 0);
    context.scratch_stride = static_cast<std::int64_t>(aligned(static_cast<std::size_t>(scratch)));
    context.scratch_offset = layout.total();
    context.arena_bytes =
        layout.total() + static_cast<std::size_t>(context.scratch_stride) * static_cast<std::size_t>(most_threads);
    context.reserved = false;
    context.ready = true;
}

// Not before a run: the sizes that a compilation looks at may be made up.
void CompiledProgram::reserve(Context& context) const {
    if (context.reserved) return;
    if (context.arena == nullptr || context.arena->bytes() < context.arena_bytes) {
        context.arena.reset();
        if (context.arena_bytes > 0) context.arena = device_->allocate(context.arena_bytes);
    }
    context.pointers.assign(plan_.buffers.size(), nullptr);
    for (std::size_t k = 0; k < plan_.buffers.size(); ++k) {
        const stitch::PlanBuffer& buffer = plan_.buffers[k];
        if (buffer.kind == stitch::PlanBuffer::Kind::arena) {
            context.pointers[k] = static_cast<std::byte*>(context.arena->data()) + context.arena_offsets[k];
        } else if (buffer.kind == stitch::PlanBuffer::Kind::constant) {
            context.pointers[k] = plan_.constants[static_cast<std::size_t>(buffer.index)].data();
        }
    }
    context.reserved = true;
}

std::unique_ptr<CompiledProgram::Context> CompiledProgram::take_context() const {
    const ForkGate gate;
    const std::lock_guard lock(mutex_);
    if (contexts_.empty()) return std::make_unique<Context>();
    std::unique_ptr<Context> context = std::move(contexts_.back());
    contexts_.pop_back();
    return context;
}

void CompiledProgram::give_back(std::unique_ptr<Context> context) const {
    const ForkGate gate;
    const std::lock_guard lock(mutex_);
    if (contexts_.size() < max_idle_contexts) contexts_.push_back(std::move(context));
}

// Of constants and intermediate results the pointers are set once, when memory is reserved.
void CompiledProgram::point_at(Context& context, std::span<const NDArray> inputs, std::span<const NDArray> outputs,
                               const States& states) const {
    for (std::size_t k = 0; k < plan_.buffers.size(); ++k) {
        const stitch::PlanBuffer& buffer = plan_.buffers[k];
        const auto index = static_cast<std::size_t>(buffer.index);
        switch (buffer.kind) {
            case stitch::PlanBuffer::Kind::feed:
                context.pointers[k] = inputs[index].lowest_address();
                break;
            case stitch::PlanBuffer::Kind::variable:
                context.pointers[k] = states.variables[index]->value.data();
                break;
            case stitch::PlanBuffer::Kind::result:
                context.pointers[k] = outputs[index].lowest_address();
                break;
            case stitch::PlanBuffer::Kind::constant:
            case stitch::PlanBuffer::Kind::arena:
            case stitch::PlanBuffer::Kind::slice:
                break;
        }
    }
}

std::vector<NDArray> CompiledProgram::new_results(const Context& context) const {
    std::vector<NDArray> results;
    results.reserve(plan_.results.size());
    for (std::size_t k = 0; k < plan_.results.size(); ++k)
        results.push_back(device_array(*device_, plan_.results[k].dtype, context.result_shapes[k]));
    return results;
}

std::optional<std::vector<NDArray>> CompiledProgram::run(std::span<const NDArray> inputs,
                                                         std::span<const std::int64_t> symbols,
                                                         std::span<const NDArray> results, const States& states,
                                                         const RunControl& control) const {
    std::unique_ptr<Context> context = take_context();
    prepare(*context, symbols);
    if (context->work > control.work_limit) {
        give_back(std::move(context));
        return std::nullopt;
    }
    reserve(*context);

    std::vector<NDArray> outputs =
        results.empty() ? new_results(*context) : std::vector(results.begin(), results.end());
    {
        // A fork waits for a run that holds variables; else it need not: nothing of ours is half changed.
        std::optional<ForkGate> gate;
        std::vector<std::unique_lock<std::mutex>> locks;
        if (!states.variables.empty()) gate.emplace();
        for (Variable* variable : states.lock_order) {
            if (control.wait_for_variables) {
                locks.emplace_back(variable->mutex);
                continue;
            }
            locks.emplace_back(variable->mutex, std::try_to_lock);
            if (locks.back().owns_lock()) continue;
            locks.clear();
            give_back(std::move(context));
            return std::nullopt;
        }
        if (control.command_buffer != nullptr) {
            encode_in(*device_->stream_into(control.command_buffer), std::move(context), inputs, outputs, states);
            return outputs;
        }
        if (auto stream = device_->new_stream()) {
            run_in(std::move(stream), *context, inputs, outputs, states, control);
        } else {
            point_at(*context, inputs, outputs, states);
            perform(0, *context, control);
        }
    }
    give_back(std::move(context));
    return outputs;
}

// The same on a device that works beside the host and does not reach all of its memory.
void CompiledProgram::run_in(std::unique_ptr<DeviceStream> begun, Context& context, std::span<const NDArray> inputs,
                             std::span<const NDArray> outputs, const States& states, const RunControl& control) const {
    std::vector<NDArray> feeds;
    std::vector<NDArray> written;
    const auto stream = std::move(begun);  // it waits before the arrays go
    Staging staging(*device_, *stream);
    for (const NDArray& input : inputs) feeds.push_back(staging.input(input));
    for (const NDArray& output : outputs) written.push_back(staging.result(output));
    for (const auto& variable : states.variables) staging.variable(*variable);
    for (const NDArray& constant : plan_.constants) staging.reach(*constant.buffer());
    if (context.arena != nullptr) staging.reach(*context.arena);
    point_at(context, feeds, written, states);
    context.stream = stream.get();
    perform(0, context, control);
    stream->wait();
    context.stream = nullptr;
    staging.bring_back();
}

// Before anything is encoded: what would have to wait, or could not be copied afterwards.
void CompiledProgram::check_encodable(const Context& context) const {
    const auto writes_state = [](const Step& step) { return step.writes_state; };
    if (!plan_.blocks.front().copies.empty() || std::any_of(steps_.begin(), steps_.end(), writes_state)) {
        throw UserError(
            "[encode] the graph changes variables, which other runs could use before the GPU has; run it, or "
            "make the new values results");
    }
    for (std::size_t s = 0; s < steps_.size(); ++s) {
        const Step& step = steps_[s];
        const bool waits = step.kernel != nullptr ? step.kernel->waits(context.sizes[s])
                                                  : plan_.controls[static_cast<std::size_t>(step.control)].kind !=
                                                        stitch::PlanControl::Kind::counted_loop;
        if (!waits) continue;
        throw UserError(
            "[encode] this executable waits for the GPU while it runs (a while loop, a branch, or a kernel "
            "that runs on the CPU; its report tells), so it cannot be part of other commands; run it");
    }
}

// Nobody waits here, so that all that is used must live on by itself: also when it fails in the middle, since what was
// encoded by then will run.
void CompiledProgram::encode_in(DeviceStream& stream, std::unique_ptr<Context> context, std::span<const NDArray> inputs,
                                std::span<const NDArray> outputs, const States& states) const {
    check_encodable(*context);
    struct Used {
        std::unique_ptr<Context> context;
        std::vector<NDArray> arrays;
    };
    const auto used = std::make_shared<Used>();
    used->context = std::move(context);
    Staging staging(*device_, stream);
    const auto keep = [&](const NDArray& array) { used->arrays.push_back(array); };
    std::vector<NDArray> feeds;
    for (const NDArray& input : inputs) feeds.push_back(staging.input(input));
    std::for_each(feeds.begin(), feeds.end(), keep);
    for (const NDArray& output : outputs) {
        if (!stream.reaches(*output.buffer())) {
            throw UserError(
                "[encode] a result is to lie in memory that the device does not reach; leave results out, or "
                "give arrays over the device's own buffers");
        }
        keep(output);
    }
    // Of what later runs may write, the commands have copies.
    States copies = states;
    for (auto& variable : copies.variables) {
        const auto copy = std::make_shared<Variable>();
        copy->value = device_array(*device_, variable->value.dtype(), variable->value.shape());
        copy->value.copy_from(variable->value);
        staging.reach(*copy->value.buffer());
        keep(copy->value);
        variable = copy;
    }
    for (const NDArray& constant : plan_.constants) {
        staging.reach(*constant.buffer());
        keep(constant);
    }
    if (used->context->arena != nullptr) staging.reach(*used->context->arena);
    point_at(*used->context, feeds, outputs, copies);
    used->context->stream = &stream;
    try {
        perform(0, *used->context, {});
    } catch (...) {
        stream.leave_to_caller(used);
        throw;
    }
    stream.leave_to_caller(used);
}

void CompiledProgram::add_user() const {
    ++users_;
}

void CompiledProgram::remove_user() const {
    if (--users_ > 0) return;
    std::vector<std::unique_ptr<Context>> idle;  // freed after the lock is released
    const ForkGate gate;
    const std::lock_guard lock(mutex_);
    idle.swap(contexts_);
}

std::size_t CompiledProgram::constant_bytes() const {
    std::size_t bytes = 0;
    for (const NDArray& constant : plan_.constants) bytes += constant.bytes();
    return bytes;
}

std::vector<Sizes> CompiledProgram::result_shapes(std::span<const std::int64_t> symbols) const {
    std::vector<Sizes> shapes;
    for (const std::vector<int>& slots : result_dims_) {
        Sizes shape;
        for (int slot : slots) shape.push_back(evaluate(dims_[static_cast<std::size_t>(slot)], symbols));
        num_elements(shape);  // UserError when it cannot be addressed
        shapes.push_back(std::move(shape));
    }
    return shapes;
}

std::vector<KernelCost> CompiledProgram::costs(std::span<const std::int64_t> symbols) const {
    const auto value = [&](int slot) { return evaluate(dims_[static_cast<std::size_t>(slot)], symbols); };
    std::vector<KernelCost> costs;
    for (std::size_t s = 0; s < steps_.size(); ++s) {
        const stitch::RegionReport& region = plan_.regions[static_cast<std::size_t>(plan_.steps[s].region)];
        KernelCost cost{region.name, region.operations, 0, 0, 0};
        if (steps_[s].kernel != nullptr) {
            cost.bytes_read = value(steps_[s].bytes_read);
            cost.bytes_written = value(steps_[s].bytes_written);
            cost.flops = value(steps_[s].flops);
        }
        costs.push_back(std::move(cost));
    }
    return costs;
}

std::string CompiledProgram::source(const std::string& kind) const {
    std::string text;
    for (const auto& kernel : kernels_) {
        if (!text.empty()) text += "\n";
        text += kernel->source(kind);
    }
    return text;
}

}  // namespace topstitch
