// The pattern of a run: which dynamic dims are 0, 1, or equal to each other, and how feeds and results lie in memory.
// Runs of one pattern share a variant; what the pattern leaves open are symbols, whose values are kernel arguments.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "passes/specialize.h"
#include "topstitch/executable.h"

namespace topstitch {

struct Signature {
    std::vector<TensorRef> feeds;
    std::vector<TensorType> feed_types;   // as declared, or narrowed by compile()
    std::vector<std::string> feed_names;  // for messages
    std::vector<TensorRef> targets;
    std::vector<OpId> operations;
    CompileOptions options;
};

// "feed 'x'", or by its number.
std::string feed_name(const Signature& signature, std::size_t k);

// One array as it is given.
struct ArrayLayout {
    const Sizes* shape = nullptr;
    const Sizes* strides = nullptr;  // in bytes, multiples of the element size; null: packed
    DType dtype = DType::float32;    // of a packed feed it does not matter
};

// All arrays of a run.
struct RunLayout {
    std::vector<ArrayLayout> feeds;
    std::vector<ArrayLayout> results;  // by target; empty: all are packed

    bool strided() const;  // some are not packed
};

// Of packed feeds; it refers to `shapes`.
RunLayout packed_layouts(const std::vector<Sizes>& shapes);

using Pattern = std::vector<std::int64_t>;

// The pattern of these arrays, and the values of its symbols in order of appearance. UserError when the shape of a feed
// does not fit its type; those of results are compared when the types of the targets are known.
Pattern find_pattern(const Signature& signature, const RunLayout& run, std::vector<std::int64_t>& symbols);
// A pattern for these sizes alone, without symbols.
Pattern exact_pattern(const RunLayout& run);

// What to compile for a pattern. `exact`: with all sizes as numbers.
SpecializeRequest make_request(const GraphData& graph, const Signature& signature, const RunLayout& run, bool exact);

}  // namespace topstitch
