// Merges operations that are equal: same OpDef, same inputs, same attributes.
// Inputs of commutative operations are put in order first, so that a + b and b + a are one.
#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "passes/passes.h"

namespace topstitch {

namespace {

std::size_t mix(std::size_t seed, std::size_t value) {
    return seed ^ (value + 0x9e3779b97f4a7c15ULL + (seed << 6) + (seed >> 2));
}

// Constants are told apart by their first bytes; attributes otherwise by comparison only.
std::size_t hash_of(const OpNode& node) {
    std::size_t hash = std::hash<const void*>()(node.def);
    for (TensorRef input : node.inputs) hash = mix(hash, std::hash<TensorRef>()(input));
    for (const Attribute& attribute : node.attributes) {
        const auto* array = std::get_if<NDArray>(&attribute);
        if (array == nullptr) continue;
        std::uint64_t head = 0;
        if (array->is_contiguous())
            std::memcpy(&head, array->data(), std::min<std::size_t>(array->bytes(), sizeof head));
        hash = mix(hash, head);
    }
    return hash;
}

bool same(const OpNode& a, const OpNode& b) {
    return a.def == b.def && a.inputs == b.inputs && a.outputs.size() == b.outputs.size() &&
           std::equal(a.outputs.begin(), a.outputs.end(), b.outputs.begin(),
                      [](const TensorType& x, const TensorType& y) { return x.dtype == y.dtype; }) &&
           std::equal(a.attributes.begin(), a.attributes.end(), b.attributes.begin(), b.attributes.end(), equal);
}

}  // namespace

Program cse(const Program& program) {
    Rebuild rebuild(program);
    std::unordered_multimap<std::size_t, OpId> seen;
    for (std::size_t index = 0; index < program.graph->ops.size(); ++index) {
        const auto id = static_cast<OpId>(index);
        const OpNode& node = program.graph->ops[index];
        if (node.def->name == "placeholder" || node.def->name == "variable") {
            rebuild.copy(id);
            continue;
        }
        OpNode probe = rebuild.mapped_node(id);
        if (node.def->commutative) std::sort(probe.inputs.begin(), probe.inputs.end());
        const std::size_t hash = hash_of(probe);
        OpId found = -1;
        for (auto [at, end] = seen.equal_range(hash); at != end; ++at) {
            if (same(rebuild.graph()->op(at->second), probe)) {
                found = at->second;
                break;
            }
        }
        if (found < 0) {
            seen.emplace(hash, rebuild.add(id, std::move(probe)));
            continue;
        }
        std::vector<TensorRef> outputs;
        for (std::size_t k = 0; k < probe.outputs.size(); ++k) outputs.push_back({found, static_cast<std::int32_t>(k)});
        rebuild.map(id, std::move(outputs));
    }
    return std::move(rebuild).finish();
}

}  // namespace topstitch
