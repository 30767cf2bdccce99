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
constexpr double worth_transforming = 0.72;      // of the direct products, at most
constexpr double cost_of_transforms = 2;         // for each multiplication, with what they read and write
constexpr double worth_streaming = 0.59;         // the same when the filter is read from beyond the second-level cache
constexpr double cost_of_filter = 2;             // of reading it again, in tiles

}  // namespace

// The axis of a position that is a variable of the results, in steps, and a tap.
std::optional<MinimalFilter::Axis> TilingChooser::filter_axis(int number) const {
    const Index& position = positions_[static_cast<std::size_t>(number)];
    std::vector<VarId> vars;
    position.collect_vars(vars);
    std::sort(vars.begin(), vars.end());
    vars.erase(std::unique(vars.begin(), vars.end()), vars.end());
    if (vars.size() != 2) return std::nullopt;
    MinimalFilter::Axis axis;
    axis.position = number;
    for (VarId var : vars) (region_.vars[static_cast<std::size_t>(var)].row ? axis.tap : axis.place) = var;
    if (axis.tap < 0 || axis.place < 0) return std::nullopt;
    const Dim tap_step = position.coefficient_of(axis.tap);
    const Dim steps = position.coefficient_of(axis.place);
    const Dim& taps = extent(axis.tap);
    if (!(tap_step == Dim(1) || tap_step == Dim(-1)) || !taps.is_known() || !extent(axis.place).is_known())
        return std::nullopt;
    if (!steps.is_known() || steps.value() < 1 || steps.value() > max_steps) return std::nullopt;
    if (taps.value() < min_taps || ceil_div(taps.value(), steps.value()) > max_phase_taps) return std::nullopt;
    axis.flipped = tap_step == Dim(-1);
    axis.steps = static_cast<int>(steps.value());
    axis.taps = static_cast<int>(taps.value());
    axis.outputs = filter_tile + 1 - axis.phase_taps();
    return axis;
}

std::optional<MinimalFilter> TilingChooser::find_filter(const Tiling& classified) const {
    const bool plain = classified.batch.empty() && !classified.columns.empty() && classified.reduce.size() == 3;
    if (!machine_.minimal_filters || compute_type(type_) != DType::float32 || !plain || positions_.size() != 2)
        return std::nullopt;
    MinimalFilter filter;
    const auto down = filter_axis(0), across = filter_axis(1);
    if (!down || !across || down->place == across->place || down->tap == across->tap) return std::nullopt;
    filter.down = *down;
    filter.across = *across;
    for (VarId var : classified.reduce) {
        if (var != down->tap && var != across->tap) filter.channel = var;
    }
    // Products that do not exist are taps of zero.
    const auto decides = [this](VarId var) { return deciding_[static_cast<std::size_t>(var)]; };
    if (std::any_of(classified.rows.begin(), classified.rows.end(), decides) || decides(filter.channel))
        return std::nullopt;
    filter.images = classified.rows;
    std::erase(filter.images, down->place);
    std::erase(filter.images, across->place);
    const bool both = filter.images.size() + 2 == classified.rows.size();
    return both && extent(filter.channel).is_known() ? std::optional(filter) : std::nullopt;
}

// The transforms have as many multiplications as additions; the direct sum has one of each for every tap that exists.
bool TilingChooser::saves_products(const MinimalFilter& filter, double columns) const {
    const auto size = [this](VarId var) { return static_cast<double>(extent(var).value()); };
    const auto images = static_cast<double>(std::max<std::int64_t>(count(filter.images), 1));
    const double places = images * size(filter.down.place) * size(filter.across.place);
    const bool all_exist = std::find(deciding_.begin(), deciding_.end(), true) == deciding_.end();
    const double direct = places * size(filter.channel) * columns * filter.down.taps * filter.across.taps *
                          (all_exist ? 1 : existing_share);
    const double channels = size(filter.channel) * filter.phases();
    const double tiles = images * std::ceil(size(filter.down.place) / filter.down.outputs) *
                         std::ceil(size(filter.across.place) / filter.across.outputs);
    constexpr double n = filter_tile;
    const double results = n * n * filter.across.outputs + n * filter.down.outputs * filter.across.outputs;
    const double taps = n * filter.down.phase_taps() * filter.across.phase_taps() + n * n * filter.down.phase_taps();
    const double transforms = tiles * channels * 2 * n * n * n + tiles * columns * results + channels * columns * taps;
    const double filter_bytes = n * n * channels * columns * sizeof(float);
    const double worth =
        filter_bytes <= static_cast<double>(machine_.l2_bytes) / 2 ? worth_transforming : worth_streaming;
    return direct >= min_multiplications &&
           tiles * n * n * channels * columns + cost_of_transforms * transforms < worth * direct;
}

std::optional<Tiling> TilingChooser::choose_winograd(const Tiling& classified) const {
    const std::optional<MinimalFilter> found = find_filter(classified);
    if (!found) return std::nullopt;
    const std::int64_t columns = count(classified.columns);
    const std::int64_t channels = extent(found->channel).value();
    if (channels < min_side || channels * found->phases() > max_depth || columns < min_side ||
        !saves_products(*found, static_cast<double>(columns)))
        return std::nullopt;
    Tiling tiling = classified;
    sort_by_store(tiling.rows);
    sort_by_store(tiling.columns);
    // In lanes runs a variable along which the filter is the same kind of thing.
    std::stable_partition(tiling.columns.begin(), tiling.columns.end(),
                          [this](VarId var) { return deciding_[static_cast<std::size_t>(var)]; });
    tiling.one_block = true;
    tiling.block = count(tiling.reduce);
    tiling.panel_vectors = columns > tiling.lanes ? 2 : 1;
    tiling.winograd = found;
    const auto tiles_along = [this](const MinimalFilter::Axis& axis) {
        return ceil_div(extent(axis.place).value(), axis.outputs);
    };
    const std::int64_t all =
        std::max<std::int64_t>(count(found->images), 1) * tiles_along(found->down) * tiles_along(found->across);
    const std::int64_t most = (machine_.vector_registers - 4) / tiling.panel_vectors;
    const std::int64_t panels = ceil_div(all, most);
    tiling.panel_rows = static_cast<int>(ceil_div(all, panels));
    // The transforms of the data and of the sums of a block stay in the second-level cache.
    const std::int64_t panel_bytes =
        tiling.panel_rows * filter_tile * filter_tile * (channels * found->phases() + tiling.panel_columns()) * 4;
    double best = 0;
    for (std::int64_t taken = 1; taken <= panels && (taken == 1 || taken * panel_bytes <= machine_.l2_bytes / 2);
         ++taken) {
        const std::int64_t turns = ceil_div(ceil_div(panels, taken), machine_.threads);
        const double balance = static_cast<double>(panels) / static_cast<double>(turns * taken * machine_.threads);
        const auto tiles = static_cast<double>(taken * tiling.panel_rows);
        const double reuse = tiles / (tiles + cost_of_filter);
        if (balance * reuse <= best) continue;
        best = balance * reuse;
        tiling.row_panels = taken;
    }
    tiling.winograd->tiles = tiling.row_panels * tiling.panel_rows;
    // A tile has several results, for each of which what finishes it would be written out.
    if (!is_contiguous({tiling.columns.back()}) || !finished_in_registers(tiling)) order_finish(tiling);
    return tiling;
}

}  // namespace topstitch::stitch
