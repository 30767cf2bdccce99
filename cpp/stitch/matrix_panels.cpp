// Packing of panels for a matrix unit: a group of 32 steps is copied as it is computed, then split in parts.
// See MatrixPanels.
#include "loopir/matrix_parts.h"
#include "stitch/kernel_writer.h"

namespace topstitch::stitch {

using loopir::Combiner;
using loopir::matrix_tile;
using loopir::no_value;
using loopir::ScalarOp;
using loopir::ValueId;

void KernelWriter::split_matrix_group(const MatrixPanels& panels, int group, const Index& at, const Index& words_at,
                                      const MatrixRange& range) {
    const std::int64_t words = panels.elements * matrix_tile;
    const Index word = begin_loop("word", {"word", Dim(words), false, true, 1});
    const std::int64_t together = loopir::matrix_word(panels.type);
    const Index row = floor_div(word, Dim(panels.elements)) * Dim(panels.elements * (together - 1));
    const Index first = at + (panels.is_rows ? word * Dim(together) : word + row);
    const auto step = [&](std::int64_t number) {
        return b_.load(group, first + Index(number * (panels.is_rows ? 1 : panels.elements)));
    };
    if (panels.type != DType::bfloat16) {
        const auto number = [this](std::int64_t bits) { return b_.constant_int(bits, DType::uint32); };
        ValueId bytes = no_value;
        for (std::int64_t k = 0; k < together; ++k) {
            const ValueId byte = b_.op(ScalarOp::bit_and, b_.bitcast(step(k), DType::uint32), number(0xff));
            const ValueId moved = b_.op(ScalarOp::shl, byte, number(8 * k));
            bytes = k == 0 ? moved : b_.op(ScalarOp::bit_or, bytes, moved);
        }
        b_.store(panels.words, words_at + word, bytes);
        return close(1);
    }
    const ValueId low = step(0);
    const ValueId high = step(1);
    const auto store = [&](int part, ValueId lower, ValueId upper) {
        const ValueId shifted = b_.op(ScalarOp::shr, lower, b_.constant_int(16, DType::uint32));
        b_.store(panels.words, words_at + Index(part * words) + word, b_.op(ScalarOp::bit_or, shifted, upper));
    };
    if (panels.parts == 1) {
        const auto bits = [this](ValueId value) {
            return b_.bitcast(b_.round_to(value, DType::bfloat16), DType::uint32);
        };
        store(0, bits(low), bits(high));
    } else if (panels.bounded) {
        const auto lower = loopir::parts_of(b_, low);
        const auto upper = loopir::parts_of(b_, high);
        for (std::size_t p = 0; p < lower.size(); ++p) store(static_cast<int>(p), lower[p], upper[p]);
    } else {
        const loopir::MatrixParts lower = loopir::split_in_parts(b_, low);
        const loopir::MatrixParts upper = loopir::split_in_parts(b_, high);
        for (int part = 0; part < panels.parts; ++part) {
            const auto p = static_cast<std::size_t>(part);
            store(part, lower.parts[p], upper.parts[p]);
        }
        b_.accumulate(range.smallest, b_.op(ScalarOp::min, lower.magnitude, upper.magnitude));
        b_.accumulate(range.exact, b_.op(ScalarOp::bit_and, lower.exact, upper.exact));
    }
    close(1);
}

KernelWriter::MatrixRange KernelWriter::begin_matrix_range(const MatrixPanels& panels) {
    if (!panels.has_ranges()) return {};
    const MatrixRange range{b_.add_accumulator(Combiner::min, DType::uint32),
                            b_.add_accumulator(Combiner::logical_and, DType::boolean)};
    b_.init_acc(range.smallest);
    b_.init_acc(range.exact);
    return range;
}

void KernelWriter::end_matrix_range(const MatrixPanels& panels, const Index& at, const MatrixRange& range) {
    if (!panels.has_ranges()) return;
    b_.store(panels.ranges, at, loopir::matrix_range(b_, b_.acc_read(range.smallest), b_.acc_read(range.exact)));
}

loopir::MultiplyTiles KernelWriter::matrix_product(const MatrixPanels& rows, const Index& row_panel,
                                                   const Index& row_block, const MatrixPanels& columns,
                                                   const Index& column_panel, const Index& column_block,
                                                   ValueId exists) {
    loopir::MultiplyTiles product;
    product.rows = rows.words;
    product.rows_at = rows.words_at(row_panel, row_block);
    product.columns = columns.words;
    product.columns_at = columns.words_at(column_panel, column_block);
    product.parts = rows.parts;
    product.rows_type = rows.type;
    product.columns_type = columns.type;
    product.row_tiles = static_cast<int>(rows.elements / matrix_tile);
    product.column_tiles = static_cast<int>(columns.elements / matrix_tile);
    if (rows.parts > 1) {
        const auto range = [this, exists](const MatrixPanels& panels, const Index& panel, const Index& block) {
            return panels.has_ranges() ? b_.load(panels.ranges, panels.range_at(panel, block), exists)
                                       : b_.constant_int(loopir::any_matrix_range, DType::uint32);
        };
        product.plain = loopir::needs_plain_product(b_, range(rows, row_panel, row_block),
                                                    range(columns, column_panel, column_block));
    }
    return product;
}

}  // namespace topstitch::stitch
