// Chooses the blocks and tiles of products in general, and whether their factors are packed.
// See TilingChooser.
#include <algorithm>

#include "stitch/tiling.h"
#include "stitch/value_range.h"

namespace topstitch::stitch {

namespace {

constexpr std::int64_t max_one_block = 1024;  // a reduced axis up to here is not cut into blocks
constexpr std::int64_t max_block = 256;
constexpr std::int64_t max_long_block = 2048;  // and these, where there are many rows
constexpr std::int64_t min_rows_of_long_blocks = 1024;
constexpr std::int64_t min_rows_of_a_tile = 48;  // while which the columns stream past
constexpr std::int64_t block_alignment = 16;
constexpr std::int64_t min_reduce_of_waiting = 256;  // for results that are finished tile by tile
constexpr std::int64_t min_panels_in_row = 8;        // of those
constexpr std::int64_t max_sum_columns = 256;        // of a tile whose sums wait in memory
constexpr std::int64_t worth_a_launch = 1 << 16;     // elements that may be packed again in the time of another launch
constexpr std::int64_t worth_sharing = 1 << 19;      // multiplications of each thread
constexpr std::int64_t max_uneven_tiles = 32;        // for each thread: with more, it matters little that they differ
constexpr double worth_more_tiles = 0.96;            // of the time until the last thread is done
// What is worth to be packed for a matrix unit, for one part.
constexpr std::int64_t min_matrix_extent = 40;  // rows, columns and steps
constexpr std::int64_t min_matrix_products = 1 << 22;
constexpr std::int64_t max_matrix_groups = 4;    // of a block, in three parts
constexpr std::int64_t passing_block = 64;       // steps of columns that are read where they are
constexpr std::int64_t max_passing_panels = 5;   // of rows that read them
constexpr std::int64_t min_passing_panels = 12;  // of columns in a tile

}  // namespace

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

// Whether a matrix unit multiplies the factors faster: then in how many parts, of which types.
bool TilingChooser::find_matrix_parts(Tiling& tiling, std::int64_t rows, std::int64_t columns,
                                      std::int64_t reduce) const {
    if (!machine_.matrix_unit) return false;
    const int parts = type_ == DType::float32 || type_ == DType::float16 ? 3 : 1;
    if (type_ == DType::int32) {
        for (std::size_t factor = 0; factor < 2; ++factor) {
            const ValueRange range = value_range(*program_.graph, program_.graph->op(contraction_).inputs[factor]);
            if (!range.fits(DType::int8) && !range.fits(DType::uint8)) return false;
            tiling.matrix_types[factor] = range.fits(DType::int8) ? DType::int8 : DType::uint8;
        }
    } else if (compute_type(type_) != DType::float32) {
        return false;
    }
    const std::int64_t products = std::max<std::int64_t>(count(tiling.batch), 1) * rows * columns * reduce;
    if (std::min({rows, columns, reduce}) < parts * min_matrix_extent) return false;
    if (products < parts * parts * min_matrix_products) return false;
    tiling.matrix_parts = parts;
    return true;
}

// Panels are what the unit holds. The columns of a panel lie in the first cache for one block, the rows of a tile and
// its sums in the second.
void TilingChooser::choose_matrix_blocks(Tiling& tiling, std::int64_t rows, std::int64_t columns,
                                         std::int64_t reduce) const {
    const int parts = tiling.matrix_parts;
    const std::int64_t group_steps = loopir::matrix_tile * loopir::matrix_word(tiling.matrix_types[0]);
    tiling.panel_rows = 2 * loopir::matrix_tile;
    tiling.lanes = loopir::matrix_tile;
    tiling.panel_vectors = 2;
    const bool known =
        std::all_of(tiling.reduce.begin(), tiling.reduce.end(), [this](VarId v) { return extent(v).is_known(); });
    const std::int64_t groups = ceil_div(std::max<std::int64_t>(reduce, 1), group_steps);
    const std::int64_t block_groups = max_matrix_groups * 3 / parts;
    tiling.one_block = known && groups <= block_groups * 3 / 2;
    const std::int64_t blocks = tiling.one_block ? 1 : ceil_div(groups, block_groups);
    tiling.block = (known ? ceil_div(groups, blocks) : block_groups) * group_steps;

    const std::int64_t row_panels = ceil_div(rows, tiling.panel_rows);
    const std::int64_t column_panels = ceil_div(columns, tiling.panel_columns());
    const std::int64_t group_bytes = tiling.panel_rows * loopir::matrix_tile * 4 * parts;
    const std::int64_t panel_bytes = tiling.block / group_steps * group_bytes;
    const std::int64_t most_rows = std::max<std::int64_t>(machine_.l2_bytes / 4 / panel_bytes, 1);
    const std::int64_t work = rows * columns * reduce;
    const bool all_rows = row_panels <= most_rows && column_panels >= 2 * machine_.threads;
    tiling.row_panels = all_rows ? row_panels : share(tiling, work, row_panels, most_rows, {1, 1});
    const std::int64_t row_tiles = ceil_div(row_panels, tiling.row_panels);
    std::int64_t most_columns = column_panels;
    if (!tiling.one_block) {
        const std::int64_t sums = tiling.row_panels * tiling.panel_rows * tiling.panel_columns() * 4;
        most_columns = std::max<std::int64_t>(machine_.l2_bytes / 3 / sums, 1);
    }
    tiling.column_panels = share(tiling, work, column_panels, most_columns, {row_panels, tiling.row_panels});
    const std::int64_t column_tiles = ceil_div(column_panels, tiling.column_panels);
    split(tiling, work, row_tiles * column_tiles, reduce);
    const auto uses = [&](const std::vector<VarId>& batch) {
        return ceil_div(count(tiling.batch), std::max<std::int64_t>(count(batch), 1));
    };
    const auto is_worth = [&](int factor, std::int64_t uses, std::int64_t extent) {
        return is_invariant_factor(factor) || (uses - 1) * extent * reduce > worth_a_launch / 4;
    };
    tiling.rows_once = is_worth(tiling.row_factor, column_tiles * uses(tiling.row_batch), rows);
    tiling.columns_once = is_worth(1 - tiling.row_factor, row_tiles * uses(tiling.column_batch), columns);
}

// Whether columns can be read where they are: if elements cost nothing, lie side by side along the columns, and panels
// fill these, so that nothing is read past an end.
bool TilingChooser::is_readable(const Tiling& tiling, std::int64_t columns) const {
    const bool plain = compute_type(type_) == type_ && !tiling.pairs &&
                       std::none_of(region_.members.begin(), region_.members.end(), [this](const auto& entry) {
                           return entry.first != contraction_ && phases_.row.at(entry.first);
                       });
    const bool one_axis_each = tiling.rows.size() == 1 && tiling.columns.size() == 1 && tiling.reduce.size() == 1;
    const bool whole_panels = extent(tiling.columns.back()).is_known() && columns % tiling.panel_columns() == 0;
    if (is_invariant_factor(0) || is_invariant_factor(1)) return false;  // packed in front of the loop
    return plain && one_axis_each && whole_panels && columns_contiguous_ && tiling.splits == 1;
}

// Packing is of no use for factors that stay in the second-level cache, and costs too much for columns that few rows
// need: these pass by in short blocks of whole rows, which that cache keeps for the panels of rows.
void TilingChooser::choose_reading(Tiling& tiling, std::int64_t rows, std::int64_t columns, std::int64_t reduce) const {
    if (!is_readable(tiling, columns)) return;
    const auto bytes = static_cast<std::int64_t>(size_of(type_));
    if (tiling.one_block && std::max(rows, columns) * reduce * bytes <= machine_.l2_bytes / 4) {
        tiling.factors = Tiling::Factors::in_place;
        tiling.rows_once = tiling.columns_once = false;
        return;
    }
    const std::int64_t row_panels = ceil_div(rows, tiling.panel_rows);
    const std::int64_t column_panels = ceil_div(columns, tiling.panel_columns());
    const std::int64_t sums = row_panels * tiling.panel_rows * std::int64_t{tiling.panel_columns()};
    const std::int64_t most = machine_.l2_bytes / 4 / (sums * bytes);
    const bool is_far = columns * reduce * bytes > machine_.l2_bytes;
    const std::int64_t in_tile = std::min(most, column_panels / machine_.threads);
    if (!is_far || row_panels > max_passing_panels || in_tile < min_passing_panels || reduce < 2 * passing_block)
        return;
    tiling.factors = Tiling::Factors::columns_in_place;
    tiling.rows_once = tiling.columns_once = tiling.one_block = tiling.in_registers = tiling.finished_in_tile = false;
    tiling.block = passing_block;
    tiling.row_panels = row_panels;
    tiling.column_panels = share(tiling, rows * columns * reduce, column_panels, most, {1, 1});
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

}  // namespace topstitch::stitch
