// Compiling and running graphs: Executable, and the one-line compile() and run().
// An executable is compiled once for each pattern of feed shapes; sizes of dynamic dims are arguments of its kernels.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "topstitch/export.h"
#include "topstitch/graph.h"

namespace topstitch {

struct ShapedType {
    Shape shape;
    DType dtype = DType::float32;
};

struct CompileOptions {
    bool stitch = true;      // false: one kernel for each operation, for comparison and for debugging
    int threads = 0;         // at most this many; 0: the setting TOPSTITCH_NUM_THREADS
    bool interpret = false;  // run the kernels in the slow loop IR interpreter, the reference for compiled code
};

// What compiling and stitching did; every text is for people, the numbers are for programs.
struct Report {
    struct Region {
        std::string name;
        std::vector<std::string> operations;
        std::string schedule;
        std::vector<std::string> kept;      // row values kept in cache instead of memory
        std::vector<std::string> in_place;  // variables updated in place
        std::int64_t bytes_read = 0;
        std::int64_t bytes_written = 0;
        std::int64_t bytes_saved = 0;  // memory traffic that running operation by operation would have had more
    };
    std::vector<Region> regions;
    std::vector<std::string> kept_apart;  // each with its reason
    std::int64_t arena_bytes = 0;
    int kernels = 0;
    int kernels_compiled = 0;  // not found in the kernel cache
    double compile_milliseconds = 0;
    double stitch_milliseconds = 0;  // of which passes, stitching and planning
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

    // Runs on arrays (any strides) in the order of feeds(). With `results`, writes into those contiguous arrays instead
    // of new ones. Nothing is changed when it throws.
    std::vector<NDArray> run(std::span<const NDArray> inputs, std::span<const NDArray> results = {}) const;

    // Of the most recent variant (pattern of shapes). `source` is "loopir", "llvm" or "asm".
    Report report() const;
    std::string source(const std::string& kind = "loopir") const;
    // How many patterns of feed shapes have been compiled.
    int variants() const;

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

// Compiles when this combination of feeds, targets and operations is new to the graph, and runs.
TOPSTITCH_API std::vector<NDArray> run(const Graph& graph, const Feeds& feeds, const std::vector<Tensor>& targets,
                                       const std::vector<Operation>& operations = {},
                                       const CompileOptions& options = {});

// The executable that run() uses for these feeds, targets and operations.
TOPSTITCH_API Executable find_executable(const Graph& graph, const std::vector<Tensor>& feeds,
                                         const std::vector<Tensor>& targets, const std::vector<Operation>& operations,
                                         const CompileOptions& options);

// Threads that a kernel runs on at most: TOPSTITCH_NUM_THREADS, else the usable cores. UserError below 1.
TOPSTITCH_API int num_threads();
TOPSTITCH_API void set_num_threads(int threads);

}  // namespace topstitch
