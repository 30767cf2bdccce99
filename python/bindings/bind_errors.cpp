// The exception classes of topstitch in Python, and the translation of the C++ ones into them.
// Each is also the built-in exception that Python code expects to catch.
#include <pybind11/pybind11.h>

#include <cerrno>
#include <string_view>

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
    PyObject* file = nullptr;
    PyObject* missing_file = nullptr;
    PyObject* permission = nullptr;
    PyObject* internal = nullptr;
    PyObject* cancelled = nullptr;
};
ErrorClasses classes;  // references that are never given back: errors may be raised until the very end

PyObject* add_class(py::module_& m, const char* name, const char* doc, const py::tuple& bases) {
    const std::string full_name = std::string("topstitch.") + name;
    PyObject* cls = PyErr_NewExceptionWithDoc(full_name.c_str(), doc, bases.ptr(), nullptr);
    if (cls == nullptr) throw py::error_already_set();
    m.attr(name) = py::handle(cls);  // not add_object(), which asks __getattr__ first
    return cls;
}

// Messages may quote bytes that are no UTF-8, from a file or a name.
py::object message_of(const Error& error) {
    const std::string_view text = error.what();
    PyObject* message = PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "backslashreplace");
    if (message == nullptr) throw py::error_already_set();
    return py::reinterpret_steal<py::object>(message);
}

void raise(PyObject* cls, const Error& error) {
    PyErr_SetObject(cls, message_of(error).ptr());
}

// With errno, and as the built-in exception that code looks for.
void raise_file_error(const IoError& error) {
    PyObject* cls = classes.file;
    if (error.code() == ENOENT) cls = classes.missing_file;
    if (error.code() == EACCES || error.code() == EPERM) cls = classes.permission;
    const py::object exception = py::reinterpret_borrow<py::object>(cls)(message_of(error));
    exception.attr("errno") = error.code();
    PyErr_SetObject(cls, exception.ptr());
}

// Made when it is first needed: concurrent.futures, whose class it extends, takes a tenth of the import of this
// package.
PyObject* cancelled_class() {
    if (classes.cancelled == nullptr) {
        const py::object base = py::module_::import("concurrent.futures").attr("CancelledError");
        py::module_ m = py::module_::import("topstitch._core");
        classes.cancelled = add_class(m, "CancelledError", "The run was cancelled before it had changed anything.",
                                      py::make_tuple(py::handle(classes.base), base));
    }
    return classes.cancelled;
}

void translate(std::exception_ptr pointer) {
    try {
        if (pointer) std::rethrow_exception(pointer);
    } catch (const TypeError& error) { raise(classes.dtype, error); } catch (const UserError& error) {
        raise(classes.user, error);
    } catch (const UnsupportedError& error) { raise(classes.unsupported, error); } catch (const MemoryError& error) {
        raise(classes.memory, error);
    } catch (const Cancelled& error) { raise(cancelled_class(), error); } catch (const IoError& error) {
        raise_file_error(error);
    } catch (const InternalError& error) { raise(classes.internal, error); } catch (const Error& error) {
        raise(classes.base, error);
    }
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
    classes.file =
        add_class(m, "FileError",
                  "A file could not be read or written; errno says why. A missing file is a FileNotFoundError "
                  "too, a forbidden\none a PermissionError.",
                  py::make_tuple(ours, py::handle(PyExc_OSError)));
    const py::handle file(classes.file);
    classes.missing_file = add_class(m, "_MissingFileError", "A FileError for a path where nothing is.",
                                     py::make_tuple(file, py::handle(PyExc_FileNotFoundError)));
    classes.permission = add_class(m, "_FilePermissionError", "A FileError for what is not allowed.",
                                   py::make_tuple(file, py::handle(PyExc_PermissionError)));
    classes.internal = add_class(m, "InternalError", "A defect of topstitch itself; please report it.",
                                 py::make_tuple(ours, py::handle(PyExc_RuntimeError)));
    m.def("__getattr__", [](const std::string& name) -> py::object {
        if (name == "CancelledError") return py::reinterpret_borrow<py::object>(cancelled_class());
        throw py::attribute_error("module 'topstitch._core' has no attribute '" + name + "'");
    });
    py::register_local_exception_translator(translate);
}

}  // namespace topstitch::bindings
