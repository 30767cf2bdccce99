// The randomness of a graph: what operations draw from that were given no state.
// One variable, {runs, seed}, counts the runs that draw; each operation has a stream of its own besides.
#pragma once

#include <optional>

#include "graph/graph_data.h"

namespace topstitch {

inline constexpr std::string_view random_stream_op = "random_stream";
inline constexpr std::string_view random_iteration_op = "random_iteration";
// The numbers of streams, and those of runs, that a state can tell apart (see random_stream in ops/random.cpp).
inline constexpr std::int64_t max_random_streams = std::int64_t{1} << 24;
inline constexpr int random_run_bits = 40;

// A state that no other operation of the graph draws from, made anew for each run, and for each iteration of the loops
// in whose bodies `graph` lies.
Tensor next_random_stream(const std::shared_ptr<GraphData>& graph);

// A `random_stream` operation is about to be appended, by next_random_stream or from text: later ones go on from it.
void note_random_stream(GraphData& graph, const OpNode& node);

// What set_seed makes of the graph: the value for its random variable, if it has one already.
std::optional<Tensor> store_seed(const std::shared_ptr<GraphData>& graph, std::uint64_t seed);
NDArray random_variable_value(std::uint64_t seed);

}  // namespace topstitch
