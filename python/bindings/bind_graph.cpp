// Binds Graph, Tensor, Operation and ShapedType, and apply(), through which every Python function goes.
// Operators and methods of tensors are attached in the package, from the registry.
#include "bind_graph.h"

#include <pybind11/stl.h>

#include "bind.h"
#include "bind_ndarray.h"
#include "execution.h"
#include "gil.h"
#include "graph/apply.h"
#include "graph/text.h"
#include "graph/variable_access.h"
#include "topstitch/executable.h"

namespace py = pybind11;

namespace topstitch::bindings {

namespace {

const OpDef& find_or_explain(const std::string& name) {
    if (const OpDef* def = find_op(name)) return *def;
    throw UserError(
        concat("[", name,
               "] there is no operation of this name; docs/operations.md lists them all, and so does dir(topstitch)"));
}

NamedAttributes attributes_from_python(const OpDef& def, const py::dict& given) {
    NamedAttributes attributes;
    for (const auto& [key, value] : given) {
        const std::string name = py::str(key);
        const int index = def.attribute_index(name);
        // An unknown name is reported with the others by apply().
        attributes.emplace_back(
            name, index < 0 ? Attribute()
                            : attribute_from_python(def, def.attributes[static_cast<std::size_t>(index)], value));
    }
    return attributes;
}

std::vector<Tensor> apply_in_graph(const Graph& graph, const std::string& op, const py::sequence& inputs,
                                   const py::dict& attributes, const std::string& name) {
    const OpDef& def = find_or_explain(op);
    const LocationScope location;
    const Inputs converted = inputs_from_python(def, inputs, &graph);
    return apply(graph.data(), def, converted.tensors, attributes_from_python(def, attributes), name);
}

std::vector<Tensor> apply_from_python(const std::string& op, const py::sequence& inputs, const py::dict& attributes,
                                      const std::string& name) {
    const OpDef& def = find_or_explain(op);
    const LocationScope location;
    const Inputs converted = inputs_from_python(def, inputs);
    return apply(converted.graph.data(), def, converted.tensors, attributes_from_python(def, attributes), name);
}

py::dict attributes_to_python(const Operation& operation) {
    py::dict attributes;
    for (const auto& [name, value] : operation.attributes()) attributes[py::str(name)] = attribute_to_python(value);
    return attributes;
}

py::object location_to_python(const Operation& operation) {
    const SourceLocation location = operation.location();
    if (!location.known()) return py::none();
    return py::make_tuple(location.file, location.line);
}

std::string python_repr(const Shape& shape) {
    return py::repr(shape_to_python(shape));
}

std::string tensor_repr(const Tensor& tensor) {
    std::string text = concat("<Tensor ", name_of(tensor.dtype()), python_repr(tensor.shape()));
    if (!tensor.name().empty()) text += " " + py::repr(py::str(tensor.name())).cast<std::string>();
    return text + concat(" of ", tensor.operation().op(), ">");
}

[[noreturn]] void no_truth(const Tensor& tensor) {
    throw TypeError(
        concat("Tensor: a ", tensor.type().str(),
               " has no truth value while the graph is built; choose by elements with topstitch.where, compare "
               "elements with topstitch.equal (== asks whether two tensors are the same one)"));
}

[[noreturn]] void no_iteration(const Tensor& tensor) {
    throw TypeError(
        concat("Tensor: a ", tensor.type().str(),
               " cannot be iterated, its elements are known only in a run; index it (x[0]), or take it apart "
               "with topstitch.split"));
}

[[noreturn]] void no_array(const Tensor& tensor) {
    throw TypeError(concat("Tensor: a ", tensor.type().str(),
                           " has no elements before a run; get them with Graph.run(feeds, targets=tensor)"));
}

Graph graph_of_variable(const Tensor& variable) {
    return variable.graph();
}

Operation assign(Graph& graph, const Tensor& variable, const py::object& value, const std::string& name) {
    const LocationScope location;
    return graph.assign(variable, tensor_from_python(graph, value, variable.dtype(), "[assign]"), name);
}

void bind_tensor(py::class_<Tensor>& tensor) {
    tensor
        .def_property_readonly(
            "shape", [](const Tensor& self) { return shape_to_python(self.shape()); },
            "A tuple of ints and names, with -1 for dims that are known only at run time; None for an unknown rank.")
        .def_property_readonly("dtype", &Tensor::dtype)
        .def_property_readonly(
            "ndim",
            [](const Tensor& self) -> py::object {
                if (!self.shape().has_rank()) return py::none();
                return py::int_(self.rank());
            },
            "The number of dims; None when unknown.")
        .def_property_readonly("type", [](const Tensor& self) { return ShapedType{self.shape(), self.dtype()}; })
        .def_property_readonly("name", &Tensor::name)
        .def_property_readonly("operation", &Tensor::operation, "The operation that gives this tensor.")
        .def_property_readonly("graph", &Tensor::graph)
        .def(
            "assign",
            [](const Tensor& self, const py::object& value, const std::string& name) {
                Graph graph = graph_of_variable(self);
                return assign(graph, self, value, name);
            },
            py::arg("value"), py::kw_only(), py::arg("name") = "",
            "The operation that gives this variable a new value when it is run.")
        .def(
            "read",
            [](const Tensor& self, const std::string& name) {
                const LocationScope location;
                return graph_of_variable(self).read(self, name);
            },
            py::kw_only(), py::arg("name") = "",
            "The value of this variable, after the assignments that come before by control dependency.")
        .def("__eq__",
             [](const Tensor& self, const py::object& other) {
                 return py::isinstance<Tensor>(other) && self == other.cast<const Tensor&>();
             })
        .def("__ne__",
             [](const Tensor& self, const py::object& other) {
                 return !py::isinstance<Tensor>(other) || !(self == other.cast<const Tensor&>());
             })
        .def("__hash__", [](const Tensor& self) { return static_cast<Py_ssize_t>(std::hash<Tensor>()(self) >> 1); })
        .def("__bool__", [](const Tensor& self) -> bool { no_truth(self); })
        .def("__iter__", [](const Tensor& self) -> py::object { no_iteration(self); })
        .def("__len__",
             [](const Tensor& self) -> Py_ssize_t {
                 const Shape& shape = self.shape();
                 if (shape.has_rank() && shape.rank() > 0 && shape[0].is_known()) return shape[0].value();
                 throw TypeError(concat("Tensor: a ", self.type().str(), " has no length that is known now"));
             })
        .def("__array__", [](const Tensor& self, const py::args&, const py::kwargs&) -> py::object { no_array(self); })
        .def("__repr__", &tensor_repr);
}

void bind_operation(py::class_<Operation>& operation) {
    operation.def_property_readonly("op", &Operation::op, "The name of the operation in the registry, e.g. \"add\".")
        .def_property_readonly("name", &Operation::name)
        .def_property_readonly("inputs", &Operation::inputs)
        .def_property_readonly("outputs", &Operation::outputs)
        .def_property_readonly("control_dependencies", &Operation::control_dependencies)
        .def_property_readonly("attributes", &attributes_to_python)
        .def_property_readonly("location", &location_to_python,
                               "(file, line) of the code that created the operation, or None.")
        .def_property_readonly("graph", &Operation::graph)
        .def("__eq__",
             [](const Operation& self, const py::object& other) {
                 return py::isinstance<Operation>(other) && self == other.cast<const Operation&>();
             })
        .def("__ne__",
             [](const Operation& self, const py::object& other) {
                 return !py::isinstance<Operation>(other) || !(self == other.cast<const Operation&>());
             })
        .def("__hash__",
             [](const Operation& self) {
                 return static_cast<Py_ssize_t>(std::hash<Tensor>()(Tensor(self.graph_data(), {self.id(), -1})) >> 1);
             })
        .def("__str__", &Operation::str)
        .def("__repr__", [](const Operation& self) { return concat("<Operation ", self.str(), ">"); });
}

void bind_shaped_type(py::module_& m) {
    py::class_<ShapedType>(m, "ShapedType", "A shape and a dtype: what a feed will be.")
        .def(
            py::init([](const py::object& shape, DType dtype) {
                return ShapedType{shape_from_python(shape, "ShapedType"), dtype};
            }),
            py::arg("shape"), py::arg("dtype") = py::cast(DType::float32),
            "`shape` as for Graph.placeholder: -1 and names for dims known only at run time, None for an unknown rank.")
        .def_property_readonly("shape", [](const ShapedType& self) { return shape_to_python(self.shape); })
        .def_property_readonly("dtype", [](const ShapedType& self) { return self.dtype; })
        .def("__eq__",
             [](const ShapedType& self, const py::object& other) {
                 if (!py::isinstance<ShapedType>(other)) return false;
                 const auto& type = other.cast<const ShapedType&>();
                 return self.dtype == type.dtype && self.shape.str() == type.shape.str();
             })
        .def("__hash__",
             [](const ShapedType& self) {
                 return py::hash(py::make_tuple(self.shape.str(), std::string(name_of(self.dtype))));
             })
        .def("__repr__", [](const ShapedType& self) {
            return concat("ShapedType(", python_repr(self.shape), ", ", name_of(self.dtype), ")");
        });
}

// 64 bits; negative numbers count as their two's complement.
std::uint64_t seed_from_python(const py::object& seed) {
    const py::object index = py::reinterpret_steal<py::object>(PyNumber_Index(seed.ptr()));
    if (!index) {
        PyErr_Clear();
        throw TypeError(concat("Graph: the seed must be an integer, not ", Py_TYPE(seed.ptr())->tp_name));
    }
    return PyLong_AsUnsignedLongLongMask(index.ptr());
}

void bind_building(py::class_<Graph>& graph) {
    graph
        .def(py::init([](const py::object& seed) {
                 Graph created;
                 created.set_seed(seed_from_python(seed));
                 return created;
             }),
             py::kw_only(), py::arg("seed") = 0,
             "`seed` determines the random numbers of operations that are given no state (dropout); they differ from "
             "run to run.")
        .def(
            "placeholder",
            [](Graph& self, const py::object& shape, DType dtype, const std::string& name) {
                const LocationScope location;
                return self.placeholder(shape_from_python(shape, "[placeholder]"), dtype, name);
            },
            py::arg("shape"), py::arg("dtype") = py::cast(DType::float32), py::arg("name") = "",
            "A tensor that is fed in each run. A dim of -1 is known only at run time; a name stands for such a dim, "
            "and "
            "equal\nnames must agree. A shape of None accepts any rank.")
        .def(
            "constant",
            [](Graph& self, const py::object& value, const py::object& dtype, const std::string& name) {
                const LocationScope location;
                return self.constant(array_with_default_dtype(value, dtype, "[constant]"), name);
            },
            py::arg("value"), py::arg("dtype") = py::none(), py::arg("name") = "",
            "A fixed array, copied. Numbers and lists become float32, int32 or bool unless `dtype` says otherwise.")
        .def(
            "variable",
            [](Graph& self, const py::object& value, const py::object& dtype, const std::string& name) {
                const LocationScope location;
                return self.variable(array_with_default_dtype(value, dtype, "[variable]"), name);
            },
            py::arg("value"), py::arg("dtype") = py::none(), py::arg("name") = "",
            "State that lasts from run to run, with its initial value (copied). Used as a tensor it is the value from "
            "before the run.")
        .def(
            "read",
            [](Graph& self, const Tensor& variable, const std::string& name) {
                const LocationScope location;
                return self.read(variable, name);
            },
            py::arg("variable"), py::arg("name") = "",
            "The value of a variable, after the assignments that come before by control dependency.")
        .def("assign", &assign, py::arg("variable"), py::arg("value"), py::arg("name") = "",
             "The operation that gives a variable a new value when it is run.")
        .def("apply", &apply_in_graph, py::arg("op"), py::arg("inputs"), py::arg("attributes") = py::dict(),
             py::arg("name") = "",
             "Create one operation by its name in the registry, also one without inputs; the list of its results.")
        .def("_push_control_dependencies", &Graph::push_control_dependencies)
        .def("_pop_control_dependencies", &Graph::pop_control_dependencies);
}

// Runs hold a variable's lock without the GIL, and may need the GIL before they give it back.
NDArray variable_value(const Graph& graph, const Tensor& variable) {
    std::optional<NDArray> value;
    wait_interruptibly(
        [&](double seconds) { return (value = variable_value_within(graph, variable, seconds)).has_value(); },
        py::none());
    return *value;
}

void set_variable_value(Graph& graph, const Tensor& variable, const py::object& value) {
    const NDArray array = carries_dtype(value) ? ndarray_from_python(value, std::nullopt, "set_variable_value")
                                               : ndarray_from_python(value, variable.dtype(), "set_variable_value");
    wait_interruptibly([&](double seconds) { return set_variable_value_within(graph, variable, array, seconds); },
                       py::none());
}

void set_seed(Graph& graph, const py::object& seed) {
    const std::uint64_t number = seed_from_python(seed);
    wait_interruptibly([&](double seconds) { return set_seed_within(graph, number, seconds); }, py::none());
}

void bind_inspection(py::class_<Graph>& graph) {
    graph.def_property_readonly("placeholders", &Graph::placeholders)
        .def_property_readonly("variables", &Graph::variables)
        .def_property_readonly("operations", &Graph::operations, "All operations, in the order of their creation.")
        .def("variable_value", &variable_value, py::arg("variable"), "A copy of the current value of a variable.")
        .def("set_variable_value", &set_variable_value, py::arg("variable"), py::arg("value"),
             "Replace the value of a variable between runs; dtype and shape stay.")
        .def("set_seed", &set_seed, py::arg("seed"),
             "Begin the random numbers of operations without a state anew, for this seed. The seed and the number of "
             "runs\nthat drew since are the variable \"random_state\", so that files of variables hold them too.")
        .def(
            "text", [](const Graph& self, bool locations) { return graph_text(*self.data(), locations); },
            py::arg("locations") = false,
            "The graph as text, one line for each operation, which Graph.parse reads back. Variables are written with "
            "their\ninitial values. `locations` adds the file and line of the code that created each operation.")
        .def_static(
            "parse",
            [](const std::string& text) {
                const ReleaseGil release;
                return Graph::parse(text);
            },
            py::arg("text"), "The graph that a text describes; errors give line and column.")
        .def(
            "structural_hash",
            [](const Graph& self) {
                const ReleaseGil release;
                return self.structural_hash();
            },
            "32 hexadecimal digits over structure, types, attributes and constants; names, locations and values of "
            "variables\ndo not count.")
        .def(
            "verify",
            [](const Graph& self) {
                const ReleaseGil release;
                self.verify();
            },
            "Check all invariants; raises InternalError.")
        .def("__eq__",
             [](const Graph& self, const py::object& other) {
                 return py::isinstance<Graph>(other) && self == other.cast<const Graph&>();
             })
        .def("__hash__", [](const Graph& self) { return std::hash<const void*>()(self.data().get()); })
        .def("__str__", &Graph::str)
        .def("__repr__", [](const Graph& self) {
            return concat("<Graph of ", self.operations().size(), " operations, ", self.placeholders().size(),
                          " placeholders, ", self.variables().size(), " variables>");
        });
}

}  // namespace

void bind_graph(py::module_& m) {
    // All classes first, so that signatures in docstrings name them.
    py::class_<Tensor> tensor(m, "Tensor",
                              "One output of an operation. Hashable; == asks whether two are the same tensor.");
    py::class_<Operation> operation(m, "Operation", "A node of a graph.");
    py::class_<Graph> graph(m, "Graph", "Operations on tensors, to be differentiated, compiled and run.");
    bind_shaped_type(m);
    bind_tensor(tensor);
    bind_operation(operation);
    bind_building(graph);
    bind_inspection(graph);
    m.def("apply", &apply_from_python, py::arg("op"), py::arg("inputs"), py::arg("attributes") = py::dict(),
          py::arg("name") = "",
          "Create one operation by its name in the registry; the list of its results. Arrays among the inputs become "
          "constants;\nnumbers adapt to the dtype of the tensors beside them.");
    m.def("ops", &registry_to_python, "What the registry knows of every operation, as a list of dicts.");
}

}  // namespace topstitch::bindings
