// Binds gradients(), and the few settings that Python may change.
// See topstitch/autodiff.h.
#include <pybind11/stl.h>

#include "bind.h"
#include "topstitch/autodiff.h"
#include "topstitch/executable.h"

namespace py = pybind11;

namespace topstitch::bindings {

void bind_autodiff(py::module_& m) {
    m.def(
        "gradients",
        [](const Tensor& loss, const std::vector<Tensor>& tensors, const std::optional<Tensor>& seed) {
            const auto found = gradients(loss, tensors, seed.value_or(Tensor()));
            py::dict result;
            for (const Tensor& tensor : tensors) result[py::cast(tensor)] = py::cast(found.at(tensor));
            return result;
        },
        py::arg("loss"), py::arg("tensors"), py::arg("seed") = py::none(),
        "The gradients of `loss` with respect to each of `tensors`, as {tensor: gradient} (tensors of the same graph, "
        "which can\n"
        "be differentiated again). A loss that is not a scalar counts as its sum; `seed` weights its elements "
        "instead.\n"
        "Raises ValueError naming the path when something on the way is not differentiable.");
    m.def("num_threads", &num_threads, "Threads that a kernel runs on at most.");
    m.def("set_num_threads", &set_num_threads, py::arg("threads"),
          "Set the number of threads that a kernel runs on at most.");
}

}  // namespace topstitch::bindings
