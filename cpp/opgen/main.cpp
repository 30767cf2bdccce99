// opgen FILE...: writes each file, whose kind follows from its name (ops.h, ops.cpp, _ops.pyi).
// See opgen.h.
#include <fstream>
#include <iostream>
#include <sstream>

#include "opgen/opgen.h"

namespace topstitch::opgen {

std::vector<Parameter> parameters_of(const OpDef& def) {
    std::vector<Parameter> parameters;
    for (const ArgDef& arg : def.args) {
        if (!arg.optional) parameters.push_back({&arg, nullptr});
    }
    for (const AttrDef& attr : def.attributes) {
        if (attr.required) parameters.push_back({nullptr, &attr});
    }
    for (const ArgDef& arg : def.args) {
        if (arg.optional) parameters.push_back({&arg, nullptr});
    }
    for (const AttrDef& attr : def.attributes) {
        if (!attr.required) parameters.push_back({nullptr, &attr});
    }
    return parameters;
}

std::vector<const OpDef*> public_ops() {
    std::vector<const OpDef*> ops;
    for (const OpDef& def : all_ops()) {
        if (!std::holds_alternative<BuiltinBody>(def.body) && !def.internal) ops.push_back(&def);
    }
    return ops;
}

std::string wrapped(const std::string& text, const std::string& prefix, std::size_t width) {
    std::istringstream words(text);
    std::string word, line, result;
    while (words >> word) {
        if (!line.empty() && prefix.size() + line.size() + 1 + word.size() > width) {
            result += prefix + line + "\n";
            line.clear();
        }
        line += (line.empty() ? "" : " ") + word;
    }
    if (!line.empty()) result += prefix + line + "\n";
    return result;
}

}  // namespace topstitch::opgen

int main(int count, char** arguments) {
    using namespace topstitch::opgen;
    for (int k = 1; k < count; ++k) {
        const std::string path = arguments[k];
        std::ofstream out(path);
        if (path.ends_with("ops.h")) {
            write_cpp_header(out);
        } else if (path.ends_with("ops.cpp")) {
            write_cpp_source(out);
        } else if (path.ends_with("_ops.pyi")) {
            write_python_stub(out);
        } else {
            std::cerr << "opgen: nothing is known to write into " << path << "\n";
            return 2;
        }
        if (!out.flush()) {
            std::cerr << "opgen: cannot write " << path << "\n";
            return 1;
        }
    }
    return 0;
}
