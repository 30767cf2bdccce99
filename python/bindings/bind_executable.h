// The Python object behind Executable, for the files that bind its methods.
// The C++ executable gives a list; this one knows in which form its results are wanted.
#pragma once

#include <pybind11/pybind11.h>

#include <vector>

#include "execution.h"
#include "topstitch/executable.h"

namespace topstitch::bindings {

// An Executable and the form in which its results are given.
struct PyExecutable {
    Executable executable;
    TargetForm form;
    std::vector<DType> feed_dtypes;
};

}  // namespace topstitch::bindings
