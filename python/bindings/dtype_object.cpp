// The Python class DType, its constants, and the reading of whatever else names a dtype.
// There is one object for each dtype, so that `is` works and pickles stay small.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <array>
#include <bit>

#include "bind_ndarray.h"
#include "ndarray_parts.h"
#include "topstitch/error.h"

namespace py = pybind11;

namespace topstitch::bindings {

namespace {

struct DTypeObject {
    DType value;
};

// Filled by bind_dtype; references that are never given back.
std::array<PyObject*, 16> objects{};
std::array<PyObject*, 16> numpy_dtypes{};

std::size_t index_of(DType dtype) {
    return static_cast<std::size_t>(dtype);
}

std::string allowed_names() {
    std::string names;
    for (const DType dtype : all_dtypes()) {
        if (!names.empty()) names += ", ";
        names += name_of(dtype);
    }
    return names;
}

// The attribute of the package: `bool` would hide the built-in one.
std::string attribute_name(DType dtype) {
    return dtype == DType::boolean ? "bool_" : std::string(name_of(dtype));
}

int bfloat16_type_number() {
    static const int number = numpy_dtype(DType::bfloat16).num();
    return number;
}

bool is_native(const py::dtype& dtype) {
    const char order = dtype.byteorder();  // '=' or the explicit letter for our own, '|' for single bytes
    return order == '=' || order == '|' || order == (std::endian::native == std::endian::little ? '<' : '>');
}

[[noreturn]] void reject(py::handle object) {
    throw TypeError(concat("dtype: ", std::string(py::repr(object)), " does not name an element type; allowed are ",
                           allowed_names(), ", as topstitch or NumPy dtypes or as strings"));
}

bool is_torch_dtype(py::handle object) {
    const py::handle type = py::type::handle_of(object);
    return std::string(py::str(type.attr("__module__"))) == "torch" &&
           std::string(py::str(type.attr("__name__"))) == "dtype";
}

bool equals(DType self, py::handle other) {
    if (py::isinstance<DTypeObject>(other)) return other.cast<const DTypeObject&>().value == self;
    if (other.is_none()) return false;
    try {
        return dtype_from_python(other) == self;
    } catch (const TypeError&) { return false; }
}

}  // namespace

py::dtype numpy_dtype(DType dtype) {
    PyObject*& cached = numpy_dtypes[index_of(dtype)];
    if (cached == nullptr) {
        py::object source = py::str(std::string(name_of(dtype)));
        if (dtype == DType::bfloat16) source = py::module_::import("ml_dtypes").attr("bfloat16");
        cached = py::dtype::from_args(source).release().ptr();
    }
    return py::reinterpret_borrow<py::dtype>(cached);
}

std::optional<DType> dtype_from_numpy(const py::dtype& dtype) {
    if (!is_native(dtype)) return std::nullopt;
    const int number = dtype.num();
    if (number >= 256) {  // defined outside NumPy
        return number == bfloat16_type_number() ? std::optional(DType::bfloat16) : std::nullopt;
    }
    const auto size = dtype.itemsize();
    switch (dtype.kind()) {
        case 'b':
            return DType::boolean;
        case 'i':
            if (size == 1) return DType::int8;
            if (size == 2) return DType::int16;
            if (size == 4) return DType::int32;
            return DType::int64;
        case 'u':
            if (size == 1) return DType::uint8;
            if (size == 2) return DType::uint16;
            if (size == 4) return DType::uint32;
            return DType::uint64;
        case 'f':
            if (size == 2) return DType::float16;
            if (size == 4) return DType::float32;
            return size == 8 ? std::optional(DType::float64) : std::nullopt;
        case 'c':
            return size == 8 ? std::optional(DType::complex64) : std::nullopt;
        default:
            return std::nullopt;
    }
}

void reject_numpy_dtype(const py::dtype& dtype, const std::string& what) {
    const std::string name = py::str(static_cast<py::handle>(dtype));
    const auto fail = [&](const std::string& why) {
        throw TypeError(concat(what, ": the array has dtype ", name, why));
    };
    if (dtype.kind() == 'O') {
        fail(
            ", which holds Python objects; make it an array of numbers, e.g. with array.astype('float32'), and check "
            "that no row "
            "is shorter than the others");
    }
    if (dtype.has_fields()) fail(", which is structured; pass one field at a time, e.g. array['x']");
    if (dtype.kind() == 'S' || dtype.kind() == 'U' || dtype.kind() == 'T')
        fail(", which is text; encode it as numbers first");
    if (dtype.kind() == 'M' || dtype.kind() == 'm') {
        fail(", which is a time; convert it to numbers first, e.g. with array.astype('int64')");
    }
    if (!is_native(dtype)) {
        fail(" in foreign byte order; convert it with array.astype(array.dtype.newbyteorder('='))");
    }
    const bool from_numpy = dtype.num() < 256;
    if (from_numpy && dtype.kind() == 'c')
        fail("; of the complex types only complex64 is supported, so convert it with array.astype('complex64')");
    if (from_numpy && dtype.kind() == 'f')
        fail("; the widest float is float64, so convert it with array.astype('float64')");
    fail(concat(", which is not supported; convert it to one of ", allowed_names()));
    throw InternalError("internal error: unreachable");
}

DType dtype_from_python(py::handle object) {
    if (py::isinstance<DTypeObject>(object)) return object.cast<const DTypeObject&>().value;
    if (py::isinstance<py::str>(object)) {
        if (const auto dtype = dtype_from_name(object.cast<std::string>())) return *dtype;
    } else if (is_torch_dtype(object)) {
        const std::string name = py::str(object);
        const auto dtype = dtype_from_name(name.substr(name.find('.') + 1));
        if (!dtype) reject(object);
        return *dtype;
    } else if (!py::isinstance<py::dtype>(object) && !PyType_Check(object.ptr()) && !py::hasattr(object, "dtype")) {
        reject(object);  // NumPy would read numbers, tuples and None as dtypes
    }
    py::object numpy;
    try {
        numpy = py::dtype::from_args(py::reinterpret_borrow<py::object>(object));
    } catch (py::error_already_set& error) {
        if (!error.matches(PyExc_TypeError) && !error.matches(PyExc_ValueError) && !error.matches(PyExc_SyntaxError))
            throw;
        reject(object);
    }
    const auto dtype = dtype_from_numpy(py::reinterpret_borrow<py::dtype>(numpy));
    if (!dtype) reject(object);
    return *dtype;
}

py::object dtype_to_python(DType dtype) {
    return py::reinterpret_borrow<py::object>(objects[index_of(dtype)]);
}

void bind_dtype(py::module_& m) {
    py::class_<DTypeObject> cls(m, "DType",
                                "An element type, such as topstitch.float32. Equal to whatever names the same type: "
                                "'float32', numpy.float32, numpy.dtype('float32').");
    cls.attr("__module__") = "topstitch";
    cls.def_static("of", &dtype_from_python, py::arg("object"),
                   "The DType that an object names: a string, a NumPy dtype or scalar type, float, int or bool.");
    cls.def_property_readonly(
        "name", [](const DTypeObject& self) { return std::string(name_of(self.value)); }, "NumPy's name.");
    cls.def_property_readonly(
        "itemsize", [](const DTypeObject& self) { return size_of(self.value); }, "Bytes of one element.");
    cls.def_property_readonly("is_floating", [](const DTypeObject& self) { return is_floating(self.value); });
    cls.def_property_readonly("is_integer", [](const DTypeObject& self) { return is_integer(self.value); });
    cls.def_property_readonly("is_complex", [](const DTypeObject& self) { return is_complex(self.value); });
    const auto numpy = [](const DTypeObject& self) { return numpy_dtype(self.value); };
    cls.def_property_readonly("numpy", numpy, "The numpy.dtype; for bfloat16 that of ml_dtypes.");
    cls.def_property_readonly("dtype", numpy, "The numpy.dtype, under the name by which NumPy asks for it.");
    cls.def("__repr__", [](const DTypeObject& self) { return "topstitch." + attribute_name(self.value); });
    cls.def("__str__", [](const DTypeObject& self) { return std::string(name_of(self.value)); });
    cls.def("__eq__", [](const DTypeObject& self, py::handle other) { return equals(self.value, other); });
    cls.def("__ne__", [](const DTypeObject& self, py::handle other) { return !equals(self.value, other); });
    // NumPy's hash, as NumPy's dtypes compare equal to ours.
    cls.def("__hash__", [](const DTypeObject& self) { return py::hash(numpy_dtype(self.value)); });
    // A pickle names the constant of the package, so that loading gives the same object.
    cls.def("__reduce__", [](const DTypeObject& self) { return attribute_name(self.value); });
    for (const DType dtype : all_dtypes()) {
        py::object object = py::cast(DTypeObject{dtype});
        m.attr(attribute_name(dtype).c_str()) = object;
        objects[index_of(dtype)] = object.release().ptr();
    }
}

}  // namespace topstitch::bindings
