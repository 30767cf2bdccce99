// Variables, factors and waiting sums of contractions.
// See contraction_frame.h.
#include "stitch/contraction_frame.h"

#include <algorithm>

namespace topstitch::stitch {

using loopir::no_value;
using loopir::ValueId;

ContractionFrame::ContractionFrame(const Program& program, const Partition& partition, const Region& region,
                                   const Schedule& schedule, const std::map<OpId, TensorRef>& in_place,
                                   LoweredRegion& result, SharedScratch& shared)
    : KernelWriter(program, partition, region, schedule, in_place, result),
      tiling_(*schedule.tiling),
      shared_(shared),
      vars_(region.vars.size()) {
    for (const auto& [op, member] : region.members) {
        if (access(op).is_reduce) contraction_ = op;
    }
    type_ = compute_type(dtype(contraction_));
    batches_ = extent(tiling_.batch);
    row_count_ = extent(tiling_.rows);
    column_count_ = extent(tiling_.columns);
}

LoweredKernel ContractionFrame::write_finish(const std::string& name) {
    const VarId crossing = tiling_.columns.back();
    const auto first_lane = tiling_.finish.end() - tiling_.finish_lanes;
    std::vector<VarId> outer(tiling_.finish.begin(), first_lane);
    std::erase(outer, crossing);
    const std::vector<VarId> lanes(first_lane, tiling_.finish.end());
    bind(outer, begin_loop("at", {"at", extent(outer), true}));
    const bool crosses = std::find(lanes.begin(), lanes.end(), crossing) == lanes.end();
    if (crosses) bind(crossing, begin_loop("column", {"column", extent({crossing})}));
    bind(lanes, begin_loop("lane", {"lane", extent(lanes), false, true, 1}));
    const Index at = waiting_offset(joint(tiling_.batch), joint(tiling_.rows), joint(tiling_.columns));
    finish_value(b_.load(waiting_sums(false), at));
    close(crosses ? 3 : 2);
    return finish(name);
}

LoweredKernel ContractionFrame::write_combination(const std::string& name) {
    const Index outer = begin_loop("row", {"row", batches_ * row_count_, true});
    const Index j = begin_loop("column", {"column", column_count_, false, true, tiling_.unroll});
    const int sum = b_.add_accumulator(loopir::Combiner::sum, type_);
    b_.init_acc(sum);
    const Index split = begin_loop("split", {"split", Dim(tiling_.splits)});
    b_.accumulate(sum, b_.load(waiting_sums(false), waiting_offset(split * batches_, outer, j)));
    close(1);
    bind(tiling_.batch, floor_div(outer, row_count_));
    bind(tiling_.rows, mod(outer, row_count_));
    bind(tiling_.columns, j);
    finish_value(b_.acc_read(sum));
    close(2);
    return finish(name);
}

Dim ContractionFrame::extent(const std::vector<VarId>& vars) const {
    Dim product = 1;
    for (VarId var : vars) product = product * region_.vars[static_cast<std::size_t>(var)].extent;
    return product;
}

void ContractionFrame::bind(const std::vector<VarId>& vars, Index left) {
    for (std::size_t k = vars.size(); k-- > 0;) {
        const Dim& digit = region_.vars[static_cast<std::size_t>(vars[k])].extent;
        bind(vars[k], k == 0 ? left : mod(left, digit));
        left = floor_div(left, digit);
    }
    forget_values();
}

Index ContractionFrame::joint(const std::vector<VarId>& vars) const {
    std::vector<std::pair<Index, Dim>> digits;
    for (VarId var : vars) digits.emplace_back(region_var(var), extent({var}));
    return row_major(digits);
}

ValueId ContractionFrame::factor(int number) {
    return in_context(contraction_, contraction_, guard_,
                      [&](ElementContext& context, const OpDef& def) {
                          const auto& body = std::get<ReduceBody>(def.body);
                          const Indices domain = reduce_domain(contraction_, body, context.op);
                          const auto& element = body.factors[static_cast<std::size_t>(number)];
                          return element(context, home(contraction_), domain);
                      })
        .re;
}

ValueId ContractionFrame::existence() {
    ValueId exists = no_value;
    const std::vector<bool>& deciding = access(contraction_).exists_vars;
    if (std::find(deciding.begin(), deciding.end(), true) == deciding.end()) return exists;
    in_context(contraction_, -1, no_value, [&](ElementContext& context, const OpDef& def) {
        const auto& body = std::get<ReduceBody>(def.body);
        exists = body.exists(context, home(contraction_), reduce_domain(contraction_, body, context.op));
        return Value{};
    });
    return exists;
}

ValueId ContractionFrame::below(const Index& index, const Dim& extent, std::int64_t step) {
    if (extent.is_known() && extent.value() % step == 0) return no_value;
    return b_.op(loopir::ScalarOp::lt, b_.index_value(index), b_.index_value(Index(extent)));
}

ValueId ContractionFrame::window_element(const Indices& positions) {
    return in_context(contraction_, -1, guard_,
                      [&](ElementContext& context, const OpDef& def) {
                          const auto& body = std::get<ReduceBody>(def.body);
                          return body.window->element(context, home(contraction_),
                                                      reduce_domain(contraction_, body, context.op), positions);
                      })
        .re;
}

void ContractionFrame::finish_value(ValueId sum) {
    pass_ = phases_.passes;
    outer_values_[contraction_] = Value{sum, no_value};
    store_outputs([](OpId) { return true; });
}

void ContractionFrame::add_to_blocks(int buffer, const Index& at, ValueId value, const Index& block) {
    const ValueId later = b_.op(loopir::ScalarOp::lt, b_.index_value(Index(0)), b_.index_value(block));
    b_.store(buffer, at, b_.add(b_.load(buffer, at, later), value));
}

ContractionFrame::Side ContractionFrame::side(const char* name, const std::vector<VarId>& vars,
                                              const std::vector<VarId>& batch, int factor, std::int64_t panel,
                                              std::int64_t tile_panels, bool once) const {
    Side result{name, vars, batch, factor, extent(vars), 0, extent(batch), panel, tile_panels, once};
    result.panels = ceil_div(result.extent, panel);
    return result;
}

void ContractionFrame::begin_tile(Side& rows, Side& columns) {
    const Dim row_tiles = ceil_div(rows.panels, rows.tile_panels);
    const Dim column_tiles = ceil_div(columns.panels, columns.tile_panels);
    const Dim splits = tiling_.splits;
    Index left = begin_loop("tile", {"tile", batches_ * splits * row_tiles * column_tiles, true});
    columns.first_panel = mod(left, column_tiles) * Dim(columns.tile_panels);
    left = floor_div(left, column_tiles);
    rows.first_panel = mod(left, row_tiles) * Dim(rows.tile_panels);
    left = floor_div(left, row_tiles);
    split_ = tiling_.splits > 1 ? mod(left, splits) : Index(0);
    batch_ = floor_div(left, splits);
    bind(tiling_.batch, batch_);
}

void ContractionFrame::finish_sums(int buffer, std::int64_t row_step, const Side& rows, const Index& row_panel,
                                   std::int64_t row_count, const Side& columns, const Index& column_panel,
                                   std::int64_t column_count) {
    // Where loops from `first` on have to stop; none when they fill the extent.
    const auto limit = [](const Side& side, const Index& first, std::int64_t count) -> std::optional<Index> {
        if (side.extent.is_known() && side.extent.value() % count == 0) return std::nullopt;
        return Index(side.extent) - first;
    };
    const Index first_row = row_panel * Dim(rows.panel);
    const Index first_column = column_panel * Dim(columns.panel);
    const Index i = begin_loop("i", {"i", Dim(row_count)}, limit(rows, first_row, row_count));
    const Index j = begin_loop("j", {"j", Dim(column_count), false, true, tiling_.unroll},
                               limit(columns, first_column, column_count));
    const ValueId sum = b_.load(buffer, i * Dim(row_step) + j);
    if (tiling_.splits > 1) {
        b_.store(waiting_sums(true), waiting_offset(split_ * batches_ + batch_, first_row + i, first_column + j), sum);
    } else {
        bind(tiling_.rows, first_row + i);
        bind(tiling_.columns, first_column + j);
        finish_value(sum);
    }
    close(2);
}

int ContractionFrame::waiting_sums(bool writing) {
    if (waiting_ >= 0) return waiting_;
    if (writing) shared_.sums = static_cast<int>(result_.scratch.size());
    const Dim size = Dim(tiling_.splits) * batches_ * row_count_ * column_count_;
    return waiting_ = scratch_buffer("sums", shared_.sums, type_, size, writing);
}

Index ContractionFrame::waiting_offset(const Index& batch, const Index& row, const Index& column) const {
    return (batch * row_count_ + row) * column_count_ + column;
}

}  // namespace topstitch::stitch
