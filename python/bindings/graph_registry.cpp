// The registry of operations as Python data.
// The Python functions, their signatures and documentation are made from it.
#include <pybind11/stl.h>

#include "bind_graph.h"

namespace py = pybind11;

namespace topstitch::bindings {

namespace {

const char* kind_name(AttributeKind kind) {
    switch (kind) {
        case AttributeKind::none:
            return "none";
        case AttributeKind::boolean:
            return "boolean";
        case AttributeKind::integer:
            return "integer";
        case AttributeKind::real:
            return "real";
        case AttributeKind::string:
            return "string";
        case AttributeKind::dtype:
            return "dtype";
        case AttributeKind::integers:
            return "integers";
        case AttributeKind::shape:
            return "shape";
        case AttributeKind::array:
            return "array";
        case AttributeKind::function:
            return "function";
    }
    return "none";
}

const char* body_name(const OpDef& def) {
    if (std::holds_alternative<ElementBody>(def.body)) return "element";
    if (std::holds_alternative<ScatterBody>(def.body)) return "scatter";
    if (std::holds_alternative<ReduceBody>(def.body)) return "reduce";
    if (std::holds_alternative<CumulativeBody>(def.body)) return "cumulative";
    if (std::holds_alternative<SortBody>(def.body)) return "sort";
    if (std::holds_alternative<CompositeBody>(def.body)) return "composite";
    if (std::holds_alternative<ControlBody>(def.body)) return "control";
    return "builtin";
}

std::string gradient_statement(const OpDef& def) {
    if (const auto* none = std::get_if<NotDifferentiable>(&def.gradient)) {
        return "not differentiable, because " + none->reason;
    }
    return std::holds_alternative<FromExpansion>(def.gradient) ? "differentiable through its expansion"
                                                               : "differentiable by its own rule";
}

py::dict op_to_python(const OpDef& def) {
    py::list args;
    for (const ArgDef& arg : def.args) {
        py::dict entry;
        entry["name"] = arg.name;
        entry["doc"] = arg.doc;
        entry["variadic"] = arg.variadic;
        entry["optional"] = arg.optional;
        args.append(entry);
    }
    py::list attributes;
    for (const AttrDef& attr : def.attributes) {
        py::dict entry;
        entry["name"] = attr.name;
        entry["kind"] = kind_name(attr.kind);
        entry["doc"] = attr.doc;
        entry["required"] = attr.required;
        entry["default"] = attribute_to_python(attr.fallback);
        entry["choices"] = attr.choices;
        attributes.append(entry);
    }
    py::dict op;
    op["name"] = def.name;
    op["family"] = def.family;
    op["doc"] = def.doc;
    op["args"] = args;
    op["attributes"] = attributes;
    op["results"] = def.results;
    op["many_results"] = def.many_results;
    op["body"] = body_name(def);
    op["differentiable"] = !std::holds_alternative<NotDifferentiable>(def.gradient);
    op["gradient"] = gradient_statement(def);
    op["internal"] = def.internal;
    op["commutative"] = def.commutative;
    op["view"] = def.view;
    op["mpsgraph"] = def.mpsgraph;
    op["onnx"] = def.onnx;
    return op;
}

}  // namespace

py::list registry_to_python() {
    py::list ops;
    for (const OpDef& def : all_ops()) ops.append(op_to_python(def));
    return ops;
}

}  // namespace topstitch::bindings
