// Loops, operands and products of attention in panels.
// See attention_panels.h.
#include "stitch/attention_panels.h"

namespace topstitch::stitch {

using loopir::no_value;
using loopir::ScalarOp;
using loopir::ValueId;

namespace {

constexpr std::int64_t feature_padding = 16;  // keeps tokens out of each other's lines of the cache

}  // namespace

Index PanelAttention::smaller(const Index& a, const Index& b) {
    return Index::value(b_.op(ScalarOp::min, b_.index_value(a), b_.index_value(b)));
}

// --- Tiles of the tokens that stay.

// The number of the tile's panels that hold tokens limits the loop over them.
void PanelAttention::begin_own_panel() {
    forget_values();
    panel_ = begin_loop("panel", {"panel", Dim(tiling_.tile_panels)},
                        floor_div(Index(own_count_) - first_own_ + (panel_columns() - 1), panel_columns()));
}

void PanelAttention::meet_panel() {
    begin_own_panel();
    streaming_limit_ = streaming_limit();
}

PanelAttention::Staying PanelAttention::pack_staying(const std::string& name, int input, const Index& head,
                                                     const Dim& features, ValueId factor) {
    Staying staying{{tiling_.panel_columns(), features, true}, -1, features, {}};
    if (on_unit()) {
        pack_staying_on_unit(staying, name, input, head, factor);
        return staying;
    }
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

int PanelAttention::row_buffer(const std::string& name, double first) {
    const int buffer = local_buffer(name, type_, tiling_.tile());
    begin_own_panel();
    each_lane([&](const Index& lane) { b_.store(buffer, row_at(lane), number(first)); });
    close(1);
    return buffer;
}

PanelAttention::Gathered PanelAttention::begin_gathered(const std::string& name, const Dim& features, int rows) {
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

// So many of its tokens matter to the panel.
std::optional<Index> PanelAttention::streaming_limit() {
    const std::optional<Index> rest = streaming_rest();
    if (!causal() || keys_stay_) return rest;
    const Index seen = own_token(0) + panel_columns() - first_streaming_;
    return rest ? smaller(*rest, seen) : seen;
}

// Zeros, since panels at the edge reach past the last token and the last feature: what they make of that, or of the
// tokens of an earlier block, nobody looks at.
PanelAttention::Streaming PanelAttention::begin_streaming(const std::string& name, const Dim& features, int rows,
                                                          Meets meets) {
    const Dim depth = ceil_div(features, rows) * Dim(rows) + feature_padding;
    Streaming block{{tiling_.panel_rows, depth, false}, -1, features, {}, {}};
    if (on_unit()) {
        const Dim tokens = tiling_.block;
        if (meets != Meets::gathered)
            block.by_token = matrix_panels(name, true, ceil_div(tokens, tiling_.panel_rows), features);
        if (meets != Meets::scores)
            block.by_feature = matrix_panels(name + "_features", true, ceil_div(features, rows), tokens);
        return block;
    }
    const Dim size = Dim(tiling_.block) * depth;
    block.buffer = local_buffer(name, type_, size);
    b_.store(block.buffer, begin_loop("at", {"at", size, false, true, 4}), number(0));
    close(1);
    return block;
}

void PanelAttention::fill_streaming(const Streaming& block, int input, const Index& head) {
    if (on_unit()) return fill_on_unit(block, input, head);
    forget_values();
    const Index t = begin_loop("t", {"t", Dim(tiling_.block)}, streaming_rest());
    const Index feature = begin_loop("feature", {"feature", block.features, false, true, 2});
    b_.store(block.buffer, block.layout.offset(0, t, feature),
             token_operand(input, head, first_streaming_ + t, feature, no_value));
    close(2);
}

// --- Scores and weights.

int PanelAttention::weight_buffer(const std::string& name) {
    return local_buffer(name, type_, Dim(tiling_.block) * panel_columns());
}

void PanelAttention::write_scores(int target, const Streaming& rows, const Staying& columns) {
    if (on_unit()) return write_scores_on_unit(target, rows, columns);
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

ValueId PanelAttention::visible(ValueId score, const Index& t, const Index& lane) {
    const Index own = own_token(lane);
    if (has_mask()) score = masked(score, own, first_streaming_ + t, inside_own(own));
    if (!causal()) return score;
    // Compared as numbers of the type of the scores, which fill a vector; close to each other they are exact.
    const ValueId from_block = b_.cast(b_.index_value(own - first_streaming_), type_);
    const ValueId in_block = b_.cast(b_.index_value(t), type_);
    const ValueId hidden =
        keys_stay_ ? b_.op(ScalarOp::lt, in_block, from_block) : b_.op(ScalarOp::lt, from_block, in_block);
    return b_.select(hidden, number(-infinity), score);
}

// --- Sums over the streaming tokens.

void PanelAttention::gather(const Gathered& sums, const Streaming& rows, int weights, int decay, bool bounded) {
    if (on_unit()) return gather_on_unit(sums, rows, weights, decay, bounded);
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

}  // namespace topstitch::stitch
