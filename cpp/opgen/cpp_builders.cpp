// The typed C++ builders: topstitch/ops.h and the source behind it.
// See opgen.h.
#include <algorithm>
#include <sstream>

#include "opgen/opgen.h"

namespace topstitch::opgen {

namespace {

std::string type_of(const AttrDef& attr) {
    switch (attr.kind) {
        case AttributeKind::none:
            return "Attribute";
        case AttributeKind::boolean:
            return "bool";
        case AttributeKind::integer:
            return "std::int64_t";
        case AttributeKind::real:
            return "double";
        case AttributeKind::string:
            return "std::string";
        case AttributeKind::dtype:
            return "DType";
        case AttributeKind::integers:
            return attr.choices.empty() ? "std::vector<std::int64_t>" : "IntegersOrName";
        case AttributeKind::shape:
            return "Shape";
        case AttributeKind::array:
            return "NDArray";
        case AttributeKind::function:
            break;  // of internal operations only
    }
    return "";
}

bool may_be_none(const AttrDef& attr) {
    return !attr.required && kind_of(attr.fallback) == AttributeKind::none;
}

bool by_reference(const AttrDef& attr) {
    return attr.kind == AttributeKind::string || attr.kind == AttributeKind::integers ||
           attr.kind == AttributeKind::shape || attr.kind == AttributeKind::array || may_be_none(attr);
}

std::string fallback_of(const AttrDef& attr) {
    if (may_be_none(attr)) return "std::nullopt";
    std::ostringstream text;
    text.precision(17);
    switch (kind_of(attr.fallback)) {
        case AttributeKind::boolean:
            text << (std::get<bool>(attr.fallback) ? "true" : "false");
            break;
        case AttributeKind::integer:
            text << std::get<std::int64_t>(attr.fallback);
            break;
        case AttributeKind::real:
            text << std::get<double>(attr.fallback);
            break;
        case AttributeKind::string:
            text << '"' << std::get<std::string>(attr.fallback) << '"';
            break;
        case AttributeKind::dtype: {
            const std::string_view name = name_of(std::get<DType>(attr.fallback));
            text << "DType::" << (name == "bool" ? "boolean" : name);
            break;
        }
        case AttributeKind::integers: {
            text << "{";
            const auto& values = std::get<std::vector<std::int64_t>>(attr.fallback);
            for (std::size_t k = 0; k < values.size(); ++k) text << (k ? ", " : "") << values[k];
            text << "}";
            break;
        }
        case AttributeKind::none:
        case AttributeKind::shape:
        case AttributeKind::array:
        case AttributeKind::function:
            text << "{}";
            break;
    }
    return text.str();
}

std::string signature(const OpDef& def, bool with_fallbacks) {
    std::string text = gives_one(def) ? "Tensor " : "std::vector<Tensor> ";
    text += def.name + "(";
    for (const Parameter& parameter : parameters_of(def)) {
        if (parameter.arg != nullptr) {
            text += concat("const ", parameter.arg->variadic ? "std::vector<Tensor>" : "Tensor", "& ",
                           parameter.arg->name, parameter.arg->optional && with_fallbacks ? " = {}" : "", ", ");
            continue;
        }
        const AttrDef& attr = *parameter.attr;
        const std::string type = may_be_none(attr) ? concat("std::optional<", type_of(attr), ">") : type_of(attr);
        text += concat(by_reference(attr) ? "const " : "", type, by_reference(attr) ? "& " : " ", attr.name);
        if (with_fallbacks && !attr.required) text += " = " + fallback_of(attr);
        text += ", ";
    }
    return text + "const std::string& name" + (with_fallbacks ? " = \"\")" : ")");
}

constexpr const char* operators_header = R"(
// Operators. A number takes the dtype of the tensor beside it.
TOPSTITCH_API Tensor operator+(const Tensor& a, const Tensor& b);
TOPSTITCH_API Tensor operator-(const Tensor& a, const Tensor& b);
TOPSTITCH_API Tensor operator*(const Tensor& a, const Tensor& b);
TOPSTITCH_API Tensor operator/(const Tensor& a, const Tensor& b);
TOPSTITCH_API Tensor operator-(const Tensor& a);
TOPSTITCH_API Tensor operator+(const Tensor& a, double b);
TOPSTITCH_API Tensor operator+(double a, const Tensor& b);
TOPSTITCH_API Tensor operator-(const Tensor& a, double b);
TOPSTITCH_API Tensor operator-(double a, const Tensor& b);
TOPSTITCH_API Tensor operator*(const Tensor& a, double b);
TOPSTITCH_API Tensor operator*(double a, const Tensor& b);
TOPSTITCH_API Tensor operator/(const Tensor& a, double b);
TOPSTITCH_API Tensor operator/(double a, const Tensor& b);
)";

constexpr const char* operators_source = R"(
Tensor operator+(const Tensor& a, const Tensor& b) { return expr::operator+(a, b); }
Tensor operator-(const Tensor& a, const Tensor& b) { return expr::operator-(a, b); }
Tensor operator*(const Tensor& a, const Tensor& b) { return expr::operator*(a, b); }
Tensor operator/(const Tensor& a, const Tensor& b) { return expr::operator/(a, b); }
Tensor operator-(const Tensor& a) { return expr::operator-(a); }
Tensor operator+(const Tensor& a, double b) { return expr::operator+(a, b); }
Tensor operator+(double a, const Tensor& b) { return expr::operator+(a, b); }
Tensor operator-(const Tensor& a, double b) { return expr::operator-(a, b); }
Tensor operator-(double a, const Tensor& b) { return expr::operator-(a, b); }
Tensor operator*(const Tensor& a, double b) { return expr::operator*(a, b); }
Tensor operator*(double a, const Tensor& b) { return expr::operator*(a, b); }
Tensor operator/(const Tensor& a, double b) { return expr::operator/(a, b); }
Tensor operator/(double a, const Tensor& b) { return expr::operator/(a, b); }
)";

void write_definition(std::ostream& out, const OpDef& def) {
    out << "\n" << signature(def, false) << " {\n    std::vector<Tensor> inputs;\n";
    for (const ArgDef& arg : def.args) {
        if (arg.variadic) {
            out << "    inputs.insert(inputs.end(), " << arg.name << ".begin(), " << arg.name << ".end());\n";
        } else {
            out << "    inputs.push_back(" << arg.name << ");\n";
        }
    }
    out << "    NamedAttributes attributes;\n";
    for (const AttrDef& attr : def.attributes) {
        if (may_be_none(attr)) {
            out << "    if (" << attr.name << ") attributes.emplace_back(\"" << attr.name << "\", *" << attr.name
                << ");\n";
        } else {
            out << "    attributes.emplace_back(\"" << attr.name << "\", " << attr.name << ");\n";
        }
    }
    const bool variadic = std::any_of(def.args.begin(), def.args.end(), [](const ArgDef& arg) { return arg.variadic; });
    const auto required = std::count_if(def.args.begin(), def.args.end(), [](const ArgDef& a) { return !a.optional; });
    out << "    const std::size_t required = " << (variadic ? "inputs.size()" : std::to_string(required)) << ";\n"
        << "    std::vector<Tensor> outputs = build(\"" << def.name
        << "\", std::move(inputs), required, attributes, name);\n"
        << "    return " << (gives_one(def) ? "outputs.at(0)" : "outputs") << ";\n}\n";
}

}  // namespace

void write_cpp_header(std::ostream& out) {
    out << "// The builders of all operations. Generated from the registry: change the OpDef instead.\n"
           "// Each checks its arguments, infers the types of the results and adds the operation to the inputs' "
           "graph.\n"
           "#pragma once\n\n#include <cstdint>\n#include <optional>\n#include <string>\n#include <vector>\n\n"
           "#include \"topstitch/graph.h\"\n\nnamespace topstitch {\n"
        << operators_header;
    std::string family;
    for (const OpDef* def : public_ops()) {
        if (def->family != family) {
            family = def->family;
            out << "\n// --- " << family << "\n";
        }
        out << "\n" << wrapped(def->doc, "// ", 118) << "TOPSTITCH_API " << signature(*def, true) << ";\n";
    }
    out << "\n}  // namespace topstitch\n";
}

void write_cpp_source(std::ostream& out) {
    out << "// The builders of all operations. Generated from the registry: change the OpDef instead.\n"
           "// Each collects its arguments for apply().\n"
           "#include \"topstitch/ops.h\"\n\n#include \"ops/expr.h\"\n\nnamespace topstitch {\n\n"
           "// The first `required` inputs must be tensors. Others that are left out are dropped at the end, and "
           "before "
           "others\n"
           "// something stands for them.\n"
           "static std::vector<Tensor> build(const char* op, std::vector<Tensor> inputs, std::size_t required,\n"
           "                                 const NamedAttributes& attributes, const std::string& name) {\n"
           "    while (inputs.size() > required && !inputs.back()) inputs.pop_back();\n"
           "    for (std::size_t k = 0; k < inputs.size(); ++k) {\n"
           "        if (inputs[k]) continue;\n"
           "        if (k < required) throw UserError(concat(\"[\", op, \"] an input is no tensor\"));\n"
           "        inputs[k] = apply(inputs.front().graph_data(), *find_op(\"absent\"), {}).front();\n"
           "    }\n"
           "    if (inputs.empty()) throw UserError(concat(\"[\", op, \"] at least one input is needed\"));\n"
           "    return apply(inputs.front().graph_data(), *find_op(op), inputs, attributes, name);\n}\n"
        << operators_source;
    for (const OpDef* def : public_ops()) write_definition(out, *def);
    out << "\n}  // namespace topstitch\n";
}

}  // namespace topstitch::opgen
