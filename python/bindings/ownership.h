// Keeping Python objects alive from C++ objects that any thread may let go.
// See gil.h for how the lock is taken.
#pragma once

#include <pybind11/pybind11.h>

#include <functional>
#include <memory>

namespace topstitch::bindings {

// Runs `action` with the GIL held, from any thread; not at all once the interpreter goes down.
void with_gil_unless_finalizing(const std::function<void()>& action);
// A release function for Buffer::borrow that drops the reference to `owner`.
std::function<void()> release_of(pybind11::object owner);
// A reference that may be copied and dropped without the GIL.
std::shared_ptr<PyObject> hold(pybind11::object object);

}  // namespace topstitch::bindings
