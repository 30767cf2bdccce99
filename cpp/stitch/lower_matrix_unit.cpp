// Writes a contraction for a matrix unit: factors are packed as words of bfloat16 parts, once or tile by tile, and
// multiplied in panels of 32 rows by 32 columns, whose sums wait in memory to be finished.
#include <algorithm>

#include "ops/indexing_rules.h"
#include "stitch/contraction_frame.h"

namespace topstitch::stitch {

namespace {

using loopir::no_value;
using loopir::ScalarOp;
using loopir::ValueId;

// So many float products are added up one after the other, as elsewhere; blocks of longer sums are added up apart,
// which keeps their accuracy.
constexpr std::int64_t longest_sum = 2048;

class MatrixUnitWriter : public ContractionFrame {
public:
    MatrixUnitWriter(const Program& program, const Partition& partition, const Region& region, const Schedule& schedule,
                     const std::map<OpId, TensorRef>& in_place, LoweredRegion& result, SharedScratch& shared)
        : ContractionFrame(program, partition, region, schedule, in_place, result, shared) {
        reduce_ = extent(tiling_.reduce);
        const std::int64_t group_steps = loopir::matrix_tile * loopir::matrix_word(tiling_.matrix_types[0]);
        all_groups_ = ceil_div(reduce_, Dim(group_steps));
        block_groups_ = tiling_.block / group_steps;
        rows_ = packed_side(side("rows", tiling_.rows, tiling_.row_batch, tiling_.row_factor, tiling_.panel_rows,
                                 tiling_.row_panels, tiling_.rows_once),
                            true);
        columns_ = packed_side(side("columns", tiling_.columns, tiling_.column_batch, 1 - tiling_.row_factor,
                                    tiling_.panel_columns(), tiling_.column_panels, tiling_.columns_once),
                               false);
    }

    LoweredKernel write_packed_rows(const std::string& name) { return write_packing(name, rows_, shared_.rows); }
    LoweredKernel write_packed_columns(const std::string& name) {
        return write_packing(name, columns_, shared_.columns);
    }

    LoweredKernel write_product(const std::string& name) {
        begin_tile(rows_, columns_);

        const Dim share = ceil_div(blocks(), tiling_.splits);
        block_ = begin_loop("block", {"block", share});
        first_block_ = split_ * share + block_;
        if (!rows_.once) {
            find_panels(rows_, Dim(rows_.tile_panels));
            const Index panel = begin_loop("panel", {"panel", Dim(rows_.tile_panels)}, panel_limit(rows_));
            pack_block(rows_, panel, rows_.first_panel + panel, first_block_);
            close(1);
        }
        const Index column_panel =
            begin_loop("column_panel", {"column_panel", Dim(columns_.tile_panels)}, panel_limit(columns_));
        if (!columns_.once) {
            find_panels(columns_, 1);
            pack_block(columns_, 0, columns_.first_panel + column_panel, first_block_);
        }
        const Index row_panel = begin_loop("row_panel", {"row_panel", Dim(rows_.tile_panels)}, panel_limit(rows_));
        multiply(row_panel, column_panel);
        if (tiling_.one_block) {
            finish_sums(sums_, sum_row(), rows_, rows_.first_panel + row_panel, rows_.panel, columns_,
                        columns_.first_panel + column_panel, columns_.panel);
        }
        close(3);
        if (!tiling_.one_block) {
            finish_sums(sums_, sum_row(), rows_, rows_.first_panel, tiling_.row_panels * rows_.panel, columns_,
                        columns_.first_panel, tile_columns());
        }
        close(1);
        return finish(name);
    }

private:
    struct MatrixSide : Side {
        MatrixPanels packed;
    };
    MatrixSide packed_side(Side side, bool is_rows) const {
        const Dim groups = side.once ? blocks() * Dim(block_groups_) : Dim(block_groups_);
        const DType type = tiling_.matrix_types[static_cast<std::size_t>(side.factor)];
        const MatrixPanels packed{side.panel, tiling_.matrix_parts,         type, is_rows,
                                  groups,     side.once ? blocks() : Dim(1)};
        return {std::move(side), packed};
    }

    // At least one, also for a sum of nothing, which is 0.
    Dim blocks() const {
        if (tiling_.one_block) return 1;
        const Dim whole = floor_div(all_groups_, Dim(block_groups_));
        return reduce_.is_known() ? ceil_div(all_groups_, Dim(block_groups_)) : whole + Dim(1);
    }
    // Groups of products from a block on; more than its own where others follow.
    Index groups_from(const Index& block) const { return Index(all_groups_) - block * Dim(block_groups_); }

    // --- Packed factors.

    void find_panels(MatrixSide& side, const Dim& panels) {
        side.packed.words = local_buffer(side.name, DType::uint32, panels * side.packed.panel_words());
        if (side.packed.has_ranges()) side.packed.ranges = local_buffer(side.name + "_range", DType::uint32, panels);
    }
    void find_shared_panels(MatrixSide& side, int& number, bool writing) {
        if (side.packed.words >= 0) return;
        const Dim panels = side.batches * side.panels;
        if (writing) number = static_cast<int>(result_.scratch.size());
        side.packed.words =
            scratch_buffer(side.name, number, DType::uint32, panels * side.packed.panel_words(), writing);
        if (!side.packed.has_ranges()) return;
        side.packed.ranges =
            scratch_buffer(side.name + "_range", number + 1, DType::uint32, panels * side.packed.blocks, writing);
    }

    LoweredKernel write_packing(const std::string& name, MatrixSide& side, int& number) {
        const Index at = begin_loop("run", {"run", side.batches * side.panels * blocks(), true});
        find_shared_panels(side, number, true);
        const Index panel = floor_div(at, blocks());
        bind(side.batch, floor_div(panel, side.panels));
        pack_block(side, panel, mod(panel, side.panels), mod(at, blocks()));
        close(1);
        return finish(name);
    }

    void pack_block(MatrixSide& side, const Index& panel_in_buffer, const Index& panel, const Index& block) {
        const Index in_buffer = side.once ? block : Index(0);
        pack_matrix_panel(side.packed, panel_in_buffer, in_buffer, Dim(block_groups_), groups_from(block),
                          [&](const Index& element, const Index& step) {
                              const Index at = panel * Dim(side.panel) + element;
                              const Index reduced = block * Dim(tiling_.block) + step;
                              guard_ = ops::both(b_, below(at, side.extent, side.panel),
                                                 below(reduced, reduce_, tiling_.block));
                              bind(side.vars, at);
                              bind(tiling_.reduce, reduced);
                              const ValueId value = factor(side.factor);
                              // A factor may make something else of what is not there.
                              const ValueId kept =
                                  guard_ == no_value ? value : b_.select(guard_, value, b_.constant(0, b_.type(value)));
                              guard_ = no_value;
                              return kept;
                          });
    }

    // --- The product.

    void multiply(const Index& row_panel, const Index& column_panel) {
        const auto place = [&](MatrixSide& side, int& number, const Index& panel) {
            if (!side.once) return std::pair(panel, Index(0));
            find_shared_panels(side, number, false);
            return std::pair(joint(side.batch) * side.panels + side.first_panel + panel, first_block_);
        };
        const auto [row_number, row_block] = place(rows_, shared_.rows, row_panel);
        const auto [column_number, column_block] =
            place(columns_, shared_.columns, columns_.once ? column_panel : Index(0));
        if (sums_ < 0) sums_ = local_buffer("sums", type_, Dim(sum_rows() * sum_row()));
        const bool alone = tiling_.one_block;
        // The last of the splits may have fewer blocks, or none.
        const ValueId exists = tiling_.splits > 1 ? below(first_block_, blocks(), tiling_.splits) : no_value;
        loopir::MultiplyTiles product =
            matrix_product(rows_.packed, row_number, row_block, columns_.packed, column_number, column_block, exists);
        const ValueId left = b_.index_value(groups_from(first_block_));
        product.steps = Index::value(b_.op(ScalarOp::min, left, b_.index_value(Dim(block_groups_))));
        const Index at =
            alone ? Index(0) : sum_offset(row_panel * Dim(rows_.panel), column_panel * Dim(columns_.panel));
        const bool is_long = !reduce_.is_known() || reduce_.value() > longest_sum;
        if (alone || type_ == DType::int32 || !is_long) {
            product.sums = sums_;
            product.sums_row = sum_row();
            product.sums_at = at;
            if (!alone) product.adds = b_.op(ScalarOp::lt, b_.index_value(Index(0)), b_.index_value(block_));
            return b_.multiply_tiles(std::move(product));
        }
        if (block_sums_ < 0) block_sums_ = local_buffer("block_sums", type_, Dim(rows_.panel * columns_.panel));
        product.sums = block_sums_;
        product.sums_row = columns_.panel;
        b_.multiply_tiles(std::move(product));
        const Index i = begin_loop("i", {"i", Dim(rows_.panel)});
        const Index j = begin_loop("j", {"j", Dim(columns_.panel), false, true, tiling_.panel_vectors});
        add_to_blocks(sums_, at + sum_offset(i, j), b_.load(block_sums_, i * Dim(columns_.panel) + j), block_);
        close(2);
    }

    // --- Sums that wait: [row of the tile or panel, column].

    std::int64_t tile_columns() const { return tiling_.column_panels * columns_.panel; }
    std::int64_t sum_rows() const { return (tiling_.one_block ? 1 : tiling_.row_panels) * rows_.panel; }
    // A power of two between rows would put them all into the same lines of the cache.
    std::int64_t sum_row() const { return tiling_.one_block ? columns_.panel : tile_columns() + loopir::matrix_tile; }
    Index sum_offset(const Index& row, const Index& column) const { return row * Dim(sum_row()) + column; }

    Dim reduce_, all_groups_;
    std::int64_t block_groups_ = 1;
    MatrixSide rows_, columns_;
    Index block_ = 0, first_block_ = 0;
    int sums_ = -1, block_sums_ = -1;
};

}  // namespace

void lower_matrix_unit(const Program& program, const Partition& partition, const Region& region,
                       const Schedule& schedule, const std::map<OpId, TensorRef>& in_place, const std::string& name,
                       LoweredRegion& result) {
    SharedScratch shared;
    const auto writer = [&] {
        return MatrixUnitWriter(program, partition, region, schedule, in_place, result, shared);
    };
    const Tiling& tiling = *schedule.tiling;
    if (tiling.rows_once) result.kernels.push_back(writer().write_packed_rows(name + "_rows"));
    if (tiling.columns_once) result.kernels.push_back(writer().write_packed_columns(name + "_columns"));
    result.kernels.push_back(writer().write_product(tiling.splits == 1 ? name : name + "_sums"));
    if (tiling.splits > 1) result.kernels.push_back(writer().write_combination(name));
}

}  // namespace topstitch::stitch
