// The schedule of a region: which loops there are, in what order, and which run in parallel, in lanes or
// unrolled. Data only: chosen by choose_schedule, printed in reports, carried out by lowering.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "stitch/region.h"

namespace topstitch::stitch {

// What a schedule is chosen for.
struct Machine {
    int vector_bytes = 16;
    int vector_registers = 16;
    int threads = 1;
    std::int64_t l2_bytes = 512 << 10;
    std::int64_t l3_bytes = 8 << 20;
    // Factors of contractions are packed into tiles for the caches; else the loops are left as they are, for the back
    // end to make tiles of.
    bool packs_products = true;
    // Instructions multiply pairs of 16-bit factors and add them up, to int32 or float32.
    bool int16_pairs = false;
    bool bfloat16_pairs = false;
    // A matrix unit multiplies tiles of bfloat16 numbers and of bytes (loopir::MultiplyTiles).
    bool matrix_unit = false;
    // Convolutions may be computed from transforms, which spreads what is not finite over the tile around it.
    bool minimal_filters = true;
    // What of a row may be kept in memory from one pass to the next, or is computed again.
    std::int64_t row_bytes = std::numeric_limits<std::int64_t>::max();
    // Memory that a group of threads shares, in which it multiplies matrices and sorts; 0: there are no such groups.
    std::int64_t group_bytes = 0;
};

struct LoopSpec {
    std::string name;
    Dim extent;
    bool parallel = false;
    bool vector = false;
    int unroll = 1;
    std::optional<Index> limit = std::nullopt;  // over the loops of the schedule: it stops there, before its extent
    // Of the innermost loop without a row: it is written in pieces that begin at 0 and here, in ascending order.
    std::vector<std::int64_t> cuts = {};
};

// A convolution, or the gradient of its weights, by Winograd's minimal filtering (Lavin and Gray 2016): both factors
// and the results are transformed, and products are needed only between the transforms, fewer than taps. Windows that
// go by several positions are taken apart in phases, each of which goes by one, and which count as channels.
struct MinimalFilter {
    // One axis of the image. Tiles of `places` by `taps` need `places + taps - 1` positions.
    struct Axis {
        loopir::VarId place = -1;  // of the window
        loopir::VarId tap = -1;    // in the window
        int position = 0;          // which one of the contraction
        bool flipped = false;      // the position goes down as the tap goes up
        int steps = 1;             // positions from one place to the next, and phases
        int places = 1;            // of a tile
        int taps = 1;              // of a phase
    };
    Axis down, across;
    bool of_weights = false;  // taps are the results, and the sum is over places; else the other way round
    loopir::VarId channel = -1;
    std::vector<loopir::VarId> images;  // the other variables that go with the places
    // In a block, whose transforms are in the cache together: tiles, and channels of all phases, which divide these.
    std::int64_t tiles = 1;
    std::int64_t channels_together = 1;
    int phases() const { return down.steps * across.steps; }
};

// A contraction in tiles: rows by columns, the columns in lanes, over blocks of the reduced axis.
struct Tiling {
    // How the factors get into registers, panel by panel unless they are streamed.
    enum class Factors : std::uint8_t {
        packed,            // copied in the order in which the innermost loop reads them
        in_place,          // read where they are: both fit into the first caches
        columns_in_place,  // few rows, which are packed: the columns pass by once
        streamed,          // fewer rows: some rows of the column factor side by side, once through it
    };
    // Variables of the region, the most significant first: rows are what one factor alone depends on, columns what the
    // other alone does.
    std::vector<loopir::VarId> batch, rows, columns, reduce;
    std::vector<loopir::VarId> row_batch, column_batch;  // of the batch, what the factors depend on
    int row_factor = 0;                                  // which factor the rows belong to
    Factors factors = Factors::packed;
    // A factor is packed once, by a kernel of its own, or block by block in each tile that needs it.
    bool rows_once = false;
    bool columns_once = false;
    bool rows_in_lanes = false;  // the row factor lies along the rows in memory
    // Registers: `panel_rows` by `panel_vectors` vectors of `lanes` columns, a panel.
    int panel_rows = 1;
    int panel_vectors = 1;
    int lanes = 1;
    // Both factors are packed in this type, int16 or bfloat16, and neighbouring steps of the sum in pairs, which one
    // instruction multiplies and adds up.
    std::optional<DType> pairs;
    // A matrix unit multiplies the factors, as so many bfloat16 parts each; 0: it does not.
    int matrix_parts = 0;
    DType matrix_types[2] = {DType::bfloat16, DType::bfloat16};  // by factor; or int8 and uint8
    // A tile: so many panels in each direction.
    std::int64_t row_panels = 1;
    std::int64_t column_panels = 1;
    // All columns of a tile fit into the first cache, so that the places of rows are found once for all of them.
    bool rows_outside = false;
    std::int64_t block = 1;  // of the reduced axis
    bool one_block = false;  // which is all of it
    // Results are finished while their sums are in registers; else the sums of a tile wait in memory.
    bool in_registers = false;
    // Or the sums of a whole tile wait, although they are complete, for loops that run along memory.
    bool finished_in_tile = false;
    // Results lie across memory in a panel, and so does what they are combined with: a second kernel finishes them. Its
    // loops, from the outside in; the last so many run in lanes as one.
    std::vector<loopir::VarId> finish;
    int finish_lanes = 0;
    // The reduced axis is split among this many tiles, and a second kernel adds their sums.
    int splits = 1;
    int unroll = 1;  // vectors of results that are finished together, when sums wait in memory

    // A factor behind a window is staged: copied once by a kernel of its own, each element that some iteration reads
    // one time, with its padding. The axes of that copy, from the outside in: a variable of the region or a position of
    // the window. Empty when there is no window to share.
    struct StageAxis {
        loopir::VarId var = -1;
        int position = -1;
        // So many interleaved parts lie apart, that each is contiguous for lanes which step over the others.
        std::int64_t parts = 1;
        std::int64_t slack = 0;  // elements that lanes may read past the end
    };
    std::vector<StageAxis> stage;
    int inner_reduce = 0;     // staged: so many reduced variables, the last, have loops of their own inside a block
    int deciding_reduce = 0;  // so many, the first, decide whether there is a product

    std::optional<MinimalFilter> winograd;

    bool staged() const { return !stage.empty(); }
    bool finished_apart() const { return !finish.empty(); }
    int panel_columns() const { return panel_vectors * lanes; }
};

// Attention, or one of its gradients: tokens of one side in lanes, a tile of them for each iteration of the parallel
// loop, while those of the other side stream past in blocks.
struct AttentionTiling {
    // A tile is a matrix in the memory of a group of threads, and so is a block; then only their sizes matter, and a
    // tile is one panel. Else panels are in registers.
    bool in_group = false;
    int lanes = 1;
    int panel_vectors = 1;  // of tokens in lanes, in registers together
    int panel_rows = 1;     // streaming tokens that meet them in registers
    // Rows of a panel of sums over the streaming tokens: their features, and those of the value.
    int feature_rows = 1;
    int value_feature_rows = 1;
    std::int64_t tile_panels = 1;  // panels of lanes in a tile
    std::int64_t block = 1;        // streaming tokens, a multiple of panel_rows
    int matrix_parts = 0;          // see Tiling

    std::int64_t panel_columns() const { return std::int64_t{panel_vectors} * lanes; }
    std::int64_t tile() const { return tile_panels * panel_columns(); }
};

// A scatter: its output is cut along an axis into parts, one for each iteration of the parallel loop. Each gives its
// elements their base and then makes the updates that go there, in their order, so that the parts do not matter.
struct ScatterCut {
    int axis = 0;
    std::int64_t parts = 1;
    bool searched = false;  // which part an update belongs to is known when its index has been read
    // A part looks at so many updates at once, and collects those that go there; 0: at one after the other.
    std::int64_t chunk = 0;
    // No parts: each element looks for its updates among all, and joins them.
    bool pulled = false;
    bool shared = false;  // pulled: a group of threads looks for those of one element
};

// A sort: how each element of a row finds its place.
struct SortPlan {
    enum class Method : std::uint8_t {
        ranks,      // by counting those before it
        digits,     // in passes, each by a digit of its key
        selection,  // among the best so far, which are all that is asked for
        merges,     // in blocks in the memory of a group of threads, and then by merging runs
    };
    Method method = Method::ranks;
    int digit_bits = 8;
    int digits = 1;
    int chunks = 1;          // of a row, walked side by side
    std::int64_t block = 1;  // merges: elements that a group sorts, a power of 2
    std::int64_t kept = 0;   // merges: of each block, if only the first few of the row are asked for; a power of 2
};

struct Schedule {
    std::vector<LoopSpec> outer;  // from the outside in
    std::vector<LoopSpec> rows;   // inside those, run once for each pass over the row
    // Each variable of the region over the loops: loop k of outer ++ rows is variable k here.
    std::vector<Index> region_vars;
    // A reduction with too few outer iterations for the threads is split: its first row loop runs in this
    // many chunks (0: not split), side by side, and a second kernel combines them. The number is fixed, so that
    // the order of summation does not depend on the thread count.
    int chunks = 0;
    bool scans = false;  // the row holds a scan: its chunks are walked again, from where those before them end
    std::int64_t row_bytes = std::numeric_limits<std::int64_t>::max();  // see Machine
    // Results larger than the caches are written around them.
    bool streaming = false;
    // Of a contraction that is worth packing: replaces the loops above.
    std::optional<Tiling> tiling;
    // Of a region that has kernels of its own: replaces the loops above.
    std::optional<AttentionTiling> attention;
    std::optional<ScatterCut> scatter;
    std::optional<SortPlan> sort;

    std::string str() const;  // "parallel i(64) > vector j(4096) x4"
};

// One buffer access of a region: an offset in elements over the region's variables.
struct RegionAccess {
    TensorRef tensor;
    Index offset;
    bool store = false;
};
std::vector<RegionAccess> buffer_accesses(const Program& program, const Partition& partition, const Region& region);

// Arithmetic of one iteration, and how many vectors of a body that costs so much hide their latency together.
double cost_of(const Partition& partition, const Region& region);
int unroll_for(double cost);

// The number of passes over the row: 1 + the longest chain of reductions of which one needs the other (see lower.cpp).
int count_passes(const Partition& partition, const Region& region);

// The tiling of a region that is one contraction, with what is stitched to it; none when plain loops suit it better.
std::optional<Tiling> choose_tiling(const Program& program, const Partition& partition, const Region& region,
                                    const StitchOptions& options, const Machine& machine);
std::string str(const Tiling& tiling, const Region& region);

AttentionTiling choose_attention_tiling(const Program& program, OpId op, const StitchOptions& options,
                                        const Machine& machine);
std::string str(const AttentionTiling& tiling);

ScatterCut choose_scatter_cut(const Program& program, const OpAccess& access, OpId op, const StitchOptions& options,
                              const Machine& machine);
std::string str(const ScatterCut& cut);

SortPlan choose_sort(const Program& program, OpId op, const StitchOptions& options, const Machine& machine);
std::string str(const SortPlan& plan);

Schedule choose_schedule(const Program& program, const Partition& partition, const Region& region,
                         const StitchOptions& options, const Machine& machine);

}  // namespace topstitch::stitch
