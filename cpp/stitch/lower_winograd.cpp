// Writes a convolution by minimal filtering: the data in the order in which tiles read it, the transformed filter, and
// the products of transforms, tile by tile, in buffers that stay in the second-level cache.
#include <algorithm>

#include "ops/indexing_rules.h"
#include "stitch/winograd_frame.h"

namespace topstitch::stitch {

namespace {

using loopir::no_value;
using loopir::ScalarOp;
using loopir::ValueId;

constexpr std::int64_t line = 16;    // elements of a cache line
constexpr std::int64_t page = 1024;  // elements after which lines share a set of the first cache

class WinogradWriter : public WinogradFrame {
public:
    WinogradWriter(const Program& program, const Partition& partition, const Region& region, const Schedule& schedule,
                   const std::map<OpId, TensorRef>& in_place, LoweredRegion& result, SharedScratch& shared)
        : WinogradFrame(program, partition, region, schedule, in_place, result, shared),
          column_panels_(ceil_div(column_count_, tiling_.panel_columns())) {}

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
        Grid taps(static_cast<std::size_t>(filter_.down.taps));
        for (int y = 0; y < filter_.down.taps; ++y) {
            for (int x = 0; x < filter_.across.taps; ++x) {
                bind(tiling_.columns, column);
                bind(filter_.channel, mod(at, channels_));
                const ValueId in_filter = bind_taps(position_of_tap(filter_.down, y, phase_down(phase)),
                                                    position_of_tap(filter_.across, x, phase_across(phase)));
                forget_values();
                const ValueId exists = ops::both(b_, in_filter, existence());
                guard_ = ops::both(b_, column_exists, exists);
                const ValueId value = factor(1);
                taps[static_cast<std::size_t>(y)].push_back(
                    guard_ == no_value ? value : b_.select(guard_, value, b_.constant(0, type_)));
            }
        }
        guard_ = no_value;
        const Dim step = column_panels_ * depth_ * Dim(tiling_.panel_columns());
        store_tile(transform(down_.filter, taps, across_.filter), buffer, step, at * Dim(tiling_.panel_columns()) + j);
        close(2);
        return finish(name);
    }

    LoweredKernel write_product(const std::string& name) {
        const Dim all = all_tiles();
        const bool whole = all.is_known() && all.value() % filter_.tiles == 0;
        const Dim column_tiles = ceil_div(column_panels_, tiling_.column_panels);
        const Index at = begin_loop("at", {"at", ceil_div(all, filter_.tiles) * column_tiles, true});
        first_ = floor_div(at, column_tiles) * Dim(filter_.tiles);
        first_panel_ = mod(at, column_tiles) * Dim(tiling_.column_panels);
        if (!whole) limit_ = Index(all) - first_;
        make_buffers();
        count_panels();
        if (in_parts()) first_channel_ = begin_loop("part", {"part", parts()}) * Dim(filter_.channels_together);
        transform_data();
        begin_column_panels();
        multiply();
        if (in_parts()) {
            close(2);
            begin_column_panels();
        }
        transform_sums();
        close(2);
        return finish(name);
    }

private:
    Dim filter_size() const { return Dim(tile_size) * column_panels_ * depth_ * Dim(tiling_.panel_columns()); }
    // The channels of a block: some of them after others, while the sums wait.
    Dim parts() const { return floor_div(depth_, Dim(filter_.channels_together)); }
    bool in_parts() const { return !(parts() == Dim(1)); }

    void make_buffers() {
        stage_ = stage_buffer();
        filter_buffer_ = scratch_buffer("filter", shared_.columns, type_, filter_size(), false);
        row_step_ = ceil_div(filter_.channels_together, line) * line;
        if (row_step_ % page == 0) row_step_ += line;
        data_step_ = odd_lines(filter_.tiles * row_step_);
        panel_step_ = filter_.tiles * tiling_.panel_columns();
        sums_step_ = odd_lines((in_parts() ? tiling_.column_panels : 1) * panel_step_);
        data_ = local_buffer("data", type_, Dim(tile_size * data_step_));
        sums_ = local_buffer("sums", type_, Dim(tile_size * sums_step_));
    }

    void begin_column_panels() {
        column_panel_ = begin_loop("column_panel", {"column_panel", Dim(tiling_.column_panels)},
                                   Index(column_panels_) - first_panel_);
    }

    // Only the last block may have fewer tiles than fill its panels.
    void count_panels() {
        if (!limit_) return;
        tiles_here_ = Index::value(b_.op(ScalarOp::min, b_.index_value(*limit_), b_.index_value(Index(filter_.tiles))));
        panels_here_ = floor_div(*tiles_here_ + Index(tiling_.panel_rows - 1), Dim(tiling_.panel_rows));
    }

    void transform_data() {
        const LoopSpec channels{"channel", Dim(filter_.channels_together), false, true, 1};
        const Index tile = begin_tiles(first_, limit_);
        const Index channel = begin_loop("channel", channels);
        transform_staged(first_channel_ + channel, no_value, data_, data_step_, tile * Dim(row_step_) + channel);
        close(2);
        if (!limit_) return;
        // Rows that nobody looks at.
        const Index row = begin_loop("rest", {"rest", Dim(tiling_.panel_rows - 1)},
                                     *panels_here_ * Dim(tiling_.panel_rows) - *tiles_here_);
        const Index place = begin_loop("place", {"place", Dim(tile_size)});
        const Index lane = begin_loop("channel", channels);
        b_.store(data_, place * Dim(data_step_) + (*tiles_here_ + row) * Dim(row_step_) + lane, b_.constant(0, type_));
        close(3);
    }

    void multiply() {
        const Index place = begin_loop("place", {"place", Dim(tile_size)});
        const Index panel = begin_loop("panel", {"panel", Dim(tiling_.row_panels)}, panels_here_);
        const auto [i, j] =
            begin_panel(tiling_.panel_rows, tiling_.panel_columns(), tiling_.panel_rows, tiling_.panel_vectors);
        const Index row = panel * Dim(tiling_.panel_rows) + i;
        const auto product = [&](const Index& k) {
            const Index filter = (place * column_panels_ + first_panel_ + column_panel_) * depth_ + first_channel_ + k;
            return b_.mul(b_.load(data_, place * Dim(data_step_) + row * Dim(row_step_) + k),
                          b_.load(filter_buffer_, filter * Dim(tiling_.panel_columns()) + j));
        };
        const ValueId value = sum_of_products(type_, Dim(filter_.channels_together), std::nullopt, product);
        const Index at = sums_offset(row, j) + place * Dim(sums_step_);
        if (in_parts()) {
            add_to_blocks(sums_, at, value, first_channel_);
        } else {
            b_.store(sums_, at, value);
        }
        close(4);
    }
    Index sums_offset(const Index& row, const Index& j) const {
        return (in_parts() ? column_panel_ * Dim(panel_step_) : Index(0)) + row * Dim(tiling_.panel_columns()) + j;
    }

    void transform_sums() {
        const Index tile = begin_tiles(first_, limit_);
        const Index j = begin_loop("j", {"j", Dim(tiling_.panel_columns()), false, true, 1});
        const Index column = (first_panel_ + column_panel_) * Dim(tiling_.panel_columns()) + j;
        const Grid sums = load_tile(sums_, sums_step_, sums_offset(tile, j));
        const Grid results = transform(down_.outputs, sums, across_.outputs);
        const ValueId column_exists = below(column, column_count_, tiling_.panel_columns());
        for (int y = 0; y < filter_.down.places; ++y) {
            for (int x = 0; x < filter_.across.places; ++x) {
                store_result(place_down(y), place_across(x), column, column_exists, value_at(results, y, x));
            }
        }
        close(2);
    }

    void store_result(const Index& down, const Index& across, const Index& column, ValueId column_exists,
                      ValueId value) {
        guard_ = ops::both(b_, place_exists(down, across), column_exists);
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

    Dim column_panels_;
    Index first_ = 0, first_panel_ = 0, first_channel_ = 0, column_panel_ = 0;
    std::optional<Index> limit_;                     // of the tiles in a block, when there may be fewer;
    std::optional<Index> tiles_here_, panels_here_;  // then, of this one
    // From tile to tile, from panel to panel, and from place to place.
    std::int64_t row_step_ = 1, panel_step_ = 1, data_step_ = 1, sums_step_ = 1;
    int filter_buffer_ = -1, data_ = -1, sums_ = -1;
};

}  // namespace

void lower_winograd(const Program& program, const Partition& partition, const Region& region, const Schedule& schedule,
                    const std::map<OpId, TensorRef>& in_place, const std::string& name, LoweredRegion& result) {
    if (schedule.tiling->winograd->of_weights) {
        return lower_winograd_weights(program, partition, region, schedule, in_place, name, result);
    }
    SharedScratch shared;
    const auto writer = [&] { return WinogradWriter(program, partition, region, schedule, in_place, result, shared); };
    const bool apart = schedule.tiling->finished_apart();
    result.kernels.push_back(writer().write_stage(name + "_stage"));
    result.kernels.push_back(writer().write_filter(name + "_filter"));
    result.kernels.push_back(writer().write_product(apart ? name + "_sums" : name));
    if (apart) result.kernels.push_back(writer().write_finish(name));
}

}  // namespace topstitch::stitch
