// Pieces that everything which runs has in common: feeds, targets and options from Python, results in their form.
// And waiting that Ctrl-C ends.
#pragma once

#include <pybind11/pybind11.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "topstitch/executable.h"

namespace topstitch::bindings {

// A Device, or the name of one; `what` opens error messages.
Device device_from_python(pybind11::handle value, const char* what);

// The tensors of `targets`, whatever its form, and a way to put results into the same form. `out` is an array, a list
// of them in the order of the targets, or for a dict of targets a dict.
class TargetForm {
public:
    explicit TargetForm(const pybind11::object& targets);
    const std::vector<Tensor>& tensors() const { return tensors_; }
    // A Tensor, a list, tuple or dict of them, or None.
    pybind11::object targets() const { return is_list_ ? pybind11::list(targets_) : targets_; }
    pybind11::object fill(std::vector<NDArray> results) const;
    // The arrays of `out`, never copied; none for None.
    std::vector<NDArray> arrays_of(const pybind11::object& out) const;

private:
    pybind11::object targets_;  // a list as a tuple
    bool is_list_ = false;
    std::vector<Tensor> tensors_;
};

// {placeholder: array} in one order, however the dict was written.
struct PythonFeeds {
    explicit PythonFeeds(const pybind11::object& feeds);
    std::vector<Tensor> tensors;
    std::vector<NDArray> arrays;
};
// {placeholder: ShapedType}, or placeholders as they are declared.
FeedTypes feed_types_from_python(const pybind11::object& feeds);
std::vector<Operation> operations_from_python(const pybind11::object& operations);

// Plain numbers and lists take the placeholder's dtype; arrays keep theirs and have to match.
NDArray feed_from_python(pybind11::handle value, DType dtype);

// stitch, threads, interpret, optimization_level, deterministic, math, device.
CompileOptions options_from_python(const pybind11::kwargs& options);
extern const char* const options_doc;

// Calls `done_after(seconds)` without the GIL until it is true; between the calls, Python's signal handlers run, and
// what they raise (KeyboardInterrupt) ends the wait. False when `timeout` seconds have passed; none: never.
bool wait_interruptibly(const std::function<bool(double)>& done_after, pybind11::handle timeout);
// A timeout from Python: None or a number of seconds.
std::optional<double> timeout_from_python(pybind11::handle timeout);

// Does what may take long on another thread, so that Ctrl-C returns at once; the work then goes on in the background,
// and must own what it uses. Throws what it throws.
void work_interruptibly(std::function<void()> work);

// Runs here when that is short, else on another thread, so that Ctrl-C returns at once: the run is then cancelled if
// it has not changed anything, or goes on to its end in the background.
std::vector<NDArray> run_interruptibly(const Executable& executable, const std::vector<NDArray>& inputs,
                                       const std::vector<NDArray>& results);

// A Job as Python has it: with the form of its results.
struct PyJob {
    Job job;
    std::function<pybind11::object(std::vector<NDArray>)> result;
};

}  // namespace topstitch::bindings
