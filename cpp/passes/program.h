// Program: what is compiled. A pure function of feeds and variables, over a graph of its own in which every
// dim is a number or a symbol. Passes take one and give one.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "graph/apply.h"

namespace topstitch {

// A dim that had to be assumed equal to another while the program was specialised.
struct DimEquality {
    Dim a, b;
};

// How an array lies in memory when it is not packed: the distances in elements along its axes (numbers and symbols),
// and the axes that run towards lower addresses. Its buffer begins at the lowest address.
struct Layout {
    Shape strides;
    std::vector<std::int64_t> reversed;
};

struct Program {
    // A variable that the program reads or writes.
    struct State {
        std::shared_ptr<Variable> variable;
        std::string name;
        TensorRef before;       // the `variable` operation: its value from before the run
        TensorRef after;        // its value after the run
        bool assigned = false;  // `after` differs from `before`
    };

    std::shared_ptr<GraphData> graph;
    std::vector<TensorRef> feeds;  // `placeholder` operations, in the caller's order
    std::vector<State> states;
    std::vector<TensorRef> results;
    std::vector<std::optional<Layout>> layouts;  // of the results; empty: all are packed
    std::vector<DimEquality> assumptions;
    // Of the body of a loop: the feeds that are the same in all iterations.
    bool repeats = false;
    std::vector<TensorRef> invariant;

    // Null for what is packed. Once `anchor` has given each strided result a tensor of its own.
    const Layout* layout_of(TensorRef ref) const;
};

// Copies a program operation by operation into a new one; a pass decides what each becomes.
class Rebuild {
public:
    explicit Rebuild(const Program& from);

    const Program& from() const { return *from_; }
    const std::shared_ptr<GraphData>& graph() const { return graph_; }
    TensorRef mapped(TensorRef old) const;
    Tensor mapped_tensor(TensorRef old) const { return Tensor(graph_, mapped(old)); }
    // The same operation on the mapped inputs, not yet in the new graph; types are kept.
    OpNode mapped_node(OpId old) const;
    void map(OpId old, std::vector<TensorRef> outputs);
    // Appends `node` to the new graph, in place of `old`.
    OpId add(OpId old, OpNode node);
    OpId copy(OpId old) { return add(old, mapped_node(old)); }
    // All feeds, states and results mapped.
    Program finish() &&;

private:
    const Program* from_;
    std::shared_ptr<GraphData> graph_;
    std::vector<std::vector<TensorRef>> map_;
};

// The OpView of an operation in a graph; keeps the input types alive.
struct NodeView {
    NodeView(const GraphData& graph, const OpNode& node);
    std::vector<TensorType> inputs;
    OpView view;
};

// The number that every element of `ref` equals, when that is plain from the graph (a scalar constant, a fill).
std::optional<double> splat_value(const GraphData& graph, TensorRef ref);

}  // namespace topstitch
