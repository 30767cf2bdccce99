// Writes a convolution by minimal filtering: the data in the order in which tiles read it, the transformed filter, and
// the products of transforms, tile by tile, in buffers that stay in the second-level cache.
#include <algorithm>

#include "ops/indexing_rules.h"
#include "stitch/contraction_frame.h"
#include "stitch/minimal_filter.h"

namespace topstitch::stitch {

namespace {

using loopir::no_value;
using loopir::ScalarOp;
using loopir::ValueId;

constexpr std::int64_t line = 16;    // elements of a cache line
constexpr std::int64_t page = 1024;  // elements after which lines share a set of the first cache
constexpr int tile_size = filter_tile * filter_tile;

using Grid = std::vector<std::vector<ValueId>>;

// So many elements, and some more: a power of two between elements would put them all into the same lines of the cache.
std::int64_t odd_lines(std::int64_t elements) {
    const std::int64_t lines = (elements + line - 1) / line;
    return (lines % 2 == 0 ? lines + 1 : lines) * line;
}

class WinogradWriter : public ContractionFrame {
public:
    WinogradWriter(const Program& program, const Partition& partition, const Region& region, const Schedule& schedule,
                   const std::map<OpId, TensorRef>& in_place, LoweredRegion& result, SharedScratch& shared)
        : ContractionFrame(program, partition, region, schedule, in_place, result, shared),
          filter_(*tiling_.winograd),
          down_(filter_transforms(filter_.down.phase_taps())),
          across_(filter_transforms(filter_.across.phase_taps())),
          channels_(extent({filter_.channel})),
          depth_(Dim(filter_.phases()) * channels_),
          images_(extent(filter_.images)),
          tiles_down_(ceil_div(extent({filter_.down.place}), filter_.down.outputs)),
          tiles_across_(ceil_div(extent({filter_.across.place}), filter_.across.outputs)),
          column_panels_(ceil_div(column_count_, tiling_.panel_columns())) {}

    // The data with its padding, channels side by side: [image, down, across, phase, channel].
    LoweredKernel write_stage(const std::string& name) {
        shared_.stage = static_cast<int>(result_.scratch.size());
        const Indices positions = over_region(access(contraction_).positions, region_.members.at(contraction_));
        const Index at = begin_loop("at", {"at", images_ * stage_down(), true});
        const Index across = begin_loop("across", {"across", stage_across()});
        const Index phase = begin_loop("phase", {"phase", Dim(filter_.phases())});
        const Index channel = begin_loop("channel", {"channel", channels_, false, true, 1});
        const int stage = scratch_buffer("stage", shared_.stage, type_, stage_size(), true);
        std::fill(vars_.begin(), vars_.end(), Index(0));
        bind(filter_.images, floor_div(at, stage_down()));
        bind(filter_.channel, channel);
        forget_values();
        const auto position = [&](const MinimalFilter::Axis& axis, const Index& digit, const Index& its_phase) {
            return digit * Dim(axis.steps) + its_phase +
                   Index(positions[static_cast<std::size_t>(axis.position)].lower_bound());
        };
        Indices where(2);
        where[static_cast<std::size_t>(filter_.down.position)] =
            position(filter_.down, mod(at, stage_down()), phase_down(phase));
        where[static_cast<std::size_t>(filter_.across.position)] =
            position(filter_.across, across, phase_across(phase));
        const Index pixel = at * stage_across() + across;
        b_.store(stage, pixel * depth_ + phase * channels_ + channel, window_element(where));
        close(4);
        return finish(name);
    }

    // The transformed filter: [place in the tile, panel of columns, phase, channel, column].
    LoweredKernel write_filter(const std::string& name) {
        shared_.columns = static_cast<int>(result_.scratch.size());
        const Index at = begin_loop("at", {"at", column_panels_ * depth_, true});
        const Index j = begin_loop("column", {"column", Dim(tiling_.panel_columns()), false, true, 1});
        const int buffer = scratch_buffer("filter", shared_.columns, type_, filter_size(), true);
        const Index column = floor_div(at, depth_) * Dim(tiling_.panel_columns()) + j;
        const Index phase = floor_div(mod(at, depth_), channels_);
        const ValueId column_exists = below(column, column_count_, tiling_.panel_columns());
        std::fill(vars_.begin(), vars_.end(), Index(0));
        Grid taps(static_cast<std::size_t>(filter_.down.phase_taps()));
        for (std::size_t y = 0; y < taps.size(); ++y) {
            for (int x = 0; x < filter_.across.phase_taps(); ++x) {
                const Index down = Index(static_cast<int>(y) * filter_.down.steps) + phase_down(phase);
                const Index across = Index(x * filter_.across.steps) + phase_across(phase);
                bind(tiling_.columns, column);
                bind(filter_.channel, mod(at, channels_));
                bind(filter_.down.tap, tap(filter_.down, down));
                bind(filter_.across.tap, tap(filter_.across, across));
                forget_values();
                const ValueId in_filter = ops::both(b_, below(down, filter_.down.taps, filter_.down.steps),
                                                    below(across, filter_.across.taps, filter_.across.steps));
                const ValueId exists = ops::both(b_, in_filter, existence());
                guard_ = ops::both(b_, column_exists, exists);
                const ValueId value = factor(1);
                taps[y].push_back(guard_ == no_value ? value : b_.select(guard_, value, b_.constant(0, type_)));
            }
        }
        guard_ = no_value;
        const Grid transformed = transform(down_.filter, taps, across_.filter);
        for (int y = 0; y < filter_tile; ++y) {
            for (int x = 0; x < filter_tile; ++x) {
                const Index place = Index(y * filter_tile + x) * (column_panels_ * depth_);
                b_.store(buffer, (place + at) * Dim(tiling_.panel_columns()) + j, value_at(transformed, y, x));
            }
        }
        close(2);
        return finish(name);
    }

    LoweredKernel write_product(const std::string& name) {
        const Dim all = images_ * tiles_down_ * tiles_across_;
        const bool whole = all.is_known() && all.value() % filter_.tiles == 0;
        block_ = begin_loop("block", {"block", ceil_div(all, filter_.tiles), true});
        if (!whole) limit_ = Index(all) - block_ * Dim(filter_.tiles);
        stage_ = scratch_buffer("stage", shared_.stage, type_, stage_size(), false);
        filter_buffer_ = scratch_buffer("filter", shared_.columns, type_, filter_size(), false);
        panels_ = ceil_div(filter_.tiles, tiling_.panel_rows);
        row_step_ = ceil_div(depth_.value(), line) * line;
        if (row_step_ % page == 0) row_step_ += line;
        data_step_ = odd_lines(panels_ * tiling_.panel_rows * row_step_);
        sums_step_ = odd_lines(panels_ * tiling_.panel_rows * tiling_.panel_columns());
        data_ = local_buffer("data", type_, Dim(tile_size * data_step_));
        sums_ = local_buffer("sums", type_, Dim(tile_size * sums_step_));
        transform_data();
        fill_last_panel();
        column_panel_ = begin_loop("column_panel", {"column_panel", column_panels_});
        multiply();
        transform_sums();
        close(2);
        return finish(name);
    }

private:
    static Dim ceil_div(const Dim& count, std::int64_t step) { return topstitch::ceil_div(count, Dim(step)); }
    static std::int64_t ceil_div(std::int64_t count, std::int64_t step) { return (count + step - 1) / step; }
    static ValueId value_at(const Grid& grid, int y, int x) {
        return grid[static_cast<std::size_t>(y)][static_cast<std::size_t>(x)];
    }
    static Index tap(const MinimalFilter::Axis& axis, const Index& k) {
        return axis.flipped ? Index(axis.taps - 1) - k : k;
    }
    Index phase_down(const Index& phase) const { return floor_div(phase, Dim(filter_.across.steps)); }
    Index phase_across(const Index& phase) const { return mod(phase, Dim(filter_.across.steps)); }

    Dim stage_down() const { return tiles_down_ * Dim(filter_.down.outputs) + Dim(filter_.down.phase_taps() - 1); }
    Dim stage_across() const {
        return tiles_across_ * Dim(filter_.across.outputs) + Dim(filter_.across.phase_taps() - 1);
    }
    Dim stage_size() const { return images_ * stage_down() * stage_across() * depth_; }
    Dim filter_size() const { return Dim(tile_size) * column_panels_ * depth_ * Dim(tiling_.panel_columns()); }

    // A sum of terms with constant factors.
    ValueId combination(const std::vector<double>& factors, const std::vector<ValueId>& terms) {
        ValueId sum = no_value;
        for (std::size_t k = 0; k < terms.size(); ++k) {
            if (factors[k] == 0) continue;
            if (sum != no_value && factors[k] == -1) {
                sum = b_.sub(sum, terms[k]);
                continue;
            }
            const ValueId term = factors[k] == 1 ? terms[k] : b_.mul(terms[k], b_.constant(factors[k], type_));
            sum = sum == no_value ? term : b_.add(sum, term);
        }
        return sum;
    }

    // down * grid * transposed across.
    Grid transform(const Matrix& down, const Grid& grid, const Matrix& across) {
        Grid columns(grid.size());
        for (std::size_t y = 0; y < grid.size(); ++y) {
            for (const std::vector<double>& row : across) columns[y].push_back(combination(row, grid[y]));
        }
        Grid result(down.size());
        for (std::size_t y = 0; y < down.size(); ++y) {
            for (std::size_t x = 0; x < across.size(); ++x) {
                std::vector<ValueId> column;
                for (const std::vector<ValueId>& row : columns) column.push_back(row[x]);
                result[y].push_back(combination(down[y], column));
            }
        }
        return result;
    }

    // Opens the loop over the tiles of the block.
    Index begin_tiles() {
        const Index tile = begin_loop("tile", {"tile", Dim(filter_.tiles)}, limit_);
        const Index all = block_ * Dim(filter_.tiles) + tile;
        tile_across_ = mod(all, tiles_across_);
        const Index row = floor_div(all, tiles_across_);
        tile_down_ = mod(row, tiles_down_);
        image_ = floor_div(row, tiles_down_);
        return tile;
    }

    void transform_data() {
        const Index tile = begin_tiles();
        const Index channel = begin_loop("channel", {"channel", depth_, false, true, 1});
        Grid grid(static_cast<std::size_t>(filter_tile));
        for (int y = 0; y < filter_tile; ++y) {
            const Index down = image_ * stage_down() + tile_down_ * Dim(filter_.down.outputs) + Index(y);
            for (int x = 0; x < filter_tile; ++x) {
                const Index across = tile_across_ * Dim(filter_.across.outputs) + Index(x);
                grid[static_cast<std::size_t>(y)].push_back(
                    b_.load(stage_, (down * stage_across() + across) * depth_ + channel));
            }
        }
        const Grid transformed = transform(down_.positions, grid, across_.positions);
        for (int y = 0; y < filter_tile; ++y) {
            for (int x = 0; x < filter_tile; ++x) {
                const Index place = Index((y * filter_tile + x) * data_step_);
                b_.store(data_, place + tile * Dim(row_step_) + channel, value_at(transformed, y, x));
            }
        }
        close(2);
    }

    // With rows that nobody looks at. Only the last block may have fewer tiles than fill its panels.
    void fill_last_panel() {
        if (!limit_) return;
        const Index tiles =
            Index::value(b_.op(ScalarOp::min, b_.index_value(*limit_), b_.index_value(Index(filter_.tiles))));
        panels_here_ = floor_div(tiles + Index(tiling_.panel_rows - 1), Dim(tiling_.panel_rows));
        const Index row =
            begin_loop("rest", {"rest", Dim(tiling_.panel_rows - 1)}, *panels_here_ * Dim(tiling_.panel_rows) - tiles);
        const Index place = begin_loop("place", {"place", Dim(tile_size)});
        const Index channel = begin_loop("channel", {"channel", depth_, false, true, 1});
        b_.store(data_, place * Dim(data_step_) + (tiles + row) * Dim(row_step_) + channel, b_.constant(0, type_));
        close(3);
    }

    void multiply() {
        const Index place = begin_loop("place", {"place", Dim(tile_size)});
        const Index panel = begin_loop("panel", {"panel", Dim(panels_)}, panels_here_);
        const auto [i, j] =
            begin_panel(tiling_.panel_rows, tiling_.panel_columns(), tiling_.panel_rows, tiling_.panel_vectors);
        const Index row = panel * Dim(tiling_.panel_rows) + i;
        const ValueId value = sum_of_products(type_, depth_, std::nullopt, [&](const Index& k) {
            const Index filter = (place * column_panels_ + column_panel_) * depth_ + k;
            return b_.mul(b_.load(data_, place * Dim(data_step_) + row * Dim(row_step_) + k),
                          b_.load(filter_buffer_, filter * Dim(tiling_.panel_columns()) + j));
        });
        b_.store(sums_, place * Dim(sums_step_) + row * Dim(tiling_.panel_columns()) + j, value);
        close(4);
    }

    void transform_sums() {
        const Index tile = begin_tiles();
        const Index j = begin_loop("j", {"j", Dim(tiling_.panel_columns()), false, true, 1});
        const Index column = column_panel_ * Dim(tiling_.panel_columns()) + j;
        Grid grid(static_cast<std::size_t>(filter_tile));
        for (int y = 0; y < filter_tile; ++y) {
            for (int x = 0; x < filter_tile; ++x) {
                const Index place = Index((y * filter_tile + x) * sums_step_);
                grid[static_cast<std::size_t>(y)].push_back(
                    b_.load(sums_, place + tile * Dim(tiling_.panel_columns()) + j));
            }
        }
        const Grid results = transform(down_.outputs, grid, across_.outputs);
        const ValueId column_exists = below(column, column_count_, tiling_.panel_columns());
        for (int y = 0; y < filter_.down.outputs; ++y) {
            for (int x = 0; x < filter_.across.outputs; ++x) {
                store_result(tile_down_ * Dim(filter_.down.outputs) + Index(y),
                             tile_across_ * Dim(filter_.across.outputs) + Index(x), column, column_exists,
                             value_at(results, y, x));
            }
        }
        close(2);
    }

    void store_result(const Index& down, const Index& across, const Index& column, ValueId column_exists,
                      ValueId value) {
        const ValueId exists = ops::both(b_, below(down, extent({filter_.down.place}), filter_.down.outputs),
                                         below(across, extent({filter_.across.place}), filter_.across.outputs));
        guard_ = ops::both(b_, exists, column_exists);
        bind(filter_.images, image_);
        bind(filter_.down.place, down);
        bind(filter_.across.place, across);
        bind(tiling_.columns, column);
        forget_values();
        if (tiling_.finished_apart()) {
            b_.store(waiting_sums(true), waiting_offset(0, joint(tiling_.rows), column), value, guard_);
        } else {
            finish_value(value);
        }
        guard_ = no_value;
    }

    const MinimalFilter& filter_;
    FilterTransforms down_, across_;
    Dim channels_, depth_, images_, tiles_down_, tiles_across_, column_panels_;
    Index block_ = 0, column_panel_ = 0;
    std::optional<Index> limit_, panels_here_;  // of the tiles in a block, and their panels, when there may be fewer
    Index image_ = 0, tile_down_ = 0, tile_across_ = 0;
    std::int64_t panels_ = 1;                                    // of tiles
    std::int64_t row_step_ = 1, data_step_ = 1, sums_step_ = 1;  // from tile to tile, and from place to place
    int stage_ = -1, filter_buffer_ = -1, data_ = -1, sums_ = -1;
};

}  // namespace

void lower_winograd(const Program& program, const Partition& partition, const Region& region, const Schedule& schedule,
                    const std::map<OpId, TensorRef>& in_place, const std::string& name, LoweredRegion& result) {
    SharedScratch shared;
    const auto writer = [&] { return WinogradWriter(program, partition, region, schedule, in_place, result, shared); };
    const bool apart = schedule.tiling->finished_apart();
    result.kernels.push_back(writer().write_stage(name + "_stage"));
    result.kernels.push_back(writer().write_filter(name + "_filter"));
    result.kernels.push_back(writer().write_product(apart ? name + "_sums" : name));
    if (apart) result.kernels.push_back(writer().write_finish(name));
}

}  // namespace topstitch::stitch
