// Loops, operands and products of attention's kernels.
// See attention_writer.h.
#include "stitch/attention_writer.h"

#include <cmath>

namespace topstitch::stitch {

using loopir::no_value;
using loopir::ScalarOp;
using loopir::ValueId;

namespace {

constexpr std::int64_t feature_padding = 16;  // keeps tokens out of each other's lines of the cache

}  // namespace

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
      own_count_(keys_stay_ ? shapes_.kv_tokens : shapes_.tokens),
      streaming_count_(keys_stay_ ? shapes_.tokens : shapes_.kv_tokens) {
    if (shapes_.group.is_unknown()) {
        node_.view.fail(concat("the query has another number of heads, ", shapes_.heads.str(),
                               ", than a multiple of the key's, ", shapes_.kv_heads.str(),
                               "; the axes are [batch..., heads, tokens, features]"));
    }
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

Index AttentionWriter::smaller(const Index& a, const Index& b) {
    return Index::value(b_.op(ScalarOp::min, b_.index_value(a), b_.index_value(b)));
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

// --- Tiles of the tokens that stay.

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

// The number of the tile's panels that hold tokens limits the loop over them.
void AttentionWriter::begin_own_panel() {
    forget_values();
    panel_ = begin_loop("panel", {"panel", Dim(tiling_.tile_panels)},
                        floor_div(Index(own_count_) - first_own_ + (panel_columns() - 1), panel_columns()));
}

void AttentionWriter::meet_panel() {
    begin_own_panel();
    streaming_limit_ = streaming_limit();
}

ValueId AttentionWriter::inside_own(const Index& token) {
    const bool whole = own_count_.is_known() && own_count_.value() % tiling_.panel_columns() == 0;
    return whole ? no_value : less(token, own_count_);
}

AttentionWriter::Staying AttentionWriter::pack_staying(const std::string& name, int input, const Index& head,
                                                       const Dim& features, ValueId factor) {
    Staying staying{{tiling_.panel_columns(), features, true}, -1, features};
    staying.buffer = local_buffer(name, type_, Dim(tiling_.tile()) * features);
    begin_own_panel();
    pack_panel(staying.layout, staying.buffer, panel_, 0, features, std::nullopt,
               [&](const Index& lane, const Index& feature) {
                   forget_values();
                   const Index token = own_token(lane);
                   const ValueId value = token_operand(input, head, token, feature, inside_own(token));
                   return factor == no_value ? value : b_.mul(value, factor);
               });
    close(1);
    return staying;
}

int AttentionWriter::row_buffer(const std::string& name, double first) {
    const int buffer = local_buffer(name, type_, tiling_.tile());
    begin_own_panel();
    each_lane([&](const Index& lane) { b_.store(buffer, row_at(lane), number(first)); });
    close(1);
    return buffer;
}

AttentionWriter::Gathered AttentionWriter::begin_gathered(const std::string& name, const Dim& features, int rows) {
    const Dim padded = ceil_div(features, rows) * Dim(rows);
    Gathered sums{{tiling_.panel_columns(), padded, true}, -1, features, rows};
    sums.buffer = local_buffer(name, type_, Dim(tiling_.tile()) * padded);
    begin_own_panel();
    pack_panel(sums.layout, sums.buffer, panel_, 0, padded, std::nullopt,
               [&](const Index&, const Index&) { return number(0); });
    close(1);
    return sums;
}

// --- Blocks of the tokens that stream past.

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

// So many tokens are left for the block; none: enough for all of it.
std::optional<Index> AttentionWriter::streaming_rest() const {
    if (streaming_count_.is_known() && streaming_count_.value() % tiling_.block == 0) return std::nullopt;
    return Index(streaming_count_) - first_streaming_;
}

// So many of its tokens matter to the panel.
std::optional<Index> AttentionWriter::streaming_limit() {
    const std::optional<Index> rest = streaming_rest();
    if (!causal() || keys_stay_) return rest;
    const Index seen = own_token(0) + panel_columns() - first_streaming_;
    return rest ? smaller(*rest, seen) : seen;
}

// Zeros, since panels at the edge reach past the last token and the last feature: what they make of that, or of the
// tokens of an earlier block, nobody looks at.
AttentionWriter::Streaming AttentionWriter::begin_streaming(const std::string& name, const Dim& features, int rows) {
    const Dim depth = ceil_div(features, rows) * Dim(rows) + feature_padding;
    Streaming block{{tiling_.panel_rows, depth, false}, -1, features};
    const Dim size = Dim(tiling_.block) * depth;
    block.buffer = local_buffer(name, type_, size);
    b_.store(block.buffer, begin_loop("at", {"at", size, false, true, 4}), number(0));
    close(1);
    return block;
}

void AttentionWriter::fill_streaming(const Streaming& block, int input, const Index& head) {
    forget_values();
    const Index t = begin_loop("t", {"t", Dim(tiling_.block)}, streaming_rest());
    const Index feature = begin_loop("feature", {"feature", block.features, false, true, 2});
    b_.store(block.buffer, block.layout.offset(0, t, feature),
             token_operand(input, head, first_streaming_ + t, feature, no_value));
    close(2);
}

// --- Scores and weights.

int AttentionWriter::weight_buffer(const std::string& name) {
    return local_buffer(name, type_, Dim(tiling_.block) * panel_columns());
}

void AttentionWriter::write_scores(int target, const Streaming& rows, const Staying& columns) {
    std::optional<Index> limit;
    if (streaming_limit_) limit = floor_div(*streaming_limit_ + Dim(tiling_.panel_rows - 1), tiling_.panel_rows);
    const Index panel = begin_loop("panel", {"panel", Dim(tiling_.block / tiling_.panel_rows)}, limit);
    const auto [i, j] =
        begin_panel(tiling_.panel_rows, tiling_.panel_columns(), tiling_.panel_rows, tiling_.panel_vectors);
    const ValueId score = sum_of_products(type_, columns.features, std::nullopt, [&](const Index& k) {
        return b_.mul(b_.load(rows.buffer, rows.layout.offset(panel, i, k)),
                      b_.load(columns.buffer, columns.layout.offset(panel_, j, k)));
    });
    b_.store(target, weight_at(panel * Dim(tiling_.panel_rows) + i, j), score);
    close(3);
}

ValueId AttentionWriter::masked(ValueId score, const Index& t, const Index& lane) {
    const Index own = own_token(lane);
    const Index streaming = first_streaming_ + t;
    const Index& at_query = keys_stay_ ? streaming : own;
    const Index& at_key = keys_stay_ ? own : streaming;
    if (has_mask()) {
        const TensorType& mask = node_.view.input(mask_);
        Indices at = row_index(at_query);
        at.push_back(at_key);
        const ValueId value = operand_at(mask_, broadcast_index(mask.shape, shapes_.scores(), at), inside_own(own));
        score = mask.dtype == DType::boolean ? b_.select(value, score, number(-infinity)) : b_.add(score, value);
    }
    if (!causal()) return score;
    // Compared as numbers of the type of the scores, which fill a vector; close to each other they are exact.
    const ValueId from_block = b_.cast(b_.index_value(own - first_streaming_), type_);
    const ValueId in_block = b_.cast(b_.index_value(t), type_);
    const ValueId hidden =
        keys_stay_ ? b_.op(ScalarOp::lt, in_block, from_block) : b_.op(ScalarOp::lt, from_block, in_block);
    return b_.select(hidden, number(-infinity), score);
}

// --- Sums over the streaming tokens.

void AttentionWriter::gather(const Gathered& sums, const Streaming& rows, int weights, int decay) {
    const Index panel = begin_loop("panel", {"panel", ceil_div(sums.features, sums.rows)});
    const auto [i, j] = begin_panel(sums.rows, tiling_.panel_columns(), sums.rows, tiling_.panel_vectors);
    const Index feature = panel * Dim(sums.rows) + i;
    const ValueId added = sum_of_products(type_, tiling_.block, streaming_limit_, [&](const Index& t) {
        return b_.mul(b_.load(rows.buffer, rows.layout.offset(0, t, feature)), b_.load(weights, weight_at(t, j)));
    });
    const Index at = sums.layout.offset(panel_, j, feature);
    ValueId before = b_.load(sums.buffer, at);
    if (decay != no_value) before = b_.mul(before, b_.load(decay, j));
    b_.store(sums.buffer, at, b_.add(before, added));
    close(3);
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
