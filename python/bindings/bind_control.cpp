// Binds control flow: the bodies of loops and branches are Python functions, called once while the graph is described.
// topstitch/_control.py is what users see: it takes and gives nested structures of tensors.
#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include "bind.h"
#include "bind_graph.h"
#include "topstitch/control.h"

namespace py = pybind11;

namespace topstitch::bindings {

namespace {

using Tensors = std::vector<Tensor>;

}  // namespace

void bind_control(py::module_& m) {
    m.def(
        "if_else",
        [](const Tensor& predicate, const std::function<Tensors()>& then, const std::function<Tensors()>& otherwise,
           const std::string& name) {
            const LocationScope scope;
            return if_else(predicate, then, otherwise, name);
        },
        py::arg("predicate"), py::arg("then"), py::arg("otherwise"), py::arg("name") = "");
    m.def(
        "while_loop",
        [](const Tensors& initial, const std::function<Tensor(Tensors)>& condition,
           const std::function<Tensors(Tensors)>& body, const std::string& name) {
            const LocationScope scope;
            return while_loop(initial, condition, body, name);
        },
        py::arg("initial"), py::arg("condition"), py::arg("body"), py::arg("name") = "");
    m.def(
        "scan",
        [](const Graph& graph, const Tensors& initial, const Tensors& sequences,
           const std::function<std::pair<Tensors, Tensors>(Tensor, Tensors, Tensors)>& body, const py::object& length,
           bool reverse, const std::string& name) {
            const LocationScope scope;
            ScanOptions options;
            if (!length.is_none()) {
                const Shape shape = shape_from_python(py::make_tuple(length), "[scan] length");
                options.length = shape[0];
            }
            options.reverse = reverse;
            options.name = name;
            const ScanResult result = scan(
                graph, initial, sequences,
                [&body](const Tensor& index, const Tensors& carried, const Tensors& parts) {
                    auto [next, stacked] = body(index, carried, parts);
                    return ScanResult{std::move(next), std::move(stacked)};
                },
                options);
            return std::pair(result.carried, result.stacked);
        },
        py::arg("graph"), py::arg("initial"), py::arg("sequences"), py::arg("body"), py::arg("length") = py::none(),
        py::arg("reverse") = false, py::arg("name") = "");
}

}  // namespace topstitch::bindings
