// Helper functions in which the threads of a group put together what each of them has.
// Lanes exchange their numbers, simdgroups through the group's memory.
#include "codegen/helpers.h"
#include "loopir/scalar_op.h"
#include "topstitch/error.h"

namespace topstitch::codegen {

using loopir::Combiner;

namespace {

// Products of parts that may be as large, or their inverses: so that those with a thread's own stay in range.
constexpr float most_joined = 0x1p90F;

}  // namespace

std::string Helpers::join(const HelperKey& key) {
    const bool arg = loopir::is_arg_reduction(key.combiner);
    const bool two = arg || key.paired;
    const bool several = simdgroups_ > 1;
    const std::string type = dialect_.type(key.type);
    const std::string second_type = key.paired ? type : dialect_.type(DType::int64);
    const std::string second = key.paired ? "low" : "position";
    const std::string unsigned_type = dialect_.type(DType::uint32);

    std::string parameters =
        two ? concat(dialect_.reference(type), " value, ", dialect_.reference(second_type), " ", second)
            : concat(type, " value");
    if (several) {
        parameters += concat(", ", dialect_.group_pointer(type), " shared");
        if (two) parameters += concat(", ", dialect_.group_pointer(second_type), " shared_", second);
        parameters += concat(", ", unsigned_type, " lane, ", unsigned_type, " simdgroup");
    }
    // One step: what `other` and `other_second` stand for is combined into value and second.
    const auto step = [&](const std::string& margin, const std::string& other, const std::string& other_second) {
        if (key.paired) {
            return concat(margin, "low += ", other_second, ";\n", margin, use({Helper::add_to_pair}), "(value, low, ",
                          other, ");\n");
        }
        if (arg) {
            return concat(margin, use({Helper::improve, key.type, key.combiner}), "(value, position, ", other, ", ",
                          other_second, ");\n");
        }
        return concat(margin, "value = ", combined(key.combiner, key.type, "value", other), ";\n");
    };

    std::string text = signature(two ? "void" : type, key, parameters);
    text +=
        concat("    for (ushort distance = ", dialect_.limits().simd_width / 2, "; distance > 0; distance /= 2) {\n");
    text += concat("        const ", type, " other = ", dialect_.exchanged(key.type, "value", "distance"), ";\n");
    if (two) {
        text += concat("        const ", second_type, " other_", second, " = ",
                       dialect_.exchanged(key.paired ? key.type : DType::int64, second, "distance"), ";\n");
    }
    text += step("        ", "other", "other_" + second) + "    }\n";
    if (several) {
        text += concat("    ", dialect_.barrier(false), "\n    if (lane == 0) {\n        shared[simdgroup] = value;\n");
        if (two) text += concat("        shared_", second, "[simdgroup] = ", second, ";\n");
        text += concat("    }\n    ", dialect_.barrier(false), "\n    value = shared[0];\n");
        if (two) text += concat("    ", second, " = shared_", second, "[0];\n");
        text += concat("    for (", unsigned_type, " part = 1; part < ", simdgroups_, "; ++part) {\n");
        text += step("        ", "shared[part]", concat("shared_", second, "[part]")) + "    }\n";
    }
    if (!two) text += "    return value;\n";
    return text + "}\n";
}

// `value`, the part of each thread, becomes what its iterations go on from: `carry`, what there was before, with the
// parts of all threads before it. `carry` becomes that with the parts of all.
std::string Helpers::prefix(const HelperKey& key) {
    const bool arg = loopir::is_arg_reduction(key.combiner);
    const bool checked = key.combiner == Combiner::product && is_floating(key.type);
    const bool several = simdgroups_ > 1;
    const std::string type = dialect_.type(key.type);
    const std::string position = dialect_.type(DType::int64);
    const std::string unsigned_type = dialect_.type(DType::uint32);
    const int last = dialect_.limits().simd_width - 1;

    std::string parameters = concat(dialect_.reference(type), " carry, ", dialect_.reference(type), " value");
    if (arg) {
        parameters = concat(dialect_.reference(type), " carry, ", dialect_.reference(position), " carry_position, ",
                            dialect_.reference(type), " value, ", dialect_.reference(position), " position");
    }
    if (checked) parameters += concat(", ", dialect_.reference(dialect_.type(DType::boolean)), " safe");
    if (several) {
        parameters += concat(", ", dialect_.group_pointer(type), " shared");
        if (arg) parameters += concat(", ", dialect_.group_pointer(position), " shared_position");
    }
    parameters += concat(", ", unsigned_type, " lane");
    if (several) parameters += concat(", ", unsigned_type, " simdgroup");

    // `into`, which comes first, is joined with `other`.
    const auto joined = [&](const std::string& into, const std::string& into_position, const std::string& other,
                            const std::string& other_position) {
        if (!arg) return concat(into, " = ", combined(key.combiner, key.type, into, other), ";\n");
        return concat(use({Helper::improve, key.type, key.combiner}), "(", into, ", ", into_position, ", ", other, ", ",
                      other_position, ");\n");
    };
    const auto of_lane = [&](const std::string& margin, const std::string& name, const std::string& lane) {
        const std::string text =
            concat(margin, type, " ", name, " = ", dialect_.value_of_lane(key.type, "value", lane), ";\n");
        if (!arg) return text;
        return concat(text, margin, position, " ", name,
                      "_position = ", dialect_.value_of_lane(DType::int64, "position", lane), ";\n");
    };

    const auto check = [&](const std::string& margin, const std::string& name) {
        if (!checked) return std::string();
        return concat(margin, "safe = safe && ", use({Helper::is_moderate, key.type}), "(", name, ", ",
                      dialect_.real(most_joined), ");\n");
    };

    std::string text = signature("void", key, parameters);
    text += concat("    for (", unsigned_type, " distance = 1; distance < ", last + 1, "; distance *= 2) {\n");
    text += of_lane("        ", "joined", "lane >= distance ? lane - distance : lane");
    text += "        if (lane >= distance) {\n            ";
    text += joined("joined", "joined_position", "value", "position");
    text += concat("            value = joined;\n", arg ? "            position = joined_position;\n" : "",
                   check("            ", "value"), "        }\n    }\n");
    text += of_lane("    const ", "lower", "lane > 0 ? lane - 1 : lane");
    if (several) {
        text += concat("    ", dialect_.barrier(false), "\n    if (lane == ", last,
                       ") {\n        shared[simdgroup] = value;\n");
        if (arg) text += "        shared_position[simdgroup] = position;\n";
        text += concat("    }\n    ", dialect_.barrier(false), "\n");
    } else {
        text += of_lane("    const ", "all", std::to_string(last));
    }
    text += concat("    value = carry;\n", arg ? "    position = carry_position;\n" : "");
    if (several) {
        text += concat("    for (", unsigned_type, " part = 0; part < ", simdgroups_, "; ++part) {\n        ");
        text += joined("carry", "carry_position", "shared[part]", "shared_position[part]") + check("        ", "carry");
        text += concat("        if (part + 1 == simdgroup) ", arg ? "{\n            " : "", "value = carry;\n");
        if (arg) text += "            position = carry_position;\n        }\n";
        text += "    }\n";
    } else {
        text += "    " + joined("carry", "carry_position", "all", "all_position") + check("    ", "carry");
    }
    text +=
        concat("    if (lane > 0) ", joined("value", "position", "lower", "lower_position"), check("    ", "value"));
    return text + "}\n";
}

}  // namespace topstitch::codegen
