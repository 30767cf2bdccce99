// The Python class NDArray: NumPy's vocabulary over our arrays, zero-copy in both directions.
// What it does not define itself it looks up on a NumPy view of the same memory.
#include "bind_ndarray.h"

#include <pybind11/complex.h>
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <complex>
#include <cstring>

#include "bind.h"
#include "gil.h"
#include "ndarray_parts.h"
#include "topstitch/error.h"

namespace py = pybind11;

namespace topstitch::bindings {

namespace {

constexpr std::size_t copy_without_gil_above = std::size_t{1} << 20;  // bytes

const NDArray& array_of(const py::object& self) {
    return self.cast<const NDArray&>();
}

py::array numpy_of(const py::object& self) {
    return ndarray_to_numpy(array_of(self), self);
}

NDArray copy_of(const NDArray& array) {
    if (array.bytes() < copy_without_gil_above) return array.copy();
    const ReleaseGil release;
    return array.copy();
}

NDArray construct(py::handle object, std::optional<DType> dtype, std::optional<bool> copy) {
    const CopyMode mode = !copy ? CopyMode::if_needed : *copy ? CopyMode::always : CopyMode::never;
    return ndarray_from_python(object, dtype, "NDArray", mode);
}

// The format letters of the buffer protocol; it has none for bfloat16.
std::string format_of(DType dtype) {
    switch (dtype) {
        case DType::boolean:
            return "?";
        case DType::int8:
            return "b";
        case DType::int16:
            return "h";
        case DType::int32:
            return "i";
        case DType::int64:
            return sizeof(long) == 8 ? "l" : "q";
        case DType::uint8:
            return "B";
        case DType::uint16:
            return "H";
        case DType::uint32:
            return "I";
        case DType::uint64:
            return sizeof(long) == 8 ? "L" : "Q";
        case DType::float16:
            return "e";
        case DType::float32:
            return "f";
        case DType::float64:
            return "d";
        case DType::complex64:
            return "Zf";
        case DType::bfloat16:
            break;
    }
    throw py::buffer_error(
        "NDArray: the buffer protocol has no bfloat16; use numpy.asarray(array), or array.astype('float32')");
}

py::buffer_info buffer_info_of(const NDArray& array) {
    return py::buffer_info(array.data(), static_cast<py::ssize_t>(size_of(array.dtype())), format_of(array.dtype()),
                           array.rank(), array.shape(), array.byte_strides(), array.readonly());
}

py::dict array_interface_of(const NDArray& array) {
    // NumPy then asks __array__ instead.
    if (array.dtype() == DType::bfloat16) throw py::attribute_error("NDArray: __array_interface__ has no bfloat16");
    py::dict interface;
    interface["version"] = 3;
    interface["shape"] = tuple_of(array.shape());
    interface["strides"] = tuple_of(array.byte_strides());
    interface["typestr"] = numpy_dtype(array.dtype()).attr("str");
    interface["data"] = py::make_tuple(reinterpret_cast<std::uintptr_t>(array.data()), array.readonly());
    return interface;
}

// NumPy's protocol, as of NumPy 2 (with `copy`) and before.
py::object array_protocol(py::object self, py::object dtype, py::object copy) {
    const py::array view = numpy_of(self);
    const bool copy_wanted = !copy.is_none() && py::bool_(copy);
    const bool copy_forbidden = !copy.is_none() && !copy_wanted;
    if (!dtype.is_none()) {
        const py::dtype wanted = py::dtype::from_args(dtype);
        if (!wanted.equal(view.dtype())) {
            if (copy_forbidden) {
                throw UserError(concat("NDArray: a copy is needed to convert ", name_of(array_of(self).dtype()), " to ",
                                       std::string(py::str(static_cast<py::handle>(wanted))), ", but copy is False"));
            }
            return view.attr("astype")(wanted);
        }
    }
    if (copy_wanted) return view.attr("copy")();
    return view;
}

Sizes sizes_from(const py::args& args, const char* what) {
    py::sequence items = args;
    if (args.size() == 1 && !py::isinstance<py::int_>(args[0]) && py::isinstance<py::sequence>(args[0]))
        items = args[0].cast<py::sequence>();
    Sizes sizes;
    for (const py::handle item : items) {
        if (PyIndex_Check(item.ptr()) == 0) {
            throw TypeError(concat(what, ": ", std::string(py::repr(item)),
                                   " is not an integer; pass integers, or one tuple of them"));
        }
        const Py_ssize_t size = PyNumber_AsSsize_t(item.ptr(), PyExc_OverflowError);
        if (size == -1 && PyErr_Occurred() != nullptr) throw py::error_already_set();
        sizes.push_back(size);
    }
    return sizes;
}

NDArray reverse_axes(const NDArray& array) {
    std::vector<int> reversed;
    for (int axis = array.rank(); axis-- > 0;) reversed.push_back(axis);
    return array.transpose(reversed);
}

NDArray transpose(const NDArray& array, const py::args& axes) {
    if (axes.empty() || (axes.size() == 1 && axes[0].is_none())) return reverse_axes(array);
    std::vector<int> permutation;
    for (const std::int64_t axis : sizes_from(axes, "transpose"))
        permutation.push_back(normalize_axis(axis, array.rank(), "transpose"));
    return array.transpose(permutation);
}

template <typename T>
T read(const void* element) {
    T value;
    std::memcpy(&value, element, sizeof value);
    return value;
}

// The only element. Without NumPy, whose import takes longer than many a program that reads a loss.
py::object number_of(const NDArray& array) {
    const void* element = array.data();
    switch (array.dtype()) {
        case DType::boolean:
            return py::bool_(read<std::uint8_t>(element) != 0);
        case DType::int8:
            return py::int_(read<std::int8_t>(element));
        case DType::int16:
            return py::int_(read<std::int16_t>(element));
        case DType::int32:
            return py::int_(read<std::int32_t>(element));
        case DType::int64:
            return py::int_(read<std::int64_t>(element));
        case DType::uint8:
            return py::int_(read<std::uint8_t>(element));
        case DType::uint16:
            return py::int_(read<std::uint16_t>(element));
        case DType::uint32:
            return py::int_(read<std::uint32_t>(element));
        case DType::uint64:
            return py::int_(read<std::uint64_t>(element));
        case DType::float16:
        case DType::bfloat16:
        case DType::float32:
        case DType::float64:
            return py::float_(array.at(0));
        case DType::complex64:
            return py::cast(read<std::complex<float>>(element));
    }
    throw InternalError("item: unknown dtype");
}

// A Python number; bfloat16 has no Python counterpart and goes through float32.
py::object item(py::object self, const py::args& args) {
    if (args.empty() && array_of(self).size() == 1) return number_of(array_of(self));
    py::object view = numpy_of(self);
    if (array_of(self).dtype() == DType::bfloat16) view = view.attr("astype")("float32");
    return view.attr("item")(*args);
}

py::object to_list(py::object self) {
    py::object view = numpy_of(self);
    if (array_of(self).dtype() == DType::bfloat16) view = view.attr("astype")("float32");
    return view.attr("tolist")();
}

py::object only_item(const py::object& self, const char* what) {
    const NDArray& array = array_of(self);
    if (array.size() != 1) {
        throw TypeError(concat(what, ": the NDArray has shape ", sizes_str(array.shape()),
                               "; only an array of one element converts, so pick one by indexing"));
    }
    return item(self, py::args());
}

bool truth(const py::object& self) {
    const NDArray& array = array_of(self);
    if (array.size() != 1) {
        throw UserError(concat("bool: the truth of an NDArray of shape ", sizes_str(array.shape()),
                               " is ambiguous; use array.any() or array.all()"));
    }
    return py::bool_(item(self, py::args()));
}

py::object index(const py::object& self) {
    const NDArray& array = array_of(self);
    if (array.rank() != 0 || !is_integer(array.dtype())) {
        throw TypeError(concat("index: the NDArray is ", name_of(array.dtype()), " of shape ", sizes_str(array.shape()),
                               "; only an integer scalar can be used as an index"));
    }
    return item(self, py::args());
}

std::int64_t length(const NDArray& array) {
    if (array.rank() == 0)
        throw TypeError("len: the NDArray is a scalar, which has no length; use array.size or array.item()");
    return array.shape()[0];
}

py::iterator iterate(py::object self) {
    length(array_of(self));
    return py::reinterpret_steal<py::iterator>(PySeqIter_New(self.ptr()));
}

py::object format(py::object self, const std::string& spec) {
    if (array_of(self).rank() == 0 && !spec.empty()) return item(self, py::args()).attr("__format__")(spec);
    return numpy_of(self).attr("__format__")(spec);
}

// Whatever else a NumPy array has: mean, sum, argmax, flatten, ...
py::object numpy_attribute(py::object self, const std::string& name) {
    const bool is_private = !name.empty() && name[0] == '_';  // protocols must not be answered by accident
    const py::array view = is_private ? py::array() : numpy_of(self);
    if (is_private || !py::hasattr(view, name.c_str()))
        throw py::attribute_error("'NDArray' object has no attribute '" + name + "'");
    return view.attr(name.c_str());
}

py::object attribute_names(py::object self) {
    py::set names(py::module_::import("builtins").attr("object").attr("__dir__")(self));
    for (const py::handle name : py::module_::import("builtins").attr("dir")(numpy_of(self))) {
        if (name.cast<std::string>()[0] != '_') names.add(name);
    }
    return names;
}

void bind_protocols(py::class_<NDArray>& cls) {
    cls.def_buffer(&buffer_info_of);
    cls.def_property_readonly("__array_interface__", &array_interface_of);
    cls.def("__array__", &array_protocol, py::arg("dtype") = py::none(), py::arg("copy") = py::none());
    cls.def("__dlpack__", &ndarray_to_dlpack, py::kw_only(), py::arg("stream") = py::none(),
            py::arg("max_version") = py::none(), py::arg("dl_device") = py::none(), py::arg("copy") = py::none());
    cls.def("__dlpack_device__", [](const NDArray&) { return py::make_tuple(1, 0); });
    cls.def("__copy__", &copy_of);
    cls.def("__deepcopy__", [](const NDArray& array, py::handle) { return copy_of(array); }, py::arg("memo"));
    cls.def("__reduce__",
            [](py::object self) { return py::make_tuple(py::type::of(self), py::make_tuple(numpy_of(self))); });
}

void bind_attributes(py::class_<NDArray>& cls) {
    cls.def_property_readonly("shape", [](const NDArray& array) { return tuple_of(array.shape()); });
    cls.def_property_readonly(
        "strides", [](const NDArray& array) { return tuple_of(array.byte_strides()); },
        "Strides in bytes, as NumPy's.");
    cls.def_property_readonly(
        "dtype", [](const NDArray& array) { return numpy_dtype(array.dtype()); },
        "The numpy.dtype, as NumPy and all that builds on it expect; equal to the topstitch one.");
    cls.def_property_readonly("ndim", &NDArray::rank);
    cls.def_property_readonly("size", &NDArray::size, "The number of elements.");
    cls.def_property_readonly("itemsize", [](const NDArray& array) { return size_of(array.dtype()); });
    cls.def_property_readonly("nbytes", &NDArray::bytes);
    cls.def_property_readonly("readonly", &NDArray::readonly);
    cls.def_property_readonly("T", &reverse_axes, "A view with the axes reversed.");
    cls.def("__getattr__", &numpy_attribute);
    cls.def("__dir__", &attribute_names);
}

void bind_methods(py::class_<NDArray>& cls) {
    cls.def("numpy", &numpy_of, "A NumPy array over the same memory.");
    cls.def("copy", &copy_of, "A packed copy of its own memory.");
    cls.def(
        "astype",
        [](const NDArray& array, DType dtype) {
            return ndarray_from_python(py::cast(array), dtype, "astype", CopyMode::always);
        },
        py::arg("dtype"), "A copy converted to another dtype, as NumPy converts.");
    cls.def(
        "reshape",
        [](const NDArray& array, const py::args& shape) { return array.reshape(sizes_from(shape, "reshape")); },
        "The same elements in another shape, a view where possible; one size may be -1.");
    cls.def("transpose", &transpose, "A view with the axes permuted, or reversed when none are given.");
    cls.def("item", &item, "The element as a Python number; positions are needed when there are several.");
    cls.def("tolist", &to_list, "Nested lists of Python numbers.");
    cls.def("__getitem__", &get_item);
    cls.def("__setitem__", &set_item);
    cls.def("__len__", &length);
    cls.def("__iter__", &iterate);
    cls.def("__float__", [](py::object self) { return py::float_(only_item(self, "float")); });
    cls.def("__int__", [](py::object self) { return py::int_(only_item(self, "int")); });
    cls.def("__complex__", [](py::object self) {
        return py::module_::import("builtins").attr("complex")(only_item(self, "complex"));
    });
    cls.def("__index__", &index);
    cls.def("__bool__", &truth);
    cls.def("__repr__", &repr_of);
    cls.def("__str__", [](py::object self) { return py::str(static_cast<py::handle>(numpy_of(self))); });
    cls.def("__format__", &format);
    cls.def("_repr_html_", &html_of);
}

}  // namespace

void bind_ndarray(py::module_& m) {
    bind_dtype(m);
    py::class_<NDArray> cls(
        m, "NDArray", py::buffer_protocol(),
        "An array in CPU memory that NumPy, DLPack and the buffer protocol read without copying. Made from anything "
        "array-like: NumPy arrays, torch and jax tensors, buffers, numbers, nested lists. The memory is shared where "
        "possible, and copied when `copy` is True; with `copy` False a needed copy is an error.");
    cls.attr("__module__") = "topstitch";
    cls.def(py::init(&construct), py::arg("object"), py::arg("dtype") = py::none(), py::arg("copy") = py::none());
    bind_protocols(cls);
    bind_attributes(cls);
    bind_methods(cls);
    bind_operators(cls);
}

}  // namespace topstitch::bindings
