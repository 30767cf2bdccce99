// Performs the steps of a compiled program: launches kernels, and goes through loops and branches.
// On a device that works beside the host, only conditions and predicates are waited for.
#include <chrono>
#include <cstring>
#include <limits>

#include "runtime/compiled_program.h"

namespace topstitch {

namespace {

using Kind = stitch::PlanControl::Kind;

constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
// How long a loop of unknown length is taken to be: long enough to be interruptible.
constexpr std::int64_t assumed_iterations = std::int64_t{1} << 40;

std::int64_t saturating_add(std::int64_t a, std::int64_t b) {
    std::int64_t sum = 0;
    return __builtin_add_overflow(a, b, &sum) ? most : sum;
}

std::int64_t saturating_multiply(std::int64_t a, std::int64_t b) {
    std::int64_t product = 0;
    return __builtin_mul_overflow(a, b, &product) ? most : product;
}

void stop_if_cancelled(const RunControl& control) {
    const bool changed = control.changed != nullptr && control.changed->load(std::memory_order_relaxed);
    if (!changed && control.cancelled != nullptr && control.cancelled->load(std::memory_order_relaxed))
        throw Cancelled("[run] cancelled before it had changed anything");
}

}  // namespace

std::int64_t CompiledProgram::work_of(const Context& context, int block) const {
    std::int64_t work = 0;
    for (const int s : plan_.blocks[static_cast<std::size_t>(block)].steps) {
        const Step& step = steps_[static_cast<std::size_t>(s)];
        if (step.kernel != nullptr) {
            work = saturating_add(work, context.dims[static_cast<std::size_t>(step.work)]);
            continue;
        }
        const stitch::PlanControl& control = plan_.controls[static_cast<std::size_t>(step.control)];
        std::int64_t inside = 1;
        for (const int inner : control.blocks) inside = saturating_add(inside, work_of(context, inner));
        if (control.kind == Kind::while_loop) inside = saturating_multiply(inside, assumed_iterations);
        if (control.kind == Kind::counted_loop) {
            const int length = control_lengths_[static_cast<std::size_t>(step.control)];
            inside = saturating_multiply(inside, context.dims[static_cast<std::size_t>(length)]);
        }
        work = saturating_add(work, inside);
    }
    return work;
}

void CompiledProgram::check_loop(std::int64_t length) {
    if (length <= std::numeric_limits<std::int32_t>::max()) return;
    throw UserError(concat("[scan] a loop has at most 2147483647 iterations, but this one has ", length,
                           "; put one loop into another"));
}

void CompiledProgram::perform(int block, Context& context, const RunControl& control) const {
    const stitch::PlanBlock& steps = plan_.blocks[static_cast<std::size_t>(block)];
    for (const int s : steps.steps) {
        const int inner = steps_[static_cast<std::size_t>(s)].control;
        if (inner >= 0) {
            perform_control(inner, context, control);
        } else {
            launch(s, context, control);
        }
    }
    // Those of the run itself give variables their new values.
    if (block == 0 && !steps.copies.empty() && control.changed != nullptr) *control.changed = true;
    copy(steps.copies, context);
}

void CompiledProgram::perform_control(int number, Context& context, const RunControl& control) const {
    const stitch::PlanControl& step = plan_.controls[static_cast<std::size_t>(number)];
    const auto pointer = [&context](int buffer) -> void*& {
        return context.pointers[static_cast<std::size_t>(buffer)];
    };
    const auto holds = [&] {
        if (context.stream != nullptr) context.stream->wait();
        return *static_cast<const std::uint8_t*>(pointer(step.predicate)) != 0;
    };
    copy(step.before, context);
    switch (step.kind) {
        case Kind::branch:
            perform(step.blocks[holds() ? 0 : 1], context, control);
            return;
        case Kind::while_loop:
            for (;;) {
                stop_if_cancelled(control);
                perform(step.condition, context, control);
                if (!holds()) return;
                perform(step.blocks[0], context, control);
            }
        case Kind::counted_loop: {
            const int slot = control_lengths_[static_cast<std::size_t>(number)];
            const std::int64_t length = context.dims[static_cast<std::size_t>(slot)];
            for (std::int64_t k = 0; k < length; ++k) {
                stop_if_cancelled(control);
                const std::int64_t index = step.reverse ? length - 1 - k : k;
                write(pointer(step.index), static_cast<std::int32_t>(index), context);
                for (const stitch::PlanControl::Slice& slice : step.slices) {
                    pointer(slice.part) = static_cast<std::byte*>(pointer(slice.whole)) +
                                          static_cast<std::size_t>(index) * bytes_of(slice.part, context);
                }
                copy(step.history, context);
                perform(step.blocks[0], context, control);
            }
            return;
        }
    }
}

void CompiledProgram::launch(int number, Context& context, const RunControl& control) const {
    const auto s = static_cast<std::size_t>(number);
    const Step& step = steps_[s];
    stop_if_cancelled(control);
    if (step.writes_state && control.changed != nullptr) *control.changed = true;
    LaunchShape shape;
    shape.scratch_stride = context.scratch_stride;
    shape.stream = context.stream;
    if (context.arena != nullptr)
        shape.scratch = static_cast<std::byte*>(context.arena->data()) + context.scratch_offset;
    context.arguments.clear();
    for (const int id : step.buffers) context.arguments.push_back(context.pointers[static_cast<std::size_t>(id)]);
    shape.parallel_extent = context.dims[static_cast<std::size_t>(step.parallel_extent)];
    shape.threads = context.threads[s];
    if (control.times == nullptr) {
        step.kernel->launch(context.arguments.data(), context.sizes[s].data(), shape);
        return;
    }
    StepTime time;
    time.start = std::chrono::steady_clock::now();
    step.kernel->launch(context.arguments.data(), context.sizes[s].data(), shape);
    if (context.stream != nullptr) context.stream->wait();
    time.end = std::chrono::steady_clock::now();
    time.step = number;
    time.threads = shape.threads;
    control.times->push_back(time);
}

std::size_t CompiledProgram::bytes_of(int buffer, const Context& context) const {
    const auto slot = static_cast<std::size_t>(buffer_elements_[static_cast<std::size_t>(buffer)]);
    return static_cast<std::size_t>(context.dims[slot]) *
           size_of(plan_.buffers[static_cast<std::size_t>(buffer)].dtype);
}

void CompiledProgram::copy(std::span<const stitch::PlanCopy> copies, Context& context) const {
    for (const stitch::PlanCopy& copy : copies) {
        const std::size_t bytes = bytes_of(copy.from, context);
        if (bytes == 0) continue;
        void* to = context.pointers[static_cast<std::size_t>(copy.to)];
        const void* from = context.pointers[static_cast<std::size_t>(copy.from)];
        if (context.stream != nullptr) {
            context.stream->copy(to, from, bytes);
        } else {
            std::memcpy(to, from, bytes);
        }
    }
}

void CompiledProgram::write(void* to, std::int32_t number, Context& context) {
    if (context.stream != nullptr) {
        context.stream->write(to, &number, sizeof number);
    } else {
        std::memcpy(to, &number, sizeof number);
    }
}

}  // namespace topstitch
