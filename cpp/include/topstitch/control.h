// Control flow: branches and loops with tensors carried round, whose bodies are described by functions of tensors.
// A body may use any tensor of the graph around it. What it creates belongs to it; only what it returns goes out.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "topstitch/graph.h"

namespace topstitch {

// The results of `then` where the scalar bool `predicate` holds, and those of `otherwise` where it does not; only one
// of the two is computed. Both give equally many tensors, of the same types. Differentiable.
TOPSTITCH_API std::vector<Tensor> if_else(const Tensor& predicate, const std::function<std::vector<Tensor>()>& then,
                                          const std::function<std::vector<Tensor>()>& otherwise,
                                          const std::string& name = "");

// While `condition` of the carried tensors, a scalar bool, holds, they become what `body` makes of them; with the
// dtypes and shapes that they have at first. Not differentiable, as the number of iterations is not known.
TOPSTITCH_API std::vector<Tensor> while_loop(const std::vector<Tensor>& initial,
                                             const std::function<Tensor(const std::vector<Tensor>&)>& condition,
                                             const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& body,
                                             const std::string& name = "");

struct ScanResult {
    std::vector<Tensor> carried;  // after the last iteration
    std::vector<Tensor> stacked;  // the outputs of all iterations, along a new first axis
};

struct ScanOptions {
    // The number of iterations: needed without sequences, else it is the length of their first axis.
    Dim length = Dim::unknown();
    bool reverse = false;  // from the last index to the first
    std::string name;
};

// A loop of known length. Iteration `index` (an int32 scalar) gets the carried tensors and the parts of the sequences
// at `index` of their first axis; it gives the new carried tensors, with the dtypes and shapes that they have at first,
// and further outputs that are stacked at `index`. Differentiable.
using ScanBody = std::function<ScanResult(const Tensor& index, const std::vector<Tensor>& carried,
                                          const std::vector<Tensor>& parts)>;
TOPSTITCH_API ScanResult scan(const Graph& graph, const std::vector<Tensor>& initial,
                              const std::vector<Tensor>& sequences, const ScanBody& body,
                              const ScanOptions& options = {});

}  // namespace topstitch
