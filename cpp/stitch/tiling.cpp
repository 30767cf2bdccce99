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
constexpr std::int64_t max_one_block = 1024;  // a reduced axis up to here is not cut into blocks
constexpr std::int64_t max_block = 256;
constexpr std::int64_t max_long_block = 2048;  // and these, where there are many rows
constexpr std::int64_t min_rows_of_long_blocks = 1024;
constexpr std::int64_t min_rows_of_a_tile = 48;  // while which the columns stream past
constexpr std::int64_t block_alignment = 16;
constexpr std::int64_t min_reduce_of_waiting = 256;  // for results that are finished tile by tile
constexpr std::int64_t min_panels_in_row = 8;        // of those
constexpr double max_register_cost = 8;              // of what the sums go through while they fill the registers
constexpr std::int64_t max_sum_columns = 256;        // of a tile whose sums wait in memory
constexpr std::int64_t streamed_block = 8;           // rows of the column factor that are read side by side
constexpr std::int64_t streamed_sums = 4096;         // of a tile: they stay in the first-level cache
constexpr std::int64_t max_streamed_rows = 8;        // rows of registers in streamed products
constexpr std::int64_t min_batched_columns = 64;
constexpr std::int64_t min_panel_sums = 10;       // fewer do not hide the latency of multiply-adds
constexpr double max_cost_of_wide_panels = 0.96;  // of that of the usual ones, to be chosen
constexpr std::int64_t worth_a_launch = 1 << 16;  // elements that may be packed again in the time of another launch
constexpr std::int64_t worth_sharing = 1 << 19;   // multiplications of each thread
constexpr std::int64_t max_uneven_tiles = 32;     // for each thread: with more, it matters little that they differ
constexpr double worth_more_tiles = 0.96;         // of the time until the last thread is done

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

// Panels of a tile: at most so many, or fewer when the threads are then done earlier, if there is work enough.
// `around`: so many times the tiles, each of the panels in a tile of the other side.
std::int64_t TilingChooser::share(const Tiling& tiling, std::int64_t work, std::int64_t panels, std::int64_t most,
                                  const Tiles& around) const {
    const auto threads = static_cast<std::size_t>(machine_.threads);
    const std::int64_t groups = std::max<std::int64_t>(count(tiling.batch), 1) * around.count();
    const std::int64_t largest = std::min(most, panels);
    const std::int64_t even = ceil_div(panels, ceil_div(panels, largest));
    const bool many = groups * ceil_div(panels, largest) >= machine_.threads * max_uneven_tiles;
    if (work / machine_.threads < worth_sharing || many) return even;
    // Each thread takes the next tile as soon as it is free.
    const auto last_is_done = [&](std::int64_t size) {
        const Tiles tiles{panels, size};
        std::vector<std::int64_t> done(threads, 0);
        for (std::int64_t group = 0; group < groups; ++group) {
            for (std::int64_t tile = 0; tile < tiles.count(); ++tile)
                *std::min_element(done.begin(), done.end()) +=
                    around.panels_of(group % around.count()) * tiles.panels_of(tile);
        }
        return static_cast<double>(*std::max_element(done.begin(), done.end()));
    };
    const std::int64_t least = std::max<std::int64_t>(std::min(largest / 2, groups * panels / machine_.threads), 1);
    std::int64_t best = even;
    double earliest = last_is_done(even);
    for (std::int64_t size = largest; size >= least; --size) {
        const double done = last_is_done(size);
        if (done >= worth_more_tiles * earliest) continue;
        best = size;
        earliest = done;
    }
    return best;
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
    } else {
        tiling.pairs = find_pairs();
        choose_panel(tiling, rows, columns);
        choose_blocks(tiling, rows, columns, reduce);
        if (is_read_in_place(tiling, rows, columns, reduce)) {
            tiling.factors = Tiling::Factors::in_place;
            tiling.rows_once = tiling.columns_once = false;
        }
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

void TilingChooser::choose_blocks(Tiling& tiling, std::int64_t rows, std::int64_t columns, std::int64_t reduce) const {
    const std::int64_t bytes = packed_bytes(tiling);
    const bool known =
        std::all_of(tiling.reduce.begin(), tiling.reduce.end(), [this](VarId v) { return extent(v).is_known(); });
    // Many rows are worth longer blocks: sums wait in memory less often.
    const auto is_worth = [&](std::int64_t block) {
        const std::int64_t fitting = machine_.l2_bytes / 4 / (bytes * block);
        return rows >= min_rows_of_long_blocks && fitting >= min_rows_of_a_tile;
    };
    tiling.one_block = known && (reduce <= max_one_block || (reduce <= max_long_block && is_worth(reduce)));
    const std::int64_t longest = is_worth(max_one_block) ? max_one_block : max_block;
    const std::int64_t blocks = tiling.one_block ? 1 : ceil_div(reduce, longest);
    tiling.block = known ? ceil_div(reduce, blocks) : longest;
    // Blocks begin with a whole pair, and with whole vectors of steps.
    if (!tiling.one_block) tiling.block = ceil_div(tiling.block, block_alignment) * block_alignment;

    tiling.in_registers = tiling.one_block && finished_in_registers(tiling);
    const std::int64_t row_panels = ceil_div(rows, tiling.panel_rows);
    const std::int64_t column_panels = ceil_div(columns, tiling.panel_columns());
    // The packed rows of a tile lie in a quarter of the second-level cache, or in half of it when there are several
    // blocks, and the packed columns are read again for each tile.
    const std::int64_t share_of_cache = machine_.l2_bytes / (tiling.one_block ? 4 : 2) / bytes;
    const auto fit = [&](std::int64_t elements) { return std::max<std::int64_t>(share_of_cache / elements, 1); };
    const std::int64_t most_rows = fit(tiling.panel_rows * tiling.block);
    const std::int64_t work = rows * columns * reduce;
    // With all rows in one tile the threads share the columns, which are packed once then.
    const bool all_rows = row_panels <= most_rows && column_panels >= 2 * machine_.threads;
    tiling.row_panels = all_rows ? row_panels : share(tiling, work, row_panels, most_rows, {1, 1});
    const std::int64_t row_tiles = ceil_div(row_panels, tiling.row_panels);

    const auto uses = [&](const std::vector<VarId>& batch) {
        return ceil_div(count(tiling.batch), std::max<std::int64_t>(count(batch), 1));
    };
    const std::int64_t column_uses = row_tiles * uses(tiling.column_batch);
    // A factor that is the same in all iterations of a loop is packed in front of it.
    tiling.columns_once =
        is_invariant_factor(1 - tiling.row_factor) || (column_uses - 1) * columns * reduce > worth_a_launch;
    std::int64_t most_columns = column_panels;
    if (!tiling.columns_once) most_columns = fit(tiling.panel_columns() * tiling.block);
    if (!tiling.one_block) most_columns = std::min(most_columns, ceil_div(max_sum_columns, tiling.panel_columns()));
    tiling.column_panels = share(tiling, work, column_panels, most_columns, {row_panels, tiling.row_panels});
    const std::int64_t column_tiles = ceil_div(column_panels, tiling.column_panels);
    split(tiling, work, row_tiles * column_tiles, reduce);
    tiling.finished_in_tile = is_finished_in_tile(tiling, reduce);
    if (tiling.finished_in_tile) tiling.in_registers = false;
    const std::int64_t row_uses = column_tiles * uses(tiling.row_batch);
    tiling.rows_once =
        is_invariant_factor(tiling.row_factor) || ((row_uses - 1) * rows * reduce > worth_a_launch && row_uses > 4);
}

// Factors that stay in the second-level cache need not be packed: if their elements cost nothing, lie side by side
// along the columns, and panels fill these, so that nothing is read past an end.
bool TilingChooser::is_read_in_place(const Tiling& tiling, std::int64_t rows, std::int64_t columns,
                                     std::int64_t reduce) const {
    const bool plain = compute_type(type_) == type_ && !tiling.pairs &&
                       std::none_of(region_.members.begin(), region_.members.end(), [this](const auto& entry) {
                           return entry.first != contraction_ && phases_.row.at(entry.first);
                       });
    const bool one_axis_each = tiling.rows.size() == 1 && tiling.columns.size() == 1 && tiling.reduce.size() == 1;
    const bool whole_panels = extent(tiling.columns.back()).is_known() && columns % tiling.panel_columns() == 0;
    if (!plain || !one_axis_each || !whole_panels || !columns_contiguous_ || !tiling.one_block) return false;
    if (is_invariant_factor(0) || is_invariant_factor(1)) return false;  // packed in front of the loop
    const auto bytes = static_cast<std::int64_t>(size_of(type_));
    return tiling.splits == 1 && std::max(rows, columns) * reduce * bytes <= machine_.l2_bytes / 4;
}

// Registers hold short pieces of many rows. Where results are combined with others on the way out, these come from as
// many places in memory, and lie in one set of the cache when rows are a power of two apart: sums that fit into the
// second-level cache are finished row by row instead, if there is work enough in each to hide that.
bool TilingChooser::is_finished_in_tile(const Tiling& tiling, std::int64_t reduce) const {
    if (!tiling.one_block || tiling.splits > 1 || cost_of_results() == 0 || !is_contiguous(tiling.columns))
        return false;
    const std::int64_t sums =
        tiling.row_panels * tiling.panel_rows * tiling.column_panels * std::int64_t{tiling.panel_columns()};
    const auto bytes = static_cast<std::int64_t>(size_of(compute_type(type_)));
    return reduce >= min_reduce_of_waiting && tiling.column_panels >= min_panels_in_row &&
           sums * bytes <= machine_.l2_bytes / 3;
}

// Splits the reduced axis when there are fewer tiles than threads.
void TilingChooser::split(Tiling& tiling, std::int64_t work, std::int64_t tiles, std::int64_t reduce) const {
    const std::int64_t batches = std::max<std::int64_t>(count(tiling.batch), 1);
    const std::int64_t blocks = ceil_div(reduce, tiling.block);
    if (batches * tiles >= machine_.threads || work / machine_.threads < worth_sharing) return;
    const std::int64_t splits = ceil_div(machine_.threads, batches * tiles);
    if (blocks < 2 * splits) return;
    tiling.splits = static_cast<int>(splits);
    tiling.one_block = tiling.in_registers = false;
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
    if (tiling.factors == Tiling::Factors::streamed) text += ", streamed";
    if (tiling.finished_apart()) text += ", finished along memory";
    return text;
}

}  // namespace topstitch::stitch
