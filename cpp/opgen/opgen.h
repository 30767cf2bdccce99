// Writes what derives from the registry: the typed C++ builders and the Python stub.
// Runs at build time, on the machine that builds.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "graph/op_def.h"

namespace topstitch::opgen {

// One parameter of a builder, in the order in which callers give it.
struct Parameter {
    const ArgDef* arg = nullptr;    // a tensor
    const AttrDef* attr = nullptr;  // or an attribute
};

// Tensors, then required attributes, then optional tensors and attributes.
std::vector<Parameter> parameters_of(const OpDef& def);

// Whether a builder returns one tensor, not a list.
inline bool gives_one(const OpDef& def) {
    return def.results.size() == 1 && !def.many_results;
}

// Operations with a builder of their own; the built-in ones are methods of Graph.
std::vector<const OpDef*> public_ops();

// `text` in lines of at most `width`, each behind `prefix`.
std::string wrapped(const std::string& text, const std::string& prefix, std::size_t width);

void write_cpp_header(std::ostream& out);
void write_cpp_source(std::ostream& out);
void write_python_stub(std::ostream& out);

}  // namespace topstitch::opgen
