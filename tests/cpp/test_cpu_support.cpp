// Running generated code, and comparing it with the interpreter.
// The reference is the interpreter on the kernel as it is emitted (math expanded, multiply-adds fused).
#include "test_cpu_support.h"

#include <algorithm>
#include <memory>

#include "cpu/llvm_codegen.h"
#include "topstitch/error.h"

namespace topstitch::cpu::testing {

namespace {

// The parallel loop's extent, or 1.
std::int64_t parallel_extent(const loopir::Kernel& kernel, const std::vector<std::int64_t>& sizes) {
    const std::vector<Dim> params = loopir::size_params(kernel);
    for (const loopir::Stmt& stmt : kernel.body.stmts) {
        const auto* loop = std::get_if<loopir::Loop>(&stmt);
        if (loop == nullptr || !loop->parallel) continue;
        if (loop->extent.is_known()) return loop->extent.value();
        return sizes[static_cast<std::size_t>(std::find(params.begin(), params.end(), loop->extent) - params.begin())];
    }
    return 1;
}

}  // namespace

std::vector<Data> run_compiled(const loopir::Kernel& kernel, const CompiledKernel& compiled, std::vector<Data> buffers,
                               const std::vector<std::int64_t>& sizes, int chunks) {
    std::vector<std::unique_ptr<GuardedMemory>> memory;
    std::vector<void*> pointers;
    for (const Data& buffer : buffers) {
        memory.push_back(std::make_unique<GuardedMemory>(buffer.bytes.size()));
        std::copy(buffer.bytes.begin(), buffer.bytes.end(), memory.back()->data());
        pointers.push_back(memory.back()->data());
    }
    // Scratch is aligned, and what it holds at first must not matter.
    const std::int64_t scratch_bytes = compiled.scratch_bytes(sizes);
    const GuardedMemory scratch(static_cast<std::size_t>((scratch_bytes + 63) / 64 * 64));
    std::fill(scratch.data(), scratch.data() + scratch.bytes(), std::byte{0xff});

    const std::int64_t extent = parallel_extent(kernel, sizes);
    const std::int64_t step = compiled.granularity();
    const std::int64_t units = (extent + step - 1) / step;
    for (int chunk = 0; chunk < chunks; ++chunk) {
        const std::int64_t begin = std::min(extent, units * chunk / chunks * step);
        const std::int64_t end = std::min(extent, units * (chunk + 1) / chunks * step);
        if (begin < end) compiled.function()(pointers.data(), sizes.data(), scratch.data(), begin, end);
    }
    for (std::size_t b = 0; b < buffers.size(); ++b) {
        if (!memory[b]->frame_is_intact())
            throw InternalError(concat("test: buffer ", b, ": written before its start"));
        std::copy(memory[b]->data(), memory[b]->data() + memory[b]->bytes(), buffers[b].bytes.begin());
    }
    if (!scratch.frame_is_intact()) throw InternalError("test: scratch written before its start");
    return buffers;
}

std::string check_kernel(const loopir::Kernel& kernel, const TargetInfo& target, const std::vector<Data>& buffers,
                         const std::vector<std::int64_t>& sizes, double tolerance) {
    const auto compiled = compile(std::span(&kernel, 1), target).front();
    const std::vector<Data> expected = run_interpreted(prepared(kernel, target), buffers, sizes);
    const std::vector<Data> actual = run_compiled(kernel, *compiled, buffers, sizes);
    std::string found = difference(kernel, expected, actual, tolerance);
    if (found.empty()) return found;
    std::string size_list;
    for (const std::int64_t size : sizes) size_list += concat(" ", size);
    return concat(found, "; target ", target.cpu, ", sizes", size_list, ", seed ", test_seed(), "\n",
                  loopir::print(kernel));
}

const std::vector<TargetInfo>& test_targets() {
    static const std::vector<TargetInfo> targets = [] {
        std::vector<TargetInfo> list;
#if defined(__x86_64__)
        list.push_back(target_named("x86-64"));
        try {
            list.push_back(target_named("x86-64-v3"));
        } catch (const UserError&) {
            // An old machine: its own features are tested all the same.
        }
#endif
        list.push_back(host_target());
        return list;
    }();
    return targets;
}

std::vector<TargetInfo> targets_for(DType type, int turn) {
    const std::vector<TargetInfo>& all = test_targets();
    if (type == DType::float32 || type == DType::int32) return all;
    return {all[static_cast<std::size_t>(turn) % all.size()]};
}

}  // namespace topstitch::cpu::testing
