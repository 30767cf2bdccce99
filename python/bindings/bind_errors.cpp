// The exception classes of topstitch in Python, and the translation of the C++ ones into them.
// Each is also the built-in exception that Python code expects to catch.
#include <pybind11/pybind11.h>

#include "bind.h"
#include "topstitch/error.h"

namespace py = pybind11;

namespace topstitch::bindings {

namespace {

struct ErrorClasses {
    PyObject* base = nullptr;
    PyObject* user = nullptr;
    PyObject* dtype = nullptr;
    PyObject* unsupported = nullptr;
    PyObject* memory = nullptr;
    PyObject* internal = nullptr;
    PyObject* cancelled = nullptr;
};
ErrorClasses classes;  // references that are never given back: errors may be raised until the very end

PyObject* add_class(py::module_& m, const char* name, const char* doc, const py::tuple& bases) {
    const std::string full_name = std::string("topstitch.") + name;
    PyObject* cls = PyErr_NewExceptionWithDoc(full_name.c_str(), doc, bases.ptr(), nullptr);
    if (cls == nullptr) throw py::error_already_set();
    m.add_object(name, cls);
    return cls;
}

void translate(std::exception_ptr pointer) {
    try {
        if (pointer) std::rethrow_exception(pointer);
    } catch (const TypeError& error) { PyErr_SetString(classes.dtype, error.what()); } catch (const UserError& error) {
        PyErr_SetString(classes.user, error.what());
    } catch (const UnsupportedError& error) {
        PyErr_SetString(classes.unsupported, error.what());
    } catch (const MemoryError& error) {
        PyErr_SetString(classes.memory, error.what());
    } catch (const Cancelled& error) {
        PyErr_SetString(classes.cancelled, error.what());
    } catch (const InternalError& error) {
        PyErr_SetString(classes.internal, error.what());
    } catch (const Error& error) { PyErr_SetString(classes.base, error.what()); }
}

}  // namespace

void bind_errors(py::module_& m) {
    const py::handle base(PyExc_Exception);
    classes.base =
        add_class(m, "TopstitchError", "Base of all exceptions that topstitch raises.", py::make_tuple(base));
    const py::handle ours(classes.base);
    classes.user =
        add_class(m, "UserError", "A value that is not allowed; the message says what is, and how to mend it.",
                  py::make_tuple(ours, py::handle(PyExc_ValueError)));
    classes.dtype = add_class(m, "DTypeError", "A type or dtype that is not allowed; the message says which are.",
                              py::make_tuple(py::handle(classes.user), py::handle(PyExc_TypeError)));
    classes.unsupported =
        add_class(m, "UnsupportedError", "Well-formed, but not available on this device or in this version.",
                  py::make_tuple(ours, py::handle(PyExc_NotImplementedError)));
    classes.memory = add_class(m, "OutOfMemoryError", "Memory could not be had; nothing has been changed.",
                               py::make_tuple(ours, py::handle(PyExc_MemoryError)));
    classes.internal = add_class(m, "InternalError", "A defect of topstitch itself; please report it.",
                                 py::make_tuple(ours, py::handle(PyExc_RuntimeError)));
    classes.cancelled =
        add_class(m, "CancelledError", "The run was cancelled before it had changed anything.", py::make_tuple(ours));
    py::register_local_exception_translator(translate);
}

}  // namespace topstitch::bindings
