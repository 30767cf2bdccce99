// The pieces of attention's kernels: tokens that stay in lanes, blocks of those that stream past, their products.
// Which products make up a kernel is the business of lower_attention.cpp.
#pragma once

#include <limits>

#include "ops/attention_shapes.h"
#include "stitch/kernel_writer.h"

namespace topstitch::stitch {

// All products have one of two forms. Scores: for each streaming token and each token in lanes, the sum over features.
// Gathered: for each feature and each token in lanes, the sum over streaming tokens of a feature times a weight.
class AttentionWriter : public KernelWriter {
public:
    AttentionWriter(const Program& program, const Partition& partition, const Region& region, const Schedule& schedule,
                    const std::map<OpId, TensorRef>& in_place, LoweredRegion& result);

    Dim work() const;

protected:
    static constexpr double infinity = std::numeric_limits<double>::infinity();

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

    Index region_var(loopir::VarId) const override { return 0; }  // the loops are none of the region's

    // --- Numbers.

    ValueId number(double value) { return b_.constant(value, type_); }
    ValueId scale();

    // --- Operands.

    ValueId operand_at(int input, const Indices& at, ValueId guard);
    ValueId token_operand(int input, const Index& head, const Index& token, const Index& feature, ValueId guard);
    // An input with one number for each query token.
    ValueId row_operand(int input, const Index& token, ValueId guard);
    Indices row_index(const Index& token) const;

    // --- Tiles of the tokens that stay.

    Dim panel_columns() const { return tiling_.panel_columns(); }
    void begin_tile(const Dim& heads);
    // Of the tile.
    void begin_own_panel();
    // The same inside a block.
    void meet_panel();
    Index own_token(const Index& lane) const { return first_own_ + row_at(lane); }
    Index row_at(const Index& lane) const { return panel_ * panel_columns() + lane; }
    ValueId inside_own(const Index& token);

    template <typename Body>
    void each_lane(Body body) {
        body(begin_loop("lane", {"lane", panel_columns(), false, true, tiling_.panel_vectors}));
        close(1);
    }

    // With each element multiplied by `factor`, unless that is no_value.
    Staying pack_staying(const std::string& name, int input, const Index& head, const Dim& features, ValueId factor);
    // One number for each token of the tile.
    int row_buffer(const std::string& name, double first);
    Gathered begin_gathered(const std::string& name, const Dim& features, int rows);

    // --- Blocks of the tokens that stream past.

    void begin_block();
    Streaming begin_streaming(const std::string& name, const Dim& features, int rows);
    void fill_streaming(const Streaming& block, int input, const Index& head);

    // The tokens of the block that matter to the panel.
    template <typename Body>
    void each_streaming(Body body, int together = 1) {
        forget_values();
        body(begin_loop("t", {"t", Dim(tiling_.block), false, false, together}, streaming_limit_));
        close(1);
    }

    // --- Scores and weights: [streaming token, lane], of one panel.

    int weight_buffer(const std::string& name);
    Index weight_at(const Index& t, const Index& lane) const { return t * panel_columns() + lane; }
    void write_scores(int target, const Streaming& rows, const Staying& columns);
    // A score with what the mask and causality make of it.
    ValueId masked(ValueId score, const Index& t, const Index& lane);
    bool causal() const { return node_.view.flag("causal"); }
    bool has_mask() const { return node_.view.num_inputs() > mask_; }

    // --- Sums over the streaming tokens.

    // Adds those of a block; `decay`, a buffer by lane, multiplies what was there.
    void gather(const Gathered& sums, const Streaming& rows, int weights, int decay);

    // --- Results.

    void store_row(int output, ValueId value, const Index& token);

    // What `finished` gives for (lane, sum).
    template <typename Finish>
    void store_gathered(const Gathered& sums, int output, Finish finished) {
        const Index lane = begin_loop("lane", {"lane", panel_columns()}, Index(own_count_) - own_token(0));
        const Index feature = begin_loop("feature", {"feature", sums.features, false, true, 2});
        Indices at = row_index(own_token(lane));
        at.push_back(feature);
        const ValueId value = finished(lane, b_.load(sums.buffer, sums.layout.offset(panel_, lane, feature)));
        store_result(output, at, value, loopir::no_value);
        close(2);
    }

    const AttentionTiling& tiling_;
    OpId op_;
    NodeView node_;
    AttentionShapes shapes_;
    DType type_;
    bool keys_stay_;  // and queries stream; else queries stay and keys stream
    int mask_ = 0;    // the input that is one, if there are so many
    Index head_;      // of the query, or (outside of the loop over those of a group) of the key
    Index first_streaming_;

private:
    ValueId less(const Index& a, const Index& b);
    Index smaller(const Index& a, const Index& b);
    std::optional<Index> streaming_rest() const;
    std::optional<Index> streaming_limit();
    void store_result(int output, const Indices& at, ValueId value, ValueId guard);

    Dim own_count_, streaming_count_;
    Indices batch_;
    Index first_own_, panel_;
    std::optional<Index> streaming_limit_;
};

}  // namespace topstitch::stitch
