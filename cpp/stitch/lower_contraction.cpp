// Writes a contraction in tiles: a kernel that packs the column factor, and the product with all that is stitched to
// it. The factors are asked for elements while they are packed, so that any expression can stand in them.
#include "stitch/kernel_writer.h"

namespace topstitch::stitch {

namespace {

using loopir::BufferParam;
using loopir::no_value;
using loopir::ScalarOp;
using loopir::ValueId;
using loopir::VarId;

Dim ceil_div(const Dim& count, std::int64_t step) {
    return floor_div(count + Dim(step - 1), Dim(step));
}

class ContractionWriter : public KernelWriter {
public:
    ContractionWriter(const Program& program, const Partition& partition, const Region& region,
                      const Schedule& schedule, const std::map<OpId, TensorRef>& in_place, LoweredRegion& result)
        : KernelWriter(program, partition, region, schedule, in_place, result),
          tiling_(*schedule.tiling),
          vars_(region.vars.size()) {
        for (const auto& [op, member] : region.members) {
            if (access(op).is_reduce) contraction_ = op;
        }
        type_ = compute_type(dtype(contraction_));
        rows_ = extent(tiling_.rows);
        columns_ = extent(tiling_.columns);
        reduce_ = extent(tiling_.reduce);
        row_panels_ = ceil_div(rows_, tiling_.panel_rows);
        column_panels_ = ceil_div(columns_, tiling_.panel_columns());
    }

    // The column factor, panel by panel: [batch, panel, reduced, column of the panel]. Columns past the end are zeros
    // or whatever the factor makes of zeros; nobody looks at their sums.
    LoweredKernel write_packing(const std::string& name) {
        const Index panel = begin_loop("panel", {"panel", extent(tiling_.batch) * column_panels_, true});
        const Index k = begin_loop("k", {"k", reduce_});
        const Index j = begin_loop("j", {"j", Dim(tiling_.panel_columns()), false, true, tiling_.panel_vectors});
        const Index column = mod(panel, column_panels_) * Dim(tiling_.panel_columns()) + j;
        guard_ = below(column, columns_, tiling_.panel_columns());
        bind(tiling_.batch, floor_div(panel, column_panels_));
        bind(tiling_.columns, column);
        bind(tiling_.reduce, k);
        const Value value = factor(1 - tiling_.row_factor);
        b_.store(packed_columns(true), (panel * reduce_ + k) * Dim(tiling_.panel_columns()) + j, value.re);
        close(3);
        return finish(name);
    }

    LoweredKernel write_product(const std::string& name) {
        const Dim row_tiles = ceil_div(row_panels_, tiling_.row_panels);
        const Dim column_tiles = ceil_div(column_panels_, tiling_.column_panels);
        const Index tile = begin_loop("tile", {"tile", extent(tiling_.batch) * row_tiles * column_tiles, true});
        batch_ = floor_div(tile, row_tiles * column_tiles);
        first_row_panel_ = mod(floor_div(tile, column_tiles), row_tiles) * Dim(tiling_.row_panels);
        first_column_panel_ = mod(tile, column_tiles) * Dim(tiling_.column_panels);
        bind(tiling_.batch, batch_);

        // A block more than whole ones when the extent is not known: it may be empty, but the sums are always written.
        const Dim blocks = tiling_.one_block    ? Dim(1)
                           : reduce_.is_known() ? ceil_div(reduce_, tiling_.block)
                                                : floor_div(reduce_, Dim(tiling_.block)) + Dim(1);
        const Index block = begin_loop("block", {"block", blocks});
        first_reduced_ = block * Dim(tiling_.block);
        pack_rows();
        multiply_panels(block);
        close(1);
        if (!tiling_.one_block) finish_tile();
        close(1);
        return finish(name);
    }

private:
    Dim extent(const std::vector<VarId>& vars) const {
        Dim product = 1;
        for (VarId var : vars) product = product * region_.vars[static_cast<std::size_t>(var)].extent;
        return product;
    }

    Index region_var(VarId var) const override { return vars_[static_cast<std::size_t>(var)]; }

    // Binds variables to the digits of their joint index.
    void bind(const std::vector<VarId>& vars, Index left) {
        for (std::size_t k = vars.size(); k-- > 0;) {
            const Dim& digit = region_.vars[static_cast<std::size_t>(vars[k])].extent;
            vars_[static_cast<std::size_t>(vars[k])] = k == 0 ? left : mod(left, digit);
            left = floor_div(left, digit);
        }
        forget_values();
    }

    void close(int loops) {
        for (int k = 0; k < loops; ++k) b_.end_loop();
    }

    // The guard "index < count", or none when panels of `step` fill the count.
    ValueId below(const Index& index, const Dim& count, std::int64_t step) {
        if (count.is_known() && count.value() % step == 0) return no_value;
        return b_.op(ScalarOp::lt, b_.index_value(index), b_.index_value(Index(count)));
    }
    ValueId both(ValueId a, ValueId b) {
        if (a == no_value || b == no_value) return a == no_value ? b : a;
        return b_.op(ScalarOp::bit_and, a, b);
    }

    Value factor(int number) {
        return in_context(contraction_, guard_, [&](ElementContext& context, const OpDef& def) {
            const auto& body = std::get<ReduceBody>(def.body);
            const Indices domain = reduce_domain(contraction_, body, context.op);
            return body.factors[static_cast<std::size_t>(number)](context, home(contraction_), domain);
        });
    }

    // --- Packed factors.

    int packed_columns(bool writing) {
        if (packed_columns_ < 0) {
            const Dim size = extent(tiling_.batch) * column_panels_ * reduce_ * Dim(tiling_.panel_columns());
            packed_columns_ = scratch_buffer("columns", 0, type_, size, writing);
        }
        return packed_columns_;
    }

    // In the tile's block: [panel, row, reduced], or [panel, reduced, row] when rows are contiguous in memory.
    Index packed_row_offset(const Index& panel, const Index& row, const Index& k) const {
        const Dim rows(tiling_.panel_rows);
        const Dim block(tiling_.block);
        return tiling_.rows_in_lanes ? (panel * block + k) * rows + row : (panel * rows + row) * block + k;
    }

    std::optional<Index> reduced_limit() const {
        if (tiling_.one_block) return std::nullopt;
        return Index(reduce_) - first_reduced_;
    }
    Index row_limit() const { return Index(row_panels_) - first_row_panel_; }

    void pack_rows() {
        BufferParam param;
        param.name = "rows";
        param.dtype = type_;
        param.role = BufferParam::Role::local;
        param.size = Dim(tiling_.row_panels * tiling_.panel_rows * tiling_.block);
        packed_rows_ = add_buffer(param, {});
        const LoopSpec rows{"row", Dim(tiling_.panel_rows), false, tiling_.rows_in_lanes};
        const LoopSpec reduced{"k", Dim(tiling_.block), false, !tiling_.rows_in_lanes};
        const Index panel = begin_loop("panel", {"panel", Dim(tiling_.row_panels)}, row_limit());
        Index row, k;
        if (tiling_.rows_in_lanes) {
            k = begin_loop("k", reduced, reduced_limit());
            row = begin_loop("row", rows);
        } else {
            row = begin_loop("row", rows);
            k = begin_loop("k", reduced, reduced_limit());
        }
        const Index at = (first_row_panel_ + panel) * Dim(tiling_.panel_rows) + row;
        guard_ = below(at, rows_, tiling_.panel_rows);
        bind(tiling_.rows, at);
        bind(tiling_.reduce, first_reduced_ + k);
        const Value value = factor(tiling_.row_factor);
        b_.store(packed_rows_, packed_row_offset(panel, row, k), value.re);
        close(3);
    }

    // --- The product.

    void multiply_panels(const Index& block) {
        const std::int64_t columns = tiling_.panel_columns();
        const Index column_panel = begin_loop("column_panel", {"column_panel", Dim(tiling_.column_panels)},
                                              Index(column_panels_) - first_column_panel_);
        const Index row_panel = begin_loop("row_panel", {"row_panel", Dim(tiling_.row_panels)}, row_limit());
        const Index i = begin_loop("i", {"i", Dim(tiling_.panel_rows), false, false, tiling_.panel_rows});
        const Index j = begin_loop("j", {"j", Dim(columns), false, true, tiling_.panel_vectors});
        const int sum = b_.add_accumulator(loopir::Combiner::sum, type_);
        b_.init_acc(sum);
        const Index k = begin_loop("k", {"k", Dim(tiling_.block)}, reduced_limit());
        const ValueId row_value = b_.load(packed_rows_, packed_row_offset(row_panel, i, k));
        const Index panel = batch_ * column_panels_ + first_column_panel_ + column_panel;
        const ValueId column_value =
            b_.load(packed_columns(false), (panel * reduce_ + first_reduced_ + k) * Dim(columns) + j);
        b_.accumulate(sum, b_.mul(row_value, column_value));
        close(1);
        const ValueId value = b_.acc_read(sum);
        if (tiling_.one_block) {
            const Index row = (first_row_panel_ + row_panel) * Dim(tiling_.panel_rows) + i;
            const Index column = (first_column_panel_ + column_panel) * Dim(columns) + j;
            guard_ = both(below(row, rows_, tiling_.panel_rows), below(column, columns_, columns));
            store_results(row, column, value);
        } else {
            const Index at = sum_offset(row_panel * Dim(tiling_.panel_rows) + i, column_panel * Dim(columns) + j);
            const ValueId later = b_.op(ScalarOp::lt, b_.index_value(Index(0)), b_.index_value(block));
            b_.store(sums(), at, b_.add(b_.load(sums(), at, later), value));
        }
        close(4);
    }

    // The sums of the blocks so far.
    int sums() {
        if (sums_ < 0) {
            BufferParam param;
            param.name = "sums";
            param.dtype = type_;
            param.role = BufferParam::Role::local;
            param.size = Dim(tiling_.row_panels * tiling_.panel_rows * tiling_.column_panels * tiling_.panel_columns());
            sums_ = add_buffer(param, {});
        }
        return sums_;
    }
    Index sum_offset(const Index& row, const Index& column) const {
        return row * Dim(tiling_.column_panels * tiling_.panel_columns()) + column;
    }

    void finish_tile() {
        const Index first_row = first_row_panel_ * Dim(tiling_.panel_rows);
        const Index first_column = first_column_panel_ * Dim(tiling_.panel_columns());
        const Index i = begin_loop("i", {"i", Dim(tiling_.row_panels * tiling_.panel_rows)}, Index(rows_) - first_row);
        const Index j =
            begin_loop("j", {"j", Dim(tiling_.column_panels * tiling_.panel_columns()), false, true, tiling_.unroll},
                       Index(columns_) - first_column);
        guard_ = no_value;
        store_results(first_row + i, first_column + j, b_.load(sums(), sum_offset(i, j)));
        close(2);
    }

    void store_results(const Index& row, const Index& column, ValueId sum) {
        bind(tiling_.rows, row);
        bind(tiling_.columns, column);
        pass_ = phases_.passes;
        outer_values_[contraction_] = Value{sum};
        store_outputs([](OpId) { return true; });
    }

    const Tiling& tiling_;
    OpId contraction_ = -1;
    DType type_ = DType::float32;
    Dim rows_, columns_, reduce_;
    Dim row_panels_, column_panels_;
    std::vector<Index> vars_;  // of the region
    Index batch_, first_row_panel_, first_column_panel_, first_reduced_;
    int packed_columns_ = -1;
    int packed_rows_ = -1;
    int sums_ = -1;
};

}  // namespace

void lower_contraction(const Program& program, const Partition& partition, const Region& region,
                       const Schedule& schedule, const std::map<OpId, TensorRef>& in_place, const std::string& name,
                       LoweredRegion& result) {
    const auto writer = [&] { return ContractionWriter(program, partition, region, schedule, in_place, result); };
    result.kernels.push_back(writer().write_packing(name + "_pack"));
    result.kernels.push_back(writer().write_product(name));
}

}  // namespace topstitch::stitch
