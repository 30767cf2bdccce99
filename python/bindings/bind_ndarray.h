// Arrays and element types between Python and C++, for all binding files.
// Including this header also makes DType arguments accept everything that names a dtype.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <optional>
#include <string>

#include "topstitch/ndarray.h"

namespace topstitch::bindings {

// The dtype that a Python object names: topstitch.float32, "float32", numpy.float32, numpy.dtype, float, torch.float32.
// topstitch::TypeError for anything else.
DType dtype_from_python(pybind11::handle object);
// The one Python object for a dtype, and NumPy's (bfloat16 is that of ml_dtypes).
pybind11::object dtype_to_python(DType dtype);
pybind11::dtype numpy_dtype(DType dtype);
// The dtype of a NumPy array or scalar; nothing when topstitch has no such type (see reject_numpy_dtype).
std::optional<DType> dtype_from_numpy(const pybind11::dtype& dtype);
// Throws a topstitch::TypeError that says why `dtype` is not accepted and what to do.
[[noreturn]] void reject_numpy_dtype(const pybind11::dtype& dtype, const std::string& what);

enum class CopyMode { if_needed, always, never };

// An array over the memory of any array-like object, which stays alive as long as the array. Copies only what
// cannot be viewed (lists, numbers, misaligned data), or when `dtype` asks for a conversion. Numbers and lists
// of numbers, which have no dtype of their own, must fit `dtype` exactly; without it they take NumPy's, but
// complex64. `what` opens error messages.
NDArray ndarray_from_python(pybind11::handle object, std::optional<DType> dtype, const char* what,
                            CopyMode copy = CopyMode::if_needed);
// False for Python numbers and (nested) lists and tuples, which adapt to the dtype that is wanted.
bool carries_dtype(pybind11::handle object);

// A NumPy array over the memory of `array`. `owner` is the Python object that keeps it alive; without it, the
// NumPy array holds a reference of its own.
pybind11::array ndarray_to_numpy(const NDArray& array, pybind11::handle owner = {});
pybind11::tuple tuple_of(const Sizes& sizes);

}  // namespace topstitch::bindings

namespace pybind11::detail {

template <>
struct type_caster<topstitch::DType> {
    PYBIND11_TYPE_CASTER(topstitch::DType, const_name("DType"));

    bool load(handle source, bool) {
        if (!source || source.is_none()) return false;
        value = topstitch::bindings::dtype_from_python(source);
        return true;
    }
    static handle cast(topstitch::DType dtype, return_value_policy, handle) {
        return topstitch::bindings::dtype_to_python(dtype).release();
    }
};

}  // namespace pybind11::detail
