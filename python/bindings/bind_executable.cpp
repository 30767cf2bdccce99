// Binds compiling and running: Graph.run, Graph.compile, Executable and its Report.
// The GIL is released while compiling and running; results come in the form of `targets`.
#include "bind_executable.h"

#include <pybind11/stl.h>

#include <algorithm>

#include "bind.h"
#include "bind_ndarray.h"
#include "gil.h"
#include "topstitch/executable.h"

namespace py = pybind11;

namespace topstitch::bindings {

namespace {

// The tensors of `targets`, whatever its form, and a way to put results into the same form.
class TargetForm {
public:
    explicit TargetForm(const py::object& targets) : targets_(targets) {
        if (targets.is_none()) return;
        if (py::isinstance<Tensor>(targets)) {
            tensors_.push_back(targets.cast<Tensor>());
        } else if (py::isinstance<py::dict>(targets)) {
            for (const auto& [key, value] : targets.cast<py::dict>()) tensors_.push_back(to_tensor(value));
        } else if (py::isinstance<py::list>(targets) || py::isinstance<py::tuple>(targets)) {
            for (const py::handle& value : targets) tensors_.push_back(to_tensor(value));
        } else {
            throw TypeError(concat("[run] targets must be a Tensor, or a list, tuple or dict of Tensors, not ",
                                   Py_TYPE(targets.ptr())->tp_name));
        }
    }
    const std::vector<Tensor>& tensors() const { return tensors_; }

    py::object fill(std::vector<NDArray> results) const {
        if (targets_.is_none()) return py::list();
        if (py::isinstance<Tensor>(targets_)) return py::cast(std::move(results[0]));
        std::size_t next = 0;
        if (py::isinstance<py::dict>(targets_)) {
            py::dict filled;
            for (const auto& [key, value] : targets_.cast<py::dict>())
                filled[key] = py::cast(std::move(results[next++]));
            return std::move(filled);
        }
        py::list filled(results.size());
        for (NDArray& result : results) filled[next++] = py::cast(std::move(result));
        if (py::isinstance<py::tuple>(targets_)) return py::tuple(filled);
        return std::move(filled);
    }

private:
    static Tensor to_tensor(const py::handle& value) {
        if (py::isinstance<Tensor>(value)) return value.cast<Tensor>();
        throw TypeError(concat("[run] targets must be Tensors, not ", Py_TYPE(value.ptr())->tp_name,
                               py::isinstance<Operation>(value) ? "; pass operations as operations=[...]" : ""));
    }
    py::object targets_;
    std::vector<Tensor> tensors_;
};

std::vector<Operation> to_operations(const py::object& operations) {
    std::vector<Operation> result;
    if (operations.is_none()) return result;
    if (py::isinstance<Operation>(operations)) return {operations.cast<Operation>()};
    for (const py::handle& value : operations) {
        if (!py::isinstance<Operation>(value)) {
            throw TypeError(concat("[run] operations must be Operations (what assign() returns), not ",
                                   Py_TYPE(value.ptr())->tp_name));
        }
        result.push_back(value.cast<Operation>());
    }
    return result;
}

// Plain numbers and lists take the placeholder's dtype; arrays keep theirs and have to match.
NDArray to_feed(const py::handle& value, DType dtype) {
    if (py::isinstance<NDArray>(value)) return value.cast<NDArray>();
    const bool literal = PyFloat_Check(value.ptr()) || PyLong_Check(value.ptr()) || PyList_Check(value.ptr()) ||
                         PyTuple_Check(value.ptr());
    return ndarray_from_python(value, literal ? std::optional(dtype) : std::nullopt, "run");
}

CompileOptions to_options(bool stitch, int threads, bool interpret) {
    if (threads < 0) throw UserError(concat("[compile] threads must be 0 (the setting) or more, not ", threads));
    return {stitch, threads, interpret};
}

py::object graph_run(const Graph& graph, const py::object& feeds, const py::object& targets,
                     const py::object& operations, bool stitch, int threads, bool interpret) {
    std::vector<std::pair<Tensor, py::object>> given;
    if (!feeds.is_none()) {
        if (!py::isinstance<py::dict>(feeds)) {
            throw TypeError(
                concat("[run] feeds must be a dict {placeholder: array}, not ", Py_TYPE(feeds.ptr())->tp_name));
        }
        for (const auto& [key, value] : feeds.cast<py::dict>()) {
            if (!py::isinstance<Tensor>(key)) {
                throw TypeError(
                    concat("[run] the keys of feeds must be placeholders, not ", Py_TYPE(key.ptr())->tp_name));
            }
            given.emplace_back(key.cast<Tensor>(), py::reinterpret_borrow<py::object>(value));
        }
    }
    // One order, however the dict was written.
    std::sort(given.begin(), given.end(), [](const auto& a, const auto& b) { return a.first.ref() < b.first.ref(); });
    std::vector<Tensor> tensors;
    std::vector<NDArray> arrays;
    for (const auto& [tensor, value] : given) {
        tensors.push_back(tensor);
        arrays.push_back(to_feed(value, tensor.dtype()));
    }
    const TargetForm form(targets);
    const std::vector<Operation> wanted = to_operations(operations);
    const CompileOptions options = to_options(stitch, threads, interpret);
    std::vector<NDArray> results;
    {
        const ReleaseGil release;
        results = find_executable(graph, tensors, form.tensors(), wanted, options).run(arrays);
    }
    return form.fill(std::move(results));
}

PyExecutable graph_compile(const Graph& graph, const py::object& feeds, const py::object& targets,
                           const py::object& operations, bool stitch, int threads, bool interpret) {
    FeedTypes types;
    if (py::isinstance<py::dict>(feeds)) {
        for (const auto& [key, value] : feeds.cast<py::dict>()) {
            if (!py::isinstance<Tensor>(key)) throw TypeError("[compile] the keys of feeds must be placeholders");
            types.emplace_back(key.cast<Tensor>(), value.cast<ShapedType>());
        }
    } else if (!feeds.is_none()) {
        for (const py::handle& value : feeds) {
            const auto tensor = value.cast<Tensor>();
            types.emplace_back(tensor, ShapedType{tensor.shape(), tensor.dtype()});
        }
    }
    const TargetForm form(targets);
    const std::vector<Operation> wanted = to_operations(operations);
    const CompileOptions options = to_options(stitch, threads, interpret);
    PyExecutable result;
    result.targets = targets;
    for (const auto& [tensor, type] : types) result.feed_dtypes.push_back(type.dtype);
    const ReleaseGil release;
    result.executable = compile(graph, types, form.tensors(), wanted, options);
    return result;
}

py::object executable_run(const PyExecutable& self, const py::args& inputs, const py::object& out) {
    // exe.run(a, b) and exe.run([a, b]) are the same.
    std::vector<NDArray> arrays;
    const auto add = [&](const py::handle& value) {
        const std::size_t k = arrays.size();
        arrays.push_back(to_feed(value, k < self.feed_dtypes.size() ? self.feed_dtypes[k] : DType::float32));
    };
    const bool listed = inputs.size() == 1 && self.feed_dtypes.size() != 1
                            ? PyList_Check(inputs[0].ptr()) || PyTuple_Check(inputs[0].ptr())
                            : inputs.size() == 1 && PyList_Check(inputs[0].ptr()) &&
                                  PyList_GET_SIZE(inputs[0].ptr()) == 1 &&
                                  !PyFloat_Check(PyList_GET_ITEM(inputs[0].ptr(), 0)) &&
                                  !PyLong_Check(PyList_GET_ITEM(inputs[0].ptr(), 0));
    if (listed) {
        for (const py::handle& value : inputs[0]) add(value);
    } else {
        for (const py::handle& value : inputs) add(value);
    }
    std::vector<NDArray> given;
    if (!out.is_none()) {
        // Never a copy: the caller would not see what was written into it.
        const auto view = [](const py::handle& value) {
            return ndarray_from_python(value, std::nullopt, "[run] out", CopyMode::never);
        };
        const bool one = !py::isinstance<py::list>(out) && !py::isinstance<py::tuple>(out);
        if (one) {
            given.push_back(view(out));
        } else {
            for (const py::handle& value : out) given.push_back(view(value));
        }
    }
    std::vector<NDArray> results;
    {
        const ReleaseGil release;
        results = self.executable.run(arrays, given);
    }
    if (!out.is_none()) return out;
    return TargetForm(self.targets).fill(std::move(results));
}

py::dict region_dict(const Report::Region& region) {
    py::dict entry;
    entry["name"] = region.name;
    entry["operations"] = region.operations;
    entry["schedule"] = region.schedule;
    entry["kept"] = region.kept;
    entry["in_place"] = region.in_place;
    entry["bytes_read"] = region.bytes_read;
    entry["bytes_written"] = region.bytes_written;
    entry["bytes_saved"] = region.bytes_saved;
    return entry;
}

}  // namespace

void bind_executable(py::module_& m) {
    py::class_<Report>(m, "Report",
                       "What compiling and stitching did. str() explains it; the attributes are for programs.")
        .def_property_readonly(
            "regions",
            [](const Report& report) {
                py::list regions;
                for (const Report::Region& region : report.regions) regions.append(region_dict(region));
                return regions;
            },
            "One dict for each stitched region: name, operations, schedule, kept, in_place, bytes_*.")
        .def_readonly("kept_apart", &Report::kept_apart, "Why neighbouring operations were not stitched.")
        .def_readonly("arena_bytes", &Report::arena_bytes, "Memory reserved for intermediate results, in bytes.")
        .def_readonly("kernels", &Report::kernels)
        .def_readonly("kernels_compiled", &Report::kernels_compiled, "Kernels that were not found in the kernel cache.")
        .def_readonly("compile_milliseconds", &Report::compile_milliseconds)
        .def_readonly("stitch_milliseconds", &Report::stitch_milliseconds)
        .def("__str__", &Report::str)
        .def("__repr__", &Report::str);

    py::class_<PyExecutable>(m, "Executable", "A compiled graph: run it on arrays in the order of `feeds`.")
        .def("run", &executable_run, py::kw_only(), py::arg("out") = py::none(),
             "Run on arrays in the order of `feeds` (as arguments or as one list). Results have the form of the "
             "targets, or are\n"
             "written into `out` (an array, or a list of arrays: writable, contiguous, of the right dtypes and "
             "shapes).\n"
             "Raises ValueError/TypeError when an array does not fit; nothing is changed then.")
        .def_property_readonly("feeds", [](const PyExecutable& self) { return self.executable.feeds(); })
        .def_property_readonly("targets", [](const PyExecutable& self) { return self.executable.targets(); })
        .def_property_readonly(
            "variants", [](const PyExecutable& self) { return self.executable.variants(); },
            "How many patterns of feed shapes have been compiled.")
        .def(
            "report", [](const PyExecutable& self) { return self.executable.report(); },
            "What was stitched, what was not and why, for the variant that ran last.")
        .def(
            "source", [](const PyExecutable& self, const std::string& kind) { return self.executable.source(kind); },
            py::arg("kind") = "loopir", "The kernels as text: \"loopir\", \"llvm\" or \"asm\".")
        .def("__repr__", [](const PyExecutable& self) {
            return concat("<Executable of ", self.executable.feeds().size(), " feeds and ",
                          self.executable.targets().size(), " targets>");
        });

    const py::object graph = m.attr("Graph");
    graph.attr("run") = py::cpp_function(
        &graph_run, py::name("run"), py::is_method(graph), py::arg("feeds") = py::none(),
        py::arg("targets") = py::none(), py::arg("operations") = py::none(), py::kw_only(), py::arg("stitch") = true,
        py::arg("threads") = 0, py::arg("interpret") = false,
        "Run the graph: feeds is {placeholder: array}, targets a tensor or a list, tuple or dict of tensors, "
        "operations what\n"
        "assign() returned. Compiles at the first call for this combination. Results have the form of targets. Raises\n"
        "ValueError/TypeError when something does not fit; variables are unchanged then.");
    graph.attr("compile") = py::cpp_function(
        &graph_compile, py::name("compile"), py::is_method(graph), py::arg("feeds") = py::none(),
        py::arg("targets") = py::none(), py::arg("operations") = py::none(), py::kw_only(), py::arg("stitch") = true,
        py::arg("threads") = 0, py::arg("interpret") = false,
        "Compile ahead of time: feeds is {placeholder: ShapedType} (or a list of placeholders, as they are declared).\n"
        "Returns an Executable. stitch=False gives one kernel for each operation, for comparison and for debugging.");
}

}  // namespace topstitch::bindings
