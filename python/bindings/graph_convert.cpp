// Shapes and attributes between Python and C++.
// Attributes are converted by the kind that the OpDef declares, so that messages can say what is wanted.
#include <pybind11/pybind11.h>

#include "bind_graph.h"
#include "bind_ndarray.h"
#include "graph/function.h"
#include "graph/text.h"

namespace py = pybind11;

namespace topstitch::bindings {

namespace {

std::string type_name(py::handle object) {
    return Py_TYPE(object.ptr())->tp_name;
}

// An int or what says that it is one (NumPy's integers), but not a bool.
bool is_index(py::handle object) {
    return PyIndex_Check(object.ptr()) != 0 && !PyBool_Check(object.ptr());
}

std::int64_t to_integer(py::handle object, const std::string& what) {
    const auto number = py::reinterpret_steal<py::object>(PyNumber_Index(object.ptr()));
    if (!number) throw py::error_already_set();
    int overflow = 0;
    const long long value = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
    if (overflow != 0) {
        throw UserError(concat(what, ": the integer ", py::str(number).cast<std::string>().substr(0, 40),
                               " does not fit in 64 bits"));
    }
    return value;
}

bool is_sequence(py::handle object) {
    return PySequence_Check(object.ptr()) != 0 && !PyUnicode_Check(object.ptr()) && !PyBytes_Check(object.ptr()) &&
           !py::isinstance<Tensor>(object);
}

Dim dim_from_python(py::handle object, const char* what) {
    if (object.is_none()) return Dim::unknown();
    if (PyUnicode_Check(object.ptr())) return dim_from_text(object.cast<std::string>());
    if (!is_index(object)) {
        throw TypeError(concat(what,
                               ": a dim of a shape must be an int (-1 when only known at run time) or a name, not ",
                               type_name(object)));
    }
    const std::int64_t value = to_integer(object, what);
    if (value < -1) throw UserError(concat(what, ": a dim of a shape must be 0 or more, or -1, not ", value));
    return value == -1 ? Dim::unknown() : Dim(value);
}

std::vector<std::int64_t> integers_from_python(py::handle object, const std::string& what) {
    if (is_index(object)) return {to_integer(object, what)};
    std::vector<std::int64_t> values;
    for (const py::handle item : object) {
        if (!is_index(item)) throw TypeError(concat(what, " must be a list of integers, but holds ", type_name(item)));
        values.push_back(to_integer(item, what));
    }
    return values;
}

bool is_numpy_bool(py::handle object) {
    const std::string name = type_name(object);
    return name == "numpy.bool" || name == "numpy.bool_";
}

}  // namespace

Shape shape_from_python(py::handle object, const char* what) {
    if (object.is_none()) return Shape::unranked();
    if (is_index(object)) return Shape(std::vector<Dim>{dim_from_python(object, what)});
    if (!is_sequence(object)) {
        throw TypeError(concat(what, ": a shape must be a sequence of dims, an int, or None for an unknown rank, not ",
                               type_name(object)));
    }
    std::vector<Dim> dims;
    for (const py::handle item : object) dims.push_back(dim_from_python(item, what));
    return Shape(std::move(dims));
}

py::object shape_to_python(const Shape& shape) {
    if (!shape.has_rank()) return py::none();
    py::tuple dims(static_cast<std::size_t>(shape.rank()));
    for (int axis = 0; axis < shape.rank(); ++axis) {
        const Dim& dim = shape[axis];
        const auto k = static_cast<std::size_t>(axis);
        if (dim.is_known()) {
            dims[k] = py::int_(dim.value());
        } else if (dim.is_unknown()) {
            dims[k] = py::int_(-1);
        } else {
            dims[k] = py::str(dim.str());
        }
    }
    return dims;
}

Attribute attribute_from_python(const OpDef& def, const AttrDef& attr, py::handle object) {
    if (object.is_none()) return std::monostate();
    const std::string what = concat("[", def.name, "] the attribute '", attr.name, "'");
    const auto refuse = [&](const char* wanted) {
        throw TypeError(concat(what, " must be ", wanted, ", but got ", type_name(object)));
    };
    switch (attr.kind) {
        case AttributeKind::none:
            break;
        case AttributeKind::boolean:
            if (PyBool_Check(object.ptr())) return object.ptr() == Py_True;
            if (is_numpy_bool(object)) return PyObject_IsTrue(object.ptr()) == 1;
            refuse("True or False");
            break;
        case AttributeKind::integer:
            if (is_index(object)) return to_integer(object, what);
            refuse("an int");
            break;
        case AttributeKind::real: {
            const bool number = PyFloat_Check(object.ptr()) || is_index(object) ||
                                (py::hasattr(object, "dtype") && py::hasattr(object, "__float__"));
            if (!number || PyBool_Check(object.ptr())) refuse("a number");
            const double value = PyFloat_AsDouble(object.ptr());
            if (PyErr_Occurred() != nullptr) throw py::error_already_set();
            return value;
        }
        case AttributeKind::string:
            if (PyUnicode_Check(object.ptr())) return object.cast<std::string>();
            refuse("a str");
            break;
        case AttributeKind::dtype:
            return dtype_from_python(object);
        case AttributeKind::integers:
            if (PyUnicode_Check(object.ptr()) && attr.allows(AttributeKind::string)) return object.cast<std::string>();
            if (is_index(object) || is_sequence(object) || py::hasattr(object, "__array__")) {
                return integers_from_python(object, what);
            }
            refuse(attr.choices.empty() ? "an int or a list of ints" : "an int, a list of ints or a str");
            break;
        case AttributeKind::shape:
            return shape_from_python(object, what.c_str());
        case AttributeKind::array:
            return ndarray_from_python(object, std::nullopt, what.c_str(), CopyMode::always);
        case AttributeKind::function:
            throw TypeError(concat(what, " is made by the control flow functions only, like topstitch.scan"));
    }
    return std::monostate();
}

py::object attribute_to_python(const Attribute& value) {
    switch (kind_of(value)) {
        case AttributeKind::none:
            return py::none();
        case AttributeKind::boolean:
            return py::bool_(std::get<bool>(value));
        case AttributeKind::integer:
            return py::int_(std::get<std::int64_t>(value));
        case AttributeKind::real:
            return py::float_(std::get<double>(value));
        case AttributeKind::string:
            return py::str(std::get<std::string>(value));
        case AttributeKind::dtype:
            return dtype_to_python(std::get<DType>(value));
        case AttributeKind::integers: {
            py::list list;
            for (const std::int64_t integer : std::get<std::vector<std::int64_t>>(value)) list.append(integer);
            return list;
        }
        case AttributeKind::shape:
            return shape_to_python(std::get<Shape>(value));
        case AttributeKind::array:
            return py::cast(std::get<NDArray>(value).copy());
        case AttributeKind::function: {
            const auto& function = *std::get<FunctionPtr>(value);
            return py::str(concat("a function of ", function.parameters.size(), " parameters and ",
                                  function.results.size(), " results"));
        }
    }
    return py::none();
}

}  // namespace topstitch::bindings
