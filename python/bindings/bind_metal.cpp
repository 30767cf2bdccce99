// Binds the caller's own Metal objects, which come as addresses; topstitch/metal.py takes PyObjC's.
// See topstitch/metal.h.
#include <pybind11/stl.h>

#include <cstdint>

#include "bind.h"
#include "bind_ndarray.h"
#include "topstitch/metal.h"

namespace py = pybind11;

namespace topstitch::bindings {

namespace {

void* object_at(std::uintptr_t address) {
    return reinterpret_cast<void*>(address);
}

}  // namespace

void bind_metal(py::module_& m) {
    m.def("metal_device", [](std::uintptr_t device, std::uintptr_t queue) {
        return metal::device(object_at(device), object_at(queue));
    });
    m.def("metal_array",
          [](const Device& device, std::uintptr_t buffer, const Sizes& shape, DType dtype, std::size_t offset) {
              return metal::array(device, object_at(buffer), dtype, shape, offset);
          });
    m.def("metal_buffer", [](const Device& device, const NDArray& array) {
        const auto [buffer, offset] = metal::buffer(device, array);
        return std::pair(reinterpret_cast<std::uintptr_t>(buffer), offset);
    });
    m.def("metal_event", [](std::uintptr_t event) { return metal::event(object_at(event)); });
}

}  // namespace topstitch::bindings
