// Hashing of operations and attributes into a Hash128, for structural hashes and keys of executables.
// Equal attributes (see equal()) hash equally.
#pragma once

#include "core/hash128.h"
#include "graph/graph_data.h"

namespace topstitch {

void add_ref(Hash128& hash, TensorRef ref);
void add_attribute(Hash128& hash, const Attribute& value);
// The operation itself: what it is, which tensors it takes, its attributes and control dependencies.
void add_operation(Hash128& hash, const OpNode& node);

}  // namespace topstitch
