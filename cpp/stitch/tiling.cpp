// Chooses the tiles of a contraction: which axes are rows and columns, the register panel, and the cache blocks.
// The method is that of Goto and van de Geijn (2008): panels in registers, a block of rows in the second-level cache.
#include "stitch/tiling.h"

#include <algorithm>
#include <set>

#include "stitch/minimal_filter.h"
#include "stitch/value_range.h"

namespace topstitch::stitch {

namespace {

using loopir::VarId;

// With fewer rows a packed factor is used too few times.
constexpr std::int64_t min_packed_rows = 24;
constexpr std::int64_t min_rows_of_invariant = 4;  // when it is packed once, in front of a loop
constexpr std::int64_t min_reduce = 16;
constexpr std::int64_t min_multiplications = std::int64_t{32} * 32 * 32;
constexpr double max_register_cost = 8;        // of what the sums go through while they fill the registers
constexpr std::int64_t streamed_block = 8;     // rows of the column factor that are read side by side
constexpr std::int64_t streamed_sums = 4096;   // of a tile: they stay in the first-level cache
constexpr std::int64_t max_streamed_rows = 8;  // rows of registers in streamed products
constexpr std::int64_t min_batched_columns = 64;
constexpr std::int64_t min_panel_sums = 10;       // fewer do not hide the latency of multiply-adds
constexpr double max_cost_of_wide_panels = 0.96;  // of that of the usual ones, to be chosen

}  // namespace

// --- Facts.

std::int64_t TilingChooser::estimate(const Dim& dim) const {
    return std::max<std::int64_t>(options_.estimate(dim), 0);
}

std::int64_t TilingChooser::count(const std::vector<VarId>& vars) const {
    std::int64_t product = 1;
    for (VarId var : vars) product *= estimate(extent(var));
    return product;
}

// The one reduction of the region, if it is a contraction of real numbers whose row values nobody needs.
bool TilingChooser::find_contraction() {
    for (const auto& [op, member] : region_.members) {
        if (!access(op).is_reduce) continue;
        if (contraction_ >= 0 || !access(op).is_contraction() || access(op).is_empty_sum) return false;
        contraction_ = op;
    }
    type_ = program_.graph->type({contraction_, 0}).dtype;
    if (is_complex(type_) || type_ == DType::boolean) return false;
    for (const std::vector<bool>& own : access(contraction_).factor_vars) used_.push_back(over_region_vars(own));
    deciding_ = over_region_vars(access(contraction_).exists_vars);
    positions_ = over_region(access(contraction_).positions, region_.members.at(contraction_));
    phases_ = find_phases(partition_, region_);
    return std::none_of(region_.outputs.begin(), region_.outputs.end(), [this](OpId op) { return phases_.row.at(op); });
}

bool TilingChooser::is_invariant_factor(int factor) const {
    return access(contraction_).invariant_factors[static_cast<std::size_t>(factor)];
}

// The type in which pairs of factors are multiplied by one instruction, if all of their numbers fit into it.
std::optional<DType> TilingChooser::find_pairs() const {
    const DType result = program_.graph->type({contraction_, 0}).dtype;
    if (machine_.bfloat16_pairs && result == DType::bfloat16) return DType::bfloat16;
    if (!machine_.int16_pairs || result != DType::int32) return std::nullopt;
    const std::vector<TensorRef>& inputs = program_.graph->op(contraction_).inputs;
    const bool fit = std::all_of(inputs.begin(), inputs.begin() + 2, [this](TensorRef input) {
        return value_range(*program_.graph, input).fits(DType::int16);
    });
    return fit ? std::optional(DType::int16) : std::nullopt;
}

std::int64_t TilingChooser::packed_bytes(const Tiling& tiling) const {
    return static_cast<std::int64_t>(size_of(tiling.pairs.value_or(compute_type(type_))));
}

// Packed factors and split sums take three buffers more.
bool TilingChooser::too_many_buffers() const {
    std::set<TensorRef> tensors;
    for (const RegionAccess& access : accesses_) tensors.insert(access.tensor);
    return static_cast<int>(tensors.size()) + 3 > options_.max_buffers;
}

std::vector<bool> TilingChooser::over_region_vars(const std::vector<bool>& own) const {
    std::vector<bool> used(region_.vars.size(), false);
    const Member& member = region_.members.at(contraction_);
    for (std::size_t v = 0; v < own.size(); ++v) {
        if (!own[v]) continue;
        std::vector<VarId> vars;
        member.own[v].collect_vars(vars);
        for (VarId var : vars) used[static_cast<std::size_t>(var)] = true;
    }
    return used;
}

std::int64_t TilingChooser::stride(const Index& offset, VarId var) const {
    const Dim coefficient = offset.coefficient_of(var);
    return coefficient.is_unknown() ? 0 : std::abs(options_.estimate(coefficient));
}

bool TilingChooser::is_contiguous(const std::vector<VarId>& vars) const {
    const auto store = std::find_if(accesses_.begin(), accesses_.end(), [](const auto& a) { return a.store; });
    return std::any_of(vars.begin(), vars.end(), [&](VarId v) { return stride(store->offset, v) == 1; });
}

void TilingChooser::sort_by_store(std::vector<VarId>& vars) const {
    const auto store = std::find_if(accesses_.begin(), accesses_.end(), [](const auto& a) { return a.store; });
    std::stable_sort(vars.begin(), vars.end(),
                     [&](VarId a, VarId b) { return stride(store->offset, a) > stride(store->offset, b); });
}

// Arithmetic that each sum goes through before it is stored.
double TilingChooser::cost_of_results() const {
    double cost = 0;
    for (const auto& [op, member] : region_.members) {
        if (op != contraction_ && !phases_.row.at(op)) cost += access(op).cost;
    }
    return cost;
}

// Whether results are finished while they fill the registers, by code that is written out for each: it must be short,
// which anything but a plain store is not when it goes lane by lane.
bool TilingChooser::finished_in_registers(const Tiling& tiling) const {
    const double cost = cost_of_results();
    return cost == 0 || (cost <= max_register_cost && is_contiguous(tiling.columns));
}

// --- Products in general.

std::optional<Tiling> TilingChooser::run() {
    // Nobody reads the results when there are no elements.
    if (!region_.has_contraction || region_.outputs.empty() || !options_.stitch) return std::nullopt;
    if (!find_contraction()) return std::nullopt;
    accesses_ = buffer_accesses(program_, partition_, region_);
    if (too_many_buffers()) return std::nullopt;
    Tiling tiling;
    classify(tiling);
    const auto bytes = static_cast<int>(size_of(compute_type(type_)));
    tiling.lanes = std::max(machine_.vector_bytes / bytes, 1);
    tiling.unroll = unroll_for(cost_of(partition_, region_));
    const bool everywhere = std::find(deciding_.begin(), deciding_.end(), true) == deciding_.end();
    if (shares_window() || !everywhere) return choose_staged(tiling);
    if (tiling.columns.empty()) {
        std::swap(tiling.rows, tiling.columns);
        tiling.row_factor = 1;
    }
    if (tiling.columns.empty() || tiling.reduce.empty()) return std::nullopt;
    order_by_store(tiling);
    move_to_batch(tiling.columns, tiling.batch);
    find_batches(tiling);
    const std::int64_t rows = count(tiling.rows);
    const std::int64_t columns = count(tiling.columns);
    const std::int64_t reduce = count(tiling.reduce);
    if (reduce < min_reduce || rows * columns * reduce < min_multiplications) return std::nullopt;
    if (columns < tiling.lanes) return std::nullopt;
    const bool packed_once = is_invariant_factor(1 - tiling.row_factor);
    if (rows < (packed_once ? min_rows_of_invariant : min_packed_rows)) {
        if (!columns_contiguous_) return std::nullopt;
        choose_streamed(tiling, rows, columns, reduce);
    } else if (find_matrix_parts(tiling, rows, columns, reduce)) {
        choose_matrix_blocks(tiling, rows, columns, reduce);
    } else {
        tiling.pairs = find_pairs();
        choose_panel(tiling, rows, columns);
        choose_blocks(tiling, rows, columns, reduce);
        choose_reading(tiling, rows, columns, reduce);
    }
    return tiling;
}

void TilingChooser::classify(Tiling& tiling) const {
    for (std::size_t v = 0; v < region_.vars.size(); ++v) {
        const auto var = static_cast<VarId>(v);
        if (region_.vars[v].row) {
            tiling.reduce.push_back(var);
        } else if (used_[0][v] == used_[1][v]) {
            tiling.batch.push_back(var);
        } else {
            (used_[0][v] ? tiling.rows : tiling.columns).push_back(var);
        }
    }
}

// Whether every access makes one axis of the two variables.
bool TilingChooser::coalesce(VarId outer, VarId inner) const {
    return std::all_of(accesses_.begin(), accesses_.end(), [&](const RegionAccess& access) {
        if (!access.offset.depends_on(outer) && !access.offset.depends_on(inner)) return true;
        return access.offset.coefficient_of(outer) == access.offset.coefficient_of(inner) * extent(inner);
    });
}

// Columns that are no axis of memory with the others take a division for each element that is packed: they become
// batches when the others are enough for a few panels.
void TilingChooser::move_to_batch(std::vector<VarId>& vars, std::vector<VarId>& batch) const {
    std::size_t first = vars.size() - 1;
    while (first > 0 && coalesce(vars[first - 1], vars[first])) --first;
    const std::vector<VarId> together(vars.begin() + static_cast<std::ptrdiff_t>(first), vars.end());
    if (first == 0 || count(together) < min_batched_columns) return;
    batch.insert(batch.end(), vars.begin(), vars.begin() + static_cast<std::ptrdiff_t>(first));
    vars = together;
}

void TilingChooser::find_batches(Tiling& tiling) const {
    const auto rows = static_cast<std::size_t>(tiling.row_factor);
    for (VarId var : tiling.batch) {
        const auto v = static_cast<std::size_t>(var);
        if (used_[rows][v]) tiling.row_batch.push_back(var);
        if (used_[1 - rows][v]) tiling.column_batch.push_back(var);
    }
}

// Columns are what the result is contiguous along, so that it is stored in vectors.
void TilingChooser::order_by_store(Tiling& tiling) {
    if (is_contiguous(tiling.rows) && !is_contiguous(tiling.columns)) {
        std::swap(tiling.rows, tiling.columns);
        tiling.row_factor = 1 - tiling.row_factor;
    }
    for (std::vector<VarId>* vars : {&tiling.batch, &tiling.rows, &tiling.columns}) sort_by_store(*vars);
    // Which way the row factor lies in memory.
    const VarId row = tiling.rows.empty() ? VarId{-1} : tiling.rows.back();
    const VarId inner = tiling.reduce.back();
    const VarId column = tiling.columns.back();
    int along_rows = 0;
    for (const RegionAccess& access : accesses_) {
        if (!access.store && access.offset.depends_on(inner) && access.offset.depends_on(column)) {
            columns_contiguous_ = columns_contiguous_ && stride(access.offset, column) == 1;
        }
        if (access.store || access.offset.depends_on(column) || !access.offset.depends_on(inner)) continue;
        if (stride(access.offset, row) == 1) ++along_rows;
        if (stride(access.offset, inner) == 1) --along_rows;
    }
    tiling.rows_in_lanes = along_rows > 0;
}

// As many accumulators as registers allow, beside those for one row of columns and one broadcast. Panels hang over the
// edge: with few rows, low and wide ones may waste less there.
void TilingChooser::choose_panel(Tiling& tiling, std::int64_t rows, std::int64_t columns) const {
    const auto panels = [&](int vectors) {
        const std::int64_t most = (machine_.vector_registers - 4) / vectors;
        const std::int64_t height = ceil_div(rows, ceil_div(rows, most));
        const std::int64_t count = ceil_div(rows, height) * ceil_div(columns, vectors * tiling.lanes);
        const std::int64_t sums = std::max(height * vectors, min_panel_sums);
        return std::pair(height, static_cast<double>(count * sums));
    };
    tiling.panel_vectors = columns > tiling.lanes ? 2 : 1;
    const int wider = tiling.panel_vectors + 1;
    const bool is_better = panels(wider).second < max_cost_of_wide_panels * panels(tiling.panel_vectors).second;
    if (tiling.panel_vectors > 1 && is_better) tiling.panel_vectors = wider;
    tiling.panel_rows = static_cast<int>(panels(tiling.panel_vectors).first);
}

// Few rows: the column factor streams through once, some of its rows at a time, into sums in the first-level cache.
void TilingChooser::choose_streamed(Tiling& tiling, std::int64_t rows, std::int64_t columns,
                                    std::int64_t reduce) const {
    tiling.factors = Tiling::Factors::streamed;
    const std::int64_t panels = ceil_div(rows, max_streamed_rows);
    tiling.panel_rows = static_cast<int>(ceil_div(rows, panels));
    tiling.panel_vectors = tiling.panel_rows > 4 ? 1 : 2;
    tiling.row_panels = panels;
    tiling.block = streamed_block;
    const std::int64_t column_panels = ceil_div(columns, tiling.panel_columns());
    const std::int64_t sums = tiling.row_panels * tiling.panel_rows * tiling.panel_columns();
    const std::int64_t most = std::max<std::int64_t>(streamed_sums / sums, 1);
    const std::int64_t work = rows * columns * reduce;
    tiling.column_panels = share(tiling, work, column_panels, most, {1, 1});
    split(tiling, work, ceil_div(column_panels, tiling.column_panels), reduce);
}

std::optional<Tiling> choose_tiling(const Program& program, const Partition& partition, const Region& region,
                                    const StitchOptions& options, const Machine& machine) {
    return TilingChooser(program, partition, region, options, machine).run();
}

std::string str(const Tiling& tiling, const Region& region) {
    const auto extents = [&region](const std::vector<VarId>& vars) {
        std::string text;
        for (VarId var : vars) {
            text += concat(text.empty() ? "" : " x ", region.vars[static_cast<std::size_t>(var)].extent.str());
        }
        return text;
    };
    std::string text = concat("product of ", tiling.rows.empty() ? "1" : extents(tiling.rows), " rows and ",
                              extents(tiling.columns), " columns over ", extents(tiling.reduce));
    if (!tiling.batch.empty()) text += concat(", batch ", extents(tiling.batch));
    text += concat("; panels of ", tiling.panel_rows, " by ", tiling.panel_columns(), ", tiles of ",
                   tiling.row_panels * tiling.panel_rows, " by ", tiling.column_panels * tiling.panel_columns());
    if (tiling.matrix_parts == 1) {
        text += concat(", on the matrix unit: ", name_of(tiling.matrix_types[0]));
        if (tiling.matrix_types[1] != tiling.matrix_types[0]) text += concat(" by ", name_of(tiling.matrix_types[1]));
    }
    if (tiling.matrix_parts > 1) text += concat(", on the matrix unit in ", tiling.matrix_parts, " parts");
    if (tiling.pairs) text += concat(", pairs of ", name_of(*tiling.pairs));
    if (!tiling.one_block) text += concat(", blocks of ", tiling.block);
    if (tiling.splits > 1) text += concat(", split in ", tiling.splits);
    if (tiling.winograd) {
        const MinimalFilter& filter = *tiling.winograd;
        const auto results = [&filter](const MinimalFilter::Axis& axis) {
            return filter.of_weights ? axis.taps : axis.places;
        };
        text += concat(", ", results(filter.down), " by ", results(filter.across), " results from ",
                       filter_tile * filter_tile, " products of transforms");
    }
    if (tiling.staged()) text += tiling.row_factor == 0 ? ", windows in rows" : ", windows in lanes";
    if (tiling.factors == Tiling::Factors::in_place) text += ", read in place";
    if (tiling.factors == Tiling::Factors::columns_in_place) text += ", columns read in place";
    if (tiling.factors == Tiling::Factors::streamed) text += ", streamed";
    if (tiling.finished_apart()) text += ", finished along memory";
    return text;
}

}  // namespace topstitch::stitch
