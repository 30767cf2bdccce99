// What the choice of tiles knows about a contraction: the class behind choose_tiling.
// tiling.cpp and tiling_blocks.cpp are for products in general, tiling_window.cpp and tiling_winograd.cpp for factors
// behind a window.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "stitch/phases.h"
#include "stitch/schedule.h"

namespace topstitch::stitch {

inline std::int64_t ceil_div(std::int64_t count, std::int64_t step) {
    return (count + step - 1) / step;
}

class TilingChooser {
public:
    TilingChooser(const Program& program, const Partition& partition, const Region& region,
                  const StitchOptions& options, const Machine& machine)
        : program_(program), partition_(partition), region_(region), options_(options), machine_(machine) {}

    std::optional<Tiling> run();

private:
    using VarId = loopir::VarId;

    // --- Facts (tiling.cpp).
    const OpAccess& access(OpId op) const { return partition_.accesses[static_cast<std::size_t>(op)]; }
    std::int64_t estimate(const Dim& dim) const;
    std::int64_t count(const std::vector<VarId>& vars) const;
    const Dim& extent(VarId var) const { return region_.vars[static_cast<std::size_t>(var)].extent; }
    bool find_contraction();
    bool is_invariant_factor(int factor) const;  // the same in all iterations of the loop around
    bool too_many_buffers() const;
    std::optional<DType> find_pairs() const;
    std::int64_t packed_bytes(const Tiling& tiling) const;  // of an element of a packed factor
    // Which variables of the region the marked own variables of the contraction are made of.
    std::vector<bool> over_region_vars(const std::vector<bool>& own) const;
    std::int64_t stride(const Index& offset, VarId var) const;  // 0 when it has none
    bool is_contiguous(const std::vector<VarId>& vars) const;   // in what is stored
    void sort_by_store(std::vector<VarId>& vars) const;
    double cost_of_results() const;
    bool finished_in_registers(const Tiling& tiling) const;
    struct Tiles {
        std::int64_t panels = 1;  // of all of them
        std::int64_t size = 1;    // panels of each, but the last may have fewer
        std::int64_t count() const { return ceil_div(panels, size); }
        std::int64_t panels_of(std::int64_t tile) const { return std::min(size, panels - tile * size); }
    };

    // --- Products in general (tiling.cpp).
    void classify(Tiling& tiling) const;
    void order_by_store(Tiling& tiling);
    bool coalesce(VarId outer, VarId inner) const;
    void move_to_batch(std::vector<VarId>& vars, std::vector<VarId>& batch) const;
    void find_batches(Tiling& tiling) const;
    void choose_panel(Tiling& tiling, std::int64_t rows, std::int64_t columns) const;
    void choose_streamed(Tiling& tiling, std::int64_t rows, std::int64_t columns, std::int64_t reduce) const;

    // --- Their blocks (tiling_blocks.cpp).
    std::int64_t share(const Tiling& tiling, std::int64_t work, std::int64_t panels, std::int64_t most,
                       const Tiles& around) const;
    void choose_blocks(Tiling& tiling, std::int64_t rows, std::int64_t columns, std::int64_t reduce) const;
    bool find_matrix_parts(Tiling& tiling, std::int64_t rows, std::int64_t columns, std::int64_t reduce) const;
    void choose_matrix_blocks(Tiling& tiling, std::int64_t rows, std::int64_t columns, std::int64_t reduce) const;
    bool is_readable(const Tiling& tiling, std::int64_t columns) const;
    void choose_reading(Tiling& tiling, std::int64_t rows, std::int64_t columns, std::int64_t reduce) const;
    bool is_finished_in_tile(const Tiling& tiling, std::int64_t reduce) const;
    void split(Tiling& tiling, std::int64_t work, std::int64_t tiles, std::int64_t reduce) const;

    // --- Factors behind a window (tiling_window.cpp).
    struct Candidate {
        Tiling tiling;
        double cycles = 0;  // for each result
    };
    bool shares_window() const;
    std::optional<Tiling> choose_staged(Tiling classified) const;
    Candidate window_in_rows(const Tiling& classified) const;
    bool runs_over_stage(VarId lane) const;
    std::optional<Candidate> window_in_lanes(const Tiling& classified) const;
    std::optional<Candidate> window_in_both(const Tiling& classified) const;
    std::optional<Candidate> batch_in_lanes(const Tiling& classified) const;
    double finish(const Tiling& tiling) const;
    // Loads for each row, for each vector of columns, and for each vector of results in one step of the sum.
    struct Reads {
        double row, column, both;
    };
    double choose_registers(Tiling& tiling, const Reads& reads, double finish) const;
    void choose_reduce_loops(Tiling& tiling) const;
    int count_scattered(const Tiling& tiling) const;
    void choose_finish(Tiling& tiling) const;
    void order_finish(Tiling& tiling) const;
    std::int64_t operand_stride(VarId var) const;
    void choose_stage(Tiling& tiling) const;
    void sort_by_stage(const Tiling& tiling, std::vector<VarId>& vars) const;
    void choose_tiles(Tiling& tiling) const;

    // --- Convolutions by minimal filtering (tiling_winograd.cpp).
    std::optional<MinimalFilter::Axis> filter_axis(int number, bool of_weights) const;
    std::optional<MinimalFilter> find_filter(const Tiling& classified, bool of_weights) const;
    double count_tiles(const MinimalFilter& filter) const;
    double direct_products(const MinimalFilter& filter, double columns) const;
    int rows_of_panel(std::int64_t rows, int vectors) const;
    std::optional<Tiling> choose_winograd(const Tiling& classified) const;
    std::optional<Tiling> choose_filter(Tiling tiling) const;
    std::optional<Tiling> choose_filter_gradient(Tiling tiling) const;

    const Program& program_;
    const Partition& partition_;
    const Region& region_;
    const StitchOptions& options_;
    const Machine& machine_;
    OpId contraction_ = -1;
    DType type_ = DType::float32;
    Phases phases_;
    std::vector<RegionAccess> accesses_;
    std::vector<std::vector<bool>> used_;  // by factor: the variables of the region that it depends on
    std::vector<bool> deciding_;           // variables of the region that decide whether there is a product
    Indices positions_;                    // of the window, over the variables of the region
    bool columns_contiguous_ = true;       // the column factor lies along the columns in memory
};

}  // namespace topstitch::stitch
