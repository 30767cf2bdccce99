// Writes attention and its gradients so that the scores exist only in tiles (FlashAttention-2, Dao 2023, arXiv
// 2307.08691): tokens of one side stay, in lanes, and those of the other stream past them in blocks.
#include <cmath>
#include <limits>

#include "ops/attention_shapes.h"
#include "stitch/kernel_writer.h"

namespace topstitch::stitch {

namespace {

using loopir::Combiner;
using loopir::no_value;
using loopir::ScalarOp;
using loopir::ValueId;
using loopir::VarId;
using namespace attention_input;

constexpr int in_logsumexp = 3, in_delta = 4, in_gradient = 5;  // of the gradients' operations
constexpr int forward_mask = 3, gradient_mask = 6;
constexpr std::int64_t feature_padding = 16;  // keeps tokens out of each other's lines of the cache
constexpr int maxima_together = 4;            // hide the latency of a comparison
constexpr double infinity = std::numeric_limits<double>::infinity();

// All products have one of two forms. Scores: for each streaming token and each token in lanes, the sum over features.
// Gathered: for each feature and each token in lanes, the sum over streaming tokens of a feature times a weight.
class AttentionWriter : public KernelWriter {
public:
    AttentionWriter(const Program& program, const Partition& partition, const Region& region, const Schedule& schedule,
                    const std::map<OpId, TensorRef>& in_place, LoweredRegion& result)
        : KernelWriter(program, partition, region, schedule, in_place, result),
          tiling_(*schedule.attention),
          op_(region.members.begin()->first),
          node_(graph_, graph_.op(op_)),
          shapes_(attention_shapes(node_.view)),
          type_(compute_type(node_.view.input(0).dtype)) {
        library_ = access(op_).library;
        if (shapes_.group.is_unknown()) {
            node_.view.fail(concat("the query has another number of heads, ", shapes_.heads.str(),
                                   ", than a multiple of the key's, ", shapes_.kv_heads.str(),
                                   "; the axes are [batch..., heads, tokens, features]"));
        }
        const bool keys_stay = library_ == Library::attention_key_value_gradient;
        own_count_ = keys_stay ? shapes_.kv_tokens : shapes_.tokens;
        streaming_count_ = keys_stay ? shapes_.tokens : shapes_.kv_tokens;
    }

    Dim work() const {
        return shapes_.batch.num_elements() * shapes_.heads * shapes_.tokens * shapes_.kv_tokens *
               (shapes_.features + shapes_.value_features + 1);
    }

    LoweredKernel write_forward(const std::string& name) {
        mask_ = forward_mask;
        begin_tile(shapes_.heads);
        const Index kv_head = floor_div(head_, shapes_.group);
        const Staying queries = pack_staying("query", query, head_, shapes_.features, scale());
        Gathered outputs = begin_gathered("outputs", shapes_.value_features, tiling_.value_feature_rows);
        const int largest = row_buffer("largest", -infinity);
        const int total = row_buffer("total", 0);
        const int decay = local_buffer("decay", type_, panel_columns());
        const int weights = weight_buffer("weights");
        const Streaming keys = begin_streaming("key", shapes_.features, tiling_.feature_rows);
        const Streaming values = begin_streaming("value", shapes_.value_features, tiling_.value_feature_rows);

        begin_block();
        fill_streaming(keys, key, kv_head);
        fill_streaming(values, value, kv_head);
        meet_panel();
        write_scores(weights, keys, queries);
        soften(weights, largest, total, decay);
        gather(outputs, values, weights, decay);
        close(2);

        begin_own_panel();
        each_lane([&](const Index& lane) {
            const ValueId sum = b_.load(total, row_at(lane));
            store_row(1, b_.add(b_.load(largest, row_at(lane)), b_.op(ScalarOp::log, sum)), own_token(lane));
            // All weights are 0 where nothing is attended to, and so are the outputs.
            b_.store(total, row_at(lane), b_.select(b_.op(ScalarOp::eq, sum, number(0)), number(1), sum));
        });
        store_gathered(outputs, 0,
                       [&](const Index& lane, ValueId sum) { return b_.div(sum, b_.load(total, row_at(lane))); });
        close(2);
        return finish(name);
    }

    LoweredKernel write_query_gradient(const std::string& name) {
        mask_ = gradient_mask;
        begin_tile(shapes_.heads);
        const Index kv_head = floor_div(head_, shapes_.group);
        const Staying queries = pack_staying("query", query, head_, shapes_.features, scale());
        const Staying gradients = pack_staying("gradient", in_gradient, head_, shapes_.value_features, no_value);
        Gathered sums = begin_gathered("query_gradient", shapes_.features, tiling_.feature_rows);
        const int weights = weight_buffer("weights");
        const int by_weights = weight_buffer("by_weights");
        const Streaming keys = begin_streaming("key", shapes_.features, tiling_.feature_rows);
        const Streaming values = begin_streaming("value", shapes_.value_features, 1);

        begin_block();
        fill_streaming(keys, key, kv_head);
        fill_streaming(values, value, kv_head);
        meet_panel();
        write_scores(weights, keys, queries);
        write_scores(by_weights, values, gradients);
        each_lane([&](const Index& lane) {
            const ValueId guard = inside_own(own_token(lane));
            const ValueId logsumexp = bounded_logsumexp(own_token(lane), guard);
            const ValueId delta = row_operand(in_delta, own_token(lane), guard);
            each_streaming([&](const Index& t) {
                const ValueId weight = weight_of(b_.load(weights, weight_at(t, lane)), logsumexp, t, lane);
                const ValueId by_weight = b_.load(by_weights, weight_at(t, lane));
                b_.store(weights, weight_at(t, lane), b_.mul(weight, b_.sub(by_weight, delta)));
            });
        });
        gather(sums, keys, weights, no_value);
        close(2);

        begin_own_panel();
        store_gathered(sums, 0, [&](const Index&, ValueId sum) { return b_.mul(sum, scale()); });
        close(2);
        return finish(name);
    }

    LoweredKernel write_key_value_gradient(const std::string& name) {
        mask_ = gradient_mask;
        begin_tile(shapes_.kv_heads);
        const Index kv_head = head_;
        const Staying keys = pack_staying("key", key, kv_head, shapes_.features, scale());
        const Staying values = pack_staying("value", value, kv_head, shapes_.value_features, no_value);
        Gathered by_key = begin_gathered("key_gradient", shapes_.features, tiling_.feature_rows);
        Gathered by_value = begin_gathered("value_gradient", shapes_.value_features, tiling_.value_feature_rows);
        const int weights = weight_buffer("weights");
        const int by_scores = weight_buffer("by_scores");
        const Streaming queries = begin_streaming("query", shapes_.features, tiling_.feature_rows);
        const Streaming gradients = begin_streaming("gradient", shapes_.value_features, tiling_.value_feature_rows);

        head_ = kv_head * shapes_.group + begin_loop("member", {"member", shapes_.group});
        begin_block();
        fill_streaming(queries, query, head_);
        fill_streaming(gradients, in_gradient, head_);
        meet_panel();
        write_scores(weights, queries, keys);
        write_scores(by_scores, gradients, values);
        each_lane([&](const Index& lane) {
            each_streaming([&](const Index& t) {
                const Index token = first_streaming_ + t;
                const ValueId logsumexp = bounded_logsumexp(token, no_value);
                const ValueId weight = weight_of(b_.load(weights, weight_at(t, lane)), logsumexp, t, lane);
                const ValueId by_weight = b_.load(by_scores, weight_at(t, lane));
                b_.store(weights, weight_at(t, lane), weight);
                b_.store(by_scores, weight_at(t, lane),
                         b_.mul(weight, b_.sub(by_weight, row_operand(in_delta, token, no_value))));
            });
        });
        gather(by_value, gradients, weights, no_value);
        gather(by_key, queries, by_scores, no_value);
        close(3);

        head_ = kv_head;
        begin_own_panel();
        store_gathered(by_key, 0, [&](const Index&, ValueId sum) { return b_.mul(sum, scale()); });
        store_gathered(by_value, 1, [](const Index&, ValueId sum) { return sum; });
        close(2);
        return finish(name);
    }

private:
    // Tokens in lanes: [panel, feature, token of the panel].
    struct Staying {
        PackedPanels layout;
        int buffer = -1;
        Dim features;
    };
    // A block of the others: [token, feature], with room for a last panel of features.
    struct Streaming {
        PackedPanels layout;
        int buffer = -1;
        Dim features;
    };
    // Sums over the streaming tokens: [panel, feature, token of the panel].
    struct Gathered {
        PackedPanels layout;
        int buffer = -1;
        Dim features;
        int rows = 1;  // of a panel
    };

    Index region_var(VarId) const override { return 0; }

    // --- Numbers.

    ValueId number(double value) { return b_.constant(value, type_); }

    ValueId scale() {
        if (node_.view.has("scale")) return number(node_.view.real("scale"));
        const Dim& features = shapes_.features;
        if (features.is_known()) return number(1 / std::sqrt(static_cast<double>(features.value())));
        return b_.div(number(1), b_.op(ScalarOp::sqrt, b_.cast(b_.index_value(Index(features)), type_)));
    }

    ValueId less(const Index& a, const Index& b) { return b_.op(ScalarOp::lt, b_.index_value(a), b_.index_value(b)); }
    Index smaller(const Index& a, const Index& b) {
        return Index::value(b_.op(ScalarOp::min, b_.index_value(a), b_.index_value(b)));
    }

    // --- Operands.

    ValueId operand_at(int input, const Indices& at, ValueId guard) {
        return in_context(op_, -1, guard,
                          [&](ElementContext& context, const OpDef&) { return context.operand(input, at); })
            .re;
    }

    ValueId token_operand(int input, const Index& head, const Index& token, const Index& feature, ValueId guard) {
        const Shape& shape = node_.view.in_shape(input);
        Indices at = broadcast_index(dims_before_heads(shape), shapes_.batch, batch_);
        if (shape.rank() > 2) at.push_back(head);
        at.push_back(token);
        at.push_back(feature);
        return operand_at(input, at, guard);
    }

    Indices row_index(const Index& head, const Index& token) const {
        Indices at = batch_;
        if (shapes_.has_heads) at.push_back(head);
        at.push_back(token);
        return at;
    }
    ValueId row_operand(int input, const Index& token, ValueId guard) {
        return operand_at(input, row_index(head_, token), guard);
    }

    // --- Tiles of the tokens that stay.

    Dim panel_columns() const { return tiling_.panel_columns(); }

    void begin_tile(const Dim& heads) {
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
    void begin_own_panel() {
        forget_values();
        panel_ = begin_loop("panel", {"panel", Dim(tiling_.tile_panels)},
                            floor_div(Index(own_count_) - first_own_ + (panel_columns() - 1), panel_columns()));
    }
    // The same inside a block.
    void meet_panel() {
        begin_own_panel();
        streaming_limit_ = streaming_limit();
    }
    Index own_token(const Index& lane) const { return first_own_ + panel_ * panel_columns() + lane; }
    ValueId inside_own(const Index& token) {
        const bool whole = own_count_.is_known() && own_count_.value() % tiling_.panel_columns() == 0;
        return whole ? no_value : less(token, own_count_);
    }
    Index row_at(const Index& lane) const { return panel_ * panel_columns() + lane; }

    template <typename Body>
    void each_lane(Body body) {
        const LoopSpec lanes{"lane", panel_columns(), false, true, tiling_.panel_vectors};
        body(begin_loop("lane", lanes));
        close(1);
    }

    Staying pack_staying(const std::string& name, int input, const Index& head, const Dim& features, ValueId factor) {
        Staying staying{{tiling_.panel_columns(), features, true}, -1, features};
        staying.buffer = local_buffer(name, type_, Dim(tiling_.tile()) * features);
        begin_own_panel();
        pack_panel(staying.layout, staying.buffer, panel_, features, std::nullopt,
                   [&](const Index& lane, const Index& feature) {
                       forget_values();
                       const Index token = own_token(lane);
                       const ValueId value = token_operand(input, head, token, feature, inside_own(token));
                       return factor == no_value ? value : b_.mul(value, factor);
                   });
        close(1);
        return staying;
    }

    // One number for each token of the tile.
    int row_buffer(const std::string& name, double first) {
        const int buffer = local_buffer(name, type_, tiling_.tile());
        begin_own_panel();
        each_lane([&](const Index& lane) { b_.store(buffer, row_at(lane), number(first)); });
        close(1);
        return buffer;
    }

    Gathered begin_gathered(const std::string& name, const Dim& features, int rows) {
        const Dim padded = ceil_div(features, rows) * Dim(rows);
        Gathered sums{{tiling_.panel_columns(), padded, true}, -1, features, rows};
        sums.buffer = local_buffer(name, type_, Dim(tiling_.tile()) * padded);
        begin_own_panel();
        pack_panel(sums.layout, sums.buffer, panel_, padded, std::nullopt,
                   [&](const Index&, const Index&) { return number(0); });
        close(1);
        return sums;
    }

    // --- Blocks of the tokens that stream past.

    // Causal: keys past the last query of the tile are not met, nor queries before its first key.
    void begin_block() {
        forget_values();
        const Dim blocks = ceil_div(streaming_count_, tiling_.block);
        std::optional<Index> limit;
        Index first = 0;
        if (causal() && keys_stay()) {
            first = floor_div(first_own_, tiling_.block);
            limit = Index(blocks) - first;
        } else if (causal()) {
            limit = floor_div(first_own_ + Dim(tiling_.tile() - 1), tiling_.block) + 1;
        }
        const Index block = begin_loop("block", {"block", blocks}, limit);
        first_streaming_ = (first + block) * Dim(tiling_.block);
    }

    bool causal() const { return node_.view.flag("causal"); }
    bool keys_stay() const { return library_ == Library::attention_key_value_gradient; }

    // So many tokens are left for the block; none: enough for all of it.
    std::optional<Index> streaming_rest() const {
        if (streaming_count_.is_known() && streaming_count_.value() % tiling_.block == 0) return std::nullopt;
        return Index(streaming_count_) - first_streaming_;
    }

    // So many of its tokens matter to the panel.
    std::optional<Index> streaming_limit() {
        const std::optional<Index> rest = streaming_rest();
        if (!causal() || keys_stay()) return rest;
        const Index seen = own_token(0) + panel_columns() - first_streaming_;
        return rest ? smaller(*rest, seen) : seen;
    }

    template <typename Body>
    void each_streaming(Body body, int together = 1) {
        forget_values();
        body(begin_loop("t", {"t", Dim(tiling_.block), false, false, together}, streaming_limit_));
        close(1);
    }

    // Zeros, since panels at the edge reach past the last token and the last feature: what they make of that, or of the
    // tokens of an earlier block, nobody looks at.
    Streaming begin_streaming(const std::string& name, const Dim& features, int rows) {
        const Dim depth = ceil_div(features, rows) * Dim(rows) + feature_padding;
        Streaming block{{tiling_.panel_rows, depth, false}, -1, features};
        const Dim size = Dim(tiling_.block) * depth;
        block.buffer = local_buffer(name, type_, size);
        b_.store(block.buffer, begin_loop("at", {"at", size, false, true, 4}), number(0));
        close(1);
        return block;
    }

    void fill_streaming(const Streaming& block, int input, const Index& head) {
        forget_values();
        const Index t = begin_loop("t", {"t", Dim(tiling_.block)}, streaming_rest());
        const Index feature = begin_loop("feature", {"feature", block.features, false, true, 2});
        b_.store(block.buffer, block.layout.offset(0, t, feature),
                 token_operand(input, head, first_streaming_ + t, feature, no_value));
        close(2);
    }

    // --- Scores and weights: [streaming token, lane], of one panel.

    int weight_buffer(const std::string& name) {
        return local_buffer(name, type_, Dim(tiling_.block) * panel_columns());
    }
    Index weight_at(const Index& t, const Index& lane) const { return t * panel_columns() + lane; }

    void write_scores(int target, const Streaming& rows, const Staying& columns) {
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

    // A score with what the mask and causality make of it.
    ValueId masked(ValueId score, const Index& t, const Index& lane) {
        const Index own = own_token(lane);
        const Index streaming = first_streaming_ + t;
        const Index& at_query = keys_stay() ? streaming : own;
        const Index& at_key = keys_stay() ? own : streaming;
        if (has_mask()) {
            const TensorType& mask = node_.view.input(mask_);
            Indices at = row_index(head_, at_query);
            at.push_back(at_key);
            const ValueId value = operand_at(mask_, broadcast_index(mask.shape, shapes_.scores(), at), inside_own(own));
            score = mask.dtype == DType::boolean ? b_.select(value, score, number(-infinity)) : b_.add(score, value);
        }
        if (!causal()) return score;
        // Compared as numbers of the type of the scores, which fill a vector; close to each other they are exact.
        const ValueId from_block = b_.cast(b_.index_value(own - first_streaming_), type_);
        const ValueId in_block = b_.cast(b_.index_value(t), type_);
        const ValueId hidden =
            keys_stay() ? b_.op(ScalarOp::lt, in_block, from_block) : b_.op(ScalarOp::lt, from_block, in_block);
        return b_.select(hidden, number(-infinity), score);
    }
    bool has_mask() const { return node_.view.num_inputs() > mask_; }

    // Scores of the panel become weights relative to the largest score so far, and what went before decays.
    void soften(int weights, int largest, int total, int decay) {
        each_lane([&](const Index& lane) {
            const int most = b_.add_accumulator(Combiner::max, type_);
            b_.init_acc(most);
            const auto compare = [&](const Index& t) {
                ValueId score = b_.load(weights, weight_at(t, lane));
                if (has_mask() || causal()) {
                    score = masked(score, t, lane);
                    b_.store(weights, weight_at(t, lane), score);
                }
                b_.accumulate(most, score);
            };
            each_streaming(compare, has_mask() ? 1 : maxima_together);
            const ValueId before = b_.load(largest, row_at(lane));
            const ValueId now = b_.op(ScalarOp::max, before, b_.acc_read(most));
            // Where all is masked the difference of infinities would be NaN.
            const ValueId shift = b_.select(b_.op(ScalarOp::eq, now, number(-infinity)), number(0), now);
            const int sum = b_.add_accumulator(Combiner::sum, type_);
            b_.init_acc(sum);
            each_streaming([&](const Index& t) {
                const ValueId weight = b_.op(ScalarOp::exp, b_.sub(b_.load(weights, weight_at(t, lane)), shift));
                b_.store(weights, weight_at(t, lane), weight);
                b_.accumulate(sum, weight);
            });
            const ValueId faded = b_.op(ScalarOp::exp, b_.sub(before, shift));
            b_.store(largest, row_at(lane), now);
            b_.store(total, row_at(lane), b_.add(b_.mul(b_.load(total, row_at(lane)), faded), b_.acc_read(sum)));
            b_.store(decay, lane, faded);
        });
    }

    // +inf for rows that attend to nothing, so that their weights are 0.
    ValueId bounded_logsumexp(const Index& token, ValueId guard) {
        const ValueId value = row_operand(in_logsumexp, token, guard);
        return b_.select(b_.op(ScalarOp::eq, value, number(-infinity)), number(infinity), value);
    }
    ValueId weight_of(ValueId score, ValueId logsumexp, const Index& t, const Index& lane) {
        return b_.op(ScalarOp::exp, b_.sub(masked(score, t, lane), logsumexp));
    }

    // --- Sums over the streaming tokens.

    // Adds those of a block; `decay`, a buffer by lane, multiplies what was there.
    void gather(const Gathered& sums, const Streaming& rows, int weights, int decay) {
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

    void store_row(int output, ValueId value, const Index& token) {
        const TensorRef ref{op_, output};
        const Index at = row_major_offset(graph_.type(ref).shape, row_index(head_, token));
        b_.store(buffer(ref, true), at, value, inside_own(token));
    }

    template <typename Finish>
    void store_gathered(const Gathered& sums, int output, Finish finished) {
        const TensorRef ref{op_, output};
        const Index lane = begin_loop("lane", {"lane", panel_columns()}, Index(own_count_) - own_token(0));
        const Index feature = begin_loop("feature", {"feature", sums.features, false, true, 2});
        Indices at = row_index(head_, own_token(lane));
        at.push_back(feature);
        const ValueId value = finished(lane, b_.load(sums.buffer, sums.layout.offset(panel_, lane, feature)));
        b_.store(buffer(ref, true), row_major_offset(graph_.type(ref).shape, at), value);
        close(2);
    }

    const AttentionTiling& tiling_;
    OpId op_;
    NodeView node_;
    AttentionShapes shapes_;
    DType type_;
    Library library_ = Library::none;
    Dim own_count_, streaming_count_;
    int mask_ = 0;  // the input that is one, if there are so many
    Indices batch_;
    Index head_;  // of the query, or (while keys stay) of the key
    Index first_own_, panel_, first_streaming_;
    std::optional<Index> streaming_limit_;
};

}  // namespace

void lower_attention(const Program& program, const Partition& partition, const Region& region, const Schedule& schedule,
                     const std::map<OpId, TensorRef>& in_place, const std::string& name, LoweredRegion& result) {
    AttentionWriter writer(program, partition, region, schedule, in_place, result);
    result.work = writer.work();
    switch (partition.accesses[static_cast<std::size_t>(region.members.begin()->first)].library) {
        case Library::attention:
            result.kernels.push_back(writer.write_forward(name));
            return;
        case Library::attention_query_gradient:
            result.kernels.push_back(writer.write_query_gradient(name));
            return;
        case Library::attention_key_value_gradient:
            result.kernels.push_back(writer.write_key_value_gradient(name));
            return;
        case Library::none:
            break;
    }
    throw InternalError("lower: a region that is no attention");
}

}  // namespace topstitch::stitch
