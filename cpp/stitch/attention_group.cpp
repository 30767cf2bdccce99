// Writes the three kernels as loops over matrices in the group's memory.
// See attention_group.h.
#include "stitch/attention_group.h"

#include <algorithm>

#include "ops/indexing_rules.h"

namespace topstitch::stitch {

using loopir::Combiner;
using loopir::no_value;
using loopir::ScalarOp;
using loopir::ValueId;
using namespace attention_input;

namespace {

constexpr std::int64_t side = 8;  // of the matrices that the machine multiplies
constexpr std::int64_t gap = 4;   // elements between rows, which then begin in different banks

std::int64_t padded(std::int64_t columns) {
    return (columns + side - 1) / side * side;
}

std::int64_t pitch(std::int64_t columns) {
    return padded(columns) + gap;
}

}  // namespace

std::int64_t attention_group_bytes(Library library, std::int64_t tile, std::int64_t block, std::int64_t features,
                                   std::int64_t value_features) {
    const std::int64_t key = pitch(features), value = pitch(value_features), scores = tile * pitch(block);
    std::int64_t elements = 0;
    switch (library) {
        case Library::attention:
            elements = tile * (key + value + 2) + block * std::max(key, value) + scores;
            break;
        case Library::attention_query_gradient:
            elements = tile * (2 * key + value) + block * std::max(key, value) + 2 * scores;
            break;
        case Library::attention_key_value_gradient:
            elements = 2 * tile * (key + value) + block * (key + value) + 2 * scores;
            break;
        case Library::none:
            break;
    }
    return elements * static_cast<std::int64_t>(sizeof(float));
}

GroupAttention::GroupAttention(const Program& program, const Partition& partition, const Region& region,
                               const Schedule& schedule, const std::map<OpId, TensorRef>& in_place,
                               LoweredRegion& result)
    : AttentionWriter(program, partition, region, schedule, in_place, result),
      tile_(tiling_.tile()),
      features_(shapes_.features.value()),
      value_features_(shapes_.value_features.value()) {}

// --- Matrices.

Index GroupAttention::Matrix::at(const Index& row, const Index& column) const {
    return row * Dim(pitch(columns)) + column;
}

GroupAttention::Matrix GroupAttention::matrix(const std::string& name, std::int64_t rows, std::int64_t columns) {
    return {local_buffer(name, type_, rows * pitch(columns)), rows, columns};
}

int GroupAttention::row_buffer(const std::string& name) {
    return local_buffer(name, type_, tile_);
}

template <typename Body>
void GroupAttention::each_element(const Matrix& matrix, Body body) {
    forget_values();
    const Index row = begin_loop("row", {"row", matrix.rows});
    body(row, begin_loop("column", {"column", padded(matrix.columns), false, true}));
    close(2);
}

template <typename Body>
void GroupAttention::each_row(Body body) {
    forget_values();
    body(begin_loop("row", {"row", tile_, false, true}));
    close(1);
}

template <typename Body>
void GroupAttention::each_streaming(Body body) {
    forget_values();
    body(begin_loop("t", {"t", tiling_.block}));
    close(1);
}

void GroupAttention::clear(const Matrix& sums) {
    each_element(
        sums, [&](const Index& row, const Index& column) { b_.store(sums.buffer, sums.at(row, column), number(0)); });
}

void GroupAttention::fill(const Matrix& target, int input, const Index& head, const Index& first,
                          const std::optional<Index>& left, ValueId factor) {
    each_element(target, [&](const Index& row, const Index& column) {
        ValueId guard = no_value;
        if (left) guard = less(row, *left);
        if (target.columns != padded(target.columns)) {
            const ValueId inside = less(column, target.columns);
            guard = ops::both(b_, guard, inside);
        }
        const ValueId value = token_operand(input, head, first + row, column, guard);
        b_.store(target.buffer, target.at(row, column), factor == no_value ? value : b_.mul(value, factor));
    });
}

void GroupAttention::fill_own(const Matrix& target, int input, const Index& head, ValueId factor) {
    const bool whole = own_count_.is_known() && own_count_.value() % tile_ == 0;
    fill(target, input, head, first_own_, whole ? std::nullopt : std::optional(Index(own_count_) - first_own_), factor);
}

void GroupAttention::fill_streaming(const Matrix& target, int input, const Index& head) {
    fill(target, input, head, first_streaming_, streaming_rest(), no_value);
}

// --- Products.

void GroupAttention::write_scores(const Matrix& scores, const Matrix& own, const Matrix& streaming) {
    forget_values();
    const Index row = begin_loop("row", {"row", tile_});
    const Index t = begin_loop("t", {"t", tiling_.block, false, true});
    const ValueId score = sum_of_products(type_, padded(own.columns), std::nullopt, [&](const Index& k) {
        return b_.mul(b_.load(own.buffer, own.at(row, k)), b_.load(streaming.buffer, streaming.at(t, k)));
    });
    b_.store(scores.buffer, scores.at(row, t), score);
    close(2);
}

void GroupAttention::gather(const Matrix& sums, const Matrix& weights, const Matrix& streaming) {
    forget_values();
    const Index row = begin_loop("row", {"row", tile_});
    const Index feature = begin_loop("feature", {"feature", padded(sums.columns), false, true});
    const ValueId added = sum_of_products(type_, tiling_.block, std::nullopt, [&](const Index& t) {
        return b_.mul(b_.load(weights.buffer, weights.at(row, t)), b_.load(streaming.buffer, streaming.at(t, feature)));
    });
    const Index at = sums.at(row, feature);
    b_.store(sums.buffer, at, b_.add(b_.load(sums.buffer, at), added));
    close(2);
}

// --- Weights.

ValueId GroupAttention::inside_streaming(const Index& t) {
    const std::optional<Index> rest = streaming_rest();
    return rest ? less(t, *rest) : no_value;
}

ValueId GroupAttention::visible(ValueId score, const Index& row, const Index& t) {
    const Index own = own_token(row);
    const Index streaming = first_streaming_ + t;
    ValueId seen = inside_streaming(t);
    if (has_mask()) score = masked(score, own, streaming, ops::both(b_, seen, inside_own(own)));
    if (causal()) seen = ops::both(b_, seen, keys_stay_ ? less(own, streaming + 1) : less(streaming, own + 1));
    return seen == no_value ? score : b_.select(seen, score, number(-infinity));
}

// Scores become weights relative to the largest score so far, and what went before decays.
void GroupAttention::soften(const Matrix& weights, const Matrix& outputs, int largest, int total) {
    each_row([&](const Index& row) {
        const int most = b_.add_accumulator(Combiner::max, type_);
        b_.init_acc(most);
        each_streaming([&](const Index& t) {
            const ValueId score = visible(b_.load(weights.buffer, weights.at(row, t)), row, t);
            b_.store(weights.buffer, weights.at(row, t), score);
            b_.accumulate(most, score);
        });
        const ValueId before = b_.load(largest, row);
        const ValueId now = b_.op(ScalarOp::max, before, b_.acc_read(most));
        const ValueId shift = shift_of(now);
        const int sum = b_.add_accumulator(Combiner::sum, type_);
        b_.init_acc(sum);
        each_streaming([&](const Index& t) {
            const ValueId score = b_.load(weights.buffer, weights.at(row, t));
            const ValueId weight = b_.op(ScalarOp::exp, b_.sub(score, shift));
            b_.store(weights.buffer, weights.at(row, t), weight);
            b_.accumulate(sum, weight);
        });
        const ValueId decay = b_.op(ScalarOp::exp, b_.sub(before, shift));
        const Index at = outputs.at(row, begin_loop("feature", {"feature", outputs.columns}));
        b_.store(outputs.buffer, at, b_.mul(b_.load(outputs.buffer, at), decay));
        close(1);
        const ValueId all = b_.add(b_.mul(b_.load(total, row), decay), b_.acc_read(sum));
        b_.store(largest, row, now);
        b_.store(total, row, all);
    });
}

ValueId GroupAttention::weight_of(const Matrix& weights, const Index& row, const Index& t, ValueId logsumexp) {
    const ValueId score = visible(b_.load(weights.buffer, weights.at(row, t)), row, t);
    return b_.op(ScalarOp::exp, b_.sub(score, logsumexp));
}

template <typename Finish>
void GroupAttention::store_sums(const Matrix& sums, int output, Finish finished) {
    forget_values();
    const Index row = begin_loop("row", {"row", tile_});
    const Index feature = begin_loop("feature", {"feature", sums.columns, false, true});
    Indices at = row_index(own_token(row));
    at.push_back(feature);
    store_result(output, at, finished(row, b_.load(sums.buffer, sums.at(row, feature))), inside_own(own_token(row)));
    close(2);
}

// --- Kernels.

LoweredKernel GroupAttention::write_forward(const std::string& name) {
    begin_tile(shapes_.heads);
    const Index kv_head = floor_div(head_, shapes_.group);
    const Matrix queries = matrix("query", tile_, features_);
    const Matrix outputs = matrix("outputs", tile_, value_features_);
    const Matrix weights = matrix("weights", tile_, tiling_.block);
    const int largest = row_buffer("largest");
    const int total = row_buffer("total");
    block_buffer_ = matrix("block", tiling_.block, std::max(features_, value_features_)).buffer;
    fill_own(queries, query, head_, scale());
    clear(outputs);
    each_row([&](const Index& row) {
        b_.store(largest, row, number(-infinity));
        b_.store(total, row, number(0));
    });

    begin_block();
    fill_streaming(streamed(features_), key, kv_head);
    write_scores(weights, queries, streamed(features_));
    fill_streaming(streamed(value_features_), value, kv_head);
    soften(weights, outputs, largest, total);
    gather(outputs, weights, streamed(value_features_));
    close(1);

    each_row([&](const Index& row) {
        const ValueId sum = b_.load(total, row);
        store_row(1, b_.add(b_.load(largest, row), b_.op(ScalarOp::log, sum)), own_token(row));
        // All weights are 0 where nothing is attended to, and so are the outputs.
        b_.store(total, row, b_.select(b_.op(ScalarOp::eq, sum, number(0)), number(1), sum));
    });
    store_sums(outputs, 0, [&](const Index& row, ValueId sum) { return b_.div(sum, b_.load(total, row)); });
    close(1);
    return finish(name);
}

LoweredKernel GroupAttention::write_query_gradient(const std::string& name) {
    begin_tile(shapes_.heads);
    const Index kv_head = floor_div(head_, shapes_.group);
    const Matrix queries = matrix("query", tile_, features_);
    const Matrix gradients = matrix("gradient", tile_, value_features_);
    const Matrix sums = matrix("query_gradient", tile_, features_);
    const Matrix weights = matrix("weights", tile_, tiling_.block);
    const Matrix by_weights = matrix("by_weights", tile_, tiling_.block);
    block_buffer_ = matrix("block", tiling_.block, std::max(features_, value_features_)).buffer;
    fill_own(queries, query, head_, scale());
    fill_own(gradients, gradient, head_, no_value);
    clear(sums);

    begin_block();
    fill_streaming(streamed(value_features_), value, kv_head);
    write_scores(by_weights, gradients, streamed(value_features_));
    fill_streaming(streamed(features_), key, kv_head);
    write_scores(weights, queries, streamed(features_));
    each_row([&](const Index& row) {
        const ValueId guard = inside_own(own_token(row));
        const ValueId logsumexp = bounded_logsumexp(own_token(row), guard);
        const ValueId mean = row_operand(delta, own_token(row), guard);
        each_streaming([&](const Index& t) {
            const ValueId weight = weight_of(weights, row, t, logsumexp);
            const ValueId by_weight = b_.load(by_weights.buffer, by_weights.at(row, t));
            b_.store(weights.buffer, weights.at(row, t), b_.mul(weight, b_.sub(by_weight, mean)));
        });
    });
    gather(sums, weights, streamed(features_));
    close(1);

    store_sums(sums, 0, [&](const Index&, ValueId sum) { return b_.mul(sum, scale()); });
    close(1);
    return finish(name);
}

LoweredKernel GroupAttention::write_key_value_gradient(const std::string& name) {
    begin_tile(shapes_.kv_heads);
    const Index kv_head = head_;
    const Matrix keys = matrix("key", tile_, features_);
    const Matrix values = matrix("value", tile_, value_features_);
    const Matrix by_key = matrix("key_gradient", tile_, features_);
    const Matrix by_value = matrix("value_gradient", tile_, value_features_);
    const Matrix weights = matrix("weights", tile_, tiling_.block);
    const Matrix by_scores = matrix("by_scores", tile_, tiling_.block);
    const Matrix queries = matrix("query", tiling_.block, features_);
    const Matrix gradients = matrix("gradient", tiling_.block, value_features_);
    fill_own(keys, key, kv_head, scale());
    fill_own(values, value, kv_head, no_value);
    clear(by_key);
    clear(by_value);

    head_ = kv_head * shapes_.group + begin_loop("member", {"member", shapes_.group});
    begin_block();
    fill_streaming(queries, query, head_);
    fill_streaming(gradients, gradient, head_);
    write_scores(weights, keys, queries);
    write_scores(by_scores, values, gradients);
    each_row([&](const Index& row) {
        each_streaming([&](const Index& t) {
            const Index token = first_streaming_ + t;
            const ValueId guard = inside_streaming(t);
            const ValueId weight = weight_of(weights, row, t, bounded_logsumexp(token, guard));
            const ValueId by_weight = b_.load(by_scores.buffer, by_scores.at(row, t));
            b_.store(weights.buffer, weights.at(row, t), weight);
            b_.store(by_scores.buffer, by_scores.at(row, t),
                     b_.mul(weight, b_.sub(by_weight, row_operand(delta, token, guard))));
        });
    });
    gather(by_value, weights, gradients);
    gather(by_key, by_scores, queries);
    close(2);

    head_ = kv_head;
    store_sums(by_key, 0, [&](const Index&, ValueId sum) { return b_.mul(sum, scale()); });
    store_sums(by_value, 1, [](const Index&, ValueId sum) { return sum; });
    close(1);
    return finish(name);
}

}  // namespace topstitch::stitch
