// All operations: the explicit list of families, and the search by name.
// Adding a family means adding one line here.
#include <string>
#include <unordered_map>

#include "ops/families.h"

namespace topstitch {

namespace {

std::vector<OpDef> collect() {
    std::vector<OpDef> all;
    const auto add = [&all](std::vector<OpDef> family) {
        for (OpDef& def : family) all.push_back(std::move(def));
    };
    add(ops::builtin_ops());
    add(ops::absent_ops());
    add(ops::control_ops());
    add(ops::recurrent_ops());
    add(ops::unary_ops());
    add(ops::unary_math_ops());
    add(ops::binary_ops());
    add(ops::binary_math_ops());
    add(ops::binary_logic_ops());
    add(ops::ternary_ops());
    add(ops::conversion_ops());
    add(ops::conversion_bits_ops());
    add(ops::activation_ops());
    add(ops::loss_ops());
    add(ops::optimizer_ops());
    add(ops::reduction_ops());
    add(ops::composite_reduction_ops());
    add(ops::cumulative_ops());
    add(ops::sort_ops());
    add(ops::movement_ops());
    add(ops::memory_ops());
    add(ops::like_ops());
    add(ops::slicing_ops());
    add(ops::joining_ops());
    add(ops::splitting_ops());
    add(ops::padding_ops());
    add(ops::indexing_ops());
    add(ops::gather_ops());
    add(ops::scatter_ops());
    add(ops::contraction_ops());
    add(ops::attention_ops());
    add(ops::convolution_ops());
    add(ops::window_contraction_ops());
    add(ops::window_ops());
    add(ops::window_tap_ops());
    add(ops::pooling_ops());
    add(ops::random_ops());
    add(ops::dropout_ops());
    add(ops::normalization_ops());
    return all;
}

std::unordered_map<std::string_view, const OpDef*> index_by_name() {
    std::unordered_map<std::string_view, const OpDef*> index;
    for (const OpDef& def : all_ops()) {
        if (!index.emplace(def.name, &def).second) {
            throw InternalError(concat("[", def.name, "] is declared twice in the registry"));
        }
    }
    return index;
}

}  // namespace

const std::vector<OpDef>& all_ops() {
    static const std::vector<OpDef> all = collect();
    return all;
}

const OpDef* find_op(std::string_view name) {
    static const std::unordered_map<std::string_view, const OpDef*> index = index_by_name();
    const auto found = index.find(name);
    return found == index.end() ? nullptr : found->second;
}

}  // namespace topstitch
