// The pieces of attention's kernels for machines with caches: tokens that stay in lanes, blocks of those that stream
// past, their products. Which products make up a kernel is the business of lower_attention.cpp.
#pragma once

#include "stitch/attention_writer.h"

namespace topstitch::stitch {

// All products have one of two forms. Scores: for each streaming token and each token in lanes, the sum over features.
// Gathered: for each feature and each token in lanes, the sum over streaming tokens of a feature times a weight.
class PanelAttention : public AttentionWriter {
public:
    using AttentionWriter::AttentionWriter;

protected:
    // Tokens in lanes: [panel, feature, token of the panel].
    struct Staying {
        PackedPanels layout;
        int buffer = -1;
        Dim features;
        MatrixPanels packed;  // instead, for the matrix unit
    };
    // A block of the others: [token, feature], with room for a last panel of features.
    struct Streaming {
        PackedPanels layout;
        int buffer = -1;
        Dim features;
        MatrixPanels by_token, by_feature;  // instead, for the matrix unit: rows of scores, and of what is gathered
    };
    // What the tokens of a block are for.
    enum class Meets : std::uint8_t { scores, gathered, both };
    // Sums over the streaming tokens: [panel, feature, token of the panel].
    struct Gathered {
        PackedPanels layout;
        int buffer = -1;
        Dim features;
        int rows = 1;  // of a panel
    };

    // --- Tiles of the tokens that stay.

    Dim panel_columns() const { return tiling_.panel_columns(); }
    // Of the tile.
    void begin_own_panel();
    // The same inside a block.
    void meet_panel();
    Index own_token(const Index& lane) const { return first_own_ + row_at(lane); }
    Index row_at(const Index& lane) const { return panel_ * panel_columns() + lane; }

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

    Streaming begin_streaming(const std::string& name, const Dim& features, int rows, Meets meets);
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
    ValueId visible(ValueId score, const Index& t, const Index& lane);

    // --- Sums over the streaming tokens.

    // Adds those of a block; `decay`, a buffer by lane, multiplies what was there. `bounded`: the weights are within
    // [0, 1], for the largest score 1, and were `cut`.
    void gather(const Gathered& sums, const Streaming& rows, int weights, int decay, bool bounded = false);
    // A weight, or 0 where it is too small to have parts: next to the weight of the largest score, it does not count.
    ValueId cut(ValueId weight);

    // --- Results.

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

private:
    // --- The same on the matrix unit (attention_matrix.cpp).

    bool on_unit() const { return tiling_.matrix_parts > 0; }
    // The guard that a step of the sum exists; none when all of a group do.
    ValueId within(const Index& step, const Dim& steps);
    ValueId or_zero(ValueId guard, ValueId value);
    MatrixPanels matrix_panels(const std::string& name, bool is_rows, const Dim& panels, const Dim& steps);
    void pack_staying_on_unit(Staying& staying, const std::string& name, int input, const Index& head, ValueId factor);
    void fill_on_unit(const Streaming& block, int input, const Index& head);
    void write_scores_on_unit(int target, const Streaming& rows, const Staying& columns);
    void gather_on_unit(const Gathered& sums, const Streaming& rows, int weights, int decay, bool bounded);

    Index smaller(const Index& a, const Index& b);
    std::optional<Index> streaming_limit();

    Index panel_;
    std::optional<Index> streaming_limit_;
};

}  // namespace topstitch::stitch
