// Finds the line of the user's Python code: the nearest frame that is not in the package topstitch.
// Walks the frames in C, so that it costs little for each operation.
#include <utility>

#include "bind_graph.h"

namespace py = pybind11;

namespace topstitch::bindings {

namespace {

py::object globals_of(PyFrameObject* frame) {
#if PY_VERSION_HEX >= 0x030B0000
    return py::reinterpret_steal<py::object>(PyFrame_GetGlobals(frame));
#else
    return py::reinterpret_steal<py::object>(PyObject_GetAttrString(reinterpret_cast<PyObject*>(frame), "f_globals"));
#endif
}

// Whether the frame runs the machinery of the package: its module is topstitch or topstitch._something. Examples that
// come with the package count as user code.
bool is_ours(PyFrameObject* frame) {
    static PyObject* const key = PyUnicode_InternFromString("__name__");
    const py::object globals = globals_of(frame);
    if (!globals || !PyDict_Check(globals.ptr())) return false;
    PyObject* name = PyDict_GetItemWithError(globals.ptr(), key);
    if (name == nullptr || !PyUnicode_Check(name)) return false;
    Py_ssize_t size = 0;
    const char* text = PyUnicode_AsUTF8AndSize(name, &size);
    if (text == nullptr) return false;
    const std::string_view module(text, static_cast<std::size_t>(size));
    return module == "topstitch" || module.starts_with("topstitch._");
}

SourceLocation location_of(PyFrameObject* frame) {
    const auto code = py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyFrame_GetCode(frame)));
    PyObject* name = reinterpret_cast<PyCodeObject*>(code.ptr())->co_filename;
    Py_ssize_t size = 0;
    const char* text = name != nullptr ? PyUnicode_AsUTF8AndSize(name, &size) : nullptr;
    if (text == nullptr) return {};
    return {std::string(text, static_cast<std::size_t>(size)), PyFrame_GetLineNumber(frame)};
}

SourceLocation user_location() {
    PyFrameObject* current = PyEval_GetFrame();
    py::object frame = py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(current));
    while (frame) {
        auto* raw = reinterpret_cast<PyFrameObject*>(frame.ptr());
        if (!is_ours(raw)) return location_of(raw);
        frame = py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyFrame_GetBack(raw)));
    }
    return {};
}

}  // namespace

namespace {

thread_local SourceLocation present;

}  // namespace

// Scopes lie in each other where a body of a loop is described.
LocationScope::LocationScope() : previous_(std::exchange(present, user_location())) {
    set_current_location(present);
    PyErr_Clear();  // a file name that is not UTF-8 only means that the place is not known
}

LocationScope::~LocationScope() {
    present = std::move(previous_);
    set_current_location(present);
}

}  // namespace topstitch::bindings
