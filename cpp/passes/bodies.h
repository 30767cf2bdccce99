// The functions of loops and branches as passes see them: programs of their own, whose feeds are the parameters.
// They are specialised by bodies.cpp; after that every dim in them is decided, as in the program around.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "graph/function.h"
#include "passes/program.h"

namespace topstitch {

bool is_control(const OpNode& node);

Program program_of(const Function& function);
// Feeds that have become constants are parameters again.
FunctionPtr function_of(const Program& program);

// Replaces each function among the attributes of `node` by what `change` makes of it.
void change_functions(OpNode& node, const std::function<Program(const Program&)>& change);

// By parameter of the functions of a loop or branch: the constant that it always is, or null.
std::vector<const NDArray*> constant_captures(const GraphData& graph, const OpNode& node);

// A parameter that a function gets in addition.
struct NewParameter {
    TensorType type;
    std::string name;
    TensorRef replaces;  // a tensor of the function, if its op is not -1
};

// A copy with new parameters before position `at` of the old ones, and with `more` tensors among its results, after the
// old ones.
FunctionPtr with_parameters(const Function& function, std::size_t at, const std::vector<NewParameter>& added,
                            const std::vector<TensorRef>& more = {});

}  // namespace topstitch
