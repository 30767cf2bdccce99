// The handles of users: Graph, Tensor and Operation.
// They hold a reference to the graph and an index; everything they answer is read from GraphData.
#include "topstitch/graph.h"

#include <chrono>
#include <cmath>
#include <limits>
#include <optional>
#include <thread>

#include "core/fork_gate.h"
#include "graph/apply.h"
#include "graph/random_state.h"
#include "graph/variable_access.h"

namespace topstitch {

namespace {

const OpDef& builtin(std::string_view name) {
    const OpDef* def = find_op(name);
    internal_check(def != nullptr, "a built-in operation is missing from the registry");
    return *def;
}

const OpNode& node_of(const std::shared_ptr<GraphData>& graph, OpId id, const char* what) {
    if (graph == nullptr) {
        throw UserError(
            concat("graph: an empty ", what, " was used; create it with a method of Graph or an operation"));
    }
    if (id < 0 || static_cast<std::size_t>(id) >= graph->size()) {
        throw UserError(concat("graph: the ", what, " refers to operation ", id, ", which its graph does not have"));
    }
    return graph->find(id);
}

// The text of a dtype's range: "-128 to 127".
template <typename T>
void check_range(double value, DType dtype) {
    // The bounds are powers of two (or one less), so that comparing with max + 1 is exact in double.
    const double low = static_cast<double>(std::numeric_limits<T>::min());
    const double high = std::ldexp(1.0, std::numeric_limits<T>::digits);
    if (value >= low && value < high) return;
    throw UserError(concat("[constant] ", value, " does not fit ", name_of(dtype), ", which holds ",
                           +std::numeric_limits<T>::min(), " to ", +std::numeric_limits<T>::max(),
                           "; choose a wider dtype"));
}

void check_representable(double value, DType dtype) {
    if (is_floating(dtype) || is_complex(dtype)) return;
    if (std::isnan(value) || std::isinf(value)) {
        throw UserError(
            concat("[constant] ", value, " has no value in ", name_of(dtype), "; use a floating-point dtype"));
    }
    if (value != std::trunc(value)) {
        throw UserError(concat("[constant] ", value, " is not a whole number, but the dtype is ", name_of(dtype),
                               "; round it, or use a floating-point dtype"));
    }
    switch (dtype) {
        case DType::boolean:
            if (value != 0 && value != 1) {
                throw UserError(concat("[constant] ", value, " is not a bool; give 0 or 1, or compare with 0"));
            }
            return;
        case DType::int8:
            return check_range<std::int8_t>(value, dtype);
        case DType::int16:
            return check_range<std::int16_t>(value, dtype);
        case DType::int32:
            return check_range<std::int32_t>(value, dtype);
        case DType::int64:
            return check_range<std::int64_t>(value, dtype);
        case DType::uint8:
            return check_range<std::uint8_t>(value, dtype);
        case DType::uint16:
            return check_range<std::uint16_t>(value, dtype);
        case DType::uint32:
            return check_range<std::uint32_t>(value, dtype);
        case DType::uint64:
            return check_range<std::uint64_t>(value, dtype);
        case DType::float16:
        case DType::bfloat16:
        case DType::float32:
        case DType::float64:
        case DType::complex64:
            return;
    }
}

}  // namespace

std::string TensorType::str() const {
    return concat(name_of(dtype), shape.str());
}

// --- Tensor

const TensorType& Tensor::type() const {
    const OpNode& node = node_of(graph_, ref_.op, "Tensor");
    if (ref_.output < 0 || static_cast<std::size_t>(ref_.output) >= node.outputs.size()) {
        throw UserError(concat("graph: the Tensor refers to output ", ref_.output, " of `", node.def->name,
                               "`, which has ", node.outputs.size()));
    }
    return node.outputs[static_cast<std::size_t>(ref_.output)];
}

DType Tensor::dtype() const {
    return type().dtype;
}

const Shape& Tensor::shape() const {
    return type().shape;
}

const std::string& Tensor::name() const {
    return node_of(graph_, ref_.op, "Tensor").name;
}

Operation Tensor::operation() const {
    node_of(graph_, ref_.op, "Tensor");
    return Operation(graph_, ref_.op);
}

Graph Tensor::graph() const {
    node_of(graph_, ref_.op, "Tensor");
    return Graph(graph_);
}

std::string Tensor::str() const {
    if (!graph_) return "Tensor()";
    const OpNode& node = node_of(graph_, ref_.op, "Tensor");
    std::string text = concat("Tensor(%", ref_.op);
    if (node.outputs.size() > 1) text += concat(".", ref_.output);
    text += concat(" = ", node.def->name, ": ", type().str());
    if (!node.name.empty()) text += concat(", name=\"", node.name, "\"");
    return text + ")";
}

// --- Operation

std::string_view Operation::op() const {
    return node_of(graph_, id_, "Operation").def->name;
}

const std::string& Operation::name() const {
    return node_of(graph_, id_, "Operation").name;
}

SourceLocation Operation::location() const {
    return node_of(graph_, id_, "Operation").location;
}

std::vector<Tensor> Operation::inputs() const {
    std::vector<Tensor> tensors;
    for (const TensorRef ref : node_of(graph_, id_, "Operation").inputs) tensors.emplace_back(graph_, ref);
    return tensors;
}

std::vector<Tensor> Operation::outputs() const {
    const auto count = static_cast<std::int32_t>(node_of(graph_, id_, "Operation").outputs.size());
    std::vector<Tensor> tensors;
    for (std::int32_t k = 0; k < count; ++k) tensors.emplace_back(graph_, TensorRef{id_, k});
    return tensors;
}

std::vector<Operation> Operation::control_dependencies() const {
    std::vector<Operation> operations;
    for (const OpId id : node_of(graph_, id_, "Operation").control) operations.emplace_back(graph_, id);
    return operations;
}

NamedAttributes Operation::attributes() const {
    const OpNode& node = node_of(graph_, id_, "Operation");
    NamedAttributes named;
    for (std::size_t k = 0; k < node.attributes.size(); ++k) {
        named.emplace_back(node.def->attributes[k].name, node.attributes[k]);
    }
    return named;
}

Graph Operation::graph() const {
    node_of(graph_, id_, "Operation");
    return Graph(graph_);
}

// --- Graph

Graph::Graph() : data_(std::make_shared<GraphData>()) {}

Tensor Graph::placeholder(const Shape& shape, DType dtype, const std::string& name) {
    return apply(data_, builtin("placeholder"), {}, {{"shape", shape}, {"dtype", dtype}}, name).front();
}

// Copies: the caller may go on to change the array.
Tensor Graph::constant(const NDArray& value, const std::string& name) {
    return apply(data_, builtin("constant"), {}, {{"value", value.copy()}}, name).front();
}

Tensor Graph::constant(double value, DType dtype, const std::string& name) {
    check_representable(value, dtype);
    return apply(data_, builtin("constant"), {}, {{"value", NDArray::scalar(value, dtype)}}, name).front();
}

Tensor Graph::variable(const NDArray& initial, const std::string& name) {
    return apply(data_, builtin("variable"), {}, {{"value", initial.copy()}}, name).front();
}

Tensor Graph::read(const Tensor& variable, const std::string& name) {
    return apply(data_, builtin("read"), {variable}, {}, name).front();
}

Operation Graph::assign(const Tensor& variable, const Tensor& value, const std::string& name) {
    return apply_operation(data_, builtin("assign"), {variable, value}, {}, name);
}

void Graph::push_control_dependencies(const std::vector<Operation>& operations) {
    std::vector<OpId> ids;
    for (const Operation& operation : operations) {
        node_of(operation.graph_data(), operation.id(), "Operation");
        if (operation.graph_data() != data_) {
            throw UserError(concat("control_dependencies: the operation `", operation.op(),
                                   "` belongs to another graph; only operations of this graph can come first"));
        }
        ids.push_back(operation.id());
    }
    const std::lock_guard lock(data_->mutex);
    data_->control_stacks[std::this_thread::get_id()].push_back(std::move(ids));
}

namespace {

// Closes what this thread opened last; false when nothing is open.
bool close_control_group(GraphData& data) {
    const std::lock_guard lock(data.mutex);
    const auto open = data.control_stacks.find(std::this_thread::get_id());
    if (open == data.control_stacks.end()) return false;
    open->second.pop_back();
    if (open->second.empty()) data.control_stacks.erase(open);
    return true;
}

}  // namespace

void Graph::pop_control_dependencies() {
    if (!close_control_group(*data_))
        throw UserError("control_dependencies: none is open in this thread; every pop needs a push before it");
}

void Graph::control_dependencies(const std::vector<Operation>& operations, const std::function<void()>& build) {
    push_control_dependencies(operations);
    struct Pop {
        GraphData& data;
        ~Pop() { close_control_group(data); }
    } pop{*data_};
    build();
}

std::vector<Operation> Graph::operations() const {
    const std::size_t count = data_->size();
    std::vector<Operation> operations;
    operations.reserve(count);
    for (std::size_t id = 0; id < count; ++id) operations.emplace_back(data_, static_cast<OpId>(id));
    return operations;
}

namespace {

std::vector<Tensor> tensors_of(const std::shared_ptr<GraphData>& data, std::string_view op) {
    const OpDef* def = &builtin(op);
    std::vector<Tensor> tensors;
    const std::lock_guard lock(data->mutex);
    for (std::size_t id = 0; id < data->ops.size(); ++id) {
        if (data->ops[id].def == def) tensors.emplace_back(data, TensorRef{static_cast<OpId>(id), 0});
    }
    return tensors;
}

Variable& storage_of(const Graph& graph, const Tensor& tensor, const char* what) {
    if (tensor.graph_data() != nullptr && tensor.graph_data() != graph.data()) {
        throw UserError(concat(what, ": the variable belongs to another graph"));
    }
    const OpNode& node = node_of(tensor.graph_data(), tensor.ref().op, "Tensor");
    if (node.variable == nullptr) {
        throw UserError(concat(what, ": ", tensor.str(), " is not a variable, but the result of `", node.def->name,
                               "`; variables come from Graph.variable"));
    }
    return *node.variable;
}

}  // namespace

std::vector<Tensor> Graph::placeholders() const {
    return tensors_of(data_, "placeholder");
}

std::vector<Tensor> Graph::variables() const {
    return tensors_of(data_, "variable");
}

namespace {

constexpr double forever = std::numeric_limits<double>::infinity();

// Runs hold a variable from their first kernel to their last. Without a fork gate while it waits.
template <typename Action>
bool with_variable(Variable& storage, double seconds, Action action) {
    const auto start = std::chrono::steady_clock::now();
    for (;;) {
        {
            const ForkGate gate;
            const std::unique_lock lock(storage.mutex, std::try_to_lock);
            if (lock.owns_lock()) {
                action();
                return true;
            }
        }
        if (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() >= seconds) return false;
        std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
}

}  // namespace

std::optional<NDArray> variable_value_within(const Graph& graph, const Tensor& variable, double seconds) {
    Variable& storage = storage_of(graph, variable, "variable_value");
    std::optional<NDArray> value;
    with_variable(storage, seconds, [&] { value = storage.value.copy(); });
    return value;
}

bool set_variable_value_within(const Graph& graph, const Tensor& variable, const NDArray& value, double seconds) {
    Variable& storage = storage_of(graph, variable, "set_variable_value");
    const TensorType& type = variable.type();
    if (value.dtype() != type.dtype) {
        throw TypeError(concat("set_variable_value: the variable is ", type.str(), ", but the value's dtype is ",
                               name_of(value.dtype()), "; convert the value first"));
    }
    if (Shape::of(value.shape()) != type.shape) {
        throw UserError(concat("set_variable_value: the variable is ", type.str(), ", but the value's shape is ",
                               sizes_str(value.shape()), "; the shape of a variable does not change"));
    }
    NDArray fresh = value.copy();  // outside of the lock; a failure changes nothing
    return with_variable(storage, seconds, [&] { storage.value = std::move(fresh); });
}

bool set_seed_within(const Graph& graph, std::uint64_t seed, double seconds) {
    const std::optional<Tensor> variable = store_seed(graph.data(), seed);
    return !variable || set_variable_value_within(graph, *variable, random_variable_value(seed), seconds);
}

void Graph::set_seed(std::uint64_t seed) {
    set_seed_within(*this, seed, forever);
}

NDArray Graph::variable_value(const Tensor& variable) const {
    return *variable_value_within(*this, variable, forever);
}

void Graph::set_variable_value(const Tensor& variable, const NDArray& value) {
    set_variable_value_within(*this, variable, value, forever);
}

}  // namespace topstitch
