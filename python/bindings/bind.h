// The parts of topstitch._core, one function for each bind_*.cpp.
// Each adds its classes and functions to the module, in the order of module.cpp.
#pragma once

#include <pybind11/pybind11.h>

namespace topstitch::bindings {

void bind_errors(pybind11::module_& m);
void bind_ndarray(pybind11::module_& m);
void bind_graph(pybind11::module_& m);
void bind_autodiff(pybind11::module_& m);
void bind_control(pybind11::module_& m);
void bind_metal(pybind11::module_& m);
void bind_queue(pybind11::module_& m);
void bind_executable(pybind11::module_& m);
void bind_serialize(pybind11::module_& m);

}  // namespace topstitch::bindings
