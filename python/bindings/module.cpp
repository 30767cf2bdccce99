// The extension module topstitch._core: a thin face of libtopstitch.
// The Python package re-exports what users see; nothing here computes.
#include <pybind11/pybind11.h>

#include "bind.h"
#include "topstitch/version.h"

PYBIND11_MODULE(_core, m) {
    using namespace topstitch::bindings;
    m.doc() = "C++ core of topstitch; use the package topstitch instead.";
    m.attr("__version__") = TOPSTITCH_VERSION;
    bind_errors(m);
    bind_ndarray(m);
    bind_graph(m);
    bind_autodiff(m);
    bind_executable(m);
}
