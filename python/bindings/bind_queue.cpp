// Binds Device, Event, Queue, CommandBuffer and Job.
// Waits release the GIL and end with Ctrl-C; handlers take the GIL on the queue's thread.
#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include "bind.h"
#include "bind_ndarray.h"
#include "execution.h"
#include "gil.h"
#include "ownership.h"

namespace py = pybind11;

namespace topstitch::bindings {

namespace {

// Calls a Python function from any thread. What it raises is reported as Python does for callbacks of no caller.
std::function<void()> handler_of(const py::function& function, py::object argument = {}) {
    return [function = hold(function), argument = hold(std::move(argument))] {
        with_gil_unless_finalizing([&] {
            try {
                const py::handle callable(function.get());
                argument.get() != nullptr ? callable(py::handle(argument.get())) : callable();
            } catch (py::error_already_set& error) {
                error.discard_as_unraisable(py::reinterpret_borrow<py::object>(function.get()));
            }
        });
    };
}

bool wait_for_job(const Job& job, py::handle timeout) {
    return wait_interruptibly([&job](double seconds) { return job.wait(seconds); }, timeout);
}

[[noreturn]] void time_out(py::handle timeout) {
    PyErr_SetString(PyExc_TimeoutError,
                    concat("the run is not done after ", py::str(timeout).cast<std::string>(), " s").c_str());
    throw py::error_already_set();
}

py::object job_result(const PyJob& self, const py::object& timeout) {
    if (!wait_for_job(self.job, timeout)) time_out(timeout);
    std::vector<NDArray> results;
    {
        const ReleaseGil release;
        results = self.job.results();
    }
    return self.result(std::move(results));
}

py::object job_exception(const PyJob& self, const py::object& timeout) {
    if (!wait_for_job(self.job, timeout)) time_out(timeout);
    try {
        const ReleaseGil release;
        self.job.results();
        return py::none();
    } catch (...) {
        py::detail::try_translate_exceptions();  // sets Python's error, as raising it would
        return py::error_already_set().value();
    }
}

void bind_device(py::module_& m) {
    py::class_<Device>(m, "Device", "Where graphs run. Equal devices are the same one.")
        .def(py::init<>())
        .def(py::init<const std::string&>(), py::arg("name"), "By name or type; ValueError that lists what there is.")
        .def_property_readonly("name", [](const Device& self) { return self.info().name; })
        .def_property_readonly(
            "type", [](const Device& self) { return self.info().type; }, "\"cpu\", \"metal\" or \"cuda\".")
        .def_property_readonly("description", [](const Device& self) { return self.info().description; })
        .def_property_readonly(
            "threads", [](const Device& self) { return self.info().threads; }, "Threads that kernels run on at most.")
        .def_property_readonly("memory_bytes", [](const Device& self) { return self.info().memory_bytes; })
        .def_property_readonly(
            "unified_memory", [](const Device& self) { return self.info().unified_memory; },
            "Whether arrays of the host are used in place.")
        .def("__eq__",
             [](const Device& self, const py::object& other) {
                 return py::isinstance<Device>(other) && self == other.cast<const Device&>();
             })
        .def("__hash__", [](const Device& self) { return std::hash<const void*>()(&self.backend()); })
        .def("__repr__", [](const Device& self) {
            const DeviceInfo info = self.info();
            return concat("<Device ", info.name, ": ", info.description, ", ", info.threads, " threads, ",
                          info.memory_bytes >> 30, " GiB>");
        });
    m.def("devices", &devices, "All devices that can be used here, the default one first.");
}

void bind_event(py::module_& m) {
    py::class_<Event>(m, "Event",
                      "A counter that queues and the program wait for and signal; its value only grows. Command "
                      "buffers of several\nqueues are ordered by it.")
        .def(py::init<>())
        .def_property_readonly("value", &Event::value)
        .def("signal", &Event::signal, py::arg("value").noconvert(),
             "Raises ValueError when `value` is below the present one.")
        .def(
            "wait",
            [](const Event& self, std::uint64_t value, const py::object& timeout) {
                return wait_interruptibly([&](double seconds) { return self.wait(value, seconds); }, timeout);
            },
            py::arg("value").noconvert(), py::arg("timeout") = py::none(),
            "Wait until the value is reached; False when `timeout` seconds have passed before. Raises ValueError when "
            "the work\nthat was to signal it, or more, has failed, and nothing else that is committed will.")
        .def("__repr__", [](const Event& self) { return concat("<Event at ", self.value(), ">"); });
}

// Until a command buffer is committed, its handlers lie in its __dict__, where the garbage collector sees whom they
// refer to: often to the command buffer.
constexpr const char* scheduled_key = "_scheduled_handlers";
constexpr const char* completed_key = "_completed_handlers";

py::list kept_handlers(const py::object& commands, const char* key) {
    const py::dict attributes = commands.attr("__dict__");
    return attributes.contains(key) ? py::list(attributes[key]) : py::list();
}

void keep_handler(const py::object& commands, const char* key, const py::function& handler) {
    commands.cast<const CommandBuffer&>().check_open("add a handler");
    py::list handlers = kept_handlers(commands, key);
    handlers.append(handler);
    commands.attr("__dict__")[key] = handlers;
}

void bind_queue_class(py::module_& m) {
    py::class_<Queue>(
        m, "Queue",
        "Runs what is committed to it, in order, on a thread of its own. Work in flight is abandoned when "
        "the process ends.")
        .def(py::init([](const std::optional<Device>& device, const std::string& label) {
                 return Queue(device.value_or(Device()), label);
             }),
             py::arg("device") = py::none(), py::kw_only(), py::arg("label") = "")
        .def_property_readonly("device", &Queue::device)
        .def_property_readonly("label", &Queue::label)
        .def_property_readonly("pending", &Queue::pending, "Command buffers committed and not done.")
        .def(
            "wait",
            [](const Queue& self, const py::object& timeout) {
                const std::vector<Job> jobs = self.pending_jobs();
                return wait_interruptibly([&](double seconds) { return wait_for_all(jobs, seconds); }, timeout);
            },
            py::arg("timeout") = py::none(),
            "Wait until all that has been committed so far is done; False when `timeout` seconds have passed before.")
        .def("__repr__", [](const Queue& self) {
            return concat("<Queue", self.label().empty() ? "" : " '" + self.label() + "'", " on ",
                          self.device().info().name, ", ", self.pending(), " pending>");
        });
    m.def("default_queue", [] { return default_queue(); }, "The queue of runs that name none.");

    py::class_<CommandBuffer>(m, "CommandBuffer",
                              "Runs and events for one queue, committed together: they run in order, and when one "
                              "fails the rest do not run.\nGraph.encode and Executable.encode add runs.",
                              py::dynamic_attr())
        .def(py::init([](const std::optional<Queue>& queue) { return CommandBuffer(queue.value_or(default_queue())); }),
             py::arg("queue") = py::none())
        .def("wait_for", &CommandBuffer::wait_for, py::arg("event"), py::arg("value").noconvert(),
             "What is encoded after this waits until the event has the value.")
        .def("signal", &CommandBuffer::signal, py::arg("event"), py::arg("value").noconvert(),
             "Signal the event after what has been encoded so far. When that fails, whoever waits is told so.")
        .def(
            "add_scheduled_handler",
            [](const py::object& self, const py::function& handler) { keep_handler(self, scheduled_key, handler); },
            py::arg("handler"), "Called without arguments on the queue's thread when the first run starts.")
        .def(
            "add_completed_handler",
            [](const py::object& self, const py::function& handler) { keep_handler(self, completed_key, handler); },
            py::arg("handler"), "Called without arguments on the queue's thread once it is done or has failed.")
        .def(
            "commit",
            [](const py::object& object) {
                auto& self = object.cast<CommandBuffer&>();
                self.check_open("commit");
                for (const py::handle handler : kept_handlers(object, scheduled_key))
                    self.add_scheduled_handler(handler_of(py::reinterpret_borrow<py::function>(handler)));
                for (const py::handle handler : kept_handlers(object, completed_key))
                    self.add_completed_handler(handler_of(py::reinterpret_borrow<py::function>(handler)));
                py::dict(object.attr("__dict__")).clear();
                return PyJob{self.commit(),
                             [](std::vector<NDArray> results) { return py::object(py::cast(std::move(results))); }};
            },
            "Hand it to the queue, once; the Job's result is the list of all results in the order of encoding.")
        .def_property_readonly("queue", &CommandBuffer::queue)
        .def_property_readonly(
            "status", [](const CommandBuffer& self) { return name_of(self.status()); },
            "\"encoding\", \"committed\", \"running\", \"completed\", \"failed\" or \"cancelled\".")
        .def("__repr__",
             [](const CommandBuffer& self) { return concat("<CommandBuffer ", name_of(self.status()), ">"); });
}

void bind_job(py::module_& m) {
    py::class_<PyJob>(m, "Job",
                      "Work that goes on while the program does other things; `await job` gives its result. It behaves "
                      "like a\nconcurrent.futures.Future.")
        .def(
            "wait", [](const PyJob& self, const py::object& timeout) { return wait_for_job(self.job, timeout); },
            py::arg("timeout") = py::none(),
            "Wait until it is done; False when `timeout` seconds have passed before. Does not raise what the work "
            "raised.")
        .def(
            "done", [](const PyJob& self) { return self.job.done(); }, "Completed, failed or cancelled.")
        .def("running", [](const PyJob& self) { return self.job.status() == JobStatus::running; })
        .def("cancelled", [](const PyJob& self) { return self.job.status() == JobStatus::cancelled; })
        .def(
            "result", &job_result, py::arg("timeout") = py::none(),
            "Wait, and give the result in the form of the targets; raises what the work raised, and TimeoutError after "
            "`timeout` seconds.")
        .def("exception", &job_exception, py::arg("timeout") = py::none(),
             "Wait, and give the exception that the work raised, or None.")
        .def(
            "cancel", [](const PyJob& self) { return self.job.cancel(); },
            "Ask that it does not run: True when it is certain that it never will. Work that has begun stops before "
            "the next\nkernel if it has not changed a variable.")
        .def(
            "add_done_callback",
            [](const py::object& self, const py::function& callback) {
                self.cast<const PyJob&>().job.add_completed_handler(handler_of(callback, self));
            },
            py::arg("callback"),
            "Call `callback(job)` on the queue's thread once it is done, at once if it is already. The callback must "
            "not "
            "wait for\nwork of the same queue.")
        .def(
            "add_scheduled_callback",
            [](const py::object& self, const py::function& callback) {
                self.cast<const PyJob&>().job.add_scheduled_handler(handler_of(callback, self));
            },
            py::arg("callback"),
            "Call `callback(job)` on the queue's thread when the job starts, at once if it has already.")
        .def_property_readonly(
            "status", [](const PyJob& self) { return name_of(self.job.status()); },
            "\"committed\", \"running\", \"completed\", \"failed\" or \"cancelled\".")
        .def("__repr__", [](const PyJob& self) { return concat("<Job ", name_of(self.job.status()), ">"); });
}

}  // namespace

void bind_queue(py::module_& m) {
    bind_device(m);
    bind_event(m);
    bind_queue_class(m);
    bind_job(m);
}

}  // namespace topstitch::bindings
