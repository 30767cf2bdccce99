// Reads array-like Python objects as NDArrays, without copying where their memory can be viewed.
// NumPy arrays directly, DLPack producers through it, everything else through numpy.asarray.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>

#include "bind_ndarray.h"
#include "core/checked.h"
#include "ndarray_parts.h"
#include "topstitch/error.h"

namespace py = pybind11;

namespace topstitch::bindings {

namespace {

std::string type_name(py::handle object) {
    return py::str(py::type::handle_of(object).attr("__name__"));
}

// Errors that mean "this object is not an array"; others, such as KeyboardInterrupt, pass.
bool is_conversion_error(const py::error_already_set& error) {
    for (PyObject* kind : {PyExc_TypeError, PyExc_ValueError, PyExc_OverflowError, PyExc_BufferError,
                           PyExc_AttributeError, PyExc_RuntimeError}) {
        if (error.matches(kind)) return true;
    }
    return false;
}

std::string message_of(const py::error_already_set& error) {
    return py::str(error.value());
}

py::module_ numpy_module() {
    return py::module_::import("numpy");
}

[[noreturn]] void refuse_copy(py::handle object, const std::string& what) {
    throw UserError(concat(what, ": a ", type_name(object), " has to be copied to become an array, but copy is False"));
}

py::array as_numpy(py::handle object, const std::string& what, CopyMode copy = CopyMode::if_needed) {
    const py::module_ numpy = numpy_module();
    try {
        if (copy == CopyMode::never) {
            try {
                // NumPy 1 understands this as "if needed"; from NumPy 2 on the source hears of it.
                return numpy.attr("array")(object, py::arg("copy") = false, py::arg("subok") = true);
            } catch (py::error_already_set& error) {
                if (!error.matches(PyExc_ValueError)) throw;
            }
        }
        // Subclasses are let through, as a plain array would silently drop the mask of what __array__ returns.
        const py::array array = numpy.attr("asanyarray")(object);
        if (copy != CopyMode::never) return array;
    } catch (py::error_already_set& error) {
        if (!is_conversion_error(error)) throw;
        throw TypeError(concat(what, ": the ", type_name(object), " cannot be read as an array (", message_of(error),
                               "); pass a NumPy array, a number, or lists of numbers of equal lengths"));
    }
    refuse_copy(object, what);
}

bool is_masked(py::handle array) {
    return Py_TYPE(array.ptr()) != py::detail::npy_api::get().PyArray_Type_ && py::hasattr(array, "_mask") &&
           py::hasattr(array, "filled");
}

// A view of a NumPy array, or a copy when its data is not aligned.
NDArray view_numpy(py::array array, const std::string& what, CopyMode copy) {
    if (is_masked(array)) {
        throw TypeError(concat(
            what, ": the array is masked, and the mask would be lost; fill it first, e.g. with array.filled(0)"));
    }
    const auto dtype = dtype_from_numpy(array.dtype());
    if (!dtype) reject_numpy_dtype(array.dtype(), what);
    if (array.ndim() > max_rank) {
        throw UserError(concat(what, ": the array has ", array.ndim(), " dims; at most ", max_rank,
                               " are supported, so merge some with reshape"));
    }
    if ((array.flags() & py::detail::npy_api::NPY_ARRAY_ALIGNED_) == 0) {
        if (copy == CopyMode::never)
            throw UserError(
                concat(what, ": the data is not aligned to its element size and has to be copied, but copy is False"));
        array = py::array(array.attr("copy")());
    }
    const Sizes shape(array.shape(), array.shape() + array.ndim());
    const Sizes strides(array.strides(), array.strides() + array.ndim());
    const bool readonly = !array.writeable();
    void* first = const_cast<void*>(array.data());
    const Extent extent = extent_of(shape, strides, static_cast<std::size_t>(array.itemsize()), what);
    // NumPy resizes no array to which there is a weak reference, not even by force.
    const auto buffer = Buffer::borrow(static_cast<char*>(first) + extent.low, extent.bytes(), readonly,
                                       release_of(py::make_tuple(array, py::weakref(array))));
    return NDArray(buffer, first, *dtype, shape, strides);
}

bool fits_64_bits(py::handle integer) {
    int overflow = 0;
    PyLong_AsLongLongAndOverflow(integer.ptr(), &overflow);
    if (overflow <= 0) return overflow == 0;
    PyLong_AsUnsignedLongLong(integer.ptr());  // negative ones have been answered above
    const bool fits = PyErr_Occurred() == nullptr;
    PyErr_Clear();
    return fits;
}

// Lists of integers that NumPy reads as floats or objects because no integer type of its choice holds them all.
// Null when there is anything but integers.
py::object wide_integers(py::handle object, DType dtype, const std::string& what) {
    const py::array objects = numpy_module().attr("asarray")(object, py::arg("dtype") = "object");
    for (const py::handle item : py::list(objects.attr("ravel")().attr("tolist")())) {
        if (!PyLong_CheckExact(item.ptr())) return {};
    }
    try {
        return objects.attr("astype")(numpy_dtype(dtype));
    } catch (py::error_already_set& error) {
        if (!error.matches(PyExc_OverflowError)) throw;
        throw UserError(concat(what, ": an integer is out of range for ", name_of(dtype), "; use a wider dtype"));
    }
}

// Numbers and lists adapt to `dtype`, but neither lose a fraction nor leave its range.
py::array convert_plain(py::handle object, DType dtype, const std::string& what) {
    const bool huge = PyLong_Check(object.ptr()) && !fits_64_bits(object);
    if (huge && !is_floating(dtype) && !is_complex(dtype)) {
        throw UserError(
            concat(what, ": the integer ", std::string(py::str(object)), " is out of range for ", name_of(dtype)));
    }
    const py::array natural = as_numpy(huge ? py::float_(py::reinterpret_borrow<py::object>(object)) : object, what);
    const char kind = natural.dtype().kind();
    const bool to_integer = is_integer(dtype);
    if (to_integer && (kind == 'f' || kind == 'O') && natural.size() > 0) {
        if (const py::object integers = wide_integers(object, dtype, what)) return integers;
    }
    const std::string_view order = "biufc";
    const std::size_t from = order.find(kind);
    if (from == std::string_view::npos) reject_numpy_dtype(natural.dtype(), what);
    const bool complex_to_real = kind == 'c' && !is_complex(dtype);
    const bool real_to_integer = kind == 'f' && (to_integer || dtype == DType::boolean) && natural.size() > 0;
    const bool integer_to_bool = (kind == 'i' || kind == 'u') && dtype == DType::boolean;
    if (complex_to_real || real_to_integer || integer_to_bool) {
        const char* const names[] = {"booleans", "integers", "integers", "floats", "complex numbers"};
        throw TypeError(concat(what, ": Python ", names[from], " do not become ", name_of(dtype),
                               "; convert them yourself, e.g. with numpy.asarray(values).astype('", name_of(dtype),
                               "')"));
    }
    const py::array converted = natural.attr("astype")(numpy_dtype(dtype));
    if ((kind == 'i' || kind == 'u') && to_integer &&
        !numpy_module().attr("array_equal")(natural, converted).cast<bool>()) {
        throw UserError(concat(what, ": an integer is out of range for ", name_of(dtype), "; use a wider dtype"));
    }
    return converted;
}

NDArray convert(const NDArray& array, DType dtype, const std::string& what, CopyMode copy) {
    if (array.dtype() == dtype) return copy == CopyMode::always ? array.copy() : array;
    if (copy == CopyMode::never) {
        throw UserError(concat(what, ": the array is ", name_of(array.dtype()), " and has to be copied to become ",
                               name_of(dtype), ", but copy is False"));
    }
    const py::array converted = ndarray_to_numpy(array).attr("astype")(numpy_dtype(dtype));
    return view_numpy(converted, what, CopyMode::if_needed);
}

bool is_in_range(std::int64_t value, DType dtype) {
    const auto bits = static_cast<int>(8 * size_of(dtype));
    if (is_unsigned_integer(dtype)) return value >= 0 && (bits == 64 || value >> bits == 0);
    return bits == 64 || (value >> (bits - 1)) == (value < 0 ? -1 : 0);
}

// One of Python's numbers where nothing can be lost but digits of a float: the way without NumPy, which need not be
// imported for it. None for all else, wrong numbers among it.
std::optional<NDArray> plain_number(py::handle object, DType dtype) {
    if (PyFloat_CheckExact(object.ptr())) {
        if (!is_floating(dtype)) return std::nullopt;
        return NDArray::scalar(PyFloat_AS_DOUBLE(object.ptr()), dtype);
    }
    if (!PyLong_Check(object.ptr())) return std::nullopt;  // True and False are integers too
    int overflow = 0;
    const std::int64_t value = PyLong_AsLongLongAndOverflow(object.ptr(), &overflow);
    const bool integer = is_integer(dtype) && is_in_range(value, dtype);
    const bool boolean = dtype == DType::boolean && PyBool_Check(object.ptr());
    if (overflow != 0 || !(integer || boolean || is_floating(dtype))) return std::nullopt;
    return NDArray::scalar(value, dtype);
}

NDArray import_plain(py::handle object, std::optional<DType> dtype, const std::string& what, CopyMode copy) {
    if (copy == CopyMode::never) refuse_copy(object, what);
    if (dtype) {
        if (std::optional<NDArray> number = plain_number(object, *dtype)) return *number;
    }
    if (dtype) return view_numpy(convert_plain(object, *dtype, what), what, copy);
    const py::array natural = as_numpy(object, what);
    // Python has one complex type; ours is complex64.
    const bool is_complex128 = natural.dtype().kind() == 'c';
    return view_numpy(is_complex128 ? convert_plain(object, DType::complex64, what) : natural, what, copy);
}

NDArray import_array(py::handle object, const std::string& what, CopyMode copy) {
    if (py::isinstance<py::array>(object)) return view_numpy(py::reinterpret_borrow<py::array>(object), what, copy);
    if (copy == CopyMode::never && (PyList_Check(object.ptr()) || PyTuple_Check(object.ptr())))
        refuse_copy(object, what);
    std::string refusal;
    if (py::hasattr(object, "__dlpack__") && py::hasattr(object, "__dlpack_device__")) {
        try {
            return ndarray_from_dlpack(object, what);
        } catch (py::error_already_set& error) {
            // Some producers refuse by DLPack what they give to NumPy, or explain it better there.
            if (!is_conversion_error(error)) throw;
            refusal = message_of(error);
        }
    }
    py::array array = as_numpy(object, what, copy);
    if (!refusal.empty() && array.dtype().kind() == 'O') {
        throw TypeError(concat(what, ": the ", type_name(object), " gives its memory neither by DLPack (", refusal,
                               ") nor to NumPy; convert it to a NumPy array first"));
    }
    return view_numpy(std::move(array), what, copy);
}

bool carries_dtype(py::handle object, int depth) {
    PyObject* raw = object.ptr();
    if (PyFloat_CheckExact(raw) || PyLong_CheckExact(raw) || PyBool_Check(raw) || PyComplex_CheckExact(raw))
        return false;
    if (!PyList_Check(raw) && !PyTuple_Check(raw)) return true;
    if (depth > max_rank) return true;  // perhaps a list inside itself: NumPy will tell
    // A list of arrays has the dtype of its arrays.
    for (const py::handle item : py::reinterpret_borrow<py::sequence>(object)) {
        if (carries_dtype(item, depth + 1)) return true;
    }
    return false;
}

}  // namespace

Extent extent_of(const Sizes& shape, const Sizes& byte_strides, std::size_t element, const std::string& what) {
    Extent extent{0, static_cast<std::int64_t>(element)};
    for (std::size_t i = 0; i < shape.size(); ++i) {
        if (shape[i] == 0) return {};
        const auto reach = checked_mul(byte_strides[i], shape[i] - 1);
        const auto end = reach ? checked_add(*reach < 0 ? extent.low : extent.high, *reach) : std::nullopt;
        if (end) (*reach < 0 ? extent.low : extent.high) = *end;
        if (!end || !checked_sub(extent.high, extent.low)) {
            throw UserError(concat(what, ": the strides of the array of shape ", sizes_str(shape),
                                   " are too large: they reach beyond 63 bits"));
        }
    }
    return extent;
}

bool carries_dtype(py::handle object) {
    return carries_dtype(object, 0);
}

NDArray ndarray_from_python(py::handle object, std::optional<DType> dtype, const char* what, CopyMode copy) {
    if (object.is_none()) throw TypeError(concat(what, ": got None; pass an array, a number, or lists of numbers"));
    const bool ours = py::isinstance<NDArray>(object);
    if (!ours && !carries_dtype(object)) return import_plain(object, dtype, what, copy);
    const NDArray array = ours ? object.cast<const NDArray&>() : import_array(object, what, copy);
    return convert(array, dtype.value_or(array.dtype()), what, copy);
}

py::array ndarray_to_numpy(const NDArray& array, py::handle owner) {
    const py::object holder = owner ? py::reinterpret_borrow<py::object>(owner) : py::cast(array);
    py::array result(numpy_dtype(array.dtype()), array.shape(), array.byte_strides(), array.data(), holder);
    if (array.readonly()) py::detail::array_proxy(result.ptr())->flags &= ~py::detail::npy_api::NPY_ARRAY_WRITEABLE_;
    return result;
}

py::tuple tuple_of(const Sizes& sizes) {
    py::tuple result(sizes.size());
    for (std::size_t i = 0; i < sizes.size(); ++i) result[i] = sizes[i];
    return result;
}

}  // namespace topstitch::bindings
