// Chooses whether a convolution is computed by minimal filtering, and in which blocks of tiles.
// See MinimalFilter.
#include <algorithm>
#include <cmath>

#include "stitch/minimal_filter.h"
#include "stitch/tiling.h"

namespace topstitch::stitch {

namespace {

constexpr std::int64_t min_taps = 3;
constexpr std::int64_t max_phase_taps = 5;
constexpr std::int64_t max_steps = 2;
constexpr std::int64_t max_depth = 512;          // channels, times phases: errors grow with the root of them
constexpr std::int64_t min_side = 16;            // channels, and columns
constexpr double min_multiplications = 1 << 22;  // of the direct sum
constexpr double existing_share = 25.0 / 36;     // of products, where not all exist: 5 taps in 2 phases of 3
constexpr double worth_transforming = 0.8;       // of the direct products, at most
constexpr double share_of_cache = 0.7;           // of the second level, for sums and transforms
constexpr double share_beside_filter = 0.125;    // which stays there too
// Costs are counted in multiplications of the product; the constants are measured, with AVX-512.
constexpr double cost_of_transforms = 2;            // for each of theirs, with what they read and write
constexpr double cost_of_filter = 0.5;              // of an element that is read in the second-level cache
constexpr double cost_of_far_filter = 10;           // and beyond it
constexpr double cost_of_sums = 8;                  // of one that waits for more channels, at each visit
constexpr std::int64_t min_channels_together = 32;  // of those visits
constexpr std::int64_t min_panel_of_weights = 10;   // sums in registers: fewer do not hide the latency
constexpr std::int64_t tiles_together = 32;         // longer sums have larger errors, shorter ones wait for memory
constexpr double share_of_cache_of_weights = 0.6;

}  // namespace

// The axis of a position that is a place, in steps, and a tap: one of them a variable of the results.
std::optional<MinimalFilter::Axis> TilingChooser::filter_axis(int number, bool of_weights) const {
    const Index& position = positions_[static_cast<std::size_t>(number)];
    std::vector<VarId> vars;
    position.collect_vars(vars);
    std::sort(vars.begin(), vars.end());
    vars.erase(std::unique(vars.begin(), vars.end()), vars.end());
    if (vars.size() != 2) return std::nullopt;
    MinimalFilter::Axis axis;
    axis.position = number;
    for (VarId var : vars) {
        const bool is_result = !region_.vars[static_cast<std::size_t>(var)].row;
        (is_result == of_weights ? axis.tap : axis.place) = var;
    }
    if (axis.tap < 0 || axis.place < 0) return std::nullopt;
    const Dim tap_step = position.coefficient_of(axis.tap);
    const Dim steps = position.coefficient_of(axis.place);
    const Dim& taps = extent(axis.tap);
    if (!(tap_step == Dim(1) || tap_step == Dim(-1)) || !taps.is_known() || !extent(axis.place).is_known())
        return std::nullopt;
    if (!steps.is_known() || steps.value() < 1 || steps.value() > max_steps) return std::nullopt;
    axis.taps = static_cast<int>(std::min(ceil_div(taps.value(), steps.value()), max_phase_taps + 1));
    if (taps.value() < min_taps || axis.taps > max_phase_taps) return std::nullopt;
    // Some position lies inside the operand.
    const Dim length = window_extent(program_, access(contraction_), contraction_, number);
    const Dim lowest = position.lower_bound(), highest = position.upper_bound();
    if (!length.is_known() || !lowest.is_known() || !highest.is_known()) return std::nullopt;
    if (length.value() <= 0 || lowest.value() >= length.value() || highest.value() < 0) return std::nullopt;
    axis.flipped = tap_step == Dim(-1);
    axis.steps = static_cast<int>(steps.value());
    axis.places = filter_tile + 1 - axis.taps;
    return axis;
}

std::optional<MinimalFilter> TilingChooser::find_filter(const Tiling& classified, bool of_weights) const {
    if (!machine_.minimal_filters || compute_type(type_) != DType::float32 || positions_.size() != 2)
        return std::nullopt;
    if (!classified.batch.empty() || classified.columns.empty()) return std::nullopt;
    MinimalFilter filter;
    filter.of_weights = of_weights;
    const auto down = filter_axis(0, of_weights), across = filter_axis(1, of_weights);
    if (!down || !across || down->place == across->place || down->tap == across->tap) return std::nullopt;
    filter.down = *down;
    filter.across = *across;
    // Beside the taps there is a channel, and beside the places there are any number of images.
    std::vector<VarId> channels = of_weights ? classified.rows : classified.reduce;
    filter.images = of_weights ? classified.reduce : classified.rows;
    const auto take_out = [](std::vector<VarId>& vars, VarId first, VarId second) {
        const std::size_t before = vars.size();
        std::erase_if(vars, [&](VarId var) { return var == first || var == second; });
        return vars.size() + 2 == before;
    };
    if (!take_out(channels, down->tap, across->tap) || !take_out(filter.images, down->place, across->place) ||
        channels.size() != 1)
        return std::nullopt;
    filter.channel = channels[0];
    // Products that do not exist are taps of zero.
    const auto decides = [this](VarId var) { return deciding_[static_cast<std::size_t>(var)]; };
    const bool places_decide = decides(down->place) || decides(across->place) ||
                               std::any_of(filter.images.begin(), filter.images.end(), decides);
    const bool any = std::find(deciding_.begin(), deciding_.end(), true) != deciding_.end();
    if (places_decide || decides(filter.channel) || (of_weights && any)) return std::nullopt;
    return extent(filter.channel).is_known() ? std::optional(filter) : std::nullopt;
}

// Tiles of places, in all images.
double TilingChooser::count_tiles(const MinimalFilter& filter) const {
    const auto along = [this](const MinimalFilter::Axis& axis) {
        return static_cast<double>(ceil_div(extent(axis.place).value(), axis.places));
    };
    return static_cast<double>(std::max<std::int64_t>(count(filter.images), 1)) * along(filter.down) *
           along(filter.across);
}

double TilingChooser::direct_products(const MinimalFilter& filter, double columns) const {
    const auto size = [this](VarId var) { return static_cast<double>(extent(var).value()); };
    const auto images = static_cast<double>(std::max<std::int64_t>(count(filter.images), 1));
    const bool all_exist = std::find(deciding_.begin(), deciding_.end(), true) == deciding_.end();
    return images * size(filter.down.place) * size(filter.across.place) * size(filter.channel) * columns *
           size(filter.down.tap) * size(filter.across.tap) * (all_exist ? 1 : existing_share);
}

std::optional<Tiling> TilingChooser::choose_winograd(const Tiling& classified) const {
    for (const bool of_weights : {false, true}) {
        const std::optional<MinimalFilter> filter = find_filter(classified, of_weights);
        if (!filter || extent(filter->channel).value() < min_side || count(classified.columns) < min_side) continue;
        Tiling tiling = classified;
        sort_by_store(tiling.rows);
        sort_by_store(tiling.columns);
        tiling.panel_vectors = count(tiling.columns) > tiling.lanes ? 2 : 1;
        tiling.winograd = filter;
        return of_weights ? choose_filter_gradient(tiling) : choose_filter(tiling);
    }
    return std::nullopt;
}

// The parallel loop goes over blocks of tiles and over tiles of columns. The data's transforms of a block stay in the
// cache, those of some channels after those of others where they would not fit; then so do the sums of all columns.
std::optional<Tiling> TilingChooser::choose_filter(Tiling tiling) const {
    MinimalFilter& filter = *tiling.winograd;
    const std::int64_t depth = extent(filter.channel).value() * filter.phases();
    const std::int64_t columns = count(tiling.columns);
    if (depth > max_depth) return std::nullopt;
    // In lanes runs a variable along which the filter is the same kind of thing.
    std::stable_partition(tiling.columns.begin(), tiling.columns.end(),
                          [this](VarId var) { return deciding_[static_cast<std::size_t>(var)]; });
    tiling.one_block = true;
    tiling.block = count(tiling.reduce);
    constexpr double n = filter_tile;
    const auto all = static_cast<std::int64_t>(count_tiles(filter));
    const std::int64_t most = (machine_.vector_registers - 4) / tiling.panel_vectors;
    const std::int64_t column_panels = ceil_div(columns, tiling.panel_columns());
    const double l2_bytes = static_cast<double>(machine_.l2_bytes);
    const double filter_bytes = n * n * static_cast<double>(depth * columns) * sizeof(float);
    const bool is_near = filter_bytes <= l2_bytes / 2;
    const double read = is_near ? cost_of_filter : cost_of_far_filter;
    const double share = is_near ? share_beside_filter : share_of_cache;
    const double results = n * n * filter.across.places + n * filter.down.places * filter.across.places;
    const double taps = n * filter.down.taps * filter.across.taps + n * n * filter.down.taps;
    // Panels hang over the edge either way.
    const double direct = direct_products(filter, static_cast<double>(column_panels * tiling.panel_columns()));
    const auto threads = static_cast<double>(machine_.threads);
    double best =
        (worth_transforming * direct - cost_of_transforms * static_cast<double>(depth * columns) * taps) / threads;
    bool found = false;
    const auto consider = [&](std::int64_t together, std::int64_t across, std::int64_t panels) {
        const std::int64_t tiles_of_columns = ceil_div(column_panels, across);
        std::int64_t blocks = ceil_div(all, panels * most);
        if (tiles_of_columns == 1) blocks = std::min(ceil_div(blocks, machine_.threads) * machine_.threads, all);
        const std::int64_t tiles = ceil_div(all, blocks);
        const std::int64_t rows = ceil_div(tiles, ceil_div(tiles, most));
        const std::int64_t turns = ceil_div(blocks * tiles_of_columns, machine_.threads);
        const auto wide = static_cast<double>(across * tiling.panel_columns());
        const auto deep = static_cast<double>(depth);
        const double visits = together == depth ? 0 : deep / static_cast<double>(together);
        const auto high = static_cast<double>(ceil_div(tiles, rows) * rows);
        const double products = n * n * (high * deep + read * deep + cost_of_sums * high * visits) * wide;
        const double transforms = high * (deep * 2 * n * n * n + wide * results);
        const double cost = static_cast<double>(turns) * (products + cost_of_transforms * transforms);
        if (cost >= best) return;
        best = cost;
        found = true;
        tiling.panel_rows = static_cast<int>(rows);
        tiling.row_panels = ceil_div(tiles, rows);
        tiling.column_panels = across;
        filter.channels_together = together;
    };
    for (std::int64_t together = depth; together >= min_channels_together || together == depth; together /= 2) {
        for (std::int64_t across = together == depth ? column_panels : 1; across <= column_panels; ++across) {
            const std::int64_t waiting = together == depth ? 1 : across;
            const std::int64_t tile_bytes =
                filter_tile * filter_tile * (together + waiting * tiling.panel_columns()) * 4;
            const auto fitting = static_cast<std::int64_t>(share * l2_bytes) / tile_bytes / most;
            if (fitting < 1 && waiting > 1) break;
            for (std::int64_t panels = 1; panels <= std::clamp<std::int64_t>(fitting, 1, ceil_div(all, most)); ++panels)
                consider(together, across, panels);
        }
        if (together % 2 != 0) break;
    }
    if (!found || direct < min_multiplications) return std::nullopt;
    filter.tiles = tiling.row_panels * tiling.panel_rows;
    // A tile has several results, for each of which what finishes it would be written out.
    if (!is_contiguous({tiling.columns.back()}) || !finished_in_registers(tiling)) order_finish(tiling);
    return tiling;
}

// Rows of a panel: as many as divide them all, if these fill the registers.
int TilingChooser::rows_of_panel(std::int64_t rows, int vectors) const {
    const std::int64_t most = (machine_.vector_registers - 4) / vectors;
    for (std::int64_t height = most; height * vectors >= min_panel_of_weights; --height) {
        if (rows % height == 0) return static_cast<int>(height);
    }
    return static_cast<int>(ceil_div(rows, ceil_div(rows, most)));
}

// The parallel loop goes over tiles of rows and columns, and over parts of the sum where these are fewer than threads.
std::optional<Tiling> TilingChooser::choose_filter_gradient(Tiling tiling) const {
    MinimalFilter& filter = *tiling.winograd;
    const std::int64_t depth = extent(filter.channel).value() * filter.phases();
    const std::int64_t columns = count(tiling.columns);
    tiling.one_block = true;
    tiling.block = count(tiling.reduce);
    tiling.panel_rows = rows_of_panel(depth, tiling.panel_vectors);
    const std::int64_t row_panels = ceil_div(depth, tiling.panel_rows);
    const std::int64_t column_panels = ceil_div(columns, tiling.panel_columns());
    constexpr double n = filter_tile;
    const double row_transform = 2 * n * n * n;
    const double column_transform = n * filter.down.places * filter.across.places + n * n * filter.down.places;
    const double tiles = count_tiles(filter);
    filter.tiles = tiles_together;
    // Panels hang over the edge either way.
    const double direct = direct_products(filter, static_cast<double>(column_panels * tiling.panel_columns()));
    double best = worth_transforming * direct / static_cast<double>(machine_.threads);
    bool found = false;
    for (std::int64_t down = 1; down <= row_panels; ++down) {
        for (std::int64_t across = 1; across <= column_panels; ++across) {
            const auto high = static_cast<double>(down * tiling.panel_rows);
            const auto wide = static_cast<double>(across * tiling.panel_columns());
            const double bytes = n * n * (high * wide + tiles_together * (high + wide)) * sizeof(float);
            if (bytes > share_of_cache_of_weights * static_cast<double>(machine_.l2_bytes)) break;
            const std::int64_t parts = ceil_div(row_panels, down) * ceil_div(column_panels, across);
            const int splits = parts % machine_.threads == 0 ? 1 : machine_.threads;
            const double work =
                n * n * high * wide + cost_of_transforms * (high * row_transform + wide * column_transform);
            const auto turns = static_cast<double>(ceil_div(parts * splits, machine_.threads));
            const double cost = turns * work * tiles / splits;
            if (cost >= best) continue;
            best = cost;
            found = true;
            tiling.row_panels = down;
            tiling.column_panels = across;
            tiling.splits = splits;
        }
    }
    if (!found || direct < min_multiplications || tiles < tiles_together) return std::nullopt;
    if (tiling.splits == 1 && (!is_contiguous({tiling.columns.back()}) || !finished_in_registers(tiling)))
        order_finish(tiling);
    return tiling;
}

}  // namespace topstitch::stitch
