// What an Executable handle points to: a signature (feeds, targets, operations, options) and its variants.
// Holds no strong reference to the user's graph, which owns the cache of its executables.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/shared_cache.h"
#include "runtime/run_pattern.h"
#include "runtime/variant.h"

namespace topstitch {

// Whether kernels can address the array where it lies.
bool in_elements(const NDArray& array);

// A run that has been checked and compiled for, and not started.
struct PreparedRun {
    std::shared_ptr<const Variant> variant;
    std::vector<std::int64_t> symbols;
    std::vector<bool> pack;  // inputs to be copied when the run starts; empty: none
};

class ExecutableImpl {
public:
    explicit ExecutableImpl(Signature signature, std::string why)
        : signature_(std::move(signature)), why_(std::move(why)) {}

    const Signature& signature() const { return signature_; }
    // Checks the arrays, and compiles if these shapes are new.
    PreparedRun prepare(const GraphData& graph, std::span<const NDArray> inputs, std::span<const NDArray> results);
    // The same when these shapes have been compiled for; none otherwise.
    std::optional<PreparedRun> prepare_if_compiled(std::span<const NDArray> inputs, std::span<const NDArray> results);
    // Without `results`: new arrays. None when the work exceeds the limit of `control`.
    static std::optional<std::vector<NDArray>> execute(const PreparedRun& run, std::span<const NDArray> inputs,
                                                       std::span<const NDArray> results, const RunControl& control);

    // The variant for these arrays, compiled if it is new.
    std::shared_ptr<const Variant> variant_for(const GraphData& graph, const RunLayout& run,
                                               std::vector<std::int64_t>& symbols);
    std::shared_ptr<const Variant> latest() const;
    int variants() const;
    // The shapes of the feeds that each variant was compiled for, the most recently used first.
    std::vector<std::vector<Sizes>> compiled_shapes() const;
    // One line for each compilation: why it was needed, and where its parts came from.
    std::string explain() const;

private:
    struct Entry {
        Pattern pattern;
        std::shared_ptr<const Variant> variant;
        std::vector<Sizes> shapes;  // those it was compiled for
    };
    // Checks all but the types of the results; the variant is still to be found.
    PreparedRun checked(std::span<const NDArray> inputs, std::span<const NDArray> results) const;
    // The variant for these arrays if there is one. The pattern is kept for whoever compiles.
    std::shared_ptr<const Variant> known_variant(const RunLayout& run, std::vector<std::int64_t>& symbols,
                                                 Pattern& pattern, bool& known);
    std::shared_ptr<const Variant> find(const Pattern& pattern, std::span<const std::int64_t> symbols, bool& known);
    std::shared_ptr<const Variant> compile(const GraphData& graph, const RunLayout& run, bool exact);
    // How the arrays differ from those that have been compiled for. While holding the mutex.
    std::string why_new(const RunLayout& run, bool known) const;
    void note(const Variant& variant, const std::string& why, const RunLayout& run);

    Signature signature_;
    std::string why_;  // this signature was new to the graph
    mutable std::mutex mutex_;
    std::vector<Entry> entries_;  // the most recently used first
    std::deque<std::string> history_;
    std::size_t forgotten_ = 0;  // entries of the history that are no longer kept
};

// The executables of one graph, found by signature.
class ExecutableCache {
public:
    ExecutableCache() = default;
    ~ExecutableCache();
    ExecutableCache(const ExecutableCache&) = delete;
    ExecutableCache& operator=(const ExecutableCache&) = delete;
    std::shared_ptr<ExecutableImpl> find_or_add(const std::vector<std::int32_t>& key,
                                                const std::function<Signature()>& make);

private:
    struct KeyHash {
        std::size_t operator()(const std::vector<std::int32_t>& key) const noexcept;
    };
    std::string why_new(const Signature& wanted) const;
    std::mutex mutex_;
    std::unordered_map<std::vector<std::int32_t>, std::pair<std::shared_ptr<ExecutableImpl>, std::uint64_t>, KeyHash>
        entries_;
    std::uint64_t clock_ = 0;
};

// Of the executables that graphs have found by signature, in the whole process.
CacheStats executable_cache_stats();

}  // namespace topstitch
