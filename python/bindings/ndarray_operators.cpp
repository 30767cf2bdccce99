// Arithmetic on NDArrays: every operator is NumPy's, on a view of the array, and gives a NumPy array.
// Results of a run thus mix with NumPy freely, and there is only one meaning of each operator.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include "bind_ndarray.h"
#include "ndarray_parts.h"

namespace py = pybind11;

namespace topstitch::bindings {

namespace {

py::object as_operand(const py::object& self) {
    return ndarray_to_numpy(self.cast<const NDArray&>(), self);
}

template <typename Function>
void add_method(const py::object& cls, const std::string& name, Function function) {
    cls.attr(name.c_str()) = py::cpp_function(function, py::name(name.c_str()), py::is_method(cls), py::is_operator());
}

}  // namespace

void bind_operators(py::object cls) {
    const py::module_ operators = py::module_::import("operator");
    for (const char* name :
         {"add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift"}) {
        const py::object function = operators.attr(("__" + std::string(name) + "__").c_str());
        add_method(cls, "__" + std::string(name) + "__",
                   [function](py::object self, py::object other) { return function(as_operand(self), other); });
        add_method(cls, "__r" + std::string(name) + "__",
                   [function](py::object self, py::object other) { return function(other, as_operand(self)); });
    }
    const py::object divmod = py::module_::import("builtins").attr("divmod");
    add_method(cls, "__divmod__",
               [divmod](py::object self, py::object other) { return divmod(as_operand(self), other); });
    add_method(cls, "__rdivmod__",
               [divmod](py::object self, py::object other) { return divmod(other, as_operand(self)); });
    for (const char* name : {"eq", "ne", "lt", "le", "gt", "ge", "contains"}) {
        const std::string dunder = "__" + std::string(name) + "__";
        const py::object function = operators.attr(dunder.c_str());
        add_method(cls, dunder,
                   [function](py::object self, py::object other) { return function(as_operand(self), other); });
    }
    for (const char* name : {"neg", "pos", "abs", "invert"}) {
        const std::string dunder = "__" + std::string(name) + "__";
        const py::object function = operators.attr(dunder.c_str());
        add_method(cls, dunder, [function](py::object self) { return function(as_operand(self)); });
    }
    cls.attr("__hash__") = py::none();  // == compares elements
}

}  // namespace topstitch::bindings
