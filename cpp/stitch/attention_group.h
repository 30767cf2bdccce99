// Attention for machines whose groups of threads share memory: tiles and blocks are matrices there, which the back end
// multiplies as such, and each row of scores is softened by the threads that are nearest to it.
#pragma once

#include "stitch/attention_writer.h"

namespace topstitch::stitch {

// What the kernel of the operation needs of the group's memory.
std::int64_t attention_group_bytes(Library library, std::int64_t tile, std::int64_t block, std::int64_t features,
                                   std::int64_t value_features);

class GroupAttention : public AttentionWriter {
public:
    GroupAttention(const Program& program, const Partition& partition, const Region& region, const Schedule& schedule,
                   const std::map<OpId, TensorRef>& in_place, LoweredRegion& result);

protected:
    LoweredKernel write_forward(const std::string& name) override;
    LoweredKernel write_query_gradient(const std::string& name) override;
    LoweredKernel write_key_value_gradient(const std::string& name) override;

private:
    // [row, column], with a few elements between the rows; columns from `columns` on, which fill it up, are 0.
    struct Matrix {
        int buffer = -1;
        std::int64_t rows = 0;
        std::int64_t columns = 0;
        Index at(const Index& row, const Index& column) const;
    };
    Matrix matrix(const std::string& name, std::int64_t rows, std::int64_t columns);
    // In the memory of the streaming block, which holds one matrix after the other.
    Matrix streamed(std::int64_t columns) const { return {block_buffer_, tiling_.block, columns}; }
    int row_buffer(const std::string& name);

    template <typename Body>
    void each_element(const Matrix& matrix, Body body);
    template <typename Body>
    void each_row(Body body);
    template <typename Body>
    void each_streaming(Body body);

    void clear(const Matrix& sums);
    // The operand's tokens from `first` on, of which there are `left` (none: enough), with each element multiplied by
    // `factor`, unless that is no_value.
    void fill(const Matrix& target, int input, const Index& head, const Index& first, const std::optional<Index>& left,
              ValueId factor);
    void fill_own(const Matrix& target, int input, const Index& head, ValueId factor);
    void fill_streaming(const Matrix& target, int input, const Index& head);

    // scores[own, streaming] = the sum over features of own * streaming.
    void write_scores(const Matrix& scores, const Matrix& own, const Matrix& streaming);
    // sums[own, feature] += the sum over streaming tokens of weights * streaming.
    void gather(const Matrix& sums, const Matrix& weights, const Matrix& streaming);
    void soften(const Matrix& weights, const Matrix& outputs, int largest, int total);

    Index own_token(const Index& row) const { return first_own_ + row; }
    ValueId inside_streaming(const Index& t);
    // A score, or -inf where the query does not attend to the key, or there is none.
    ValueId visible(ValueId score, const Index& row, const Index& t);
    ValueId weight_of(const Matrix& weights, const Index& row, const Index& t, ValueId logsumexp);
    // What `finished` gives for (row, sum).
    template <typename Finish>
    void store_sums(const Matrix& sums, int output, Finish finished);

    std::int64_t tile_, features_, value_features_;
    int block_buffer_ = -1;
};

}  // namespace topstitch::stitch
