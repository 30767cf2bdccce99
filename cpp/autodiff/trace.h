// Remembers the way that gradients took through the graph, to explain an operation that stops one.
// Each operation knows the operation from which its first gradient came.
#pragma once

#include <string>
#include <unordered_map>
#include <unordered_set>

#include "graph/graph_data.h"

namespace topstitch::autodiff {

class Trace {
public:
    explicit Trace(const GraphData& graph) : graph_(&graph) {}

    // A gradient flows from `user` to its operand `operand`. Only the first one is remembered.
    void flows(OpId user, OpId operand) { users_.emplace(operand, user); }
    // `part` came from the expansion of `whole`.
    void expands(OpId whole, OpId part) { wholes_.emplace(part, whole); }

    // "`exp` (named 'y', model.py:12)"
    std::string describe(OpId op) const;
    // The operations from the primary one down to `op`, then on to a requested tensor: "sum <- floor <- multiply". A
    // tensor is of interest when it is in `active`.
    std::string path_through(OpId op, const std::unordered_set<TensorRef>& active) const;

private:
    const GraphData* graph_;
    std::unordered_map<OpId, OpId> users_;
    std::unordered_map<OpId, OpId> wholes_;
};

}  // namespace topstitch::autodiff
