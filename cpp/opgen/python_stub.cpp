// The stub of the Python functions: topstitch/_ops.pyi.
// The functions themselves are made from the registry when the package is imported (python/topstitch/_ops.py).
#include <algorithm>
#include <sstream>

#include "opgen/opgen.h"

namespace topstitch::opgen {

namespace {

// Python spells a list of axes as NumPy does.
std::string python_name(const AttrDef& attr) {
    return attr.name == "axes" ? "axis" : attr.name;
}

std::string literal(const std::vector<std::string>& choices) {
    std::string text;
    for (const std::string& choice : choices) text += concat(text.empty() ? "" : ", ", '"', choice, '"');
    return "Literal[" + text + "]";
}

std::string python_type(const AttrDef& attr) {
    switch (attr.kind) {
        case AttributeKind::none:
            return "object";
        case AttributeKind::boolean:
            return "bool";
        case AttributeKind::integer:
            return "int";
        case AttributeKind::real:
            return "float";
        case AttributeKind::string:
            return attr.choices.empty() ? "str" : literal(attr.choices);
        case AttributeKind::dtype:
            return "DTypeLike";
        case AttributeKind::integers:
            return "int | Sequence[int]" + (attr.choices.empty() ? "" : " | " + literal(attr.choices));
        case AttributeKind::shape:
            return "ShapeLike";
        case AttributeKind::array:
            return "ArrayLike";
        case AttributeKind::function:
            break;  // of internal operations only
    }
    return "";
}

std::string python_fallback(const AttrDef& attr) {
    std::ostringstream text;
    switch (kind_of(attr.fallback)) {
        case AttributeKind::none:
            return "None";
        case AttributeKind::boolean:
            return std::get<bool>(attr.fallback) ? "True" : "False";
        case AttributeKind::integer:
            text << std::get<std::int64_t>(attr.fallback);
            return text.str();
        case AttributeKind::real: {
            text << std::get<double>(attr.fallback);
            return text.str().find_first_of(".einf") == std::string::npos ? text.str() + ".0" : text.str();
        }
        case AttributeKind::string:
            return concat('"', std::get<std::string>(attr.fallback), '"');
        case AttributeKind::dtype:
        case AttributeKind::integers:
        case AttributeKind::shape:
        case AttributeKind::array:
        case AttributeKind::function:
            return "...";
    }
    return "...";
}

void write_function(std::ostream& out, const OpDef& def) {
    out << "\ndef " << def.name << "(\n";
    for (const Parameter& parameter : parameters_of(def)) {
        if (parameter.arg != nullptr) {
            out << "    " << parameter.arg->name << ": "
                << (parameter.arg->variadic ? "Sequence[TensorLike]" : "TensorLike")
                << (parameter.arg->optional ? " | None = None" : "") << ",\n";
            continue;
        }
        const AttrDef& attr = *parameter.attr;
        const bool none = !attr.required && kind_of(attr.fallback) == AttributeKind::none;
        out << "    " << python_name(attr) << ": " << python_type(attr) << (none ? " | None" : "");
        if (!attr.required) out << " = " << python_fallback(attr);
        out << ",\n";
    }
    const bool no_tensor =
        std::all_of(def.args.begin(), def.args.end(), [](const ArgDef& arg) { return arg.optional; });
    out << "    *,\n"
        << (no_tensor ? "    graph: Graph | None = None,\n" : "") << "    name: str = ...,\n) -> "
        << (gives_one(def) ? "Tensor" : "list[Tensor]") << ":\n";
    std::string doc;
    for (char c : def.doc) doc += c == '\\' ? std::string("\\\\") : std::string(1, c);
    out << "    \"\"\"\n" << wrapped(doc, "    ", 100) << "    \"\"\"\n";
}

}  // namespace

void write_python_stub(std::ostream& out) {
    out << "\"\"\"The functions of all operations.\n\nGenerated from the registry: change the OpDef "
           "instead.\n\"\"\"\n\n"
           "from collections.abc import Sequence\nfrom typing import Literal\n\n"
           "from ._core import Graph, Tensor\nfrom ._types import ArrayLike, DTypeLike, ShapeLike, TensorLike\n\n"
           "__all__ = [\n";
    for (const OpDef* def : public_ops()) out << "    \"" << def->name << "\",\n";
    out << "]\n";
    for (const OpDef* def : public_ops()) write_function(out, *def);
}

}  // namespace topstitch::opgen
