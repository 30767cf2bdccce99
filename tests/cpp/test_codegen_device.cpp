// Emitted source on the Metal simulation of tests/metal_sim: compile, bind buffers, run the grid.
// See test_codegen_device.h.
#include "test_codegen_device.h"

#include <algorithm>
#include <memory>

#include "grid/grid.h"
#include "loopir/interpret.h"
#include "metal_sim/control.h"
#include "msl/library.h"
#include "test_codegen_support.h"
#include "topstitch/error.h"

namespace topstitch::testing {

namespace {

// Groups of a shape that no grid of the tests is a multiple of; metal_sim::msl_simd_width divides it.
constexpr unsigned group_width = 32;
constexpr unsigned group_height = 3;
constexpr std::size_t group_memory_alignment = 16;

void set(unsigned (&to)[3], unsigned x, unsigned y) {
    to[0] = x;
    to[1] = y;
    to[2] = 1;
}

unsigned count(const codegen::SizeExpr& expr, const std::vector<std::int64_t>& sizes) {
    return static_cast<unsigned>(expr.evaluate(sizes));
}

}  // namespace

std::vector<Data> run_emitted(const codegen::Source& source, std::vector<Data> buffers,
                              const std::vector<std::int64_t>& sizes, int version) {
    metal_sim::msl::CompileRequest request;
    request.source = source.text;
    request.fast_math = false;
    request.version = version;
    const metal_sim::msl::CompileResult compiled = metal_sim::msl::compile(request);
    if (compiled.library == nullptr) throw InternalError(concat("test: ", compiled.log, "\n", source.text));
    const metal_sim::msl::KernelInfo* kernel = compiled.library->find(source.entry);
    if (kernel == nullptr) throw InternalError(concat("test: there is no kernel ", source.entry));

    metal_sim::GridJob job;
    job.kernel = kernel->name;
    job.entry = kernel->entry;
    job.variables = kernel->variables;
    std::vector<std::unique_ptr<GuardedMemory>> memory;
    const auto bind = [&](const std::byte* bytes, std::size_t size) {
        memory.push_back(std::make_unique<GuardedMemory>(size));
        std::copy(bytes, bytes + size, memory.back()->data());
        const auto slot = static_cast<unsigned>(memory.size() - 1);
        job.launch.buffers[slot] = memory.back()->data();
        job.buffers.push_back({slot, memory.back()->data(), size, 0});
    };
    for (const Data& buffer : buffers) bind(buffer.bytes.data(), buffer.bytes.size());
    if (source.sizes_slot >= 0) {
        bind(reinterpret_cast<const std::byte*>(sizes.data()), sizes.size() * sizeof(std::int64_t));
    }

    const codegen::Launch& launch = source.launch;
    const unsigned x = count(launch.x, sizes);
    const unsigned y = count(launch.y, sizes);
    if (x == 0 || y == 0) return buffers;
    unsigned groups_x = x;
    unsigned groups_y = 1;
    if (launch.groups) {
        const auto threads = static_cast<unsigned>(launch.group_threads);
        set(job.launch.threads_per_grid, x * threads, 1);
        set(job.launch.dispatch_threads_per_threadgroup, threads, 1);
    } else {
        // All groups are whole, as older GPUs have it: the kernel has to see to the edges.
        groups_x = (x + group_width - 1) / group_width;
        groups_y = (y + group_height - 1) / group_height;
        set(job.launch.threads_per_grid, groups_x * group_width, groups_y * group_height);
        set(job.launch.dispatch_threads_per_threadgroup, group_width, group_height);
    }
    set(job.launch.threadgroups_per_grid, groups_x, groups_y);
    for (std::size_t k = 0; k < launch.group_bytes.size(); ++k) {
        const std::size_t bytes = count(launch.group_bytes[k], sizes) + group_memory_alignment - 1;
        job.threadgroup_bytes[k] = bytes / group_memory_alignment * group_memory_alignment;
    }
    if (const auto error = metal_sim::run_grid(job)) throw InternalError(concat("test: ", error->message));
    for (std::size_t b = 0; b < buffers.size(); ++b) {
        if (!memory[b]->frame_is_intact())
            throw InternalError(concat("test: buffer ", b, ": written before its start"));
        std::copy(memory[b]->data(), memory[b]->data() + memory[b]->bytes(), buffers[b].bytes.begin());
    }
    return buffers;
}

std::vector<Data> run_in_each_order(const codegen::Source& source, const std::vector<Data>& buffers,
                                    const std::vector<std::int64_t>& sizes) {
    metal_sim::Settings& settings = metal_sim::settings();
    const metal_sim::Order before = settings.order;
    std::vector<Data> first;
    for (const metal_sim::Order order :
         {metal_sim::Order::forward, metal_sim::Order::reversed, metal_sim::Order::shuffled}) {
        settings.order = order;
        std::vector<Data> results = run_emitted(source, buffers, sizes);
        if (first.empty()) {
            first = std::move(results);
            continue;
        }
        for (std::size_t b = 0; b < first.size(); ++b) {
            if (results[b].bytes == first[b].bytes) continue;
            throw InternalError(concat("test: buffer ", b, " depends on the order of threads\n", source.text));
        }
    }
    settings.order = before;
    return first;
}

std::string check_emitted(const loopir::Kernel& kernel, const std::vector<Data>& buffers,
                          const std::vector<std::int64_t>& sizes, const codegen::EmitOptions& options,
                          double tolerance) {
    const codegen::Source source = emitted(kernel, options);
    const loopir::Kernel reference = codegen::prepared(kernel, codegen::msl_dialect(), options);
    const std::vector<Data> expected = run_interpreted(reference, buffers, sizes);
    std::string found;
    try {
        found = difference(kernel, expected, run_emitted(source, buffers, sizes), tolerance);
    } catch (const InternalError& error) { found = error.what(); }
    if (found.empty()) return found;
    return concat(found, "\n", loopir::print(kernel), source.text);
}

}  // namespace topstitch::testing
