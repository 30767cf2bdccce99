// Pieces of the binding of graphs: conversions of shapes, attributes and inputs, and the user's line.
// bind_graph.cpp binds the classes with them.
#pragma once

#include <pybind11/pybind11.h>

#include <string>
#include <vector>

#include "graph/op_def.h"
#include "topstitch/graph.h"

namespace topstitch::bindings {

// A sequence of dims, one int, or None for an unknown rank. A dim is a number, -1 or None when only known at run time,
// or a name ("batch") or expression over names ("2*batch + 1").
Shape shape_from_python(pybind11::handle object, const char* what);
// The inverse: a tuple of ints and strings, with -1 for unknown dims; None for an unknown rank.
pybind11::object shape_to_python(const Shape& shape);

// The value of the attribute `attr` of `def`; DTypeError when it is of another kind.
Attribute attribute_from_python(const OpDef& def, const AttrDef& attr, pybind11::handle object);
pybind11::object attribute_to_python(const Attribute& value);

// Numbers and lists of numbers without a dtype of their own: float32, int32 or bool (complex64).
DType default_dtype(pybind11::handle object);
NDArray array_with_default_dtype(pybind11::handle object, const pybind11::object& dtype, const char* what);

// Inputs of an operation as tensors of one graph. Arrays become constants; Python numbers and lists adapt to the dtype
// of the tensors and arrays beside them.
struct Inputs {
    Graph graph{std::shared_ptr<GraphData>()};
    std::vector<Tensor> tensors;
};
// `graph` when no input is a tensor; without it that is an error.
Inputs inputs_from_python(const OpDef& def, const pybind11::sequence& inputs, const Graph* graph = nullptr);
// One input that adapts to `dtype`.
Tensor tensor_from_python(Graph& graph, pybind11::handle object, DType dtype, const char* what);

// Operations created while it lives are said to come from the Python line that called topstitch.
class LocationScope {
public:
    LocationScope();
    ~LocationScope();
    LocationScope(const LocationScope&) = delete;
    LocationScope& operator=(const LocationScope&) = delete;

private:
    SourceLocation previous_;
};

// The registry as a list of dicts, from which the Python functions and docs are made.
pybind11::list registry_to_python();

}  // namespace topstitch::bindings
