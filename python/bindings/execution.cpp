// Feeds, targets, options and waiting, for everything that runs.
// See execution.h.
#include "execution.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "bind_ndarray.h"
#include "gil.h"

namespace py = pybind11;

namespace topstitch::bindings {

namespace {

// Between two looks at whether a signal has come, in seconds.
constexpr double signal_interval = 0.05;

std::string type_name(py::handle object) {
    return Py_TYPE(object.ptr())->tp_name;
}

Tensor target_from_python(const py::handle& value) {
    if (py::isinstance<Tensor>(value)) return value.cast<Tensor>();
    throw TypeError(concat("[run] targets must be Tensors, not ", type_name(value),
                           py::isinstance<Operation>(value) ? "; pass operations as operations=[...]" : ""));
}

int int_option(const std::string& name, py::handle value) {
    if (!PyLong_Check(value.ptr()) || PyBool_Check(value.ptr()))
        throw TypeError(concat("[compile] ", name, " must be an int, not ", type_name(value)));
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(value.ptr(), &overflow);
    if (overflow != 0 || number > std::numeric_limits<int>::max() || number < std::numeric_limits<int>::min())
        throw UserError(concat("[compile] ", name, " is too large: ", py::str(value).cast<std::string>()));
    return static_cast<int>(number);
}

bool bool_option(const std::string& name, py::handle value) {
    if (PyBool_Check(value.ptr())) return value.ptr() == Py_True;
    throw TypeError(concat("[compile] ", name, " must be True or False, not ", type_name(value)));
}

MathMode math_option(py::handle value) {
    if (PyUnicode_Check(value.ptr())) {
        const auto text = value.cast<std::string>();
        if (text == "standard") return MathMode::standard;
        if (text == "strict") return MathMode::strict;
    }
    throw UserError(
        concat("[compile] math must be \"standard\" or \"strict\", not ", py::repr(value).cast<std::string>()));
}

}  // namespace

Device device_from_python(py::handle value, const char* what) {
    if (py::isinstance<Device>(value)) return value.cast<Device>();
    if (PyUnicode_Check(value.ptr())) return Device(value.cast<std::string>());
    throw TypeError(concat("[", what, "] device must be a Device or its name, not ", type_name(value)));
}

const char* const options_doc =
    "Options: stitch=False gives one kernel for each operation, for comparison and for debugging; threads=N uses at "
    "most N;\noptimization_level=0 makes machine code faster that runs slower; deterministic=True gives results that "
    "do "
    "not depend on\nthe number of threads either; math=\"strict\" rounds after each operation (no fused multiply-add) "
    "and "
    "sums convolutions\ndirectly; interpret=True runs in the slow reference interpreter; device names where.";

// A copy: the caller may go on to change his list or dict.
TargetForm::TargetForm(const py::object& targets) : targets_(targets) {
    if (py::isinstance<py::dict>(targets)) targets_ = py::reinterpret_steal<py::object>(PyDict_Copy(targets.ptr()));
    if (py::isinstance<py::list>(targets)) targets_ = py::reinterpret_steal<py::object>(PyList_AsTuple(targets.ptr()));
    is_list_ = py::isinstance<py::list>(targets);
    if (!targets_) throw py::error_already_set();
    if (targets.is_none()) return;
    if (py::isinstance<Tensor>(targets)) {
        tensors_.push_back(targets.cast<Tensor>());
    } else if (py::isinstance<py::dict>(targets)) {
        for (const auto& [key, value] : targets_.cast<py::dict>()) tensors_.push_back(target_from_python(value));
    } else if (py::isinstance<py::tuple>(targets_)) {
        for (const py::handle& value : targets_) tensors_.push_back(target_from_python(value));
    } else {
        throw TypeError(
            concat("[run] targets must be a Tensor, or a list, tuple or dict of Tensors, not ", type_name(targets)));
    }
}

py::object TargetForm::fill(std::vector<NDArray> results) const {
    if (targets_.is_none()) return py::list();
    if (py::isinstance<Tensor>(targets_)) return py::cast(std::move(results[0]));
    std::size_t next = 0;
    if (py::isinstance<py::dict>(targets_)) {
        py::dict filled;
        for (const auto& [key, value] : targets_.cast<py::dict>()) filled[key] = py::cast(std::move(results[next++]));
        return filled;
    }
    py::list filled(results.size());
    for (NDArray& result : results) filled[next++] = py::cast(std::move(result));
    if (py::isinstance<py::tuple>(targets_) && !is_list_) return py::tuple(filled);
    return filled;
}

std::vector<NDArray> TargetForm::arrays_of(const py::object& out) const {
    if (out.is_none()) return {};
    std::vector<py::object> values;  // kept alive: conversions run the caller's code
    if (py::isinstance<py::dict>(out)) {
        if (!py::isinstance<py::dict>(targets_))
            throw TypeError("[run] out is a dict, but targets is none; give an array, or a list in their order");
        const auto given = out.cast<py::dict>();
        for (const auto& [key, target] : targets_.cast<py::dict>()) {
            if (given.contains(key)) values.push_back(given[key]);
        }
        if (values.size() != tensors_.size() || given.size() != values.size())
            throw UserError("[run] the keys of out must be those of targets");
    } else if (py::isinstance<py::list>(out) || py::isinstance<py::tuple>(out)) {
        for (const py::handle& value : out) values.push_back(py::reinterpret_borrow<py::object>(value));
    } else {
        values.push_back(out);
    }
    if (values.size() != tensors_.size()) {
        throw UserError(concat("[run] out has ", values.size(), values.size() == 1 ? " array" : " arrays", ", but ",
                               tensors_.size(), " are needed: one for each target"));
    }
    // Never a copy: the caller would not see what was written into it.
    std::vector<NDArray> arrays;
    for (const py::object& value : values)
        arrays.push_back(ndarray_from_python(value, std::nullopt, "[run] out", CopyMode::never));
    return arrays;
}

PythonFeeds::PythonFeeds(const py::object& feeds) {
    if (feeds.is_none()) return;
    if (!py::isinstance<py::dict>(feeds))
        throw TypeError(concat("[run] feeds must be a dict {placeholder: array}, not ", type_name(feeds)));
    std::vector<std::pair<Tensor, py::object>> given;  // kept alive: conversions run the caller's code
    for (const auto& [key, value] : py::reinterpret_borrow<py::dict>(feeds)) {
        if (!py::isinstance<Tensor>(key))
            throw TypeError(concat("[run] the keys of feeds must be placeholders, not ", type_name(key)));
        given.emplace_back(key.cast<Tensor>(), py::reinterpret_borrow<py::object>(value));
    }
    std::sort(given.begin(), given.end(), [](const auto& a, const auto& b) { return a.first.ref() < b.first.ref(); });
    for (auto& [tensor, value] : given) {
        arrays.push_back(feed_from_python(value, tensor.dtype()));
        tensors.push_back(std::move(tensor));
    }
}

FeedTypes feed_types_from_python(const py::object& feeds) {
    FeedTypes types;
    if (feeds.is_none()) return types;
    const auto placeholder = [](py::handle key) {
        if (!py::isinstance<Tensor>(key))
            throw TypeError(concat("[compile] feeds must name placeholders, not ", type_name(key)));
        return key.cast<Tensor>();
    };
    if (!py::isinstance<py::dict>(feeds)) {
        for (const py::handle& value : feeds) {
            const Tensor tensor = placeholder(value);
            types.emplace_back(tensor, ShapedType{tensor.shape(), tensor.dtype()});
        }
        return types;
    }
    for (const auto& [key, value] : feeds.cast<py::dict>()) {
        const Tensor tensor = placeholder(key);
        if (!py::isinstance<ShapedType>(value)) {
            throw TypeError(concat("[compile] a placeholder's type must be a ShapedType, not ", type_name(value),
                                   "; write {x: ts.ShapedType((64, 784))}"));
        }
        types.emplace_back(tensor, value.cast<ShapedType>());
    }
    return types;
}

std::vector<Operation> operations_from_python(const py::object& operations) {
    std::vector<Operation> result;
    if (operations.is_none()) return result;
    if (py::isinstance<Operation>(operations)) return {operations.cast<Operation>()};
    for (const py::handle& value : operations) {
        if (!py::isinstance<Operation>(value)) {
            throw TypeError(
                concat("[run] operations must be Operations (what assign() returns), not ", type_name(value)));
        }
        result.push_back(value.cast<Operation>());
    }
    return result;
}

NDArray feed_from_python(py::handle value, DType dtype) {
    if (py::isinstance<NDArray>(value)) return value.cast<NDArray>();
    const bool literal = PyFloat_Check(value.ptr()) || PyLong_Check(value.ptr()) || PyList_Check(value.ptr()) ||
                         PyTuple_Check(value.ptr());
    return ndarray_from_python(value, literal ? std::optional(dtype) : std::nullopt, "run");
}

CompileOptions options_from_python(const py::kwargs& given) {
    CompileOptions options;
    if (given.empty()) return options;
    for (const auto& [key, value] : given) {
        const auto name = key.cast<std::string>();
        if (name == "stitch") {
            options.stitch = bool_option(name, value);
        } else if (name == "threads") {
            options.threads = int_option(name, value);
        } else if (name == "interpret") {
            options.interpret = bool_option(name, value);
        } else if (name == "optimization_level") {
            options.optimization_level = int_option(name, value);
        } else if (name == "deterministic") {
            options.deterministic = bool_option(name, value);
        } else if (name == "math") {
            options.math = math_option(value);
        } else if (name == "device") {
            options.device = device_from_python(value, "compile");
        } else {
            throw TypeError(concat("[run] there is no argument or option '", name,
                                   "'; the options are stitch, threads, interpret, optimization_level, deterministic, "
                                   "math and device"));
        }
    }
    check_options(options);
    return options;
}

std::optional<double> timeout_from_python(py::handle timeout) {
    if (timeout.is_none()) return std::nullopt;
    const double seconds = PyFloat_AsDouble(timeout.ptr());
    if (seconds == -1 && PyErr_Occurred() != nullptr) throw py::error_already_set();
    if (std::isnan(seconds)) throw UserError("[wait] the timeout is not a number");
    return std::max(seconds, 0.0);
}

bool wait_interruptibly(const std::function<bool(double)>& done_after, py::handle timeout) {
    const std::optional<double> seconds = timeout_from_python(timeout);
    const auto start = std::chrono::steady_clock::now();
    for (;;) {
        double slice = signal_interval;
        bool last = false;
        if (seconds) {
            const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
            last = *seconds - passed.count() <= slice;
            slice = std::max(std::min(slice, *seconds - passed.count()), 0.0);
        }
        bool done = false;
        {
            const ReleaseGil release;
            done = done_after(slice);
        }
        if (done) return true;
        if (PyErr_CheckSignals() != 0) throw py::error_already_set();
        if (last) return false;
    }
}

void work_interruptibly(std::function<void()> work) {
    const Job job = perform_detached(std::move(work));
    wait_interruptibly([&job](double seconds) { return job.wait(seconds); }, py::none());
    const ReleaseGil release;
    job.results();  // throws what the work threw
}

std::vector<NDArray> run_interruptibly(const Executable& executable, const std::vector<NDArray>& inputs,
                                       const std::vector<NDArray>& results) {
    {
        const ReleaseGil release;
        if (auto done = executable.run_if_short(inputs, results)) return std::move(*done);
    }
    const Job job = executable.run_detached(inputs, results);
    try {
        wait_interruptibly([&job](double seconds) { return job.wait(seconds); }, py::none());
    } catch (...) {
        job.cancel();
        throw;
    }
    return job.results();
}

}  // namespace topstitch::bindings
