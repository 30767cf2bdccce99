// One compiled form of an executable: a plan with its kernels, good for one pattern of feed shapes.
// Sizes of dynamic dims are arguments, evaluated at each run (and remembered while they stay the same).
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "passes/specialize.h"
#include "runtime/device.h"
#include "stitch/plan.h"
#include "topstitch/executable.h"

namespace topstitch {

class Variant {
public:
    // Compiles; `request` refers to the user's graph, which is only read here. Throws NeedsExactSizes as specialize
    // does.
    Variant(const SpecializeRequest& request, const CompileOptions& options, Device& device);

    // Whether these values of the symbols satisfy what was assumed when compiling.
    bool accepts(std::span<const std::int64_t> symbols) const;

    // `symbols` in the order of the request's hints. Inputs are contiguous and of the right types.
    std::vector<NDArray> run(std::span<const NDArray> inputs, std::span<const std::int64_t> symbols,
                             std::span<const NDArray> results) const;

    Report report() const;
    std::string source(const std::string& kind) const;

private:
    // Everything that follows from the symbols' values, and the memory of one run.
    struct Context {
        std::vector<std::int64_t> symbols;
        std::vector<std::int64_t> dims;          // the values of dims_
        std::vector<std::size_t> arena_offsets;  // by buffer
        std::vector<Sizes> result_shapes;
        std::vector<int> threads;                      // by step
        std::vector<std::vector<std::int64_t>> sizes;  // by step: its kernel's size arguments
        std::int64_t scratch_stride = 0;
        std::size_t scratch_offset = 0;
        std::size_t arena_bytes = 0;
        std::shared_ptr<Buffer> arena;
        std::vector<void*> pointers;   // by buffer
        std::vector<void*> arguments;  // of one launch
        bool ready = false;
        bool reserved = false;
    };
    struct Step {
        const DeviceKernel* kernel = nullptr;
        std::vector<int> buffers;
        std::vector<int> sizes;   // positions in dims_
        int parallel_extent = 0;  // position in dims_
        int work = 0;
    };

    int dim_slot(const Dim& dim);
    void find_extents();
    // The number that `dim` is for these values of the symbols.
    std::int64_t evaluate(const Dim& dim, std::span<const std::int64_t> symbols) const;
    std::unique_ptr<Context> take_context() const;
    void give_back(std::unique_ptr<Context> context) const;
    void prepare(Context& context, std::span<const std::int64_t> symbols) const;
    void reserve(Context& context) const;

    Program program_;
    stitch::Plan plan_;
    std::vector<std::shared_ptr<const DeviceKernel>> kernels_;
    std::vector<std::string> symbol_names_;
    std::vector<Dim> extents_;  // of tensors of the program, which must not turn out negative
    std::vector<Dim> dims_;     // each distinct Dim that runs need
    std::map<std::string, int> dim_slots_;
    std::vector<Step> steps_;
    std::vector<int> buffer_elements_;           // positions in dims_
    std::vector<std::vector<int>> result_dims_;  // positions in dims_
    std::vector<std::size_t> locked_states_;     // states in lock order (by address)
    Device* device_ = nullptr;
    int max_threads_ = 0;  // 0: as many as the device has
    Report report_;

    mutable std::mutex mutex_;
    mutable std::vector<std::unique_ptr<Context>> contexts_;  // idle ones
};

}  // namespace topstitch
