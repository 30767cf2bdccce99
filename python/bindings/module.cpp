// The extension module topstitch._core: a thin face of libtopstitch.
// The Python package re-exports what users see; nothing here computes.
#include <pybind11/pybind11.h>

#include "bind.h"
#include "topstitch/version.h"

namespace topstitch::bindings {
void bind_all(pybind11::module_& m);
}

PYBIND11_MODULE(_core, m) {
    m.doc() = "C++ core of topstitch; use the package topstitch instead.";
    m.attr("__version__") = TOPSTITCH_VERSION;
    topstitch::bindings::bind_all(m);
}
