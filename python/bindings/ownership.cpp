// Keeps Python objects alive from C++, and lets them go safely from any thread.
// Once the interpreter is going down, references are leaked: there is nobody left to take them.
#include "ownership.h"

#include <Python.h>

#include "gil.h"

namespace py = pybind11;

namespace topstitch::bindings {

namespace {

bool is_finalizing() {
#if PY_VERSION_HEX >= 0x030D0000
    return Py_IsFinalizing() != 0;
#else
    return _Py_IsFinalizing() != 0;
#endif
}

}  // namespace

void with_gil_unless_finalizing(const std::function<void()>& action) {
    if (Py_IsInitialized() == 0) return;
    if (PyGILState_Check() != 0) {
        action();
        return;
    }
    if (is_finalizing()) return;
    const PyGILState_STATE state = acquire_or_sleep([] { return PyGILState_Ensure(); });
    action();
    PyGILState_Release(state);
}

std::function<void()> release_of(py::object owner) {
    PyObject* raw = owner.release().ptr();
    return [raw] { with_gil_unless_finalizing([raw] { Py_DECREF(raw); }); };
}

std::shared_ptr<PyObject> hold(py::object object) {
    if (!object) return {};
    return {object.release().ptr(), [](PyObject* raw) { with_gil_unless_finalizing([raw] { Py_DECREF(raw); }); }};
}

}  // namespace topstitch::bindings
