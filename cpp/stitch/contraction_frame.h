// What all ways of writing a contraction share: variables bound to digits, factors, and sums that wait for a kernel
// which finishes them along memory.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "stitch/kernel_writer.h"

namespace topstitch::stitch {

// Scratch buffers that the kernels of the region share, by number.
struct SharedScratch {
    int columns = -1;
    int rows = -1;
    int stage = -1;
    int sums = -1;
};

class ContractionFrame : public KernelWriter {
public:
    ContractionFrame(const Program& program, const Partition& partition, const Region& region, const Schedule& schedule,
                     const std::map<OpId, TensorRef>& in_place, LoweredRegion& result, SharedScratch& shared);

    // Finishes results in the order in which they lie in memory. Where sums lie along the columns, across the lanes,
    // the loop over these goes around the lanes.
    LoweredKernel write_finish(const std::string& name);

    // Adds the sums of a split axis, and finishes the results.
    LoweredKernel write_combination(const std::string& name);

protected:
    using VarId = loopir::VarId;

    // --- Variables.

    Index region_var(VarId var) const override { return vars_[static_cast<std::size_t>(var)]; }
    Dim extent(const std::vector<VarId>& vars) const;
    void bind(VarId var, const Index& index) { vars_[static_cast<std::size_t>(var)] = index; }
    // Binds variables to the digits of their joint index.
    void bind(const std::vector<VarId>& vars, Index left);
    Index joint(const std::vector<VarId>& vars) const;

    // --- Values.

    // A factor's element, for the variables as they are bound.
    ValueId factor(int number);
    // Whether there is a product for the variables as they are bound; no_value: there always is.
    ValueId existence();
    // The guard "index < extent", or none when steps of so many fill it.
    ValueId below(const Index& index, const Dim& extent, std::int64_t step);
    // What the first factor reads at these positions of its window, where the guard is true.
    ValueId window_element(const Indices& positions);
    // Stores the results of a sum.
    void finish_value(ValueId sum);
    // Adds to what earlier blocks have left in a buffer; the first one, number 0, replaces what is there.
    void add_to_blocks(int buffer, const Index& at, ValueId value, const Index& block);

    // --- Tiles of panels of rows and columns, in which sums may wait.

    // What differs between the two factors.
    struct Side {
        std::string name;
        std::vector<VarId> vars, batch;
        int factor = 0;
        Dim extent, panels, batches;
        std::int64_t panel = 1;        // rows or columns of a panel
        std::int64_t tile_panels = 1;  // panels of a tile
        bool once = false;
        Index first_panel = 0;  // of the tile
    };
    Side side(const char* name, const std::vector<VarId>& vars, const std::vector<VarId>& batch, int factor,
              std::int64_t panel, std::int64_t tile_panels, bool once) const;
    static Index panel_limit(const Side& side) { return Index(side.panels) - side.first_panel; }
    // Opens the parallel loop over all tiles of all splits and batches.
    void begin_tile(Side& rows, Side& columns);
    // Finishes sums that wait in a buffer, `row_step` from one row to the next, from these panels on: so many rows and
    // columns. Those of a split wait for the others.
    void finish_sums(int buffer, std::int64_t row_step, const Side& rows, const Index& row_panel,
                     std::int64_t row_count, const Side& columns, const Index& column_panel, std::int64_t column_count);

    // --- Sums that wait for another kernel: [split, batch, row, column].

    int waiting_sums(bool writing);
    Index waiting_offset(const Index& batch, const Index& row, const Index& column) const;

    const Tiling& tiling_;
    SharedScratch& shared_;
    OpId contraction_ = -1;
    DType type_ = DType::float32;
    std::vector<Index> vars_;  // of the region
    Dim batches_, row_count_, column_count_;
    Index batch_ = 0, split_ = 0;  // of the tile

private:
    int waiting_ = -1;
};

// The kernels of a convolution by minimal filtering (lower_winograd.cpp).
void lower_winograd(const Program& program, const Partition& partition, const Region& region, const Schedule& schedule,
                    const std::map<OpId, TensorRef>& in_place, const std::string& name, LoweredRegion& result);

// The kernels of a product on a matrix unit (lower_matrix_unit.cpp).
void lower_matrix_unit(const Program& program, const Partition& partition, const Region& region,
                       const Schedule& schedule, const std::map<OpId, TensorRef>& in_place, const std::string& name,
                       LoweredRegion& result);

}  // namespace topstitch::stitch
