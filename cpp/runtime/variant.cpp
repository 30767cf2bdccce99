// Compiles a Program into a Variant and runs it.
// A run validates, reserves all memory, and only then starts the first kernel: it happens or changes nothing.
#include "runtime/variant.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <set>

#include "passes/passes.h"

namespace topstitch {

namespace {

constexpr std::size_t alignment = 64;
// Below this much work (in additions) for each thread, waking it costs more than it saves.
constexpr std::int64_t work_per_thread = 1 << 15;
constexpr std::size_t max_idle_contexts = 16;

std::size_t align(std::size_t bytes) {
    return (bytes + alignment - 1) / alignment * alignment;
}

double milliseconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

// Offsets in one arena for buffers that live at different times: first fit over those that overlap in time.
class ArenaLayout {
public:
    std::size_t place(std::size_t bytes, int first, int last) {
        bytes = align(std::max<std::size_t>(bytes, 1));
        std::vector<std::pair<std::size_t, std::size_t>> taken;
        for (const Block& block : blocks_) {
            if (block.last >= first && block.first <= last)
                taken.emplace_back(block.offset, block.offset + block.bytes);
        }
        std::sort(taken.begin(), taken.end());
        std::size_t offset = 0;
        for (const auto& [begin, end] : taken) {
            if (offset + bytes <= begin) break;
            offset = std::max(offset, end);
        }
        blocks_.push_back({offset, bytes, first, last});
        total_ = std::max(total_, offset + bytes);
        return offset;
    }
    std::size_t total() const { return total_; }

private:
    struct Block {
        std::size_t offset, bytes;
        int first, last;
    };
    std::vector<Block> blocks_;
    std::size_t total_ = 0;
};

}  // namespace

Variant::Variant(const SpecializeRequest& request, const CompileOptions& options, Device& device) {
    const auto start = std::chrono::steady_clock::now();
    {
        const std::lock_guard lock(request.graph->mutex);  // another thread may be adding operations
        program_ = specialize(request);
    }
    std::vector<DimEquality> assumed = program_.assumptions;
    HintedAssumptions assumptions(request.hints, assumed);
    {
        // Bodies ask about dims too, so the assumptions hold until everything is lowered.
        const ScopedDimAssumptions scope(&assumptions);
        require_decided(program_);
        program_ = canonicalize(program_);
        require_decided(program_);
        stitch::StitchOptions stitch_options;
        stitch_options.stitch = options.stitch;
        stitch_options.estimate = [&assumptions](const Dim& dim) { return assumptions.hint(dim); };
        stitch::Machine machine = device.machine();
        if (options.threads > 0) machine.threads = std::min(machine.threads, options.threads);
        plan_ = stitch::make_plan(program_, stitch_options, machine);
    }
    program_.assumptions = assumed;
    find_extents();
    for (const auto& [name, value] : request.hints) symbol_names_.push_back(name);
    std::vector<std::int64_t> symbols;
    for (const auto& [name, value] : request.hints) symbols.push_back(value);
    if (!accepts(symbols)) throw NeedsExactSizes("[compile] an extent is negative for these sizes");
    report_.stitch_milliseconds = milliseconds_since(start);

    Device::Compiled compiled = device.compile(plan_.kernels);
    kernels_ = std::move(compiled.kernels);
    report_.kernels = static_cast<int>(kernels_.size());
    report_.kernels_compiled = compiled.newly_compiled;
    device_ = &device;
    max_threads_ = options.threads;

    for (const stitch::PlanStep& step : plan_.steps) {
        Step made;
        made.kernel = kernels_[static_cast<std::size_t>(step.kernel)].get();
        made.buffers = step.buffers;
        for (const Dim& size : step.sizes) made.sizes.push_back(dim_slot(size));
        made.parallel_extent = dim_slot(step.parallel_extent);
        made.work = dim_slot(step.work);
        steps_.push_back(std::move(made));
    }
    for (const stitch::PlanBuffer& buffer : plan_.buffers) buffer_elements_.push_back(dim_slot(buffer.elements));
    for (const TensorType& type : plan_.results) {
        std::vector<int> slots;
        for (const Dim& dim : type.shape.dims()) slots.push_back(dim_slot(dim));
        result_dims_.push_back(std::move(slots));
    }
    for (std::size_t s = 0; s < program_.states.size(); ++s) locked_states_.push_back(s);
    std::sort(locked_states_.begin(), locked_states_.end(), [this](std::size_t a, std::size_t b) {
        return std::less<>()(program_.states[a].variable.get(), program_.states[b].variable.get());
    });

    Context context;
    prepare(context, symbols);
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
    report_.kept_apart = plan_.refusals;
    report_.arena_bytes = static_cast<std::int64_t>(context.arena_bytes);
    contexts_.push_back(std::make_unique<Context>(std::move(context)));
    report_.compile_milliseconds = milliseconds_since(start);
}

int Variant::dim_slot(const Dim& dim) {
    const auto [at, fresh] = dim_slots_.emplace(dim.str(), static_cast<int>(dims_.size()));
    if (fresh) dims_.push_back(dim);
    return at->second;
}

std::int64_t Variant::evaluate(const Dim& dim, std::span<const std::int64_t> symbols) const {
    if (dim.is_known()) return dim.value();
    return dim.evaluate([&](std::string_view name) {
        const auto at = std::find(symbol_names_.begin(), symbol_names_.end(), name);
        internal_check(at != symbol_names_.end(), "a compiled dim names an unknown symbol");
        return symbols[static_cast<std::size_t>(at - symbol_names_.begin())];
    });
}

bool Variant::accepts(std::span<const std::int64_t> symbols) const {
    return std::all_of(program_.assumptions.begin(), program_.assumptions.end(),
                       [&](const DimEquality& equality) {
                           return evaluate(equality.a, symbols) == evaluate(equality.b, symbols);
                       }) &&
           std::all_of(extents_.begin(), extents_.end(),
                       [&](const Dim& extent) { return evaluate(extent, symbols) >= 0; });
}

// A window that is larger than its axis gives a negative number of windows: the sizes are refused by the operation,
// then, when they are compiled as numbers.
void Variant::find_extents() {
    std::set<std::string> seen;
    for (const OpNode& node : program_.graph->ops) {
        for (const TensorType& type : node.outputs) {
            for (const Dim& dim : type.shape.dims()) {
                if (provably_nonnegative(dim) || !seen.insert(dim.str()).second) continue;
                extents_.push_back(dim);
            }
        }
    }
}

void Variant::prepare(Context& context, std::span<const std::int64_t> symbols) const {
    if (context.ready && std::equal(symbols.begin(), symbols.end(), context.symbols.begin(), context.symbols.end()))
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
    const int available = device_->max_threads();
    const int limit = max_threads_ > 0 ? std::min(max_threads_, available) : available;
    int most_threads = 1;
    std::int64_t scratch = 0;
    context.threads.clear();
    context.sizes.resize(steps_.size());
    for (std::size_t s = 0; s < steps_.size(); ++s) {
        const Step& step = steps_[s];
        const std::int64_t work = context.dims[static_cast<std::size_t>(step.work)];
        const auto threads = static_cast<int>(std::clamp<std::int64_t>(work / work_per_thread, 1, limit));
        context.threads.push_back(threads);
        most_threads = std::max(most_threads, threads);
        std::vector<std::int64_t>& sizes = context.sizes[s];
        sizes.clear();
        for (int slot : step.sizes) sizes.push_back(context.dims[static_cast<std::size_t>(slot)]);
        scratch = std::max(scratch, step.kernel->scratch_bytes(sizes));
    }
    context.scratch_stride = static_cast<std::int64_t>(align(static_cast<std::size_t>(scratch)));
    context.scratch_offset = layout.total();
    context.arena_bytes =
        layout.total() + static_cast<std::size_t>(context.scratch_stride) * static_cast<std::size_t>(most_threads);
    context.reserved = false;
    context.ready = true;
}

// Not before a run: the sizes that a compilation looks at may be made up.
void Variant::reserve(Context& context) const {
    if (context.reserved) return;
    if (context.arena == nullptr || context.arena->bytes() < context.arena_bytes) {
        context.arena.reset();
        if (context.arena_bytes > 0) context.arena = Buffer::allocate(context.arena_bytes);
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

std::unique_ptr<Variant::Context> Variant::take_context() const {
    const std::lock_guard lock(mutex_);
    if (contexts_.empty()) return std::make_unique<Context>();
    std::unique_ptr<Context> context = std::move(contexts_.back());
    contexts_.pop_back();
    return context;
}

void Variant::give_back(std::unique_ptr<Context> context) const {
    const std::lock_guard lock(mutex_);
    if (contexts_.size() < max_idle_contexts) contexts_.push_back(std::move(context));
}

std::vector<NDArray> Variant::run(std::span<const NDArray> inputs, std::span<const std::int64_t> symbols,
                                  std::span<const NDArray> results) const {
    std::unique_ptr<Context> context = take_context();
    prepare(*context, symbols);
    reserve(*context);

    std::vector<NDArray> outputs;
    outputs.reserve(plan_.results.size());
    for (std::size_t k = 0; k < plan_.results.size(); ++k) {
        if (results.empty()) {
            outputs.emplace_back(plan_.results[k].dtype, context->result_shapes[k]);
            continue;
        }
        const NDArray& given = results[k];
        if (given.dtype() != plan_.results[k].dtype || given.shape() != context->result_shapes[k]) {
            throw UserError(concat("[run] result ", k, " is ", name_of(plan_.results[k].dtype),
                                   sizes_str(context->result_shapes[k]), ", but the given array is ",
                                   name_of(given.dtype()), sizes_str(given.shape())));
        }
        if (!given.is_contiguous() || given.readonly()) {
            throw UserError(concat("[run] the array given for result ", k, " must be writable and contiguous"));
        }
        outputs.push_back(given);
    }

    // Variables are locked in the order of their addresses, so that runs that share them cannot deadlock.
    std::vector<std::unique_lock<std::mutex>> locks;
    locks.reserve(locked_states_.size());
    for (std::size_t s : locked_states_) locks.emplace_back(program_.states[s].variable->mutex);

    for (std::size_t k = 0; k < plan_.buffers.size(); ++k) {
        const stitch::PlanBuffer& buffer = plan_.buffers[k];
        const auto index = static_cast<std::size_t>(buffer.index);
        switch (buffer.kind) {
            case stitch::PlanBuffer::Kind::feed:
                context->pointers[k] = inputs[index].data();
                break;
            case stitch::PlanBuffer::Kind::variable:
                context->pointers[k] = program_.states[index].variable->value.data();
                break;
            case stitch::PlanBuffer::Kind::result:
                context->pointers[k] = outputs[index].data();
                break;
            case stitch::PlanBuffer::Kind::constant:
            case stitch::PlanBuffer::Kind::arena:
                break;
        }
    }
    LaunchShape launch;
    launch.scratch_stride = context->scratch_stride;
    if (context->arena != nullptr)
        launch.scratch = static_cast<std::byte*>(context->arena->data()) + context->scratch_offset;
    for (std::size_t s = 0; s < steps_.size(); ++s) {
        const Step& step = steps_[s];
        context->arguments.clear();
        for (int id : step.buffers) context->arguments.push_back(context->pointers[static_cast<std::size_t>(id)]);
        launch.parallel_extent = context->dims[static_cast<std::size_t>(step.parallel_extent)];
        launch.threads = context->threads[s];
        step.kernel->launch(context->arguments.data(), context->sizes[s].data(), launch);
    }
    for (const stitch::PlanCopy& copy : plan_.copies) {
        const auto from = static_cast<std::size_t>(copy.from);
        const auto bytes = static_cast<std::size_t>(context->dims[static_cast<std::size_t>(buffer_elements_[from])]) *
                           size_of(plan_.buffers[from].dtype);
        if (bytes > 0)
            std::memcpy(context->pointers[static_cast<std::size_t>(copy.to)], context->pointers[from], bytes);
    }
    locks.clear();
    give_back(std::move(context));
    return outputs;
}

Report Variant::report() const {
    return report_;
}

std::string Variant::source(const std::string& kind) const {
    std::string text;
    for (const auto& kernel : kernels_) {
        if (!text.empty()) text += "\n";
        text += kernel->source(kind);
    }
    return text;
}

}  // namespace topstitch
