// Binds saving and loading: methods of Graph and Executable, save_arrays and load_arrays.
// The form of an executable's results (list, tuple, dict) is kept in the metadata of its file.
#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>

#include <filesystem>

#include "bind.h"
#include "bind_executable.h"
#include "bind_ndarray.h"
#include "execution.h"
#include "gil.h"
#include "topstitch/serialize.h"

namespace py = pybind11;

namespace topstitch::bindings {

namespace {

using Path = std::filesystem::path;

// Which form the targets have, as JSON: "none", "tensor", "list", "tuple", or the keys of a dict.
constexpr const char* form_key = "python.targets";

std::string form_of(const py::object& targets) {
    const auto json = [](const py::object& value) {
        return py::module_::import("json").attr("dumps")(value).cast<std::string>();
    };
    if (targets.is_none()) return json(py::str("none"));
    if (py::isinstance<py::tuple>(targets)) return json(py::str("tuple"));
    if (py::isinstance<py::list>(targets)) return json(py::str("list"));
    if (!py::isinstance<py::dict>(targets)) return json(py::str("tensor"));
    py::list keys;
    for (const auto& [key, value] : targets.cast<py::dict>()) {
        if (!PyUnicode_Check(key.ptr())) {
            throw TypeError(concat("[save] the keys of the targets must be strings in a file, and one is ",
                                   Py_TYPE(key.ptr())->tp_name,
                                   "; compile with targets={\"name\": tensor} or with a list"));
        }
        keys.append(key);
    }
    return json(keys);
}

// The targets of a loaded executable in the form that its file tells; a list when it was saved from C++.
py::object with_form(const std::vector<Tensor>& tensors, const std::map<std::string, std::string>& metadata,
                     const Path& path) {
    const auto found = metadata.find(form_key);
    py::list list;
    for (const Tensor& tensor : tensors) list.append(tensor);
    if (found == metadata.end()) return list;
    py::object form;
    try {
        form = py::module_::import("json").attr("loads")(found->second);
    } catch (py::error_already_set&) { form = py::none(); }
    if (py::isinstance<py::list>(form)) {
        py::dict dict;
        std::size_t next = 0;
        for (const py::handle& key : form) {
            if (next < tensors.size() && PyUnicode_Check(key.ptr())) dict[key] = tensors[next];
            ++next;
        }
        if (next == tensors.size() && dict.size() == next) return dict;
    } else if (PyUnicode_Check(form.ptr())) {
        const auto name = form.cast<std::string>();
        if (name == "list") return list;
        if (name == "tuple") return py::tuple(list);
        if (name == "tensor" && tensors.size() == 1) return list[0];
        if (name == "none" && tensors.empty()) return py::none();
    }
    throw UserError(concat("[load_executable] ", path, " is damaged: its metadata \"", form_key,
                           "\" does not describe ", tensors.size(), " targets"));
}

void save_graph(const Graph& graph, const Path& path) {
    const ReleaseGil release;
    save(graph, path);
}

Graph load_graph_file(const Path& path) {
    const ReleaseGil release;
    return load_graph(path);
}

void save_executable(const PyExecutable& self, const Path& path) {
    const std::map<std::string, std::string> metadata{{form_key, form_of(self.form.targets())}};
    const ReleaseGil release;
    save(self.executable, path, metadata);
}

PyExecutable load_executable_file(const Path& path, const py::object& device) {
    const Device chosen = device.is_none() ? Device() : device_from_python(device, "load_executable");
    std::map<std::string, std::string> metadata;
    PyExecutable result{{}, TargetForm(py::none()), {}};
    {
        const ReleaseGil release;
        result.executable = load_executable(path, chosen, &metadata);
    }
    result.form = TargetForm(with_form(result.executable.targets(), metadata, path));
    for (const Tensor& feed : result.executable.feeds()) result.feed_dtypes.push_back(feed.dtype());
    return result;
}

void save_graph_variables(const Graph& graph, const Path& path) {
    const ReleaseGil release;
    save_variables(graph, path);
}

void load_graph_variables(const Graph& graph, const Path& path) {
    const ReleaseGil release;
    load_variables(graph, path);
}

void save_array_dict(const Path& path, const py::dict& arrays) {
    std::map<std::string, NDArray> given;
    for (const auto& [key, value] : arrays) {
        if (!PyUnicode_Check(key.ptr())) {
            throw TypeError(
                concat("[save_arrays] the names of arrays must be strings, not ", Py_TYPE(key.ptr())->tp_name));
        }
        given.emplace(key.cast<std::string>(), ndarray_from_python(value, std::nullopt, "save_arrays"));
    }
    const ReleaseGil release;
    save_arrays(given, path);
}

std::map<std::string, NDArray> load_array_dict(const Path& path) {
    const ReleaseGil release;
    return load_arrays(path);
}

template <typename Function>
void add_method(const py::object& cls, const char* name, Function function, const char* doc) {
    cls.attr(name) = py::cpp_function(function, py::name(name), py::is_method(cls), py::arg("path"), doc);
}

template <typename Function, typename... Arguments>
void add_static_method(const py::object& cls, const char* name, Function function, const char* doc,
                       const Arguments&... arguments) {
    cls.attr(name) = py::staticmethod(
        py::cpp_function(function, py::name(name), py::scope(cls), py::arg("path"), arguments..., doc));
}

}  // namespace

void bind_serialize(py::module_& m) {
    const py::object graph = m.attr("Graph");
    add_method(
        graph, "save", &save_graph,
        "Write the graph with the present values of its variables into one safetensors file.\n"
        "The file is replaced as a whole. Raises FileError (an OSError) when it cannot be written; the old file is "
        "as it\nwas then.");
    add_static_method(
        graph, "load", &load_graph_file,
        "The graph in a file that Graph.save wrote. Nothing in the file is run.\n"
        "Raises FileError (an OSError) when it cannot be read, and UserError (a ValueError) with the reason "
        "when it is\ndamaged, is something else, or was written by a newer topstitch.");
    add_method(
        graph, "save_variables", &save_graph_variables,
        "Write the values of all variables, by name, into one safetensors file.\n"
        "Raises UserError (a ValueError) when a variable has no name or two have the same, FileError when the file "
        "cannot\nbe written.");
    add_method(graph, "load_variables", &load_graph_variables,
               "Give all variables the values in a safetensors file, by name: all or nothing.\n"
               "Raises UserError (a ValueError) that lists the names that are missing, unknown or of another dtype or "
               "shape,\nor says why the file is damaged; FileError when it cannot be read. Nothing is changed then.");
    const py::object executable = m.attr("Executable");
    add_method(
        executable, "save", &save_executable,
        "Write what the executable needs of its graph, the present values of variables, and its options into one\n"
        "safetensors file. Raises FileError (an OSError) when it cannot be written, DTypeError when the targets "
        "are a\ndict with keys other than strings.");
    add_static_method(
        executable, "load", &load_executable_file,
        "The executable in a file that Executable.save wrote, compiled for this machine and for `device` (a Device or "
        "its name;\nNone: the default one), with a graph and variables of its own. Results have the form that the "
        "targets had. Raises FileError (an OSError) "
        "when it cannot be read, and\nUserError (a ValueError) with the reason when it is damaged, is "
        "something else, or was written by a newer\ntopstitch.",
        py::kw_only(), py::arg("device") = py::none());
    m.def("save_arrays", &save_array_dict, py::arg("path"), py::arg("arrays"),
          "Write {name: array} into one safetensors file. Raises FileError (an OSError) when it cannot be written.");
    m.def("load_arrays", &load_array_dict, py::arg("path"),
          "The arrays in a safetensors file, also one of another program, as {name: NDArray}.\n"
          "Raises FileError (an OSError) when it cannot be read, and UserError (a ValueError) when it is damaged or "
          "has a "
          "dtype\nthat topstitch lacks.");
}

}  // namespace topstitch::bindings
