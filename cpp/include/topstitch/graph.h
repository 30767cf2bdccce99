// Graph, Tensor and Operation: what a user describes.
// All three are cheap handles; a graph lives as long as any handle into it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "topstitch/attribute.h"
#include "topstitch/error.h"
#include "topstitch/export.h"
#include "topstitch/ndarray.h"
#include "topstitch/shape.h"

namespace topstitch {

struct GraphData;
struct OpDef;

using OpId = std::int32_t;

// One output of one operation, inside a known graph.
struct TensorRef {
    OpId op = -1;
    std::int32_t output = 0;
    friend bool operator==(const TensorRef&, const TensorRef&) = default;
    friend auto operator<=>(const TensorRef&, const TensorRef&) = default;
};

struct TOPSTITCH_API TensorType {
    DType dtype = DType::float32;
    Shape shape;
    TOPSTITCH_API std::string str() const;  // "float32(64, ?)"
    friend bool operator==(const TensorType&, const TensorType&) = default;
};

class Graph;
class Operation;

class TOPSTITCH_API Tensor {
public:
    Tensor() = default;  // no tensor
    Tensor(std::shared_ptr<GraphData> graph, TensorRef ref) : graph_(std::move(graph)), ref_(ref) {}

    explicit operator bool() const { return graph_ != nullptr; }
    DType dtype() const;
    const Shape& shape() const;
    const TensorType& type() const;
    int rank() const { return shape().rank(); }
    const std::string& name() const;
    Operation operation() const;
    Graph graph() const;
    std::string str() const;

    TensorRef ref() const { return ref_; }
    const std::shared_ptr<GraphData>& graph_data() const { return graph_; }
    // Identity: the same output of the same operation of the same graph.
    friend bool operator==(const Tensor& a, const Tensor& b) { return a.graph_ == b.graph_ && a.ref_ == b.ref_; }

private:
    std::shared_ptr<GraphData> graph_;
    TensorRef ref_;
};

class TOPSTITCH_API Operation {
public:
    Operation() = default;
    Operation(std::shared_ptr<GraphData> graph, OpId id) : graph_(std::move(graph)), id_(id) {}

    explicit operator bool() const { return graph_ != nullptr; }
    std::string_view op() const;  // the OpDef's name
    const std::string& name() const;
    SourceLocation location() const;
    std::vector<Tensor> inputs() const;
    std::vector<Tensor> outputs() const;
    std::vector<Operation> control_dependencies() const;
    NamedAttributes attributes() const;
    Graph graph() const;
    std::string str() const;

    OpId id() const { return id_; }
    const std::shared_ptr<GraphData>& graph_data() const { return graph_; }
    friend bool operator==(const Operation& a, const Operation& b) { return a.graph_ == b.graph_ && a.id_ == b.id_; }

private:
    std::shared_ptr<GraphData> graph_;
    OpId id_ = -1;
};

class TOPSTITCH_API Graph {
public:
    Graph();
    explicit Graph(std::shared_ptr<GraphData> data) : data_(std::move(data)) {}

    // A dim of -1 is known only at run time; Dim::symbol("batch") too, but equal names must agree.
    // Shape::unranked() leaves the rank open.
    Tensor placeholder(const Shape& shape, DType dtype = DType::float32, const std::string& name = "");
    Tensor constant(const NDArray& value, const std::string& name = "");
    Tensor constant(double value, DType dtype = DType::float32, const std::string& name = "");
    // State that lasts from run to run. Used as a tensor it is a read of the value from before the run.
    Tensor variable(const NDArray& initial, const std::string& name = "");
    // An explicit read, which sees assignments that it depends on by control dependency.
    Tensor read(const Tensor& variable, const std::string& name = "");
    Operation assign(const Tensor& variable, const Tensor& value, const std::string& name = "");

    // Operations created by `build` (on this thread) run after `operations`.
    void control_dependencies(const std::vector<Operation>& operations, const std::function<void()>& build);
    // The same as a pair, for Python's `with`.
    void push_control_dependencies(const std::vector<Operation>& operations);
    void pop_control_dependencies();

    // The current value of a variable (a copy), and its replacement between runs (same dtype and shape).
    NDArray variable_value(const Tensor& variable) const;
    void set_variable_value(const Tensor& variable, const NDArray& value);

    // Operations that draw random numbers without a state given get other ones in each run, determined by this seed (0
    // unless set) and the number of runs that drew since. The two are the variable named "random_state", which the
    // graph has once it needs it.
    void set_seed(std::uint64_t seed);

    std::vector<Operation> operations() const;
    std::vector<Tensor> placeholders() const;
    std::vector<Tensor> variables() const;

    // Text that parse() reads back; names the ops as the registry does.
    std::string str() const;
    static Graph parse(std::string_view text);
    // 128 bits over structure, types, attributes and constants' contents; names and locations do not count.
    std::string structural_hash() const;
    // Checks every invariant (types re-inferred, references, arity); throws InternalError.
    void verify() const;

    const std::shared_ptr<GraphData>& data() const { return data_; }
    friend bool operator==(const Graph& a, const Graph& b) { return a.data_ == b.data_; }

private:
    std::shared_ptr<GraphData> data_;
};

// The place in user code that operations created on this thread are said to come from, until the next call.
TOPSTITCH_API void set_current_location(SourceLocation location);

}  // namespace topstitch

template <>
struct std::hash<topstitch::TensorRef> {
    std::size_t operator()(const topstitch::TensorRef& ref) const noexcept {
        return std::hash<std::uint64_t>()((static_cast<std::uint64_t>(static_cast<std::uint32_t>(ref.op)) << 32) |
                                          static_cast<std::uint32_t>(ref.output));
    }
};

template <>
struct std::hash<topstitch::Tensor> {
    std::size_t operator()(const topstitch::Tensor& tensor) const noexcept {
        return std::hash<const void*>()(tensor.graph_data().get()) ^ std::hash<topstitch::TensorRef>()(tensor.ref());
    }
};
