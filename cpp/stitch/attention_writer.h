// What all kernels of attention share: operands, tiles of the tokens of one side, blocks of those of the other,
// results. In what memory tiles lie, and how they are multiplied, is the business of the derived writers.
#pragma once

#include <limits>

#include "ops/attention_shapes.h"
#include "stitch/kernel_writer.h"

namespace topstitch::stitch {

// Inputs beside the query, the key and the value: those of the gradients, and the mask, which is the last one.
namespace attention_input {
using namespace topstitch::attention_input;
inline constexpr int logsumexp = 3, delta = 4, gradient = 5;
inline constexpr int forward_mask = 3, gradient_mask = 6;
}  // namespace attention_input

class AttentionWriter : public KernelWriter {
public:
    AttentionWriter(const Program& program, const Partition& partition, const Region& region, const Schedule& schedule,
                    const std::map<OpId, TensorRef>& in_place, LoweredRegion& result);

    // By what the operation is.
    LoweredKernel write(const std::string& name);
    Dim work() const;

protected:
    static constexpr double infinity = std::numeric_limits<double>::infinity();

    virtual LoweredKernel write_forward(const std::string& name) = 0;
    virtual LoweredKernel write_query_gradient(const std::string& name) = 0;
    virtual LoweredKernel write_key_value_gradient(const std::string& name) = 0;

    Index region_var(loopir::VarId) const override { return 0; }  // the loops are none of the region's

    // --- Numbers.

    ValueId number(double value) { return b_.constant(value, type_); }
    ValueId scale();
    ValueId less(const Index& a, const Index& b);
    // The largest score, or 0 where that is that of nothing: a difference of infinities would be NaN.
    ValueId shift_of(ValueId largest);

    // --- Operands.

    ValueId token_operand(int input, const Index& head, const Index& token, const Index& feature, ValueId guard);
    // An input with one number for each query token.
    ValueId row_operand(int input, const Index& token, ValueId guard);
    // +inf for rows that attend to nothing, so that their weights are 0.
    ValueId bounded_logsumexp(const Index& token, ValueId guard);
    // A score with what the mask, which there is, makes of it.
    ValueId masked(ValueId score, const Index& own, const Index& streaming, ValueId guard);
    bool causal() const { return node_.view.flag("causal"); }
    bool has_mask() const { return node_.view.num_inputs() > mask_; }

    // --- Tiles of the tokens that stay, blocks of those that stream past.

    void begin_tile(const Dim& heads);
    ValueId inside_own(const Index& token);
    void begin_block();
    // So many tokens are left for the block; none: enough for all of it.
    std::optional<Index> streaming_rest() const;

    // --- Results.

    Indices row_index(const Index& token) const;
    void store_row(int output, ValueId value, const Index& token);
    void store_result(int output, const Indices& at, ValueId value, ValueId guard);

    const AttentionTiling& tiling_;
    OpId op_;
    NodeView node_;
    AttentionShapes shapes_;
    DType type_;
    bool keys_stay_;  // and queries stream; else queries stay and keys stream
    int mask_;        // the input that is one, if there are so many
    Index head_;      // of the query, or (outside of the loop over those of a group) of the key
    Dim own_count_, streaming_count_;
    Index first_own_, first_streaming_;

private:
    ValueId operand_at(int input, const Indices& at, ValueId guard);

    Library library_;
    Indices batch_;
};

}  // namespace topstitch::stitch
