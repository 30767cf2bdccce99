// A function: the body of a loop or of a branch, as a graph of its own with parameters and results.
// While it is described, tensors of the graph around it may be used in it: they are captured, as further parameters.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "graph/graph_data.h"
#include "topstitch/attribute.h"

namespace topstitch {

// Immutable once it is the attribute of an operation.
struct Function {
    std::shared_ptr<GraphData> graph;
    std::vector<TensorRef> parameters;  // `placeholder` operations
    std::vector<TensorRef> results;
};

// Bodies may lie in each other so deep; deeper ones are refused, since passes recurse.
inline constexpr int deepest_function = 32;

// Describes one function inside `outer`. Operations on its parameters are added to it, whatever graph apply() is given.
class FunctionBuilder {
public:
    explicit FunctionBuilder(std::shared_ptr<GraphData> outer);
    ~FunctionBuilder();
    FunctionBuilder(const FunctionBuilder&) = delete;
    FunctionBuilder& operator=(const FunctionBuilder&) = delete;

    const std::shared_ptr<GraphData>& graph() const { return graph_; }
    Tensor parameter(const TensorType& type, const std::string& name = "");
    // The function is the body of a loop. `index`: the parameter that counts the iterations; without one, something in
    // the body may ask for it (iteration_of).
    void set_repeats(const Tensor& index = Tensor());
    // Whether something asked for it; it is a parameter, then, from the call of add_iteration on.
    bool counts() const { return graph_->iteration.op >= 0; }
    Tensor add_iteration();
    // What was captured so far: tensors of the graph around, in the order of their first use.
    std::vector<Tensor> captured() const;
    // The function with the parameters made so far, and after these one for each of `captures`, which hold at least
    // all that was captured. `results` are tensors of the function. Nothing can be added afterwards.
    FunctionPtr finish(const std::vector<Tensor>& results, const std::vector<Tensor>& captures);

private:
    std::shared_ptr<GraphData> outer_;
    std::shared_ptr<GraphData> graph_;
    std::vector<TensorRef> parameters_;
};

// While it lives, what is created on this thread in a graph around this body belongs to the body.
class ScopedBody {
public:
    explicit ScopedBody(std::shared_ptr<GraphData> body);
    ~ScopedBody();
    ScopedBody(const ScopedBody&) = delete;
    ScopedBody& operator=(const ScopedBody&) = delete;

private:
    std::shared_ptr<GraphData> previous_;
};
// The body in `graph` that is being described on this thread, or `graph` when there is none.
const std::shared_ptr<GraphData>& current_body(const std::shared_ptr<GraphData>& graph);

// Whether `inner` is the body of `graph`, or of a body in it, that is being described.
bool encloses(const GraphData& graph, const GraphData& inner);
// `tensor` as a tensor of `graph`: itself, or the placeholder that stands for a tensor of a graph around `graph`. Any
// other tensor is returned as it is.
Tensor captured(const std::shared_ptr<GraphData>& graph, const Tensor& tensor);

// The number of the iteration that the body of a loop is in, an integer scalar.
Tensor iteration_of(const std::shared_ptr<GraphData>& body);

// The types of the results when the parameters have these types. Throws as infer_types() does.
std::vector<TensorType> function_types(const Function& function, std::span<const TensorType> parameters);
// Adds the operations of the function to `graph`, with `arguments` in place of the parameters; gives the results.
std::vector<Tensor> inline_function(const std::shared_ptr<GraphData>& graph, const Function& function,
                                    const std::vector<Tensor>& arguments);
// A copy without the operations that no result needs, and without the parameters that no operation and no result uses,
// except for those that are marked in `kept`, which then tells which parameters are left.
FunctionPtr without_unused(const Function& function, std::vector<bool>& kept);
// A copy in which `change` was applied to every operation, but not to those of bodies inside it.
FunctionPtr with_changed_operations(const Function& function, const std::function<void(OpNode&)>& change);
// Calls `visit` for each function among the attributes of `node`.
void each_function(const OpNode& node, const std::function<void(const Function&)>& visit);

// Calls `visit` for each operation of the graph, each followed by those of the functions among its attributes.
void each_operation(const GraphData& graph, const std::function<void(const OpNode&)>& visit);

// Equal structure, types, attributes and constants; names and locations do not count.
bool equal(const Function& a, const Function& b);

}  // namespace topstitch
