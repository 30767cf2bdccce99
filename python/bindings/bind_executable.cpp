// Binds compiling and running: Graph.run, run_async, encode and compile, Executable, its Report and Profile.
// The GIL is released while compiling and running; results come in the form of `targets`.
#include "bind_executable.h"

#include <pybind11/stl.h>

#include "bind.h"
#include "bind_ndarray.h"
#include "execution.h"
#include "gil.h"
#include "topstitch/metal.h"

namespace py = pybind11;

namespace topstitch::bindings {

namespace {

// What a run returns: `out`, when it was given.
py::object results_or(const py::object& out, const TargetForm& form, std::vector<NDArray> results) {
    return out.is_none() ? form.fill(std::move(results)) : out;
}

PyJob job_of(const Executable& executable, std::vector<NDArray> inputs, const TargetForm& form, const py::object& out,
             const std::optional<Queue>& queue) {
    return {executable.run_async(std::move(inputs), form.arrays_of(out), queue),
            [form, out](std::vector<NDArray> results) { return results_or(out, form, std::move(results)); }};
}

py::object graph_run(const Graph& graph, const py::object& feeds, const py::object& targets,
                     const py::object& operations, const py::object& out, const py::kwargs& options) {
    const PythonFeeds given(feeds);
    const TargetForm form(targets);
    const Executable executable = find_executable(graph, given.tensors, form.tensors(),
                                                  operations_from_python(operations), options_from_python(options));
    return results_or(out, form, run_interruptibly(executable, given.arrays, form.arrays_of(out)));
}

PyJob graph_run_async(const Graph& graph, const py::object& feeds, const py::object& targets,
                      const py::object& operations, const py::object& out, const std::optional<Queue>& queue,
                      const py::kwargs& options) {
    PythonFeeds given(feeds);
    const TargetForm form(targets);
    const Executable executable = find_executable(graph, given.tensors, form.tensors(),
                                                  operations_from_python(operations), options_from_python(options));
    return job_of(executable, std::move(given.arrays), form, out, queue);
}

// Encoding is quick once it is compiled.
std::vector<NDArray> encode_interruptibly(const Executable& executable, CommandBuffer& commands,
                                          std::vector<NDArray> inputs, std::vector<NDArray> results) {
    commands.check_open("encode");
    if (!executable.is_compiled_for(inputs, results))
        work_interruptibly([executable, inputs, results] { executable.prepare(inputs, results); });
    const ReleaseGil release;
    return executable.encode(commands, std::move(inputs), std::move(results));
}

py::object graph_encode(const Graph& graph, CommandBuffer& commands, const py::object& feeds, const py::object& targets,
                        const py::object& operations, const py::object& out, const py::kwargs& options) {
    PythonFeeds given(feeds);
    const TargetForm form(targets);
    const Executable executable = find_executable(graph, given.tensors, form.tensors(),
                                                  operations_from_python(operations), options_from_python(options));
    return results_or(out, form,
                      encode_interruptibly(executable, commands, std::move(given.arrays), form.arrays_of(out)));
}

PyExecutable graph_compile(const Graph& graph, const py::object& feeds, const py::object& targets,
                           const py::object& operations, const py::kwargs& options) {
    const FeedTypes types = feed_types_from_python(feeds);
    PyExecutable result{{}, TargetForm(targets), {}};
    const std::vector<Operation> wanted = operations_from_python(operations);
    const CompileOptions compile_options = options_from_python(options);
    for (const auto& [tensor, type] : types) result.feed_dtypes.push_back(type.dtype);
    const auto made = std::make_shared<Executable>();
    work_interruptibly([made, graph, types, targets = result.form.tensors(), wanted, compile_options] {
        *made = compile(graph, types, targets, wanted, compile_options);
    });
    result.executable = *made;
    return result;
}

PyJob graph_compile_async(const Graph& graph, const py::object& feeds, const py::object& targets,
                          const py::object& operations, const py::kwargs& options) {
    const FeedTypes types = feed_types_from_python(feeds);
    PyExecutable made{{}, TargetForm(targets), {}};
    for (const auto& [tensor, type] : types) made.feed_dtypes.push_back(type.dtype);
    auto [executable, job] = compile_async(graph, types, made.form.tensors(), operations_from_python(operations),
                                           options_from_python(options));
    made.executable = std::move(executable);
    return {std::move(job), [made](const std::vector<NDArray>&) { return py::cast(made); }};
}

// exe.run(a, b) and exe.run([a, b]) are the same.
std::vector<NDArray> inputs_of(const PyExecutable& self, const py::args& inputs) {
    std::vector<NDArray> arrays;
    arrays.reserve(self.feed_dtypes.size());
    const auto add = [&](const py::handle& value) {
        const std::size_t k = arrays.size();
        arrays.push_back(feed_from_python(value, k < self.feed_dtypes.size() ? self.feed_dtypes[k] : DType::float32));
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
    return arrays;
}

py::object executable_run(const PyExecutable& self, const py::args& inputs, const py::object& out) {
    const std::vector<NDArray> arrays = inputs_of(self, inputs);
    return results_or(out, self.form, run_interruptibly(self.executable, arrays, self.form.arrays_of(out)));
}

PyJob executable_run_async(const PyExecutable& self, const py::args& inputs, const py::object& out,
                           const std::optional<Queue>& queue) {
    return job_of(self.executable, inputs_of(self, inputs), self.form, out, queue);
}

py::object executable_encode(const PyExecutable& self, CommandBuffer& commands, const py::args& inputs,
                             const py::object& out) {
    std::vector<NDArray> arrays = inputs_of(self, inputs);
    return results_or(out, self.form,
                      encode_interruptibly(self.executable, commands, std::move(arrays), self.form.arrays_of(out)));
}

py::object executable_encode_metal(const PyExecutable& self, std::uintptr_t command_buffer, const py::args& inputs) {
    const std::vector<NDArray> arrays = inputs_of(self, inputs);
    std::vector<NDArray> results;
    {
        const ReleaseGil release;
        results = metal::encode(self.executable, reinterpret_cast<void*>(command_buffer), arrays);
    }
    return results_or(py::none(), self.form, std::move(results));
}

// A dict {placeholder: ShapedType}, or ShapedTypes in the order of the feeds.
std::vector<ShapedType> types_of(const PyExecutable& self, const py::object& types) {
    std::vector<ShapedType> result;
    if (!py::isinstance<py::dict>(types)) {
        for (const py::handle& type : types) {
            if (!py::isinstance<ShapedType>(type))
                throw TypeError(concat("[specialize] types must be ShapedTypes, not ", Py_TYPE(type.ptr())->tp_name));
            result.push_back(type.cast<ShapedType>());
        }
        return result;
    }
    const FeedTypes given = feed_types_from_python(types);
    for (const Tensor& feed : self.executable.feeds()) {
        const auto at = std::find_if(given.begin(), given.end(), [&](const auto& pair) { return pair.first == feed; });
        result.push_back(at != given.end() ? at->second : ShapedType{feed.shape(), feed.dtype()});
    }
    return result;
}

Profile executable_profile(const PyExecutable& self, const py::args& inputs, int runs) {
    const std::vector<NDArray> arrays = inputs_of(self, inputs);
    const auto profile = std::make_shared<Profile>();
    work_interruptibly(
        [profile, executable = self.executable, arrays, runs] { *profile = executable.profile(arrays, runs); });
    return std::move(*profile);
}

py::dict region_dict(const Report::Region& region) {
    py::dict entry;
    entry["name"] = region.name;
    entry["operations"] = region.operations;
    entry["schedule"] = region.schedule;
    entry["kept"] = region.kept;
    entry["in_place"] = region.in_place;
    entry["remark"] = region.remark;
    entry["bytes_read"] = region.bytes_read;
    entry["bytes_written"] = region.bytes_written;
    entry["bytes_saved"] = region.bytes_saved;
    return entry;
}

void bind_report(py::module_& m) {
    py::class_<Report>(m, "Report",
                       "What compiling and stitching did. str() explains it; the attributes are for programs.")
        .def_property_readonly(
            "regions",
            [](const Report& report) {
                py::list regions;
                for (const Report::Region& region : report.regions) regions.append(region_dict(region));
                return regions;
            },
            "One dict for each stitched region: name, operations, schedule, kept, in_place, remark, bytes_*.")
        .def_readonly("kept_apart", &Report::kept_apart, "Why neighbouring operations were not stitched.")
        .def_readonly("arena_bytes", &Report::arena_bytes, "Memory reserved for intermediate results, in bytes.")
        .def_readonly("kernels", &Report::kernels)
        .def_readonly("kernels_compiled", &Report::kernels_compiled, "Kernels that were not found in the kernel cache.")
        .def_readonly("kernels_from_disk", &Report::kernels_from_disk, "Kernels that were found in its folder.")
        .def_readonly("compile_milliseconds", &Report::compile_milliseconds)
        .def_readonly("stitch_milliseconds", &Report::stitch_milliseconds)
        .def("__str__", &Report::str)
        .def("__repr__", &Report::str);
}

py::dict kernel_dict(const Profile::Kernel& kernel, const MachineLimits& limits) {
    py::dict entry;
    entry["name"] = kernel.cost.name;
    entry["operations"] = kernel.cost.operations;
    entry["threads"] = kernel.threads;
    entry["launches"] = kernel.launches;
    entry["microseconds"] = kernel.microseconds;
    entry["bytes_read"] = kernel.cost.bytes_read;
    entry["bytes_written"] = kernel.cost.bytes_written;
    entry["flops"] = kernel.cost.flops;
    entry["bytes_per_second"] = kernel.bytes_per_second();
    entry["flops_per_second"] = kernel.flops_per_second();
    entry["share_of_bandwidth"] = kernel.bytes_per_second() / limits.bytes_per_second;
    entry["share_of_flops"] = kernel.flops_per_second() / limits.flops_per_second;
    return entry;
}

void bind_profile(py::module_& m) {
    py::class_<Profile>(m, "Profile",
                        "Times, bytes and FLOPs of each kernel of a run. str() is a table; save_trace() writes what "
                        "Perfetto and\nchrome://tracing show.")
        .def_property_readonly(
            "kernels",
            [](const Profile& profile) {
                py::list kernels;
                for (const Profile::Kernel& kernel : profile.kernels)
                    kernels.append(kernel_dict(kernel, profile.limits));
                return kernels;
            },
            "One dict for each kernel, in the order in which they run; times are medians in microseconds.")
        .def_readonly("runs", &Profile::runs)
        .def_readonly("run_microseconds", &Profile::run_microseconds, "Median of a whole run.")
        .def_readonly("compile_milliseconds", &Profile::compile_milliseconds)
        .def_property_readonly(
            "bandwidth_limit", [](const Profile& profile) { return profile.limits.bytes_per_second; },
            "Bytes per second, read and written, of a large copy here.")
        .def_property_readonly(
            "flops_limit", [](const Profile& profile) { return profile.limits.flops_per_second; },
            "Float32 operations per second of a product of 1024 x 1024 matrices here.")
        .def("trace_json", &Profile::trace_json, "The compilation and the last run in the Trace Event Format, as text.")
        .def("__str__", &Profile::str)
        .def("__repr__", &Profile::str);
}

void bind_executable_class(py::module_& m) {
    py::class_<PyExecutable>(m, "Executable", "A compiled graph: run it on arrays in the order of `feeds`.")
        .def("run", &executable_run, py::kw_only(), py::arg("out") = py::none(),
             "Run on arrays in the order of `feeds` (as arguments or as one list). Results have the form of the "
             "targets, or are\nwritten into `out` (an array, a list of arrays, or for a dict of targets a dict: "
             "writable, of "
             "the right dtypes and\nshapes, of any strides), which is returned then. Raises ValueError/TypeError when "
             "an array does not fit; nothing is changed then. Ctrl-C returns "
             "at once: the run is\ncancelled if it has not changed a variable yet, else it goes on to its end in the "
             "background.")
        .def("run_async", &executable_run_async, py::kw_only(), py::arg("out") = py::none(),
             py::arg("queue") = py::none(),
             "As run(), but returns at once with a Job. The arrays must not be changed until it is done. `queue` "
             "defaults to one\nthat all runs share.")
        .def("_encode_metal", &executable_encode_metal, py::arg("command_buffer"))
        .def("encode", &executable_encode, py::arg("command_buffer"), py::kw_only(), py::arg("out") = py::none(),
             "Add a run on arrays to a command buffer. Returns the arrays that it will fill: their contents are "
             "undefined until\nthe command buffer is done, but they may be inputs of what is encoded after it.")
        .def(
            "specialize",
            [](const PyExecutable& self, const py::object& types) {
                const std::vector<ShapedType> wanted = types_of(self, types);
                work_interruptibly([executable = self.executable, wanted] { executable.specialize(wanted); });
            },
            py::arg("types"),
            "Compile for further types of the feeds: {placeholder: ShapedType}, or a list in the order of `feeds`.")
        .def(
            "output_types",
            [](const PyExecutable& self, const py::object& types) {
                const std::vector<ShapedType> wanted = types_of(self, types);
                const auto types_of_results = std::make_shared<std::vector<ShapedType>>();
                work_interruptibly([executable = self.executable, wanted, types_of_results] {
                    *types_of_results = executable.output_types(wanted);
                });
                return *types_of_results;
            },
            py::arg("types"), "The ShapedTypes of the targets for feeds of these types.")
        .def_property_readonly("feeds", [](const PyExecutable& self) { return self.executable.feeds(); })
        .def_property_readonly("targets", [](const PyExecutable& self) { return self.executable.targets(); })
        .def_property_readonly(
            "variants", [](const PyExecutable& self) { return self.executable.variants(); },
            "How many patterns of feed shapes have been compiled.")
        .def(
            "report", [](const PyExecutable& self) { return self.executable.report(); },
            "What was stitched, what was not and why, for the variant that ran last.")
        .def(
            "explain", [](const PyExecutable& self) { return self.executable.explain(); },
            "One entry for each compilation: what it was for, what was found in which cache, and why it was needed.")
        .def("profile", &executable_profile, py::kw_only(), py::arg("runs") = 10,
             "Run `runs` times (variables are updated as in any run) and measure each kernel.")
        .def(
            "source", [](const PyExecutable& self, const std::string& kind) { return self.executable.source(kind); },
            py::arg("kind") = "loopir", "The kernels as text: \"loopir\", \"llvm\" or \"asm\".")
        .def("__repr__", [](const PyExecutable& self) {
            return concat("<Executable of ", self.executable.feeds().size(), " feeds and ",
                          self.executable.targets().size(), " targets>");
        });
}

// A method of Graph with feeds, targets, operations and options.
template <typename Function, typename... Extra>
void add_method(const py::object& graph, const char* name, Function function, const std::string& doc,
                const Extra&... extra) {
    graph.attr(name) =
        py::cpp_function(function, py::name(name), py::is_method(graph), extra..., (doc + "\n" + options_doc).c_str());
}

void bind_graph_methods(const py::object& graph) {
    const auto feeds = py::arg("feeds") = py::none();
    const auto targets = py::arg("targets") = py::none();
    const auto operations = py::arg("operations") = py::none();
    const auto out = py::arg("out") = py::none();
    add_method(graph, "run", &graph_run,
               "Run the graph: feeds is {placeholder: array}, targets a tensor or a list, tuple or dict of tensors, "
               "operations what\nassign() returned. Compiles at the first call for this combination. Results have the "
               "form of targets, or are\nwritten into `out`, as in Executable.run. Raises ValueError/TypeError when "
               "something does not fit; variables are\nunchanged then. Ctrl-C returns at once, as in Executable.run.",
               feeds, targets, operations, py::kw_only(), out);
    add_method(
        graph, "run_async", &graph_run_async,
        "As run(), but returns at once with a Job; compiling is part of it. The arrays must not be changed until "
        "it is done.\n`queue` defaults to one that all runs share.",
        feeds, targets, operations, py::kw_only(), out, py::arg("queue") = py::none());
    add_method(graph, "encode", &graph_encode,
               "Add a run to a command buffer, as Executable.encode does. Returns the arrays that it will fill, in the "
               "form of targets.",
               py::arg("command_buffer"), feeds, targets, operations, py::kw_only(), out);
    add_method(graph, "compile", &graph_compile,
               "Compile ahead of time: feeds is {placeholder: ShapedType} (or a list of placeholders, as they are "
               "declared).\nReturns an Executable.",
               feeds, targets, operations);
    add_method(graph, "compile_async", &graph_compile_async,
               "As compile(), but returns at once with a Job whose result is the Executable.", feeds, targets,
               operations);
}

py::dict cache_dict(const CacheStats& cache) {
    py::dict entry;
    entry["hits"] = cache.hits;
    entry["misses"] = cache.misses;
    entry["evictions"] = cache.evictions;
    entry["entries"] = cache.entries;
    return entry;
}

py::dict cache_statistics_dict() {
    const CacheStatistics statistics = cache_statistics();
    py::dict kernels;
    kernels["hits"] = statistics.kernels.hits;
    kernels["disk_hits"] = statistics.kernels.disk_hits;
    kernels["compiled"] = statistics.kernels.compiled;
    kernels["evictions"] = statistics.kernels.evictions;
    kernels["entries"] = statistics.kernels.entries;
    py::dict result;
    result["executables"] = cache_dict(statistics.executables);
    result["programs"] = cache_dict(statistics.programs);
    result["kernels"] = kernels;
    result["kernel_folder"] = statistics.kernel_folder;
    return result;
}

}  // namespace

void bind_executable(py::module_& m) {
    bind_report(m);
    bind_profile(m);
    bind_executable_class(m);
    bind_graph_methods(m.attr("Graph"));
    m.def("cache_statistics", &cache_statistics_dict,
          "Hits, misses, evictions and entries of the caches: executables of graphs (by what is asked of them), "
          "compiled programs\nof the process (by structure), and kernels in memory and on disk.");
    m.def("clear_caches", &clear_caches,
          "Forget compiled programs that no executable uses. Kernels stay in their own caches.");
}

}  // namespace topstitch::bindings
