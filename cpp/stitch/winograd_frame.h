// What convolutions by minimal filtering and the gradients of their weights share: transforms, tiles of places, and the
// staged copy of the data behind the window.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "stitch/contraction_frame.h"
#include "stitch/minimal_filter.h"

namespace topstitch::stitch {

class WinogradFrame : public ContractionFrame {
public:
    WinogradFrame(const Program& program, const Partition& partition, const Region& region, const Schedule& schedule,
                  const std::map<OpId, TensorRef>& in_place, LoweredRegion& result, SharedScratch& shared);

    // The data with its padding, channels side by side: [image, down, across, phase, channel].
    LoweredKernel write_stage(const std::string& name);

protected:
    using Grid = std::vector<std::vector<ValueId>>;
    static constexpr int tile_size = filter_tile * filter_tile;

    static Dim ceil_div(const Dim& count, std::int64_t step) { return topstitch::ceil_div(count, Dim(step)); }
    static std::int64_t ceil_div(std::int64_t count, std::int64_t step) { return (count + step - 1) / step; }
    static ValueId value_at(const Grid& grid, int y, int x) {
        return grid[static_cast<std::size_t>(y)][static_cast<std::size_t>(x)];
    }
    // So many elements, and some more: a power of two between elements would put them all into the same lines of the
    // cache.
    static std::int64_t odd_lines(std::int64_t elements);

    // --- Phases. A tap of a phase is this one of the filter, which has as many as the variable's extent.

    Index phase_down(const Index& phase) const { return floor_div(phase, Dim(filter_.across.steps)); }
    Index phase_across(const Index& phase) const { return mod(phase, Dim(filter_.across.steps)); }
    Index position_of_tap(const MinimalFilter::Axis& axis, int tap, const Index& phase) const;
    // Binds the taps at these positions; the guard that they exist.
    ValueId bind_taps(const Index& down, const Index& across);

    // --- Transforms.

    // down * grid * transposed across.
    Grid transform(const Matrix& down, const Grid& grid, const Matrix& across);
    // What is transformed lies in a buffer by place in the tile, so many elements apart.
    Grid load_tile(int buffer, std::int64_t step, const Index& at);
    void store_tile(const Grid& grid, int buffer, const Dim& step, const Index& at);

    // --- Tiles.

    Dim all_tiles() const { return images_ * tiles_down_ * tiles_across_; }
    // Opens the loop over the tiles of a block, which begins with this one.
    Index begin_tiles(const Index& first, const std::optional<Index>& limit);
    Index place_down(int y) const { return tile_down_ * Dim(filter_.down.places) + Index(y); }
    Index place_across(int x) const { return tile_across_ * Dim(filter_.across.places) + Index(x); }
    // The guard that a place of the tile exists.
    ValueId place_exists(const Index& down, const Index& across);

    // Transforms one staged tile into a buffer.
    void transform_staged(const Index& depth, ValueId guard, int buffer, std::int64_t step, const Index& at);
    int stage_buffer() { return scratch_buffer("stage", shared_.stage, type_, stage_size(), false); }

    const MinimalFilter& filter_;
    FilterTransforms down_, across_;
    Dim channels_, depth_, images_, tiles_down_, tiles_across_;
    int stage_ = -1;
    Index image_ = 0, tile_down_ = 0, tile_across_ = 0;

private:
    // Where the staged positions of an axis are, counted from the lowest one that a window reads.
    struct Staged {
        std::int64_t lowest = 0;
        std::int64_t first = 0, last = 0;  // of those that are read, inside the operand
        std::int64_t all = 0;
    };
    Staged staged(const MinimalFilter::Axis& axis, const Dim& digits) const;
    Index stage_offset(const Index& image, const Index& down, const Index& across, const Index& channel) const;
    void store_zeros(int stage, const Index& image, const Index& down, const Index& across);

    Dim stage_down() const { return tiles_down_ * Dim(filter_.down.places) + Dim(filter_.down.taps - 1); }
    Dim stage_across() const { return tiles_across_ * Dim(filter_.across.places) + Dim(filter_.across.taps - 1); }
    Dim stage_size() const { return images_ * stage_down() * stage_across() * depth_; }
    // A sum of terms with constant factors.
    ValueId combination(const std::vector<double>& factors, const std::vector<ValueId>& terms);
};

// The gradient of a convolution's weights (lower_winograd_weights.cpp).
void lower_winograd_weights(const Program& program, const Partition& partition, const Region& region,
                            const Schedule& schedule, const std::map<OpId, TensorRef>& in_place,
                            const std::string& name, LoweredRegion& result);

}  // namespace topstitch::stitch
