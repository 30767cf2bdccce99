// The structural hash: operations in creation order with their inputs, attributes and control dependencies.
// Names and locations do not count. A variable counts by its type: its initial value is state, not structure.
#include "graph/hash.h"

#include <algorithm>
#include <bit>

#include "graph/function.h"
#include "graph/op_def.h"

namespace topstitch {

void add_ref(Hash128& hash, TensorRef ref) {
    hash.add((static_cast<std::uint64_t>(static_cast<std::uint32_t>(ref.op)) << 32) |
             static_cast<std::uint32_t>(ref.output));
}

namespace {

void add_refs(Hash128& hash, const std::vector<TensorRef>& refs) {
    hash.add(static_cast<std::uint64_t>(refs.size()));
    for (const TensorRef ref : refs) add_ref(hash, ref);
}

}  // namespace

void add_attribute(Hash128& hash, const Attribute& value) {
    hash.add(static_cast<std::uint64_t>(value.index()));
    switch (kind_of(value)) {
        case AttributeKind::none:
            return;
        case AttributeKind::boolean:
            hash.add(static_cast<std::uint64_t>(std::get<bool>(value)));
            return;
        case AttributeKind::integer:
            hash.add(static_cast<std::uint64_t>(std::get<std::int64_t>(value)));
            return;
        case AttributeKind::real:
            hash.add(std::bit_cast<std::uint64_t>(std::get<double>(value)));
            return;
        case AttributeKind::string:
            hash.add(std::string_view(std::get<std::string>(value)));
            return;
        case AttributeKind::dtype:
            hash.add(static_cast<std::uint64_t>(std::get<DType>(value)));
            return;
        case AttributeKind::integers: {
            const auto& integers = std::get<std::vector<std::int64_t>>(value);
            hash.add(static_cast<std::uint64_t>(integers.size()));
            for (const std::int64_t integer : integers) hash.add(static_cast<std::uint64_t>(integer));
            return;
        }
        case AttributeKind::shape:
            hash.add(std::string_view(std::get<Shape>(value).str()));
            return;
        case AttributeKind::array: {
            const NDArray array = std::get<NDArray>(value).contiguous();
            hash.add(static_cast<std::uint64_t>(array.dtype()));
            hash.add(std::string_view(sizes_str(array.shape())));
            hash.add_bytes(array.data(), array.bytes());
            return;
        }
        case AttributeKind::function: {
            const Function& function = *std::get<FunctionPtr>(value);
            hash.add(static_cast<std::uint64_t>(function.graph->size()));
            for (std::size_t id = 0; id < function.graph->size(); ++id)
                add_operation(hash, function.graph->find(static_cast<OpId>(id)));
            add_refs(hash, function.parameters);
            add_refs(hash, function.results);
            return;
        }
    }
}

void add_operation(Hash128& hash, const OpNode& node) {
    hash.add(std::string_view(node.def->name));
    add_refs(hash, node.inputs);
    // The first attribute of a variable is its value, of which only the type counts.
    const bool is_variable = node.variable != nullptr;
    if (is_variable) hash.add(std::string_view(node.outputs.front().str()));
    for (std::size_t k = is_variable ? 1 : 0; k < node.attributes.size(); ++k) add_attribute(hash, node.attributes[k]);
    std::vector<OpId> control = node.control;
    std::sort(control.begin(), control.end());
    hash.add(static_cast<std::uint64_t>(control.size()));
    for (const OpId id : control) hash.add(static_cast<std::uint64_t>(id));
}

std::string Graph::structural_hash() const {
    Hash128 hash;
    const std::size_t count = data_->size();
    for (std::size_t id = 0; id < count; ++id) add_operation(hash, data_->find(static_cast<OpId>(id)));
    return hash.hex();
}

}  // namespace topstitch
