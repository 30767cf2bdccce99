// The extension module topstitch._core: a thin face of libtopstitch.
// The Python package re-exports what users see; nothing here computes.
#include <pybind11/pybind11.h>

#include "bind.h"
#include "core/exit_gate.h"
#include "topstitch/version.h"

namespace {

// An object whose __init__ has not run (a subclass that forgot it, X.__new__(X)) has no C++ value. pybind11 would
// allocate raw memory for it when it is used; this allocation function refuses instead.
void refuse_uninitialized(const pybind11::module_& m) {
    namespace py = pybind11;
    for (const auto& [name, value] : m.attr("__dict__").cast<py::dict>()) {
        if (!PyType_Check(value.ptr()) || Py_TYPE(value.ptr()) != py::detail::get_internals().default_metaclass)
            continue;
        auto* type = py::detail::get_type_info(reinterpret_cast<PyTypeObject*>(value.ptr()));
        type->operator_new = [](std::size_t) -> void* {
            throw py::type_error("an object of topstitch is used before its __init__ was called");
        };
    }
}

}  // namespace

PYBIND11_MODULE(_core, m) {
    using namespace topstitch::bindings;
    m.doc() = "C++ core of topstitch; use the package topstitch instead.";
    m.attr("__version__") = TOPSTITCH_VERSION;
    bind_errors(m);
    bind_ndarray(m);
    bind_graph(m);
    bind_autodiff(m);
    bind_control(m);
    bind_queue(m);
    bind_executable(m);
    bind_metal(m);
    bind_serialize(m);
    refuse_uninitialized(m);
    // Runs when no Python code does any more, and no C++ object has been destroyed yet.
    static_cast<void>(Py_AtExit([] { topstitch::close_exit_gate(); }));
}
