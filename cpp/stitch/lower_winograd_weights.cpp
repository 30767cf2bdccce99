// Writes the gradient of a convolution's weights by minimal filtering: the taps are the results, and the sum runs over
// tiles of places, so that products of transforms are added up and only those sums are transformed back.
#include <algorithm>

#include "ops/indexing_rules.h"
#include "stitch/winograd_frame.h"

namespace topstitch::stitch {

namespace {

using loopir::no_value;
using loopir::ValueId;

// Rows are phases and channels of the data, columns those of the gradient that the places have.
class WeightsWriter : public WinogradFrame {
public:
    WeightsWriter(const Program& program, const Partition& partition, const Region& region, const Schedule& schedule,
                  const std::map<OpId, TensorRef>& in_place, LoweredRegion& result, SharedScratch& shared)
        : WinogradFrame(program, partition, region, schedule, in_place, result, shared),
          column_panels_(ceil_div(column_count_, tiling_.panel_columns())),
          row_panels_(ceil_div(depth_, tiling_.panel_rows)),
          tile_rows_(tiling_.row_panels * tiling_.panel_rows) {}

    // The factor of the places, columns side by side: [panel of columns, image, down, across, column].
    LoweredKernel write_columns(const std::string& name) {
        shared_.columns = static_cast<int>(result_.scratch.size());
        const Dim down = extent({filter_.down.place});
        const Index at = begin_loop("at", {"at", column_panels_ * images_ * down, true});
        const Index across = begin_loop("across", {"across", extent({filter_.across.place})});
        const Index j = begin_loop("column", {"column", Dim(tiling_.panel_columns()), false, true, 2});
        const int buffer = scratch_buffer("columns", shared_.columns, type_, columns_size(), true);
        const Index row = floor_div(at, down);
        const Index column = floor_div(row, images_) * Dim(tiling_.panel_columns()) + j;
        std::fill(vars_.begin(), vars_.end(), Index(0));
        bind(filter_.images, mod(row, images_));
        bind(filter_.down.place, mod(at, down));
        bind(filter_.across.place, across);
        bind(tiling_.columns, column);
        guard_ = below(column, column_count_, tiling_.panel_columns());
        const ValueId value = factor(1);
        guard_ = no_value;
        b_.store(buffer, (at * extent({filter_.across.place}) + across) * Dim(tiling_.panel_columns()) + j, value);
        close(3);
        return finish(name);
    }

    LoweredKernel write_product(const std::string& name) {
        const Dim row_tiles = ceil_div(row_panels_, tiling_.row_panels);
        const Dim column_tiles = ceil_div(column_panels_, tiling_.column_panels);
        Index left = begin_loop("at", {"at", Dim(tiling_.splits) * row_tiles * column_tiles, true});
        first_column_panel_ = mod(left, column_tiles) * Dim(tiling_.column_panels);
        left = floor_div(left, column_tiles);
        first_row_ = mod(left, row_tiles) * Dim(tile_rows_);
        split_ = floor_div(left, row_tiles);
        // A block more than whole ones when their number is not known: it may be empty, but the sums are written.
        const Dim all = all_tiles();
        const Dim blocks = all.is_known() ? ceil_div(all, filter_.tiles) : floor_div(all, Dim(filter_.tiles)) + Dim(1);
        const Dim share = ceil_div(blocks, tiling_.splits);
        block_ = begin_loop("block", {"block", share});
        const Index first = (split_ * share + block_) * Dim(filter_.tiles);
        const bool whole = all.is_known() && all.value() % (filter_.tiles * tiling_.splits) == 0;
        if (!whole) limit_ = Index(all) - first;
        make_buffers();
        transform_block(first);
        multiply();
        close(1);
        transform_sums();
        close(1);
        return finish(name);
    }

private:
    Dim columns_size() const {
        return column_panels_ * images_ * extent({filter_.down.place}) * extent({filter_.across.place}) *
               Dim(tiling_.panel_columns());
    }
    std::int64_t tile_columns() const { return tiling_.column_panels * tiling_.panel_columns(); }

    void make_buffers() {
        stage_ = stage_buffer();
        columns_ = scratch_buffer("columns", shared_.columns, type_, columns_size(), false);
        data_step_ = odd_lines(filter_.tiles * tile_rows_);
        gradient_step_ = odd_lines(filter_.tiles * tile_columns());
        sums_step_ = odd_lines(tile_rows_ * tile_columns());
        data_ = local_buffer("data", type_, Dim(tile_size * data_step_));
        gradient_ = local_buffer("gradient", type_, Dim(tile_size * gradient_step_));
        sums_ = local_buffer("sums", type_, Dim(tile_size * sums_step_));
    }

    // Of the data: [place in the tile, tile, row]. Of the gradient: [place in the tile, panel, tile, column].
    void transform_block(const Index& first) {
        const Index tile = begin_tiles(first, limit_);
        const Index row = begin_loop("row", {"row", Dim(tile_rows_), false, true, 1});
        const Index depth = first_row_ + row;
        transform_staged(depth, below(depth, depth_, tile_rows_), data_, data_step_, tile * Dim(tile_rows_) + row);
        close(1);
        const Index panel =
            begin_loop("panel", {"panel", Dim(tiling_.column_panels)}, Index(column_panels_) - first_column_panel_);
        const Index j = begin_loop("j", {"j", Dim(tiling_.panel_columns()), false, true, 1});
        Grid places(static_cast<std::size_t>(filter_.down.places));
        for (int y = 0; y < filter_.down.places; ++y) {
            for (int x = 0; x < filter_.across.places; ++x) {
                const Index image = (first_column_panel_ + panel) * images_ + image_;
                const Index down = image * extent({filter_.down.place}) + place_down(y);
                const Index at = down * extent({filter_.across.place}) + place_across(x);
                places[static_cast<std::size_t>(y)].push_back(b_.load(columns_, at * Dim(tiling_.panel_columns()) + j,
                                                                      place_exists(place_down(y), place_across(x))));
            }
        }
        store_tile(transform(down_.filter, places, across_.filter), gradient_, gradient_step_,
                   gradient_offset(panel, tile, j));
        close(3);
    }
    Index gradient_offset(const Index& panel, const Index& tile, const Index& j) const {
        return (panel * Dim(filter_.tiles) + tile) * Dim(tiling_.panel_columns()) + j;
    }

    void multiply() {
        const Index place = begin_loop("place", {"place", Dim(tile_size)});
        const Index column_panel = begin_loop("column_panel", {"column_panel", Dim(tiling_.column_panels)},
                                              Index(column_panels_) - first_column_panel_);
        const Index row_panel = begin_loop("row_panel", {"row_panel", Dim(tiling_.row_panels)},
                                           Index(row_panels_) - floor_div(first_row_, Dim(tiling_.panel_rows)));
        const auto [i, j] =
            begin_panel(tiling_.panel_rows, tiling_.panel_columns(), tiling_.panel_rows, tiling_.panel_vectors);
        const Index row = row_panel * Dim(tiling_.panel_rows) + i;
        const ValueId value = sum_of_products(type_, Dim(filter_.tiles), limit_, [&](const Index& k) {
            return b_.mul(b_.load(data_, place * Dim(data_step_) + k * Dim(tile_rows_) + row),
                          b_.load(gradient_, place * Dim(gradient_step_) + gradient_offset(column_panel, k, j)));
        });
        const Index at =
            place * Dim(sums_step_) + row * Dim(tile_columns()) + column_panel * Dim(tiling_.panel_columns()) + j;
        add_to_blocks(sums_, at, value, block_);
        close(5);
    }

    void transform_sums() {
        const Index row = begin_loop("row", {"row", Dim(tile_rows_)}, Index(depth_) - first_row_);
        const Index panel =
            begin_loop("panel", {"panel", Dim(tiling_.column_panels)}, Index(column_panels_) - first_column_panel_);
        const Index j = begin_loop("j", {"j", Dim(tiling_.panel_columns()), false, true, 1});
        const Index in_tile = panel * Dim(tiling_.panel_columns()) + j;
        const Grid sums = load_tile(sums_, sums_step_, row * Dim(tile_columns()) + in_tile);
        const Grid results = transform(down_.outputs, sums, across_.outputs);
        const Index depth = first_row_ + row;
        const Index phase = floor_div(depth, channels_);
        const Index column = first_column_panel_ * Dim(tiling_.panel_columns()) + in_tile;
        const ValueId column_exists = below(column, column_count_, tiling_.panel_columns());
        bind(filter_.channel, mod(depth, channels_));
        bind(tiling_.columns, column);
        for (int y = 0; y < filter_.down.taps; ++y) {
            for (int x = 0; x < filter_.across.taps; ++x) {
                const ValueId tap_exists = bind_taps(position_of_tap(filter_.down, y, phase_down(phase)),
                                                     position_of_tap(filter_.across, x, phase_across(phase)));
                forget_values();
                guard_ = ops::both(b_, tap_exists, column_exists);
                store_result(column, value_at(results, y, x));
                guard_ = no_value;
            }
        }
        close(3);
    }

    void store_result(const Index& column, ValueId value) {
        if (tiling_.splits > 1 || tiling_.finished_apart()) {
            b_.store(waiting_sums(true), waiting_offset(split_, joint(tiling_.rows), column), value, guard_);
        } else {
            finish_value(value);
        }
    }

    Dim column_panels_, row_panels_;
    std::int64_t tile_rows_ = 1;
    Index first_column_panel_ = 0, first_row_ = 0, split_ = 0, block_ = 0;
    std::optional<Index> limit_;                                      // of the tiles in a block
    std::int64_t data_step_ = 1, gradient_step_ = 1, sums_step_ = 1;  // from place to place
    int columns_ = -1, data_ = -1, gradient_ = -1, sums_ = -1;
};

}  // namespace

void lower_winograd_weights(const Program& program, const Partition& partition, const Region& region,
                            const Schedule& schedule, const std::map<OpId, TensorRef>& in_place,
                            const std::string& name, LoweredRegion& result) {
    SharedScratch shared;
    const auto writer = [&] { return WeightsWriter(program, partition, region, schedule, in_place, result, shared); };
    const Tiling& tiling = *schedule.tiling;
    const bool waits = tiling.splits > 1 || tiling.finished_apart();
    result.kernels.push_back(writer().write_stage(name + "_stage"));
    result.kernels.push_back(writer().write_columns(name + "_columns"));
    result.kernels.push_back(writer().write_product(waits ? name + "_sums" : name));
    if (tiling.splits > 1) {
        result.kernels.push_back(writer().write_combination(name));
    } else if (tiling.finished_apart()) {
        result.kernels.push_back(writer().write_finish(name));
    }
}

}  // namespace topstitch::stitch
