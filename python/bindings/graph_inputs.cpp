// What users pass as tensors: tensors, arrays, which become constants, and plain numbers, which adapt.
// Plain means without a dtype of its own: Python's numbers and lists of them.
#include <optional>

#include "bind_graph.h"
#include "bind_ndarray.h"

namespace py = pybind11;

namespace topstitch::bindings {

namespace {

// numpy.float64 is a Python float, and comes out of scalar formulas like numpy.sqrt(2), so that it adapts too.
bool is_plain(py::handle object) {
    return PyFloat_Check(object.ptr()) || !carries_dtype(object);
}

NDArray plain_array(py::handle object, DType dtype, const char* what) {
    const py::object number = PyFloat_Check(object.ptr()) ? py::float_(PyFloat_AS_DOUBLE(object.ptr()))
                                                          : py::reinterpret_borrow<py::object>(object);
    return ndarray_from_python(number, dtype, what, CopyMode::always);
}

// The dtype of plain values in arguments that do not share the dtype of the others.
std::optional<DType> dtype_of_argument(const std::string& argument, py::handle object) {
    if (argument == "predicate") return DType::boolean;
    if (argument == "indices") return DType::int32;
    // Classes are integers, probabilities are floats.
    if (argument == "labels" && default_dtype(object) == DType::int32) return DType::int32;
    return std::nullopt;
}

const std::string& argument_name(const OpDef& def, std::size_t k) {
    static const std::string unnamed;
    if (def.args.empty()) return unnamed;
    return k < def.args.size() ? def.args[k].name : def.args.back().name;
}

// An empty one when there is none.
Tensor first_tensor(const py::sequence& inputs) {
    for (const py::handle input : inputs) {
        if (py::isinstance<Tensor>(input)) return input.cast<Tensor>();
    }
    return {};
}

DType widest_default(DType a, DType b) {
    const auto order = [](DType dtype) {
        return dtype == DType::boolean ? 0 : dtype == DType::int32 ? 1 : dtype == DType::float32 ? 2 : 3;
    };
    return order(a) < order(b) ? b : a;
}

}  // namespace

DType default_dtype(py::handle object) {
    if (PyBool_Check(object.ptr())) return DType::boolean;
    if (PyLong_Check(object.ptr())) return DType::int32;
    if (PyFloat_Check(object.ptr())) return DType::float32;
    const DType found = ndarray_from_python(object, std::nullopt, "array").dtype();
    if (is_floating(found)) return DType::float32;
    if (is_integer(found)) return DType::int32;
    return found;
}

NDArray array_with_default_dtype(py::handle object, const py::object& dtype, const char* what) {
    if (!dtype.is_none()) return ndarray_from_python(object, dtype_from_python(dtype), what, CopyMode::if_needed);
    if (carries_dtype(object)) return ndarray_from_python(object, std::nullopt, what, CopyMode::if_needed);
    return ndarray_from_python(object, default_dtype(object), what, CopyMode::if_needed);
}

Tensor tensor_from_python(Graph& graph, py::handle object, DType dtype, const char* what) {
    if (py::isinstance<Tensor>(object)) return object.cast<Tensor>();
    if (is_plain(object)) return graph.constant(plain_array(object, dtype, what));
    return graph.constant(ndarray_from_python(object, std::nullopt, what));
}

Inputs inputs_from_python(const OpDef& def, const py::sequence& inputs, const Graph* graph) {
    const std::size_t count = inputs.size();
    const std::string what = "[" + def.name + "]";
    Inputs result;
    if (graph != nullptr) {
        result.graph = *graph;
    } else if (const Tensor tensor = first_tensor(inputs)) {
        result.graph = tensor.graph();
    } else {
        throw TypeError(concat(what, " none of the ", count,
                               " inputs is a Tensor, so the graph is not known; make one of them a tensor with "
                               "Graph.constant or Graph.placeholder, or use Graph.apply"));
    }

    // Arrays first: with the tensors they decide what the plain values become.
    std::vector<std::optional<NDArray>> arrays(count);
    std::optional<DType> shared;
    bool shared_is_bool = false;
    std::optional<DType> plain;
    for (std::size_t k = 0; k < count; ++k) {
        const py::object input = inputs[k];
        std::optional<DType> dtype;
        if (py::isinstance<Tensor>(input)) {
            dtype = input.cast<const Tensor&>().dtype();
        } else if (!is_plain(input)) {
            arrays[k] = ndarray_from_python(input, std::nullopt, what.c_str());
            dtype = arrays[k]->dtype();
        }
        if (!dtype) {
            if (dtype_of_argument(argument_name(def, k), input)) continue;
            const DType fallback = default_dtype(input);
            plain = plain ? widest_default(*plain, fallback) : fallback;
        } else if (argument_name(def, k) != "predicate" && argument_name(def, k) != "indices" &&
                   (!shared || shared_is_bool)) {
            shared = dtype;
            shared_is_bool = *dtype == DType::boolean;
        }
    }
    // A number beside nothing but bools stays a number.
    if (shared_is_bool && plain && *plain != DType::boolean) shared = plain;
    for (std::size_t k = 0; k < count; ++k) {
        const py::object input = inputs[k];
        if (py::isinstance<Tensor>(input)) {
            result.tensors.push_back(input.cast<Tensor>());
        } else if (arrays[k]) {
            result.tensors.push_back(result.graph.constant(*arrays[k]));
        } else {
            const auto own = dtype_of_argument(argument_name(def, k), input);
            const DType dtype = own ? *own : shared.value_or(plain.value_or(DType::float32));
            result.tensors.push_back(result.graph.constant(plain_array(input, dtype, what.c_str())));
        }
    }
    return result;
}

}  // namespace topstitch::bindings
