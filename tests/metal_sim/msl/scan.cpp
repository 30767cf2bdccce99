// See scan.h.
// Kernels are the functions marked so, and the explicit instantiations of kernel templates.
#include "msl/scan.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "grid/abi.h"

namespace metal_sim::msl {

namespace {

std::string quoted(std::string_view text) {
    return "'" + std::string(text) + "'";
}

unsigned slot_index(const Source& source, const Attribute& attribute) {
    unsigned index = 0;
    const std::string& text = attribute.argument;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), index);
    const int line = source[attribute.token].line;
    if (text.empty() || read.ptr != text.data() + text.size()) {
        throw CompileError(line, "attribute " + quoted(attribute.name) + " needs a number as its argument");
    }
    if (index >= msl_buffer_slots) {
        throw CompileError(line,
                           "attribute " + quoted(attribute.name) + " has index " + text + ", but only 0 to 30 exist");
    }
    return index;
}

// The kind and index that the attributes of the parameter in [begin, end) say; none when it has no attribute.
std::vector<Parameter> parameter_attributes(const Source& source, std::size_t begin, std::size_t end) {
    std::vector<Parameter> found;
    for (std::size_t i = begin; i < end; ++i) {
        if (!source.attribute_begins(i)) continue;
        for (const Attribute& attribute : attributes_at(source, i)) {
            const auto kind = std::find(parameter_kinds.begin(), parameter_kinds.end(), attribute.name);
            if (kind == parameter_kinds.end()) {
                throw CompileError(source[i].line, "attribute " + quoted(attribute.name) +
                                                       " is not one that a kernel parameter can have here");
            }
            Parameter parameter;
            parameter.kind = static_cast<unsigned>(kind - parameter_kinds.begin());
            if (parameter.kind <= msl_threadgroup) parameter.index = slot_index(source, attribute);
            found.push_back(parameter);
        }
    }
    return found;
}

std::vector<Parameter> kernel_parameters(const Source& source, const Declaration& declaration) {
    std::vector<Parameter> parameters;
    std::set<std::pair<unsigned, unsigned>> seen;
    const std::size_t open = declaration.parameters;
    const std::string name(source[declaration.name].text);
    for (const auto& [begin, end] : source.split(open + 1, source[open].match)) {
        const auto found = parameter_attributes(source, begin, end);
        if (found.empty()) {
            throw CompileError(source[begin].line, "kernel " + quoted(name) + ": parameter " +
                                                       quoted(source.join(begin, end)) +
                                                       " has no attribute that says what it is");
        }
        if (found.size() > 1) {
            throw CompileError(source[begin].line,
                               "kernel " + quoted(name) + ": a parameter has more than one attribute");
        }
        if (!seen.emplace(found[0].kind, found[0].index).second) {
            const std::string kind(parameter_kinds[found[0].kind]);
            throw CompileError(
                source[begin].line,
                "kernel " + quoted(name) + ": " + kind +
                    (found[0].kind <= msl_threadgroup ? "(" + std::to_string(found[0].index) + ")" : std::string()) +
                    " is used twice");
        }
        parameters.push_back(found[0]);
    }
    return parameters;
}

bool is_template(const Source& source, const Declaration& declaration) {
    return source.is(declaration.begin, "template") && source.is(declaration.begin + 1, "<");
}

bool is_instantiation(const Source& source, const Declaration& declaration) {
    return source.is(declaration.begin, "template") && !source.is(declaration.begin + 1, "<");
}

class Scanner {
public:
    explicit Scanner(const Source& source) : source_(source) {}

    Scan run() {
        for (const Declaration& declaration : source_.declarations()) {
            if (declaration.kind == DeclarationKind::function && is_kernel(source_, declaration))
                add_kernel(declaration);
            if (declaration.kind == DeclarationKind::other) add_constant(declaration);
            if (declaration.body != 0) add_variables(declaration);
        }
        for (FunctionConstant& constant : result_.constants) constant.required = !asked_whether_defined(constant.name);
        return std::move(result_);
    }

private:
    void add_kernel(const Declaration& declaration) {
        const std::string function = declaration.scope + std::string(source_[declaration.name].text);
        Kernel kernel;
        kernel.name = kernel.expression = function;
        const bool named = read_kernel_attributes(declaration, kernel);
        if (is_instantiation(source_, declaration)) {
            const auto definition = templates_.find(function);
            if (definition == templates_.end()) {
                throw CompileError(source_[declaration.begin].line,
                                   "explicit instantiation of " + quoted(function) +
                                       ", of which there is no kernel template before it");
            }
            if (!named) {
                throw CompileError(source_[declaration.begin].line,
                                   "the instantiation of kernel template " + quoted(function) +
                                       " needs a [[host_name(\"...\")]] to be found by");
            }
            kernel.definition = definition->second;
            kernel.expression = function + source_.join(declaration.name + 1, declaration.parameters);
            kernel.parameters = kernel_parameters(source_, *definition->second);
            result_.kernels.push_back(kernel);
            return;
        }
        if (declaration.body == 0) return;  // a declaration only
        result_.kernel_definitions.push_back(&declaration);
        if (is_template(source_, declaration)) {
            templates_[function] = &declaration;
            kernel_parameters(source_, declaration);  // wrong ones are an error even without an instance
            return;
        }
        kernel.definition = &declaration;
        kernel.parameters = kernel_parameters(source_, declaration);
        result_.kernels.push_back(kernel);
    }

    // Whether there is a host_name.
    bool read_kernel_attributes(const Declaration& declaration, Kernel& kernel) const {
        bool named = false;
        for (std::size_t i = declaration.begin; i < declaration.name; ++i) {
            if (!source_.attribute_begins(i)) continue;
            for (const Attribute& attribute : attributes_at(source_, i)) {
                if (attribute.name == "host_name") {
                    kernel.name = attribute.argument.substr(1, attribute.argument.size() - 2);
                    named = true;
                }
                if (attribute.name == "max_total_threads_per_threadgroup") kernel.max_threads = attribute.argument;
            }
        }
        return named;
    }

    // constant T name [[function_constant(n)]];
    void add_constant(const Declaration& declaration) {
        for (std::size_t i = declaration.begin; i < declaration.end; ++i) {
            if (!source_.attribute_begins(i) || !source_.is(i + 2, "function_constant")) continue;
            const int line = source_[i].line;
            if (!source_.is(declaration.begin, "constant") || i < declaration.begin + 3 ||
                !source_.is(source_.attribute_end(i), ";")) {
                throw CompileError(line,
                                   "a function constant is declared as: constant T name [[function_constant(n)]];");
            }
            FunctionConstant constant;
            constant.name = source_[i - 1].text;
            constant.type = source_.join(declaration.begin + 1, i - 1);
            const Attribute attribute = attributes_at(source_, i).front();
            const auto read = std::from_chars(attribute.argument.data(),
                                              attribute.argument.data() + attribute.argument.size(), constant.index);
            if (attribute.argument.empty() || read.ec != std::errc() || constant.index > 65535) {
                throw CompileError(line, "function_constant needs a number from 0 to 65535");
            }
            for (const FunctionConstant& other : result_.constants) {
                if (other.index == constant.index) {
                    throw CompileError(line, "function_constant(" + attribute.argument + ") is used twice");
                }
            }
            constant.attribute = i;
            constant.after = source_.attribute_end(i);
            result_.constants.push_back(constant);
        }
    }

    bool asked_whether_defined(const std::string& name) const {
        for (std::size_t i = 0; i < source_.size(); ++i) {
            if (source_.is(i, "is_function_constant_defined") && source_.is(i + 2, name)) return true;
        }
        return false;
    }

    void add_variables(const Declaration& function) {
        for (std::size_t i = function.body; i < function.end; ++i) {
            const bool statement = source_.is(i - 1, ";") || source_.is(i - 1, "{") || source_.is(i - 1, "}");
            if (!source_.is(i, "threadgroup") || !statement) continue;
            std::size_t end = i;
            bool pointer = false, assigned = false;
            for (; !source_.is(end, ";") && end < function.end; ++end) {
                if (source_.is(end, "(") && !assigned) {  // threadgroup T (&name)[n]
                    pointer = pointer || source_.is(end + 1, "*") || source_.is(end + 1, "&");
                }
                if (source_.is(end, "[") || source_.is(end, "(") || source_.is(end, "{")) end = source_[end].match;
                assigned = assigned || source_.is(end, "=");
                pointer = pointer || (!assigned && (source_.is(end, "*") || source_.is(end, "&")));
            }
            if (!pointer) add_variable(function, i, end, assigned);
            i = end;
        }
    }

    void add_variable(const Declaration& function, std::size_t begin, std::size_t end, bool assigned) {
        const int line = source_[begin].line;
        if (!is_kernel(source_, function)) {
            throw CompileError(line, "a threadgroup variable must be declared in a kernel function");
        }
        if (assigned) throw CompileError(line, "a threadgroup variable cannot have an initializer");
        VariableDeclaration variable{begin, end + 1, &function, {}};
        std::string base;
        for (const auto& [first, last] : source_.split(begin + 1, end)) {
            std::size_t bounds = first;
            while (bounds < last && !source_.is(bounds, "[")) ++bounds;
            if (base.empty()) base = source_.join(first, bounds - 1);
            const std::string name(source_[bounds - 1].text);
            variable.declarators.push_back({next_id_++, name, base + " " + source_.join(bounds, last)});
        }
        result_.variables.push_back(variable);
    }

    const Source& source_;
    Scan result_;
    std::map<std::string, const Declaration*> templates_;
    unsigned next_id_ = 0;
};

}  // namespace

std::vector<Attribute> attributes_at(const Source& source, std::size_t i) {
    std::vector<Attribute> attributes;
    for (const auto& [begin, end] : source.split(i + 2, source[i + 1].match)) {
        Attribute attribute{source[begin].text, "", begin};
        if (source.is(begin + 1, "(")) attribute.argument = source.join(begin + 2, source[begin + 1].match);
        attributes.push_back(attribute);
    }
    return attributes;
}

bool is_kernel(const Source& source, const Declaration& declaration) {
    for (std::size_t i = declaration.begin; i < declaration.name; ++i) {
        if (source.is(i, "kernel")) return true;
        if (source.is(i, "(")) i = source[i].match;
    }
    return false;
}

Scan scan(const Source& source) {
    return Scanner(source).run();
}

}  // namespace metal_sim::msl
