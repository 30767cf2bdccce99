// Writes attention and its gradients so that the scores exist only in tiles (FlashAttention-2, Dao 2023, arXiv
// 2307.08691): tokens of one side stay, in lanes, and those of the other stream past them in blocks.
#include "stitch/attention_group.h"
#include "stitch/attention_panels.h"

namespace topstitch::stitch {

namespace {

using loopir::Combiner;
using loopir::no_value;
using loopir::ScalarOp;
using loopir::ValueId;
using namespace attention_input;

constexpr int maxima_together = 4;  // hide the latency of a comparison

class PanelKernels : public PanelAttention {
public:
    using PanelAttention::PanelAttention;

protected:
    LoweredKernel write_forward(const std::string& name) override {
        begin_tile(shapes_.heads);
        const Index kv_head = floor_div(head_, shapes_.group);
        const Staying queries = pack_staying("query", query, head_, shapes_.features, scale());
        Gathered outputs = begin_gathered("outputs", shapes_.value_features, tiling_.value_feature_rows);
        const int largest = row_buffer("largest", -infinity);
        const int total = row_buffer("total", 0);
        const int decay = local_buffer("decay", type_, panel_columns());
        const int weights = weight_buffer("weights");
        const Streaming keys = begin_streaming("key", shapes_.features, tiling_.feature_rows, Meets::scores);
        const Streaming values =
            begin_streaming("value", shapes_.value_features, tiling_.value_feature_rows, Meets::gathered);

        begin_block();
        fill_streaming(keys, key, kv_head);
        fill_streaming(values, value, kv_head);
        meet_panel();
        write_scores(weights, keys, queries);
        soften(weights, largest, total, decay);
        gather(outputs, values, weights, decay, true);
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

    LoweredKernel write_query_gradient(const std::string& name) override {
        begin_tile(shapes_.heads);
        const Index kv_head = floor_div(head_, shapes_.group);
        const Staying queries = pack_staying("query", query, head_, shapes_.features, scale());
        const Staying gradients = pack_staying("gradient", gradient, head_, shapes_.value_features, no_value);
        Gathered sums = begin_gathered("query_gradient", shapes_.features, tiling_.feature_rows);
        const int weights = weight_buffer("weights");
        const int by_weights = weight_buffer("by_weights");
        const Streaming keys = begin_streaming("key", shapes_.features, tiling_.feature_rows, Meets::both);
        const Streaming values = begin_streaming("value", shapes_.value_features, 1, Meets::scores);

        begin_block();
        fill_streaming(keys, key, kv_head);
        fill_streaming(values, value, kv_head);
        meet_panel();
        write_scores(weights, keys, queries);
        write_scores(by_weights, values, gradients);
        each_lane([&](const Index& lane) {
            const ValueId guard = inside_own(own_token(lane));
            const ValueId logsumexp = bounded_logsumexp(own_token(lane), guard);
            const ValueId mean = row_operand(delta, own_token(lane), guard);
            each_streaming([&](const Index& t) {
                const ValueId weight = weight_of(b_.load(weights, weight_at(t, lane)), logsumexp, t, lane);
                const ValueId by_weight = b_.load(by_weights, weight_at(t, lane));
                b_.store(weights, weight_at(t, lane), b_.mul(weight, b_.sub(by_weight, mean)));
            });
        });
        gather(sums, keys, weights, no_value);
        close(2);

        begin_own_panel();
        store_gathered(sums, 0, [&](const Index&, ValueId sum) { return b_.mul(sum, scale()); });
        close(2);
        return finish(name);
    }

    LoweredKernel write_key_value_gradient(const std::string& name) override {
        begin_tile(shapes_.kv_heads);
        const Index kv_head = head_;
        const Staying keys = pack_staying("key", key, kv_head, shapes_.features, scale());
        const Staying values = pack_staying("value", value, kv_head, shapes_.value_features, no_value);
        Gathered by_key = begin_gathered("key_gradient", shapes_.features, tiling_.feature_rows);
        Gathered by_value = begin_gathered("value_gradient", shapes_.value_features, tiling_.value_feature_rows);
        const int weights = weight_buffer("weights");
        const int by_scores = weight_buffer("by_scores");
        const Streaming queries = begin_streaming("query", shapes_.features, tiling_.feature_rows, Meets::both);
        const Streaming gradients =
            begin_streaming("gradient", shapes_.value_features, tiling_.value_feature_rows, Meets::both);

        head_ = kv_head * shapes_.group + begin_loop("member", {"member", shapes_.group});
        begin_block();
        fill_streaming(queries, query, head_);
        fill_streaming(gradients, gradient, head_);
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
                         b_.mul(weight, b_.sub(by_weight, row_operand(delta, token, no_value))));
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
    // Scores of the panel become weights relative to the largest score so far, and what went before decays.
    void soften(int weights, int largest, int total, int decay) {
        each_lane([&](const Index& lane) {
            const int most = b_.add_accumulator(Combiner::max, type_);
            b_.init_acc(most);
            const auto compare = [&](const Index& t) {
                ValueId score = b_.load(weights, weight_at(t, lane));
                if (has_mask() || causal()) {
                    score = visible(score, t, lane);
                    b_.store(weights, weight_at(t, lane), score);
                }
                b_.accumulate(most, score);
            };
            each_streaming(compare, has_mask() ? 1 : maxima_together);
            const ValueId before = b_.load(largest, row_at(lane));
            const ValueId now = b_.op(ScalarOp::max, before, b_.acc_read(most));
            const ValueId shift = shift_of(now);
            const int sum = b_.add_accumulator(Combiner::sum, type_);
            b_.init_acc(sum);
            each_streaming([&](const Index& t) {
                const ValueId weight = cut(b_.op(ScalarOp::exp, b_.sub(b_.load(weights, weight_at(t, lane)), shift)));
                b_.store(weights, weight_at(t, lane), weight);
                b_.accumulate(sum, weight);
            });
            const ValueId faded = b_.op(ScalarOp::exp, b_.sub(before, shift));
            b_.store(largest, row_at(lane), now);
            b_.store(total, row_at(lane), b_.add(b_.mul(b_.load(total, row_at(lane)), faded), b_.acc_read(sum)));
            b_.store(decay, lane, faded);
        });
    }

    ValueId weight_of(ValueId score, ValueId logsumexp, const Index& t, const Index& lane) {
        return cut(b_.op(ScalarOp::exp, b_.sub(visible(score, t, lane), logsumexp)));
    }
};

}  // namespace

void lower_attention(const Program& program, const Partition& partition, const Region& region, const Schedule& schedule,
                     const std::map<OpId, TensorRef>& in_place, const std::string& name, LoweredRegion& result) {
    const auto write = [&](auto&& writer) {
        result.work = writer.work();
        result.kernels.push_back(writer.write(name));
    };
    if (schedule.attention->in_group) {
        write(GroupAttention(program, partition, region, schedule, in_place, result));
    } else {
        write(PanelKernels(program, partition, region, schedule, in_place, result));
    }
}

}  // namespace topstitch::stitch
