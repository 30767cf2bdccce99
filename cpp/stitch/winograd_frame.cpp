// Transforms, tiles and the staged data of minimal filtering.
// See winograd_frame.h.
#include "stitch/winograd_frame.h"

#include <algorithm>

#include "ops/indexing_rules.h"

namespace topstitch::stitch {

using loopir::no_value;
using loopir::ScalarOp;
using loopir::ValueId;

namespace {

constexpr std::int64_t line = 16;  // elements of a cache line

}  // namespace

// The sum of a tile runs over taps, or over places.
WinogradFrame::WinogradFrame(const Program& program, const Partition& partition, const Region& region,
                             const Schedule& schedule, const std::map<OpId, TensorRef>& in_place, LoweredRegion& result,
                             SharedScratch& shared)
    : ContractionFrame(program, partition, region, schedule, in_place, result, shared),
      filter_(*tiling_.winograd),
      down_(filter_transforms(filter_.of_weights ? filter_.down.places : filter_.down.taps)),
      across_(filter_transforms(filter_.of_weights ? filter_.across.places : filter_.across.taps)),
      channels_(extent({filter_.channel})),
      depth_(Dim(filter_.phases()) * channels_),
      images_(extent(filter_.images)),
      tiles_down_(ceil_div(extent({filter_.down.place}), filter_.down.places)),
      tiles_across_(ceil_div(extent({filter_.across.place}), filter_.across.places)) {}

std::int64_t WinogradFrame::odd_lines(std::int64_t elements) {
    const std::int64_t lines = ceil_div(elements, line);
    return (lines % 2 == 0 ? lines + 1 : lines) * line;
}

WinogradFrame::Staged WinogradFrame::staged(const MinimalFilter::Axis& axis, const Dim& digits) const {
    const Indices positions = over_region(access(contraction_).positions, region_.members.at(contraction_));
    const Index& position = positions[static_cast<std::size_t>(axis.position)];
    Staged result;
    result.lowest = position.lower_bound().value();
    result.first = std::max<std::int64_t>(-result.lowest, 0);
    result.last = std::min(window_extent(program_, access(contraction_), contraction_, axis.position).value() - 1,
                           position.upper_bound().value()) +
                  1 - result.lowest;
    result.all = digits.value() * axis.steps;
    return result;
}

Index WinogradFrame::stage_offset(const Index& image, const Index& down, const Index& across,
                                  const Index& channel) const {
    const auto digit = [](const MinimalFilter::Axis& axis, const Index& at) { return floor_div(at, Dim(axis.steps)); };
    const auto phase = [](const MinimalFilter::Axis& axis, const Index& at) { return mod(at, Dim(axis.steps)); };
    const Index pixel =
        (image * stage_down() + digit(filter_.down, down)) * stage_across() + digit(filter_.across, across);
    const Index its_phase = phase(filter_.down, down) * Dim(filter_.across.steps) + phase(filter_.across, across);
    return pixel * depth_ + its_phase * channels_ + channel;
}

void WinogradFrame::store_zeros(int stage, const Index& image, const Index& down, const Index& across) {
    const Index channel = begin_loop("channel", {"channel", channels_, false, true, 1});
    b_.store(stage, stage_offset(image, down, across, channel), b_.constant(0, type_));
    close(1);
}

// Inside the operand nothing is checked, so that channels can be turned into lanes in registers. The rows outside of it
// belong to the first and the last one inside.
LoweredKernel WinogradFrame::write_stage(const std::string& name) {
    shared_.stage = static_cast<int>(result_.scratch.size());
    const Staged down = staged(filter_.down, stage_down());
    const Staged across = staged(filter_.across, stage_across());
    const Dim rows = down.last - down.first;
    const Index at = begin_loop("at", {"at", images_ * rows, true});
    const int stage = scratch_buffer("stage", shared_.stage, type_, stage_size(), true);
    const Index image = floor_div(at, rows);
    const Index row = mod(at, rows);
    const auto fill_rows = [&](std::int64_t first, std::int64_t count, const Index& beside) {
        if (count == 0) return;
        const ValueId here = b_.op(ScalarOp::eq, b_.index_value(row), b_.index_value(beside));
        const ValueId limit = b_.select(here, b_.index_value(Index(count)), b_.index_value(Index(0)));
        const Index outside = begin_loop("outside", {"outside", Dim(count)}, Index::value(limit));
        store_zeros(stage, image, outside + Index(first), begin_loop("across", {"across", Dim(across.all)}));
        close(2);
    };
    fill_rows(0, down.first, Index(0));
    fill_rows(down.last, down.all - down.last, Index(rows - 1));
    const Index here = row + Index(down.first);
    const auto fill_edge = [&](std::int64_t first, std::int64_t count) {
        if (count == 0) return;
        store_zeros(stage, image, here, begin_loop("edge", {"edge", Dim(count)}) + Index(first));
        close(1);
    };
    fill_edge(0, across.first);
    fill_edge(across.last, across.all - across.last);
    const Index inside = begin_loop("inside", {"inside", Dim(across.last - across.first)}) + Index(across.first);
    const Index channel = begin_loop("channel", {"channel", channels_, false, true, 1});
    std::fill(vars_.begin(), vars_.end(), Index(0));
    bind(filter_.images, image);
    bind(filter_.channel, channel);
    forget_values();
    Indices where(2);
    where[static_cast<std::size_t>(filter_.down.position)] = here + Index(down.lowest);
    where[static_cast<std::size_t>(filter_.across.position)] = inside + Index(across.lowest);
    b_.store(stage, stage_offset(image, here, inside, channel), window_element(where));
    close(3);
    return finish(name);
}

Index WinogradFrame::position_of_tap(const MinimalFilter::Axis& axis, int tap, const Index& phase) const {
    return Index(tap * axis.steps) + phase;
}

ValueId WinogradFrame::bind_taps(const Index& down, const Index& across) {
    const auto bind_tap = [this](const MinimalFilter::Axis& axis, const Index& position) {
        const Dim taps = extent({axis.tap});
        bind(axis.tap, axis.flipped ? Index(taps - 1) - position : position);
        return below(position, taps, axis.steps);
    };
    const ValueId exists = bind_tap(filter_.down, down);
    return ops::both(b_, exists, bind_tap(filter_.across, across));
}

ValueId WinogradFrame::combination(const std::vector<double>& factors, const std::vector<ValueId>& terms) {
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

WinogradFrame::Grid WinogradFrame::transform(const Matrix& down, const Grid& grid, const Matrix& across) {
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

WinogradFrame::Grid WinogradFrame::load_tile(int buffer, std::int64_t step, const Index& at) {
    Grid grid(static_cast<std::size_t>(filter_tile));
    for (int y = 0; y < filter_tile; ++y) {
        for (int x = 0; x < filter_tile; ++x) {
            grid[static_cast<std::size_t>(y)].push_back(b_.load(buffer, Index((y * filter_tile + x) * step) + at));
        }
    }
    return grid;
}

void WinogradFrame::store_tile(const Grid& grid, int buffer, const Dim& step, const Index& at) {
    for (int y = 0; y < filter_tile; ++y) {
        for (int x = 0; x < filter_tile; ++x) {
            b_.store(buffer, Index(y * filter_tile + x) * step + at, value_at(grid, y, x));
        }
    }
}

Index WinogradFrame::begin_tiles(const Index& first, const std::optional<Index>& limit) {
    const Index tile = begin_loop("tile", {"tile", Dim(filter_.tiles)}, limit);
    const Index all = first + tile;
    tile_across_ = mod(all, tiles_across_);
    const Index row = floor_div(all, tiles_across_);
    tile_down_ = mod(row, tiles_down_);
    image_ = floor_div(row, tiles_down_);
    return tile;
}

ValueId WinogradFrame::place_exists(const Index& down, const Index& across) {
    return ops::both(b_, below(down, extent({filter_.down.place}), filter_.down.places),
                     below(across, extent({filter_.across.place}), filter_.across.places));
}

void WinogradFrame::transform_staged(const Index& depth, ValueId guard, int buffer, std::int64_t step,
                                     const Index& at) {
    Grid grid(static_cast<std::size_t>(filter_tile));
    for (int y = 0; y < filter_tile; ++y) {
        const Index down = image_ * stage_down() + place_down(y);
        for (int x = 0; x < filter_tile; ++x) {
            const Index pixel = down * stage_across() + place_across(x);
            grid[static_cast<std::size_t>(y)].push_back(b_.load(stage_, pixel * depth_ + depth, guard));
        }
    }
    store_tile(transform(down_.positions, grid, across_.positions), buffer, step, at);
}

}  // namespace topstitch::stitch
