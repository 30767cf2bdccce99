// Writes a contraction in tiles, with all that is stitched to it; kernels of their own pack a factor or add split sums.
// The factors are asked for elements while they are packed, so that any expression can stand in them.
#include <algorithm>

#include "ops/indexing_rules.h"
#include "stitch/contraction_frame.h"

namespace topstitch::stitch {

namespace {

using loopir::BufferParam;
using loopir::no_value;
using loopir::ScalarOp;
using loopir::ValueId;
using loopir::VarId;

constexpr std::int64_t row_padding = 16;
// Steps that are packed for all panels of a tile before the next ones: the lines of memory that neighbouring panels
// share stay in the cache, even when all lie in one set of it.
constexpr std::int64_t packed_steps = 8;
constexpr std::int64_t step_padding = 2;  // between panels whose vectors reach past their ends

class ContractionWriter : public ContractionFrame {
public:
    ContractionWriter(const Program& program, const Partition& partition, const Region& region,
                      const Schedule& schedule, const std::map<OpId, TensorRef>& in_place, LoweredRegion& result,
                      SharedScratch& shared)
        : ContractionFrame(program, partition, region, schedule, in_place, result, shared) {
        packed_type_ = tiling_.pairs ? DType::uint32 : type_;
        together_ = tiling_.pairs ? 2 : 1;
        reduce_ = extent(tiling_.reduce);
        rows_ = {side("rows", tiling_.rows, tiling_.row_batch, tiling_.row_factor, tiling_.panel_rows,
                      tiling_.row_panels, tiling_.rows_once),
                 tiling_.rows_in_lanes};
        columns_ = {side("columns", tiling_.columns, tiling_.column_batch, 1 - tiling_.row_factor,
                         tiling_.panel_columns(), tiling_.column_panels, tiling_.columns_once),
                    true};
        if (tiling_.staged()) find_stage();
    }

    // Copies the factor behind the window.
    LoweredKernel write_stage(const std::string& name) {
        shared_.stage = static_cast<int>(result_.scratch.size());
        std::vector<Dim> outer;
        for (const StageDigit& digit : stage_) outer.push_back(digit.extent);
        const Dim last = outer.back();
        outer.pop_back();
        Index left = begin_loop("at", {"at", Shape(outer).num_elements(), true});
        Indices digits(stage_.size());
        for (std::size_t k = outer.size(); k-- > 0;) {
            digits[k] = k == 0 ? left : mod(left, outer[k]);
            left = floor_div(left, outer[k]);
        }
        digits.back() = begin_loop("last", {"last", last, false, true, 1});
        stage_buffer_ = scratch_buffer("stage", shared_.stage, type_, stage_size(), true);
        std::fill(vars_.begin(), vars_.end(), Index(0));
        Indices positions(positions_.size());
        for (std::size_t k = 0; k < stage_.size(); ++k) {
            const StageDigit& digit = stage_[k];
            if (digit.position < 0) {
                vars_[static_cast<std::size_t>(digit.var)] = digits[k];
                // Lanes past the last column read what is nobody's.
                const Dim& extent = region_.vars[static_cast<std::size_t>(digit.var)].extent;
                if (digit.extent == extent) continue;
                guard_ = ops::both(b_, guard_, b_.op(ScalarOp::lt, b_.index_value(digits[k]), b_.index_value(extent)));
            } else {
                Index& position = positions[static_cast<std::size_t>(digit.position)];
                position = (digit.first ? Index(digit.origin) : position) + digits[k] * Dim(digit.step);
            }
        }
        forget_values();
        const ValueId value = window_element(positions);
        guard_ = no_value;
        b_.store(stage_buffer_, stage_offset(digits), value);
        close(2);
        return finish(name);
    }

    LoweredKernel write_packed_rows(const std::string& name) { return write_packing(name, rows_, shared_.rows); }
    LoweredKernel write_packed_columns(const std::string& name) {
        return write_packing(name, columns_, shared_.columns);
    }

    LoweredKernel write_product(const std::string& name) {
        begin_tile(rows_, columns_);

        // A block more than whole ones when the extent is not known: it may be empty, but the sums are always written.
        const Dim blocks = tiling_.one_block    ? Dim(1)
                           : reduce_.is_known() ? ceil_div(reduce_, tiling_.block)
                                                : floor_div(reduce_, Dim(tiling_.block)) + Dim(1);
        const Dim share = ceil_div(blocks, tiling_.splits);
        // Each split has a first block at least, which writes the sums; blocks past the end are empty.
        block_ = begin_loop("block", {"block", share});
        first_outer_ = (split_ * share + block_) * Dim(tiling_.block / inner_);
        first_reduced_ = first_outer_ * Dim(inner_);
        first_step_ = tiling_.pairs ? (split_ * share + block_) * Dim(block_steps()) : first_reduced_;
        if (is_packed_here(rows_)) pack_in_tile(rows_);
        if (is_packed_here(columns_) && !packs_by_panel()) pack_in_tile(columns_);
        if (tiling_.factors == Tiling::Factors::streamed) {
            multiply_streaming();
        } else {
            multiply_panels();
        }
        close(1);
        if (!tiling_.in_registers && !in_panels()) {
            finish_sums(sums_, sum_row(), rows_, rows_.first_panel, tiling_.row_panels * rows_.panel, columns_,
                        columns_.first_panel, tile_columns());
        }
        close(1);
        return finish(name);
    }

private:
    struct PackedSide : Side {
        bool in_lanes = false;  // packed as [panel, reduced, element], else as [panel, element, reduced]
        int buffer = -1;
    };

    ValueId inside(const PackedSide& side, const Index& index) { return below(index, side.extent, side.panel); }

    // --- Packed factors.

    // Steps of the sum, each of which takes one product or a pair.
    Dim steps_of(const Dim& products) const { return ceil_div(products, Dim(together_)); }
    std::int64_t block_steps() const { return (tiling_.block + together_ - 1) / together_; }
    std::optional<Index> step_limit() const {
        const std::optional<Index> limit = reduced_limit();
        if (!limit || together_ == 1) return limit;
        return floor_div(*limit + Index(together_ - 1), Dim(together_));
    }

    // Elements that lie along the reduced axis are read side by side: a power of two between them would put them all
    // into the same lines of the cache.
    Dim packed_depth(const PackedSide& side) const {
        const std::int64_t padding = !side.in_lanes ? row_padding : is_packed_in_vectors(side) ? step_padding : 0;
        return (side.once ? steps_of(reduce_) : Dim(block_steps())) + Dim(padding);
    }

    // Rows along memory whose panels are no whole vectors: each step is written as if they were, and the next one
    // replaces what is too much.
    bool is_packed_in_vectors(const PackedSide& side) const {
        const bool fits = block_steps() % packed_steps == 0 && whole_vectors(side) <= (1 + step_padding) * side.panel;
        return side.in_lanes && !side.once && side.panel % tiling_.lanes != 0 && fits;
    }
    std::int64_t whole_vectors(const PackedSide& side) const {
        return (side.panel + tiling_.lanes - 1) / tiling_.lanes * tiling_.lanes;
    }
    void pack_in_vectors(PackedSide& side) {
        const Index group = begin_loop("group", {"group", Dim(block_steps() / packed_steps)});
        const Index panel = begin_loop("panel", {"panel", Dim(side.tile_panels)}, panel_limit(side));
        std::optional<Index> limit = step_limit();
        if (limit) limit = *limit - group * Dim(packed_steps);
        const Index k = group * Dim(packed_steps) + begin_loop("k", {"k", Dim(packed_steps)}, limit);
        const Index element = begin_loop("e", {"e", Dim(whole_vectors(side)), false, true, 1});
        const Index at = (side.first_panel + panel) * Dim(side.panel) + element;
        guard_ = b_.op(ScalarOp::lt, b_.index_value(at), b_.index_value(Index(side.extent)));
        b_.store(side.buffer, layout(side).offset(panel, element, k), step_of(side, at, first_reduced_, k));
        guard_ = no_value;
        close(4);
    }

    PackedPanels layout(const PackedSide& side) const { return {side.panel, packed_depth(side), side.in_lanes}; }

    // Copies the panels that the loop variable `panel` counts: elements past the end are what the factor makes of
    // zeros, and nobody looks at their sums.
    void pack(PackedSide& side, const Index& panel_in_buffer, const Index& panel, const Index& first_reduced,
              const Index& first_step, const Dim& steps, const std::optional<Index>& limit) {
        pack_panel(layout(side), side.buffer, panel_in_buffer, first_step, steps, limit,
                   [&](const Index& element, const Index& k) {
                       const Index at = panel * Dim(side.panel) + element;
                       guard_ = inside(side, at);
                       const ValueId value = step_of(side, at, first_reduced, k);
                       guard_ = no_value;
                       return value;
                   });
    }
    // What one step of the sum takes of an element of a panel.
    ValueId step_of(const PackedSide& side, const Index& at, const Index& first_reduced, const Index& step) {
        const Index reduced = first_reduced + step * Dim(together_);
        const ValueId low = element_of(side, at, reduced);
        if (!tiling_.pairs) return low;
        // An odd sum ends with half a pair.
        const ValueId outer_guard = guard_;
        ValueId exists = no_value;
        if (!reduce_.is_known() || reduce_.value() % 2 != 0) {
            exists = b_.op(ScalarOp::lt, b_.index_value(reduced + 1), b_.index_value(Index(reduce_)));
            guard_ = ops::both(b_, guard_, exists);
        }
        ValueId high = element_of(side, at, reduced + 1);
        guard_ = outer_guard;
        if (exists != no_value) high = b_.select(exists, high, b_.constant(0, b_.type(high)));
        return pair_of(low, high);
    }
    // The low half of the word comes first.
    ValueId pair_of(ValueId low, ValueId high) {
        const auto number = [this](std::int64_t bits) { return b_.constant_int(bits, DType::uint32); };
        if (tiling_.pairs == DType::int16) {
            low = b_.op(ScalarOp::bit_and, b_.cast(low, DType::uint32), number(0xffff));
            high = b_.op(ScalarOp::shl, b_.cast(high, DType::uint32), number(16));
        } else {
            // Numbers that are bfloat16 already have no other bits.
            const auto bits = [this](ValueId value) {
                return b_.bitcast(b_.round_to(value, DType::bfloat16), DType::uint32);
            };
            low = b_.op(ScalarOp::shr, bits(low), number(16));
            high = bits(high);
        }
        return b_.op(ScalarOp::bit_or, low, high);
    }
    ValueId element_of(const PackedSide& side, const Index& at, const Index& reduced) {
        bind(side.vars, at);
        bind(tiling_.reduce, reduced);
        return factor(side.factor);
    }

    // Panels may be fewer than threads: those share out the runs of the last reduced variable, which has a loop of its
    // own, along which the factor often lies.
    LoweredKernel write_packing(const std::string& name, PackedSide& side, int& number) {
        std::vector<VarId> outer = tiling_.reduce;
        Dim steps = 1;  // a sum of one product
        if (tiling_.pairs) {
            steps = steps_of(reduce_);
            outer.clear();
        } else if (!outer.empty()) {
            steps = extent({outer.back()});
            outer.pop_back();
        }
        const Dim runs = extent(outer);
        const Index at = begin_loop("run", {"run", side.batches * side.panels * runs, true});
        const Index panel = floor_div(at, runs);
        number = static_cast<int>(result_.scratch.size());
        side.buffer = scratch_buffer(side.name, number, packed_type_, packed_size(side), true);
        bind(side.batch, floor_div(panel, side.panels));
        pack(side, panel, mod(panel, side.panels), 0, mod(at, runs) * steps, steps, std::nullopt);
        close(1);
        return finish(name);
    }
    Dim packed_size(const PackedSide& side) const {
        return side.batches * side.panels * packed_depth(side) * Dim(side.panel);
    }

    void pack_in_tile(PackedSide& side) {
        side.buffer = local_buffer(side.name, packed_type_, Dim(side.tile_panels * side.panel) * packed_depth(side));
        if (is_packed_in_vectors(side)) return pack_in_vectors(side);
        const Index panel = begin_loop("panel", {"panel", Dim(side.tile_panels)}, panel_limit(side));
        pack_block(side, panel, side.first_panel + panel);
        close(1);
    }
    // Beside a window, the last reduced variable has a loop of its own, along which the factor often lies.
    void pack_block(PackedSide& side, const Index& panel_in_buffer, const Index& panel) {
        if (!tiling_.staged() || tiling_.inner_reduce == 0) {
            return pack(side, panel_in_buffer, panel, first_reduced_, 0, Dim(block_steps()), step_limit());
        }
        const Dim last = extent({tiling_.reduce.back()});
        const std::int64_t runs = inner_ / last.value();
        std::optional<Index> limit = reduced_limit();
        if (limit) limit = *limit * Dim(runs);
        const Index run = begin_loop("run", {"run", Dim(tiling_.block / last.value())}, limit);
        pack(side, panel_in_buffer, panel, first_reduced_, run * last, last, std::nullopt);
        close(1);
    }

    std::optional<Index> reduced_limit() const {
        if (tiling_.one_block) return std::nullopt;
        if (reduce_.is_known() && reduce_.value() % (tiling_.block * tiling_.splits) == 0) return std::nullopt;
        return Index(outer_reduce()) - first_outer_;
    }
    Dim outer_reduce() const { return floor_div(reduce_, Dim(inner_)); }

    ValueId packed_value(PackedSide& side, int number, const Index& panel, const Index& element, const Index& k) {
        if (!side.once) return b_.load(side.buffer, layout(side).offset(panel, element, k));
        if (side.buffer < 0) side.buffer = scratch_buffer(side.name, number, packed_type_, packed_size(side), false);
        const Index number_of_panel = joint(side.batch) * side.panels + side.first_panel + panel;
        return b_.load(side.buffer, layout(side).offset(number_of_panel, element, first_step_ + k));
    }

    // --- The product.

    void multiply_panels() {
        // Columns outside, so that a panel of them stays in the cache.
        Index row_panel = 0;
        if (tiling_.rows_outside) row_panel = begin_panels("row_panel", rows_);
        const Index column_panel = begin_panels("column_panel", columns_);
        if (packs_by_panel()) {
            columns_.buffer = local_buffer(columns_.name, packed_type_, packed_depth(columns_) * Dim(columns_.panel));
            pack_block(columns_, 0, columns_.first_panel + column_panel);
        }
        if (!tiling_.rows_outside) row_panel = begin_panels("row_panel", rows_);
        const auto [i, j] = begin_panel(rows_.panel, columns_.panel, tiling_.panel_rows, tiling_.panel_vectors);
        const Index row = (rows_.first_panel + row_panel) * Dim(rows_.panel) + i;
        const Index column = (columns_.first_panel + column_panel) * Dim(columns_.panel) + j;
        const bool in_place = reads_in_place(columns_);
        if (tiling_.staged() || in_place) {
            bind(tiling_.rows, clamped(rows_, row));
            bind(tiling_.columns, column);
        }
        const ValueId value = sum_over_block([&](const Index& k) {
            if (in_place) bind(tiling_.reduce, first_reduced_ + k);
            const auto value_of = [&](PackedSide& side, int number, const Index& panel, const Index& element) {
                if (reads_in_place(side)) return factor(side.factor);
                if (is_staged(side)) return staged_value();
                const bool alone = &side == &columns_ && packs_by_panel();
                return packed_value(side, number, alone ? Index(0) : panel, element, k);
            };
            const ValueId left = value_of(rows_, shared_.rows, row_panel, i);
            const ValueId right = value_of(columns_, shared_.columns, column_panel, j);
            return tiling_.pairs ? b_.dot_pairs(left, right, *tiling_.pairs) : b_.mul(left, right);
        });
        if (tiling_.in_registers) {
            guard_ = ops::both(b_, inside(rows_, row), inside(columns_, column));
            if (tiling_.finished_apart()) {
                b_.store(waiting_sums(true), waiting_offset(batch_, row, column), value, guard_);
            } else {
                store_results(row, column, value);
            }
            guard_ = no_value;
        } else {
            const bool alone = in_panels();
            add_to_sums(alone ? i : row_panel * Dim(rows_.panel) + i,
                        alone ? j : column_panel * Dim(columns_.panel) + j, value);
        }
        close(2);
        if (in_panels()) {
            finish_sums(sums_, sum_row(), rows_, rows_.first_panel + row_panel, rows_.panel, columns_,
                        columns_.first_panel + column_panel, columns_.panel);
        }
        close(2);
    }

    Index begin_panels(const std::string& name, const PackedSide& side) {
        return begin_loop(name, {name, Dim(side.tile_panels)}, panel_limit(side));
    }

    // The factors are read where they are, some rows of the column factor side by side. A number of rows that is known
    // makes one tile.
    void multiply_streaming() {
        const Index row_panel =
            begin_loop("row_panel", {"row_panel", Dim(tiling_.row_panels)},
                       rows_.extent.is_known() ? std::nullopt : std::optional<Index>(panel_limit(rows_)));
        const Index first_row = (rows_.first_panel + row_panel) * Dim(rows_.panel);
        const bool whole = rows_.extent.is_known() && rows_.extent.value() == tiling_.row_panels * rows_.panel;
        const Index i = begin_loop("i", {"i", Dim(rows_.panel), false, false, tiling_.panel_rows},
                                   whole ? std::nullopt : std::optional<Index>(Index(rows_.extent) - first_row));
        const Index first_column = columns_.first_panel * Dim(columns_.panel);
        const Index j = begin_loop("j", {"j", Dim(tile_columns()), false, true, tiling_.panel_vectors},
                                   Index(columns_.extent) - first_column);
        const ValueId value = sum_over_block([&](const Index& k) {
            bind(tiling_.rows, first_row + i);
            bind(tiling_.columns, first_column + j);
            bind(tiling_.reduce, first_reduced_ + k);
            const ValueId left = factor(rows_.factor);
            return b_.mul(left, factor(columns_.factor));
        });
        add_to_sums(row_panel * Dim(rows_.panel) + i, j, value);
        close(3);
    }

    template <typename Product>
    ValueId sum_over_block(Product product) {
        if (!tiling_.staged()) return sum_of_products(type_, Dim(block_steps()), step_limit(), product);
        const Dim steps = tiling_.block / inner_;
        const int sum = b_.add_accumulator(loopir::Combiner::sum, type_);
        b_.init_acc(sum);
        const Index k = begin_loop("k", {"k", steps}, reduced_limit());
        const std::size_t inner = tiling_.reduce.size() - static_cast<std::size_t>(tiling_.inner_reduce);
        bind({tiling_.reduce.begin(), tiling_.reduce.begin() + static_cast<std::ptrdiff_t>(inner)}, first_outer_ + k);
        const auto deciding = static_cast<std::size_t>(tiling_.deciding_reduce);
        for (std::size_t r = inner; r < tiling_.reduce.size(); ++r) {
            const auto var = static_cast<std::size_t>(tiling_.reduce[r]);
            const Dim& extent = region_.vars[var].extent;
            std::optional<Index> limit;
            const ValueId exists = r == std::max(inner, deciding) ? existence() : no_value;
            if (exists != no_value) {
                // The loop does not run where there is no product.
                limit = Index::value(b_.select(exists, b_.index_value(extent), b_.index_value(0)));
            }
            vars_[var] = begin_loop("k", {"k", extent}, limit);
            forget_values();
        }
        const std::vector<VarId> inner_vars(tiling_.reduce.begin() + static_cast<std::ptrdiff_t>(inner),
                                            tiling_.reduce.end());
        const bool guarded = deciding == tiling_.reduce.size() || tiling_.inner_reduce == 0;
        b_.accumulate(sum, product(k * Dim(inner_) + joint(inner_vars)), no_value, guarded ? existence() : no_value);
        close(1 + tiling_.inner_reduce);
        return b_.acc_read(sum);
    }

    // --- The staged factor.

    // One axis of the staged copy: a variable, a position, or one of the two digits of a position in parts.
    struct StageDigit {
        VarId var = -1;
        int position = -1;
        Dim origin;  // the lowest position
        Dim extent;
        std::int64_t step = 1;   // of the position with each step of the digit
        std::int64_t parts = 1;  // the digit is the position modulo this, when it is more than 1
        bool first = true;       // of its position
    };

    bool is_packed_here(const PackedSide& side) const {
        return !reads_in_place(side) && !side.once && !is_staged(side);
    }
    // A panel of columns is packed when the rows are about to meet it, so that it is in the first cache.
    bool packs_by_panel() const {
        return is_packed_here(columns_) && !tiling_.rows_outside && !is_packed_in_vectors(columns_);
    }
    bool reads_in_place(const PackedSide& side) const {
        const bool columns = tiling_.factors == Tiling::Factors::columns_in_place && side.factor == columns_.factor;
        return tiling_.factors == Tiling::Factors::in_place || tiling_.factors == Tiling::Factors::streamed || columns;
    }
    bool is_staged(const PackedSide& side) const { return tiling_.staged() && side.factor == 0; }

    void find_stage() {
        positions_ = over_region(access(contraction_).positions, region_.members.at(contraction_));
        for (const Tiling::StageAxis& axis : tiling_.stage) {
            if (axis.var >= 0) {
                const Dim& extent = region_.vars[static_cast<std::size_t>(axis.var)].extent;
                stage_.push_back({axis.var, -1, 0, extent + Dim(axis.slack)});
                continue;
            }
            const Index& position = positions_[static_cast<std::size_t>(axis.position)];
            const Dim origin = position.lower_bound();
            const Dim extent = position.upper_bound() - origin + 1;
            if (axis.parts == 1) {
                stage_.push_back({-1, axis.position, origin, extent + Dim(axis.slack)});
                continue;
            }
            stage_.push_back({-1, axis.position, origin, axis.parts, 1, axis.parts});
            stage_.push_back(
                {-1, axis.position, origin, ceil_div(extent, axis.parts) + Dim(axis.slack), axis.parts, 1, false});
        }
        for (std::size_t k = tiling_.reduce.size();
             k-- > tiling_.reduce.size() - static_cast<std::size_t>(tiling_.inner_reduce);) {
            inner_ *= region_.vars[static_cast<std::size_t>(tiling_.reduce[k])].extent.value();
        }
    }

    Dim stage_size() const {
        Dim size = 1;
        for (const StageDigit& digit : stage_) size = size * digit.extent;
        return size;
    }

    Index stage_offset(const Indices& digits) const {
        std::vector<std::pair<Index, Dim>> joint;
        for (std::size_t k = 0; k < stage_.size(); ++k) joint.emplace_back(digits[k], stage_[k].extent);
        return row_major(joint);
    }

    // The factor's element for the variables as they are bound.
    ValueId staged_value() {
        if (stage_buffer_ < 0) stage_buffer_ = scratch_buffer("stage", shared_.stage, type_, stage_size(), false);
        Indices digits;
        for (const StageDigit& digit : stage_) {
            if (digit.position < 0) {
                digits.push_back(vars_[static_cast<std::size_t>(digit.var)]);
                continue;
            }
            const Index at = over_loops(positions_[static_cast<std::size_t>(digit.position)]) - Index(digit.origin);
            digits.push_back(digit.parts > 1 ? mod(at, digit.parts) : floor_div(at, digit.step));
        }
        return b_.load(stage_buffer_, stage_offset(digits));
    }

    // Rows past the end read what the last one does, and nobody looks at their sums.
    Index clamped(const PackedSide& side, const Index& index) {
        if (side.extent.is_known() && side.extent.value() % side.panel == 0) return index;
        return Index::value(b_.op(ScalarOp::min, b_.index_value(index), b_.index_value(Index(side.extent - 1))));
    }

    // --- Sums that wait for the next block: [row of the tile, column of the tile].

    // Sums that are complete after one block wait for nothing but a loop that finishes them, panel by panel: what
    // finishes them would be long if it were written out for each register.
    bool in_panels() const {
        const bool waits = !tiling_.in_registers && !tiling_.finished_in_tile;
        return tiling_.factors != Tiling::Factors::streamed && tiling_.one_block && waits && tiling_.splits == 1;
    }
    std::int64_t tile_columns() const { return tiling_.column_panels * columns_.panel; }
    std::int64_t sum_rows() const { return (in_panels() ? 1 : tiling_.row_panels) * rows_.panel; }
    std::int64_t sum_row() const { return in_panels() ? columns_.panel : tile_columns() + row_padding; }
    Index sum_offset(const Index& row, const Index& column) const { return row * Dim(sum_row()) + column; }

    void add_to_sums(const Index& row, const Index& column, ValueId value) {
        if (sums_ < 0) sums_ = local_buffer("sums", type_, Dim(sum_rows() * sum_row()));
        const Index at = sum_offset(row, column);
        if (tiling_.one_block) return b_.store(sums_, at, value);
        add_to_blocks(sums_, at, value, block_);
    }

    void store_results(const Index& row, const Index& column, ValueId sum) {
        bind(tiling_.rows, row);
        bind(tiling_.columns, column);
        finish_value(sum);
    }
    DType packed_type_ = DType::float32;
    std::int64_t together_ = 1;  // products in one step of the sum
    Dim reduce_;
    PackedSide rows_, columns_;
    Index block_ = 0;
    std::int64_t inner_ = 1;                     // products of the reduced variables with loops of their own
    Index first_outer_ = 0, first_reduced_ = 0;  // of the block: without and with those
    Index first_step_ = 0;                       // of the block
    int sums_ = -1;
    std::vector<StageDigit> stage_;
    Indices positions_;  // of the window, over the region's variables
    int stage_buffer_ = -1;
};

}  // namespace

void lower_contraction(const Program& program, const Partition& partition, const Region& region,
                       const Schedule& schedule, const std::map<OpId, TensorRef>& in_place, const std::string& name,
                       LoweredRegion& result) {
    if (schedule.tiling->winograd) return lower_winograd(program, partition, region, schedule, in_place, name, result);
    if (schedule.tiling->matrix_parts > 0) {
        return lower_matrix_unit(program, partition, region, schedule, in_place, name, result);
    }
    SharedScratch shared;
    const auto writer = [&] {
        return ContractionWriter(program, partition, region, schedule, in_place, result, shared);
    };
    const Tiling& tiling = *schedule.tiling;
    if (tiling.staged()) result.kernels.push_back(writer().write_stage(name + "_stage"));
    if (tiling.rows_once) result.kernels.push_back(writer().write_packed_rows(name + "_rows"));
    if (tiling.columns_once) result.kernels.push_back(writer().write_packed_columns(name + "_columns"));
    const bool finished = tiling.splits == 1 && !tiling.finished_apart();
    result.kernels.push_back(writer().write_product(finished ? name : name + "_sums"));
    if (tiling.splits > 1) result.kernels.push_back(writer().write_combination(name));
    if (tiling.splits == 1 && tiling.finished_apart()) result.kernels.push_back(writer().write_finish(name));
}

}  // namespace topstitch::stitch
