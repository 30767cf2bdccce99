// Pieces of the NDArray binding that have a file of their own.
// Used by bind_ndarray.cpp and its neighbours only.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <string>

#include "ownership.h"
#include "topstitch/ndarray.h"

namespace topstitch::bindings {

// ndarray_import.cpp
// The bytes [low, high) that a view of another's array touches, relative to its first element; refuses what overflows.
struct Extent {
    std::int64_t low = 0;
    std::int64_t high = 0;
    std::size_t bytes() const { return static_cast<std::size_t>(high - low); }
};
Extent extent_of(const Sizes& shape, const Sizes& byte_strides, std::size_t element, const std::string& what);

// ndarray_dlpack.cpp
NDArray ndarray_from_dlpack(pybind11::handle object, const std::string& what);
pybind11::object ndarray_to_dlpack(const NDArray& array, pybind11::handle stream, pybind11::handle max_version,
                                   pybind11::handle dl_device, pybind11::handle copy);

// ndarray_index.cpp
pybind11::object get_item(pybind11::object self, pybind11::object key);
void set_item(pybind11::object self, pybind11::object key, pybind11::object value);

// ndarray_display.cpp
std::string repr_of(const NDArray& array);
std::string html_of(const NDArray& array);

// ndarray_operators.cpp
void bind_operators(pybind11::object cls);

// dtype_object.cpp
void bind_dtype(pybind11::module_& m);

}  // namespace topstitch::bindings
