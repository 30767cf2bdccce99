// See rewrite.h. Four things are rewritten: attributes vanish, vectors are made by a function, threadgroup variables
// become references into memory of the simulation, function constants get their values.
#include "msl/rewrite.h"

#include <algorithm>
#include <sstream>
#include <vector>

#include "msl/lint.h"

namespace metal_sim::msl {

namespace {

struct Edit {
    std::size_t begin, end;  // in the text
    std::string replacement;
};

class Rewriter {
public:
    Rewriter(const Source& source, const Scan& scan, const ConstantBytes* values)
        : source_(source), scan_(scan), values_(values) {}

    std::string run() {
        blank_attributes();
        make_vectors();
        place_threadgroup_variables();
        give_constants();
        return apply() + table();
    }

private:
    void replace(std::size_t first_token, std::size_t last_token, const std::string& text) {
        edits_.push_back({source_[first_token].begin, source_[last_token].end, text});
    }
    void insert(std::size_t at, const std::string& text) { edits_.push_back({at, at, text}); }

    void blank_attributes() {
        for (std::size_t i = 0; i < source_.size(); ++i) {
            if (!source_.attribute_begins(i) || source_.is(i + 2, "function_constant")) continue;
            for (std::size_t j = i; j < source_.attribute_end(i); ++j) {  // by token: a line feed between them stays
                replace(j, j, std::string(source_[j].text.size(), ' '));
            }
        }
    }

    // float4(a, b) and vec<T, 4>(a, b) become metal::__make<float4>(a, b).
    void make_vectors() {
        for (std::size_t i = 0; i < source_.size(); ++i) {
            std::size_t after = i + 1;
            if (source_.is(i, "vec") && source_.is(i + 1, "<")) {
                after = source_.skip_angles(i + 1);
            } else if (!is_vector_type(source_[i].text)) {
                continue;
            }
            if (!source_.is(after, "(")) continue;
            insert(source_[i].begin, "metal::__make<");
            insert(source_[after - 1].end, ">");
        }
    }

    void place_threadgroup_variables() {
        for (const VariableDeclaration& variable : scan_.variables) {
            std::string text;
            for (const auto& declarator : variable.declarators) {
                text += "auto &" + declarator.name + " = __msl::threadgroup_variable<" + declarator.type + ", " +
                        std::to_string(declarator.id) + ">();";
            }
            const std::string_view old = std::string_view(source_.text())
                                             .substr(source_[variable.begin].begin,
                                                     source_[variable.end - 1].end - source_[variable.begin].begin);
            text.append(static_cast<std::size_t>(std::count(old.begin(), old.end(), '\n')), '\n');
            replace(variable.begin, variable.end - 1, text);
        }
    }

    void give_constants() {
        for (const FunctionConstant& constant : scan_.constants) {
            const bool defined = values_ && values_->count(constant.index) > 0;
            if (values_ && !defined && constant.required) {
                throw CompileError(source_[constant.attribute].line, "function constant '" + constant.name +
                                                                         "' (index " + std::to_string(constant.index) +
                                                                         ") has no value");
            }
            const std::string bytes = defined ? values_->at(constant.index) : "0";
            replace(constant.attribute, constant.after - 1,
                    "= __msl::function_constant<" + constant.type + ">({" + bytes + "})");
            for (std::size_t i = 0; i + 3 < source_.size(); ++i) {
                if (source_.is(i, "is_function_constant_defined") && source_.is(i + 2, constant.name)) {
                    replace(i, i + 3, defined ? "true" : "false");
                }
            }
        }
    }

    std::string apply() {
        std::stable_sort(edits_.begin(), edits_.end(), [](const Edit& a, const Edit& b) { return a.begin < b.begin; });
        std::string result;
        std::size_t position = 0;
        for (const Edit& edit : edits_) {
            if (edit.begin < position) continue;  // inside of what was replaced
            result.append(source_.text(), position, edit.begin - position).append(edit.replacement);
            position = edit.end;
        }
        return result.append(source_.text(), position, std::string::npos);
    }

    std::string variables_of(const Kernel& kernel) const {
        std::string ids;
        for (const VariableDeclaration& variable : scan_.variables) {
            if (variable.function != kernel.definition) continue;
            for (const auto& declarator : variable.declarators) ids += std::to_string(declarator.id) + ", ";
        }
        return ids;
    }

    std::string table() const {
        std::ostringstream out, rows;
        out << "\nnamespace __msl_table {\n";
        for (std::size_t k = 0; k < scan_.kernels.size(); ++k) {
            const Kernel& kernel = scan_.kernels[k];
            const std::string name = "kernel_" + std::to_string(k);
            // What is wrong with a parameter shows here, so these lines pass for that of the kernel.
            const std::string line =
                "#line " + std::to_string(source_[kernel.definition->begin].line) + " \"program_source\"\n";
            out << line << "using " << name << " = __msl::Call<decltype(" << kernel.expression << ")";
            for (const Parameter& parameter : kernel.parameters) {
                out << ", __msl::Slot<" << parameter.kind << ", " << parameter.index << ">";
            }
            const std::string ids = variables_of(kernel);
            out << ">;\nconst unsigned " << name << "_variables[] = {" << ids << "0};\n";
            rows << line << "{\"" << kernel.name << "\", &__msl_table::" << name << "::entry<" << kernel.expression
                 << ">, __msl_table::" << name << "::parameters, " << kernel.parameters.size() << ", "
                 << kernel.max_threads << ", __msl_table::" << name << "_variables, "
                 << std::count(ids.begin(), ids.end(), ',') << "},\n";
        }
        out << "}\nextern \"C\" __attribute__((visibility(\"default\"))) const msl_kernel msl_kernels[] = {\n"
            << rows.str() << "{}};\n";
        out << "extern \"C\" __attribute__((visibility(\"default\"))) const msl_constant msl_constants[] = {\n";
        for (const FunctionConstant& constant : scan_.constants) {
            out << "{\"" << constant.name << "\", \"" << constant.type << "\", " << constant.index << ", "
                << constant.required << "},\n";
        }
        out << "{}};\n";
        return out.str();
    }

    const Source& source_;
    const Scan& scan_;
    const ConstantBytes* values_;
    std::vector<Edit> edits_;
};

}  // namespace

std::string rewrite(const Source& source, const Scan& scan, const ConstantBytes* values) {
    return Rewriter(source, scan, values).run();
}

}  // namespace metal_sim::msl
