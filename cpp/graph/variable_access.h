// The values of variables for those who cannot wait without end, as Python, which has to look for signals.
// The same checks and errors as Graph::variable_value, Graph::set_variable_value and Graph::set_seed.
#pragma once

#include <optional>

#include "topstitch/graph.h"

namespace topstitch {

// None, or false, when runs hold the variable for longer than `seconds`.
TOPSTITCH_API std::optional<NDArray> variable_value_within(const Graph& graph, const Tensor& variable, double seconds);
TOPSTITCH_API bool set_variable_value_within(const Graph& graph, const Tensor& variable, const NDArray& value,
                                             double seconds);
TOPSTITCH_API bool set_seed_within(const Graph& graph, std::uint64_t seed, double seconds);

}  // namespace topstitch
