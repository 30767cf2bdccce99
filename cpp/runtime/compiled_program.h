// A program with its kernels, good for one pattern of feed shapes; shared by all graphs of the same structure.
// Sizes of dynamic dims are arguments, evaluated at each run (and remembered while they stay the same).
#pragma once

#include <atomic>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "passes/specialize.h"
#include "runtime/device.h"
#include "stitch/plan.h"
#include "topstitch/executable.h"

namespace topstitch {

// What a run is told besides its arrays.
struct RunControl {
    // Once true, no further kernel starts, as long as `changed` is false; the run throws Cancelled then.
    const std::atomic<bool>* cancelled = nullptr;
    // Set as soon as a variable may have been changed; true at the start when an earlier run of the same work did.
    std::atomic<bool>* changed = nullptr;
    bool wait_for_variables = true;          // false: gives none when another run holds one
    std::vector<StepTime>* times = nullptr;  // one is added for each kernel
    void* command_buffer = nullptr;          // of the caller's: encoded into it, and not waited for
    // More work than this (additions, roughly) is not begun.
    std::int64_t work_limit = std::numeric_limits<std::int64_t>::max();
};

class CompiledProgram {
public:
    // The variables of one graph, in the order of the program's states; a run locks them in the order of their
    // addresses, so that runs that share them cannot deadlock.
    struct States {
        std::vector<std::shared_ptr<Variable>> variables;
        std::vector<Variable*> lock_order;
    };
    using Hints = std::map<std::string, std::int64_t, std::less<>>;

    // Optimises, stitches and compiles. `hints` are the present values of the symbols. Throws NeedsExactSizes as
    // specialize does.
    CompiledProgram(Program program, const Hints& hints, const CompileOptions& options, DeviceBackend& device);

    // Whether these values of the symbols satisfy what was assumed when compiling.
    bool accepts(std::span<const std::int64_t> symbols) const;

    // `symbols` in the order of the hints. Inputs have the right types and lie in memory as the program expects.
    // `results`: writable, of the right types, and also as the program expects; new ones if there are none. None when
    // the work exceeds the limit, or when it would have to wait and may not.
    std::optional<std::vector<NDArray>> run(std::span<const NDArray> inputs, std::span<const std::int64_t> symbols,
                                            std::span<const NDArray> results, const States& states,
                                            const RunControl& control) const;
    std::vector<Sizes> result_shapes(std::span<const std::int64_t> symbols) const;
    DType result_dtype(std::size_t k) const { return plan_.results[k].dtype; }
    // Bytes and FLOPs of each kernel of a run.
    std::vector<KernelCost> costs(std::span<const std::int64_t> symbols) const;

    // Executables that use it. Without any, a program that is only kept for later holds no memory for runs.
    void add_user() const;
    void remove_user() const;
    std::size_t constant_bytes() const;

    const Report& report() const { return report_; }
    std::string source(const std::string& kind) const;
    // Where the user's code made the operations of the program, in their order.
    const std::vector<SourceLocation>& locations() const { return locations_; }

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
        std::int64_t work = 0;
        std::shared_ptr<Buffer> arena;
        std::vector<void*> pointers;   // by buffer
        std::vector<void*> arguments;  // of one launch
        int thread_limit = 0;
        bool ready = false;
        bool reserved = false;
        DeviceStream* stream = nullptr;  // of the present run, if the device has streams
    };
    struct Step {
        const DeviceKernel* kernel = nullptr;  // null: a loop or branch
        int control = -1;                      // in plan_.controls
        std::vector<int> buffers;
        std::vector<int> sizes;   // positions in dims_
        int parallel_extent = 0;  // position in dims_
        int work = 0;
        int bytes_read = 0;
        int bytes_written = 0;
        int flops = 0;
        bool writes_state = false;  // updates a variable in place
    };

    int dim_slot(const Dim& dim);
    void find_extents(const Program& program);
    void add_steps();
    void fill_report(const Context& context, HintedAssumptions& assumptions);
    // The number that `dim` is for these values of the symbols.
    std::int64_t evaluate(const Dim& dim, std::span<const std::int64_t> symbols) const;
    std::unique_ptr<Context> take_context() const;
    void give_back(std::unique_ptr<Context> context) const;
    void prepare(Context& context, std::span<const std::int64_t> symbols) const;
    void reserve(Context& context) const;
    std::vector<NDArray> new_results(const Context& context) const;
    void run_in(std::unique_ptr<DeviceStream> begun, Context& context, std::span<const NDArray> inputs,
                std::span<const NDArray> outputs, const States& states, const RunControl& control) const;
    void encode_in(DeviceStream& stream, std::unique_ptr<Context> context, std::span<const NDArray> inputs,
                   std::span<const NDArray> outputs, const States& states) const;
    void check_encodable(const Context& context) const;
    void point_at(Context& context, std::span<const NDArray> inputs, std::span<const NDArray> outputs,
                  const States& states) const;
    std::int64_t work_of(const Context& context, int block) const;
    static void check_loop(std::int64_t length);
    std::size_t bytes_of(int buffer, const Context& context) const;
    // Performs the steps of a block, and its copies.
    void perform(int block, Context& context, const RunControl& control) const;
    void perform_control(int number, Context& context, const RunControl& control) const;
    void launch(int step, Context& context, const RunControl& control) const;
    void copy(std::span<const stitch::PlanCopy> copies, Context& context) const;
    static void write(void* to, std::int32_t number, Context& context);

    std::vector<DimEquality> assumptions_;
    stitch::Plan plan_;
    std::vector<std::shared_ptr<const DeviceKernel>> kernels_;
    std::vector<std::string> symbol_names_;
    std::vector<SourceLocation> locations_;
    std::vector<Dim> extents_;          // of tensors of the program, which must not turn out negative
    std::vector<int> control_lengths_;  // by loop or branch: positions in dims_
    std::vector<Dim> dims_;             // each distinct Dim that runs need
    std::map<std::string, int> dim_slots_;
    std::vector<Step> steps_;
    std::vector<int> buffer_elements_;           // positions in dims_
    std::vector<std::vector<int>> result_dims_;  // positions in dims_
    DeviceBackend* device_ = nullptr;
    int max_threads_ = 0;  // 0: as many as the device has
    Report report_;

    mutable std::atomic<int> users_{0};
    mutable std::mutex mutex_;
    mutable std::vector<std::unique_ptr<Context>> contexts_;  // idle ones
};

}  // namespace topstitch
