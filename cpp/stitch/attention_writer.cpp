// Operands, the mask, the loops over tiles and blocks, and results of attention's kernels.
// See attention_writer.h.
#include "stitch/attention_writer.h"

#include <cmath>

namespace topstitch::stitch {

using loopir::no_value;
using loopir::ScalarOp;
using loopir::ValueId;

AttentionWriter::AttentionWriter(const Program& program, const Partition& partition, const Region& region,
                                 const Schedule& schedule, const std::map<OpId, TensorRef>& in_place,
                                 LoweredRegion& result)
    : KernelWriter(program, partition, region, schedule, in_place, result),
      tiling_(*schedule.attention),
      op_(region.members.begin()->first),
      node_(graph_, graph_.op(op_)),
      shapes_(attention_shapes(node_.view)),
      type_(compute_type(node_.view.input(0).dtype)),
      keys_stay_(access(op_).library == Library::attention_key_value_gradient),
      mask_(access(op_).library == Library::attention ? attention_input::forward_mask : attention_input::gradient_mask),
      own_count_(keys_stay_ ? shapes_.kv_tokens : shapes_.tokens),
      streaming_count_(keys_stay_ ? shapes_.tokens : shapes_.kv_tokens),
      library_(access(op_).library) {
    if (shapes_.group.is_unknown()) {
        node_.view.fail(concat("the query has another number of heads, ", shapes_.heads.str(),
                               ", than a multiple of the key's, ", shapes_.kv_heads.str(),
                               "; the axes are [batch..., heads, tokens, features]"));
    }
}

LoweredKernel AttentionWriter::write(const std::string& name) {
    switch (library_) {
        case Library::attention:
            return write_forward(name);
        case Library::attention_query_gradient:
            return write_query_gradient(name);
        case Library::attention_key_value_gradient:
            return write_key_value_gradient(name);
        case Library::none:
            break;
    }
    throw InternalError("lower: a region that is no attention");
}

Dim AttentionWriter::work() const {
    return shapes_.batch.num_elements() * shapes_.heads * shapes_.tokens * shapes_.kv_tokens *
           (shapes_.features + shapes_.value_features + 1);
}

// --- Numbers.

ValueId AttentionWriter::scale() {
    if (node_.view.has("scale")) return number(node_.view.real("scale"));
    const Dim& features = shapes_.features;
    if (features.is_known()) return number(1 / std::sqrt(static_cast<double>(features.value())));
    return b_.div(number(1), b_.op(ScalarOp::sqrt, b_.cast(b_.index_value(Index(features)), type_)));
}

ValueId AttentionWriter::less(const Index& a, const Index& b) {
    return b_.op(ScalarOp::lt, b_.index_value(a), b_.index_value(b));
}

ValueId AttentionWriter::shift_of(ValueId largest) {
    return b_.select(b_.op(ScalarOp::eq, largest, number(-infinity)), number(0), largest);
}

// --- Operands.

ValueId AttentionWriter::operand_at(int input, const Indices& at, ValueId guard) {
    return in_context(op_, -1, guard, [&](ElementContext& context, const OpDef&) { return context.operand(input, at); })
        .re;
}

ValueId AttentionWriter::token_operand(int input, const Index& head, const Index& token, const Index& feature,
                                       ValueId guard) {
    const Shape& shape = node_.view.in_shape(input);
    Indices at = broadcast_index(dims_before_heads(shape), shapes_.batch, batch_);
    if (shape.rank() > 2) at.push_back(head);
    at.push_back(token);
    at.push_back(feature);
    return operand_at(input, at, guard);
}

Indices AttentionWriter::row_index(const Index& token) const {
    Indices at = batch_;
    if (shapes_.has_heads) at.push_back(head_);
    at.push_back(token);
    return at;
}

ValueId AttentionWriter::row_operand(int input, const Index& token, ValueId guard) {
    return operand_at(input, row_index(token), guard);
}

ValueId AttentionWriter::bounded_logsumexp(const Index& token, ValueId guard) {
    const ValueId value = row_operand(attention_input::logsumexp, token, guard);
    return b_.select(b_.op(ScalarOp::eq, value, number(-infinity)), number(infinity), value);
}

ValueId AttentionWriter::masked(ValueId score, const Index& own, const Index& streaming, ValueId guard) {
    const TensorType& mask = node_.view.input(mask_);
    Indices at = row_index(keys_stay_ ? streaming : own);
    at.push_back(keys_stay_ ? own : streaming);
    const ValueId value = operand_at(mask_, broadcast_index(mask.shape, shapes_.scores(), at), guard);
    return mask.dtype == DType::boolean ? b_.select(value, score, number(-infinity)) : b_.add(score, value);
}

// --- Tiles and blocks.

void AttentionWriter::begin_tile(const Dim& heads) {
    const Dim tiles = ceil_div(own_count_, tiling_.tile());
    Index left = begin_loop("tile", {"tile", shapes_.batch.num_elements() * heads * tiles, true});
    first_own_ = mod(left, tiles) * Dim(tiling_.tile());
    left = floor_div(left, tiles);
    head_ = mod(left, heads);
    left = floor_div(left, heads);
    batch_.resize(static_cast<std::size_t>(shapes_.batch.rank()));
    for (int axis = shapes_.batch.rank(); axis-- > 0;) {
        batch_[static_cast<std::size_t>(axis)] = mod(left, shapes_.batch[axis]);
        left = floor_div(left, shapes_.batch[axis]);
    }
}

ValueId AttentionWriter::inside_own(const Index& token) {
    const bool whole = own_count_.is_known() && own_count_.value() % tiling_.panel_columns() == 0;
    return whole ? no_value : less(token, own_count_);
}

// Causal: keys past the last query of the tile are not met, nor queries before its first key.
void AttentionWriter::begin_block() {
    forget_values();
    const Dim blocks = ceil_div(streaming_count_, tiling_.block);
    std::optional<Index> limit;
    Index first = 0;
    if (causal() && keys_stay_) {
        first = floor_div(first_own_, tiling_.block);
        limit = Index(blocks) - first;
    } else if (causal()) {
        limit = floor_div(first_own_ + Dim(tiling_.tile() - 1), tiling_.block) + 1;
    }
    const Index block = begin_loop("block", {"block", blocks}, limit);
    first_streaming_ = (first + block) * Dim(tiling_.block);
}

std::optional<Index> AttentionWriter::streaming_rest() const {
    if (streaming_count_.is_known() && streaming_count_.value() % tiling_.block == 0) return std::nullopt;
    return Index(streaming_count_) - first_streaming_;
}

// --- Results.

void AttentionWriter::store_row(int output, ValueId value, const Index& token) {
    store_result(output, row_index(token), value, inside_own(token));
}

void AttentionWriter::store_result(int output, const Indices& at, ValueId value, ValueId guard) {
    const TensorRef ref{op_, output};
    b_.store(buffer(ref, true), row_major_offset(graph_.type(ref).shape, at), value, guard);
}

}  // namespace topstitch::stitch
