// What a Graph handle points to: operations in creation order, the variables' storage, and the source of its
// randomness. Operations are only ever appended, so that ids and references stay valid.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "topstitch/graph.h"

namespace topstitch {

// The storage of one variable. Runs hold the lock while they use it.
struct Variable {
    NDArray value;
    std::mutex mutex;
};

struct OpNode {
    const OpDef* def = nullptr;
    std::vector<TensorRef> inputs;
    std::vector<Attribute> attributes;  // in the order of OpDef::attributes
    std::vector<TensorType> outputs;
    std::vector<OpId> control;  // runs after these
    std::string name;
    SourceLocation location;
    std::shared_ptr<Variable> variable;  // of `variable` operations
};

// Where operations draw from that were given no random state (see random_state.h).
struct RandomSource {
    std::uint64_t seed = 0;
    OpId variable = -1;            // {runs, seed}; made when the first operation draws
    std::int64_t num_streams = 0;  // each such operation has a number of its own
};

struct GraphData {
    std::deque<OpNode> ops;  // references to elements stay valid
    // The open control dependencies of each thread that has any: other threads may build beside it.
    std::map<std::thread::id, std::vector<std::vector<OpId>>> control_stacks;
    // Guards `ops` and `control_stacks` against a reader (a compilation) while another thread appends.
    mutable std::mutex mutex;
    // The body of a loop or branch while it is described: the graph around it, and what it uses of that one's tensors,
    // each with the placeholder that stands for it. See function.h.
    struct Capture {
        TensorRef outer;
        TensorRef inner;
    };
    std::shared_ptr<GraphData> outer;
    std::vector<Capture> captures;
    bool sealed = false;  // the body is complete: nothing can be added
    // Of the body of a loop: the placeholder of the number of the iteration; made when it is asked for (iteration_of).
    bool repeats = false;
    TensorRef iteration;
    RandomSource random;
    mutable std::mutex random_mutex;  // guards `random`; taken before `mutex`
    // Executables compiled for this graph; owned by the runtime layer.
    std::shared_ptr<void> executables;

    // While holding the mutex, or when nobody appends.
    const OpNode& op(OpId id) const { return ops[static_cast<std::size_t>(id)]; }
    // The same at any time: takes the mutex. A node never changes once it is in `ops`.
    const OpNode& find(OpId id) const {
        const std::lock_guard lock(mutex);
        return op(id);
    }
    std::size_t size() const {
        const std::lock_guard lock(mutex);
        return ops.size();
    }
    const TensorType& type(TensorRef ref) const { return op(ref.op).outputs[static_cast<std::size_t>(ref.output)]; }
};

// Appends a checked operation; applies the open control dependencies.
OpId append(GraphData& graph, OpNode node);

}  // namespace topstitch
