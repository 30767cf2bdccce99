// What an Executable handle points to: a signature (feeds, targets, operations, options) and its variants.
// Holds no strong reference to the user's graph, which owns the cache of its executables.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/variant.h"

namespace topstitch {

struct Signature {
    std::vector<TensorRef> feeds;
    std::vector<TensorType> feed_types;   // as declared, or narrowed by compile()
    std::vector<std::string> feed_names;  // for messages
    std::vector<TensorRef> targets;
    std::vector<OpId> operations;
    CompileOptions options;
};

class ExecutableImpl {
public:
    explicit ExecutableImpl(Signature signature) : signature_(std::move(signature)) {}

    const Signature& signature() const { return signature_; }
    std::vector<NDArray> run(const GraphData& graph, std::span<const NDArray> inputs, std::span<const NDArray> results);
    // The variant for these shapes, compiled if it is new.
    std::shared_ptr<const Variant> variant_for(const GraphData& graph, const std::vector<const Sizes*>& shapes,
                                               std::vector<std::int64_t>& symbols);
    std::shared_ptr<const Variant> latest() const;
    int variants() const;
    // The shapes of the feeds that each variant was compiled for, the most recently used first.
    std::vector<std::vector<Sizes>> compiled_shapes() const;

private:
    struct Entry {
        std::vector<std::int64_t> pattern;
        std::shared_ptr<const Variant> variant;
        std::vector<Sizes> shapes;  // those it was compiled for
    };
    std::shared_ptr<const Variant> compile(const GraphData& graph, const std::vector<const Sizes*>& shapes, bool exact);
    // For the log: how the shapes differ from those that have been compiled. While holding the mutex.
    std::string why_new(const std::vector<const Sizes*>& shapes) const;
    void log_compiled(const Variant& variant, const std::vector<const Sizes*>& shapes) const;

    Signature signature_;
    mutable std::mutex mutex_;
    std::vector<Entry> entries_;  // the most recently used first
};

// The executables of one graph, found by signature.
class ExecutableCache {
public:
    std::shared_ptr<ExecutableImpl> find_or_add(const std::vector<std::int32_t>& key,
                                                const std::function<Signature()>& make);

private:
    struct KeyHash {
        std::size_t operator()(const std::vector<std::int32_t>& key) const noexcept;
    };
    std::mutex mutex_;
    std::unordered_map<std::vector<std::int32_t>, std::pair<std::shared_ptr<ExecutableImpl>, std::uint64_t>, KeyHash>
        entries_;
    std::uint64_t clock_ = 0;
};

}  // namespace topstitch
