// The pattern of the feeds of a run: which dynamic dims are 0, 1, or equal to each other, and how feeds lie in memory.
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

// One feed as it is given.
struct FeedLayout {
    const Sizes* shape = nullptr;
    const Sizes* strides = nullptr;  // in bytes, multiples of the element size; null: packed
};

// Of packed feeds; they refer to `shapes`.
std::vector<FeedLayout> packed_layouts(const std::vector<Sizes>& shapes);

using Pattern = std::vector<std::int64_t>;

// The pattern of these feeds, and the values of its symbols in order of appearance. UserError when a shape does not fit
// its type.
Pattern find_pattern(const Signature& signature, const std::vector<FeedLayout>& feeds,
                     std::vector<std::int64_t>& symbols);
// A pattern for these sizes alone, without symbols.
Pattern exact_pattern(const Signature& signature, const std::vector<FeedLayout>& feeds);

// What to compile for a pattern. `exact`: with all sizes as numbers.
SpecializeRequest make_request(const GraphData& graph, const Signature& signature, const std::vector<FeedLayout>& feeds,
                               bool exact);

}  // namespace topstitch
