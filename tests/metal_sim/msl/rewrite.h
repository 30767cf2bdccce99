// MSL to C++ for the shim library: the few places where the languages differ, and a table of the kernels at the end.
// Lines keep their numbers.
#pragma once

#include <map>
#include <string>

#include "msl/scan.h"
#include "msl/source.h"

namespace metal_sim::msl {

// Values of function constants, by index: a C++ expression for the bytes, such as "0x3f, 0x80".
using ConstantBytes = std::map<unsigned, std::string>;

// CompileError when a function constant that is needed has no value; a library compiled without any values may lack
// them.
std::string rewrite(const Source& source, const Scan& scan, const ConstantBytes* values);

}  // namespace metal_sim::msl
