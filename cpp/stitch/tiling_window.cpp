// Chooses the tiles of a contraction whose first factor lies behind a window: convolutions and their gradients.
// The factor is staged, each element once and with its padding, so that tiles read it through plain strides.
#include <algorithm>
#include <set>

#include "stitch/tiling.h"

namespace topstitch::stitch {

namespace {

constexpr std::int64_t min_products = std::int64_t{16} * 1024;  // below, plain loops are done sooner
constexpr std::int64_t max_one_block = 2048;                    // a reduced axis up to here is not cut into blocks
constexpr std::int64_t max_inner = 1024;                        // iterations of the loops inside a block
constexpr std::int64_t max_sums = 32 << 10;                     // of a tile whose sums wait in memory
constexpr std::int64_t max_columns_inside = 4 << 10;            // elements of the columns of a tile inside its rows
constexpr std::int64_t panels_of_a_tile = 64;
constexpr std::int64_t tiles_for_each_thread = 4;
constexpr std::int64_t panels_of_few_rows = 8;
constexpr std::int64_t worth_sharing = 1 << 18;  // multiplications of each thread
constexpr double loads_in_a_cycle = 2;
constexpr double multiplications_in_a_cycle = 2;
constexpr double latency = 4;  // cycles from one product to the next of the same sum
constexpr double slack = 0.4;
constexpr std::int64_t row_addresses = 12;  // of staged rows, each at its own place; more have to be loaded
constexpr double unaligned = 1.25;          // loads, for one that may cross a cache line
constexpr double cycles_of_plain = 4;       // for each product of a vector in plain loops, with its guard
constexpr std::int64_t max_taps_of_channels = 128;
constexpr double scattered_store = 1;  // cycles of each lane that is stored by itself

}  // namespace

// Whether iterations share what they read: a position that is made of a reduced and of another variable.
bool TilingChooser::shares_window() const {
    return std::any_of(positions_.begin(), positions_.end(), [&](const Index& position) {
        std::vector<VarId> vars;
        position.collect_vars(vars);
        const auto is_row = [this](VarId v) { return region_.vars[static_cast<std::size_t>(v)].row; };
        const auto rows = std::count_if(vars.begin(), vars.end(), is_row);
        return rows > 0 && rows < static_cast<std::ptrdiff_t>(vars.size());
    });
}

std::optional<Tiling> TilingChooser::choose_staged(Tiling classified) const {
    for (const Index& position : positions_) {
        if (position.lower_bound().is_unknown() || position.upper_bound().is_unknown()) return std::nullopt;
    }
    const std::int64_t reduce = count(classified.reduce);
    const std::int64_t results = count(classified.rows) * count(classified.columns) * count(classified.batch);
    if (results * reduce < min_products) return std::nullopt;
    if (auto winograd = choose_winograd(classified)) return winograd;
    // All of a panel has a product, or nothing of it has.
    const auto decides = [&](VarId var) { return deciding_[static_cast<std::size_t>(var)]; };
    for (std::vector<VarId>* vars : {&classified.rows, &classified.columns}) {
        std::copy_if(vars->begin(), vars->end(), std::back_inserter(classified.batch), decides);
        std::erase_if(*vars, decides);
    }
    for (std::vector<VarId>* vars : {&classified.rows, &classified.columns, &classified.batch}) sort_by_store(*vars);
    Candidate best = window_in_rows(classified);
    for (const std::optional<Candidate>& other : {window_in_lanes(classified), window_in_both(classified)}) {
        if (other && other->cycles < best.cycles) best = *other;
    }
    if (const auto channels = batch_in_lanes(classified); channels && channels->cycles < best.cycles) {
        // Plain loops have one guard for all lanes, which costs less than a copy for a few taps.
        if (reduce <= max_taps_of_channels) return std::nullopt;
        best = *channels;
    }
    // Plain loops run along what is stored, whichever variable that is.
    const double plain = cycles_of_plain * static_cast<double>(reduce);
    if (plain < best.cycles) return std::nullopt;
    Tiling& tiling = best.tiling;
    sort_by_store(tiling.batch);
    find_batches(tiling);
    choose_stage(tiling);
    sort_by_stage(tiling, tiling.reduce);
    choose_reduce_loops(tiling);
    choose_tiles(tiling);
    choose_finish(tiling);
    return tiling;
}

// Each row has a place of its own in the staged factor, and its elements are broadcast.
TilingChooser::Candidate TilingChooser::window_in_rows(const Tiling& classified) const {
    Candidate candidate{classified};
    Tiling& tiling = candidate.tiling;
    candidate.cycles = choose_registers(tiling, Reads{1, 1, 0}, finish(tiling));
    return candidate;
}

// A variable that runs in lanes over the staged factor must make one position, or none.
bool TilingChooser::runs_over_stage(VarId lane) const {
    int places = 0;
    for (const Index& position : positions_) {
        if (!position.depends_on(lane)) continue;
        const Dim step = position.coefficient_of(lane);
        if (!step.is_known() || step.value() < 1) return false;
        ++places;
    }
    return places <= 1;
}

// One variable of the windows runs in lanes over the staged factor, the others make batches.
std::optional<TilingChooser::Candidate> TilingChooser::window_in_lanes(const Tiling& classified) const {
    Candidate candidate{classified};
    Tiling& tiling = candidate.tiling;
    std::swap(tiling.rows, tiling.columns);
    tiling.row_factor = 1;
    if (tiling.columns.empty() || !runs_over_stage(tiling.columns.back())) return std::nullopt;
    const VarId lane = tiling.columns.back();
    tiling.batch.insert(tiling.batch.end(), tiling.columns.begin(), tiling.columns.end() - 1);
    tiling.columns = {lane};
    candidate.cycles = choose_registers(tiling, Reads{1, unaligned, 0}, finish(tiling));
    return candidate;
}

// The other factor has too few elements for a panel, as with one channel: one variable of the windows runs in lanes,
// the others are rows, and all of a panel is multiplied by the same element.
std::optional<TilingChooser::Candidate> TilingChooser::window_in_both(const Tiling& classified) const {
    Candidate candidate{classified};
    Tiling& tiling = candidate.tiling;
    if (tiling.rows.size() < 2 || !runs_over_stage(tiling.rows.back())) return std::nullopt;
    const VarId lane = tiling.rows.back();
    tiling.rows.pop_back();
    tiling.batch.insert(tiling.batch.end(), tiling.columns.begin(), tiling.columns.end());
    tiling.columns = {lane};
    candidate.cycles = choose_registers(tiling, Reads{0, 1, unaligned}, finish(tiling));
    return candidate;
}

// Both factors lie along a variable of the batch, the channels of a depthwise convolution: it runs in lanes.
std::optional<TilingChooser::Candidate> TilingChooser::batch_in_lanes(const Tiling& classified) const {
    Candidate candidate{classified};
    Tiling& tiling = candidate.tiling;
    if (tiling.batch.empty() || !is_contiguous(tiling.batch)) return std::nullopt;
    const VarId lane = tiling.batch.back();
    // Lanes of which some have a product and others have none would not run together.
    if (operand_stride(lane) != 1 || deciding_[static_cast<std::size_t>(lane)]) return std::nullopt;
    tiling.batch.pop_back();
    tiling.batch.insert(tiling.batch.end(), tiling.columns.begin(), tiling.columns.end());
    tiling.columns = {lane};
    candidate.cycles = choose_registers(tiling, Reads{0, 1, 1}, 1);
    return candidate;
}

// Cycles in which a vector of results is stored.
double TilingChooser::finish(const Tiling& tiling) const {
    return is_contiguous(tiling.columns) ? 1 : scattered_store * tiling.lanes;
}

// The panel with the fewest cycles for a vector of results, which also take `finish`; gives those cycles.
double TilingChooser::choose_registers(Tiling& tiling, const Reads& reads, double finish) const {
    const std::int64_t rows = std::max<std::int64_t>(count(tiling.rows), 1);
    const std::int64_t columns = std::max<std::int64_t>(count(tiling.columns), 1);
    const auto reduce = static_cast<double>(count(tiling.reduce));
    double best = 0;
    const bool staged = tiling.row_factor == 0;
    for (const int vectors : {2, 1, 3, 4}) {
        for (const std::int64_t most_rows : {std::int64_t{machine_.vector_registers}, row_addresses}) {
            // Beside the sums, one row of columns and one broadcast element.
            const std::int64_t most =
                std::min<std::int64_t>((machine_.vector_registers - vectors - 1) / vectors, most_rows);
            const std::int64_t panels = ceil_div(rows, most);
            const std::int64_t panel_rows = ceil_div(rows, panels);
            const std::int64_t width = std::int64_t{vectors} * tiling.lanes;
            const std::int64_t column_panels = ceil_div(columns, width);
            const auto products = static_cast<double>(panel_rows * vectors);
            const std::int64_t addresses = staged ? std::max<std::int64_t>(panel_rows - row_addresses, 0) : 0;
            const double loads = static_cast<double>(panel_rows) * reads.row + vectors * reads.column +
                                 products * reads.both + static_cast<double>(addresses);
            const double cycles = std::max({products / multiplications_in_a_cycle, loads / loads_in_a_cycle, latency});
            const double waste = static_cast<double>(panels * panel_rows * column_panels * width) /
                                 (static_cast<double>(rows) * static_cast<double>(columns));
            // Of equals, the one with more sums in flight keeps the units busier.
            const double total = cycles / products * waste * reduce * (1 + slack / products) + finish;
            if (best > 0 && total >= best) continue;
            best = total;
            tiling.panel_vectors = vectors;
            tiling.panel_rows = static_cast<int>(panel_rows);
        }
    }
    return best;
}

// Loops over the reduced variables: the first ones in blocks, the last ones inside.
void TilingChooser::choose_reduce_loops(Tiling& tiling) const {
    // What decides whether there is a product at all is decided outside.
    const auto others = std::stable_partition(tiling.reduce.begin(), tiling.reduce.end(),
                                              [&](VarId v) { return deciding_[static_cast<std::size_t>(v)]; });
    tiling.deciding_reduce = static_cast<int>(others - tiling.reduce.begin());
    std::int64_t inner = 1;
    while (static_cast<std::size_t>(tiling.inner_reduce) + 1 < tiling.reduce.size()) {
        const VarId var = tiling.reduce[tiling.reduce.size() - 1 - static_cast<std::size_t>(tiling.inner_reduce)];
        if (!extent(var).is_known() || inner * extent(var).value() > max_inner) break;
        inner *= extent(var).value();
        ++tiling.inner_reduce;
    }
    const std::vector<VarId> outer(tiling.reduce.begin(), tiling.reduce.end() - tiling.inner_reduce);
    const bool known = std::all_of(outer.begin(), outer.end(), [this](VarId v) { return extent(v).is_known(); });
    tiling.one_block = known && count(outer) * inner <= max_one_block;
    const std::int64_t chunk =
        tiling.one_block ? count(outer) : std::max<std::int64_t>(max_inner / std::max<std::int64_t>(inner, 1), 1);
    tiling.block = std::max<std::int64_t>(chunk, 1) * inner;
    tiling.in_registers = tiling.one_block && finished_in_registers(tiling);
}

// How many tensors are stored or read at the results, whose columns lie across memory.
int TilingChooser::count_scattered(const Tiling& tiling) const {
    if (is_contiguous(tiling.columns)) return 0;
    const auto depends = [](const Index& offset, const std::vector<VarId>& vars) {
        return std::any_of(vars.begin(), vars.end(), [&](VarId v) { return offset.depends_on(v); });
    };
    std::set<TensorRef> tensors;
    for (const RegionAccess& access : accesses_) {
        if (depends(access.offset, tiling.reduce) || !depends(access.offset, tiling.columns)) continue;
        // A bias lies along one of the sides only.
        const bool whole = depends(access.offset, tiling.rows) || depends(access.offset, tiling.batch);
        if (access.store || whole) tensors.insert(access.tensor);
    }
    return static_cast<int>(tensors.size());
}

// Results whose columns lie across memory are stored lane by lane, and so is all read that they are combined with. From
// two such tensors on it is quicker to leave the sums as they are, and to finish them in the order of memory.
void TilingChooser::choose_finish(Tiling& tiling) const {
    if (!tiling.one_block || tiling.row_factor != 0 || tiling.columns.empty()) return;
    const bool phases = std::find(deciding_.begin(), deciding_.end(), true) != deciding_.end();
    if (count_scattered(tiling) < (phases ? 1 : 2)) return;
    order_finish(tiling);
}

void TilingChooser::order_finish(Tiling& tiling) const {
    for (const std::vector<VarId>* vars : {&tiling.batch, &tiling.rows, &tiling.columns}) {
        tiling.finish.insert(tiling.finish.end(), vars->begin(), vars->end());
    }
    sort_by_store(tiling.finish);
    const auto store = std::find_if(accesses_.begin(), accesses_.end(), [](const auto& a) { return a.store; });
    std::int64_t together = 1;
    for (auto var = tiling.finish.rbegin(); var != tiling.finish.rend() && together < tiling.lanes; ++var) {
        // Sums lie along the columns: these are lanes alone, or none.
        const bool column = *var == tiling.columns.back();
        if (stride(store->offset, *var) != together || (column && tiling.finish_lanes > 0)) break;
        together *= estimate(extent(*var));
        ++tiling.finish_lanes;
        if (column) break;
    }
    tiling.in_registers = tiling.finish_lanes > 0;  // which the sums leave as they are
    if (!tiling.in_registers) tiling.finish.clear();
}

// How far apart neighbours along a variable lie in the windows' operand; 0 when it is not known.
std::int64_t TilingChooser::operand_stride(VarId var) const {
    for (const RegionAccess& access : accesses_) {
        if (access.store || !access.offset.depends_on(var)) continue;
        for (std::size_t v = 0; v < region_.vars.size(); ++v) {
            if (used_[0][v] && !used_[1][v] && access.offset.depends_on(static_cast<VarId>(v))) {
                return stride(access.offset, var);
            }
        }
    }
    return 0;
}

// The staged copy lies like what it is a copy of, but channels before the last spatial axis, so that the rows of a
// window lie side by side.
void TilingChooser::choose_stage(Tiling& tiling) const {
    const std::vector<bool> direct = over_region_vars(access(contraction_).window_vars);
    VarId lane = tiling.columns.empty() ? VarId{-1} : tiling.columns.back();
    if (lane >= 0 && !used_[0][static_cast<std::size_t>(lane)]) lane = -1;
    // Lanes of the last panel read past the last column.
    std::int64_t past = tiling.panel_columns();
    if (lane >= 0 && extent(lane).is_known()) past = ceil_div(extent(lane).value(), past) * past - extent(lane).value();
    std::vector<VarId> vars;
    for (std::size_t v = 0; v < direct.size(); ++v) {
        if (direct[v]) vars.push_back(static_cast<VarId>(v));
    }
    std::stable_sort(vars.begin(), vars.end(),
                     [this](VarId a, VarId b) { return operand_stride(a) > operand_stride(b); });
    std::optional<Tiling::StageAxis> last;
    std::vector<Tiling::StageAxis> channels;
    for (VarId var : vars) {
        const Tiling::StageAxis axis{var, -1, 1, var == lane ? past : 0};
        // Strides are estimates: several variables may seem to lie side by side.
        if (var == lane || (lane < 0 && !last && operand_stride(var) == 1)) {
            last = axis;
        } else {
            channels.push_back(axis);
        }
    }
    std::vector<Tiling::StageAxis> positions;
    for (std::size_t p = 0; p < positions_.size(); ++p) {
        Tiling::StageAxis axis{-1, static_cast<int>(p)};
        if (lane >= 0 && positions_[p].depends_on(lane)) {
            axis.parts = positions_[p].coefficient_of(lane).value();
            axis.slack = past;
            last = axis;
        } else {
            positions.push_back(axis);
        }
    }
    if (!last) {
        last = positions.back();
        positions.pop_back();
    }
    const auto batch = static_cast<std::ptrdiff_t>(channels.size() > 1 ? 1 : 0);
    tiling.stage.assign(channels.begin(), channels.begin() + batch);
    tiling.stage.insert(tiling.stage.end(), positions.begin(), positions.end());
    tiling.stage.insert(tiling.stage.end(), channels.begin() + batch, channels.end());
    tiling.stage.push_back(*last);
}

// The order in which the staged copy lies.
void TilingChooser::sort_by_stage(const Tiling& tiling, std::vector<VarId>& vars) const {
    std::vector<VarId> sorted;
    for (const Tiling::StageAxis& axis : tiling.stage) {
        for (VarId var : vars) {
            const bool here =
                axis.var >= 0 ? axis.var == var : positions_[static_cast<std::size_t>(axis.position)].depends_on(var);
            if (here && std::find(sorted.begin(), sorted.end(), var) == sorted.end()) sorted.push_back(var);
        }
    }
    for (VarId var : vars) {
        if (std::find(sorted.begin(), sorted.end(), var) == sorted.end()) sorted.push_back(var);
    }
    vars = std::move(sorted);
}

void TilingChooser::choose_tiles(Tiling& tiling) const {
    tiling.factors = Tiling::Factors::packed;
    tiling.rows_in_lanes = true;
    tiling.rows_once = tiling.row_factor != 0;
    tiling.columns_once = tiling.row_factor == 0;
    const std::int64_t rows = std::max<std::int64_t>(count(tiling.rows), 1);
    const std::int64_t columns = std::max<std::int64_t>(count(tiling.columns), 1);
    const std::int64_t batches = std::max<std::int64_t>(count(tiling.batch), 1);
    const std::int64_t row_panels = ceil_div(rows, tiling.panel_rows);
    const std::int64_t column_panels = ceil_div(columns, tiling.panel_columns());
    const std::int64_t work = rows * columns * count(tiling.reduce);

    std::int64_t most_rows = std::min(row_panels, panels_of_a_tile);
    std::int64_t most_columns = std::min(column_panels, panels_of_a_tile);
    if (!tiling.one_block) {
        const std::int64_t panel_sums = std::int64_t{tiling.panel_rows} * tiling.panel_columns();
        most_columns = std::min(most_columns, std::max<std::int64_t>(max_sums / 4 / panel_sums, 1));
        most_rows = std::min(most_rows, std::max<std::int64_t>(max_sums / panel_sums / most_columns, 1));
    }
    std::int64_t row_tiles = ceil_div(row_panels, most_rows);
    std::int64_t column_tiles = ceil_div(column_panels, most_columns);
    const std::int64_t threads = machine_.threads;
    // Few rows over a long sum meet columns that were packed for them alone.
    const bool few_rows = tiling.row_factor == 0 && row_panels <= panels_of_few_rows && !tiling.one_block;
    if (few_rows && batches == 1 && tiling.deciding_reduce == 0) {
        tiling.columns_once = false;
        row_tiles = 1;
        column_tiles = column_panels % threads == 0 ? threads : column_tiles;
    } else if (work * batches / threads >= worth_sharing) {
        const std::int64_t wanted =
            threads == 1 ? 1 : ceil_div(threads * tiles_for_each_thread, batches * column_tiles);
        if (batches * column_tiles % threads != 0) row_tiles = std::max(row_tiles, std::min(row_panels, wanted));
        const bool even = row_panels >= threads * tiles_for_each_thread;
        if (!even && batches * row_tiles % threads != 0 && column_panels % threads == 0) {
            row_tiles = ceil_div(row_panels, most_rows);
            column_tiles = std::max(column_tiles, threads);
        }
    }
    tiling.row_panels = ceil_div(row_panels, row_tiles);
    tiling.column_panels = ceil_div(column_panels, column_tiles);
    tiling.rows_outside =
        tiling.row_factor == 0 && tiling.block * tiling.column_panels * tiling.panel_columns() <= max_columns_inside;
    split(tiling, work, row_tiles * column_tiles, count(tiling.reduce));
}

}  // namespace topstitch::stitch
