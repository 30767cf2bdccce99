// What operations cost, for passes that decide where and how often something is computed.
// The unit is one addition.
#pragma once

#include "passes/program.h"

namespace topstitch {

// The cost of one element of the result, of an operation whose body is an element or a reduction; without what its
// operands cost. A reduction costs a number of terms, which may be a symbol.
struct ElementCost {
    double term = 0;
    Dim terms = 1;
};
ElementCost element_cost(const GraphData& graph, const OpNode& node);

Dim bytes_of(const TensorType& type);

}  // namespace topstitch
