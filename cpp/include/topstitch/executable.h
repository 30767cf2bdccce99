// Compiling and running graphs: Executable, and the one-line compile() and run().
// An executable is compiled once for each pattern of feed shapes; sizes of dynamic dims are arguments of its kernels.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "topstitch/cache_stats.h"
#include "topstitch/device.h"
#include "topstitch/export.h"
#include "topstitch/graph.h"
#include "topstitch/profile.h"
#include "topstitch/queue.h"

namespace topstitch {

struct ShapedType {
    Shape shape;
    DType dtype = DType::float32;
};

enum class MathMode : std::uint8_t {
    standard,  // a * b + c may be rounded once, and convolutions computed by minimal filtering
    strict,    // each operation rounds for itself, as it is written
};

struct CompileOptions {
    bool stitch = true;          // false: one kernel for each operation, for comparison and for debugging
    int threads = 0;             // at most this many; 0: the setting TOPSTITCH_NUM_THREADS
    bool interpret = false;      // run the kernels in the slow loop IR interpreter, the reference for compiled code
    int optimization_level = 1;  // 0: machine code is made faster and runs slower; the results are the same
    bool deterministic = false;  // results that do not depend on the number of threads either
    MathMode math = MathMode::standard;
    Device device = {};

    friend bool operator==(const CompileOptions&, const CompileOptions&) = default;
};
// UserError for a value that is not allowed.
TOPSTITCH_API void check_options(const CompileOptions& options);

// What compiling and stitching did; every text is for people, the numbers are for programs.
struct Report {
    struct Region {
        std::string name;
        std::vector<std::string> operations;
        std::string schedule;
        std::vector<std::string> kept;      // row values kept in cache instead of memory
        std::vector<std::string> in_place;  // variables updated in place
        std::string remark;                 // that it runs elsewhere than on the device, and why
        std::int64_t bytes_read = 0;
        std::int64_t bytes_written = 0;
        std::int64_t bytes_saved = 0;  // memory traffic that running operation by operation would have had more
    };
    std::vector<Region> regions;
    std::vector<std::string> kept_apart;  // each with its reason
    std::int64_t arena_bytes = 0;
    int kernels = 0;
    int kernels_compiled = 0;   // not found in the kernel cache
    int kernels_from_disk = 0;  // found in its folder
    double compile_milliseconds = 0;
    double stitch_milliseconds = 0;                                   // of which passes, stitching and planning
    double pass_milliseconds = 0;                                     // of which passes
    std::vector<std::pair<std::string, double>> kernel_milliseconds;  // of machine code, by kernel
    TOPSTITCH_API std::string str() const;
};

class ExecutableImpl;

// Thread-safe: may be run from many threads at once.
class TOPSTITCH_API Executable {
public:
    Executable() = default;
    Executable(std::shared_ptr<GraphData> graph, std::shared_ptr<ExecutableImpl> impl)
        : graph_(std::move(graph)), impl_(std::move(impl)) {}
    explicit operator bool() const { return impl_ != nullptr; }

    std::vector<Tensor> feeds() const;    // the order of run()'s inputs
    std::vector<Tensor> targets() const;  // the order of its results
    Graph graph() const;

    // Runs on arrays (any strides) in the order of feeds(). With `results`, writes into those arrays (any strides)
    // instead of new ones. Nothing is changed when it throws.
    std::vector<NDArray> run(std::span<const NDArray> inputs, std::span<const NDArray> results = {}) const;
    // Runs if that is short (a quarter of a second at most) and needs no compilation; none otherwise.
    std::optional<std::vector<NDArray>> run_if_short(std::span<const NDArray> inputs,
                                                     std::span<const NDArray> results = {}) const;
    // Checks the arrays and compiles for their shapes, without running.
    void prepare(std::span<const NDArray> inputs, std::span<const NDArray> results = {}) const;
    bool is_compiled_for(std::span<const NDArray> inputs, std::span<const NDArray> results = {}) const;
    // Compiles (when the shapes are new) and runs on the queue, or on the default one of its device. The arrays must
    // not be changed until it is done.
    Job run_async(std::vector<NDArray> inputs, std::vector<NDArray> results = {},
                  const std::optional<Queue>& queue = std::nullopt) const;
    // The same on a thread of its own, beside everything else.
    Job run_detached(std::vector<NDArray> inputs, std::vector<NDArray> results = {}) const;
    // Adds a run to the command buffer, compiled here if the shapes are new. Gives the arrays that it will fill: their
    // contents are undefined until the command buffer is done, but they may be inputs of what is encoded after it.
    std::vector<NDArray> encode(CommandBuffer& commands, std::vector<NDArray> inputs,
                                std::vector<NDArray> results = {}) const;

    // Compiles for further types of the feeds, in their order.
    void specialize(std::span<const ShapedType> types) const;
    // The types of the results for feeds of these types; compiles for them.
    std::vector<ShapedType> output_types(std::span<const ShapedType> types) const;

    // Of the most recent variant (pattern of shapes). `source` is "loopir" everywhere, "llvm" or "asm" on the CPU,
    // "msl" on Metal.
    Report report() const;
    std::string source(const std::string& kind = "loopir") const;
    // How many patterns of feed shapes have been compiled.
    int variants() const;
    // Why each compilation was needed, and what was found in which cache.
    std::string explain() const;
    // Runs `runs` times (variables are updated as in any run) and measures each kernel.
    Profile profile(std::span<const NDArray> inputs, int runs = 10) const;

    const std::shared_ptr<ExecutableImpl>& impl() const { return impl_; }

private:
    std::shared_ptr<GraphData> graph_;  // kept alive: another pattern of shapes is compiled from it
    std::shared_ptr<ExecutableImpl> impl_;
};

using Feeds = std::vector<std::pair<Tensor, NDArray>>;
using FeedTypes = std::vector<std::pair<Tensor, ShapedType>>;

// Ahead of time. Dims of -1 or symbols in the types stay dynamic; unnamed ones are taken to be equal when they are
// the same axis of different feeds (an executable finds out at run time and compiles again if they are not).
TOPSTITCH_API Executable compile(const Graph& graph, const FeedTypes& feeds, const std::vector<Tensor>& targets,
                                 const std::vector<Operation>& operations = {}, const CompileOptions& options = {});

// The same in the background: the executable at once, and a job that is done when it is compiled. Running it before
// compiles here.
TOPSTITCH_API std::pair<Executable, Job> compile_async(const Graph& graph, const FeedTypes& feeds,
                                                       const std::vector<Tensor>& targets,
                                                       const std::vector<Operation>& operations = {},
                                                       const CompileOptions& options = {});

// Compiles when this combination of feeds, targets and operations is new to the graph, and runs.
TOPSTITCH_API std::vector<NDArray> run(const Graph& graph, const Feeds& feeds, const std::vector<Tensor>& targets,
                                       const std::vector<Operation>& operations = {},
                                       const CompileOptions& options = {});

// As Executable::encode, by tensors.
TOPSTITCH_API std::vector<NDArray> encode(const Graph& graph, CommandBuffer& commands, const Feeds& feeds,
                                          const std::vector<Tensor>& targets,
                                          const std::vector<Operation>& operations = {},
                                          const CompileOptions& options = {});
// As Executable::run_async, by tensors.
TOPSTITCH_API Job run_async(const Graph& graph, const Feeds& feeds, const std::vector<Tensor>& targets,
                            const std::vector<Operation>& operations = {}, const CompileOptions& options = {},
                            const std::optional<Queue>& queue = std::nullopt);

// The executable that run() uses for these feeds, targets and operations.
TOPSTITCH_API Executable find_executable(const Graph& graph, const std::vector<Tensor>& feeds,
                                         const std::vector<Tensor>& targets, const std::vector<Operation>& operations,
                                         const CompileOptions& options);

// How the caches have served so far.
struct CacheStatistics {
    CacheStats executables;  // of graphs, found by what is asked of them
    CacheStats programs;     // of the process, found by structure: equal graphs share them
    KernelCacheStats kernels;
    std::string kernel_folder;  // of the disk cache; empty when there is none
};
TOPSTITCH_API CacheStatistics cache_statistics();
// Forgets compiled programs that no executable uses; kernels stay.
TOPSTITCH_API void clear_caches();

// Threads that a kernel runs on at most: TOPSTITCH_NUM_THREADS, else the usable cores. UserError below 1.
TOPSTITCH_API int num_threads();
TOPSTITCH_API void set_num_threads(int threads);

}  // namespace topstitch
