// Chooses the tiles of attention: panels in registers, and what lies in the caches while tokens stream past.
// See AttentionTiling. Results do not depend on the size of a tile, only on that of a block.
#include <algorithm>

#include "ops/attention_shapes.h"
#include "stitch/attention_group.h"
#include "stitch/tiling.h"

namespace topstitch::stitch {

namespace {

constexpr std::int64_t tile_tokens = 128;  // share what is packed of the streaming tokens
constexpr std::int64_t block_tokens = 96;  // lie in the first-level cache while a panel meets them
constexpr std::int64_t tile_tokens_of_unit = 512;
constexpr std::int64_t block_tokens_of_unit = 128;
constexpr std::int64_t min_tokens_of_unit = 64;  // and features, of what is worth to be packed in parts
constexpr std::int64_t min_features_of_unit = 32;
constexpr int min_sums = 8;  // fewer in registers do not hide the latency of a multiply-add

// The rows of a panel, between the two bounds, that leave the fewest of its rows empty.
int rows_for(const Dim& count, int least, int most) {
    if (!count.is_known()) return most;
    if (count.value() <= most) return static_cast<int>(std::max<std::int64_t>(count.value(), 1));
    const auto padded = [&](int rows) { return ceil_div(count.value(), rows) * rows; };
    int best = most;
    for (int rows = most; rows >= least; --rows) {
        if (padded(rows) < padded(best)) best = rows;
    }
    return best;
}

// From the most that share what is read of the others, to the least.
constexpr std::int64_t group_tiles[][2] = {{32, 32}, {32, 16}, {16, 32}, {16, 16}, {8, 16}, {8, 8}};

// Tiles and blocks as matrices in the memory of a group of threads, where they fit.
std::optional<AttentionTiling> choose_group_tiling(const AttentionShapes& shapes, Library library, std::int64_t own,
                                                   std::int64_t others, const Machine& machine) {
    if (!shapes.features.is_known() || !shapes.value_features.is_known()) return std::nullopt;
    const std::int64_t features = shapes.features.value(), value_features = shapes.value_features.value();
    if (features == 0 || value_features == 0) return std::nullopt;
    for (const auto& [tile, block] : group_tiles) {
        const bool is_smallest = tile == 8;
        // Tiles that reach far past the last token, or too few of them to occupy the machine.
        if (!is_smallest && (2 * own <= tile || others * ceil_div(own, tile) < machine.threads)) continue;
        if (attention_group_bytes(library, tile, block, features, value_features) > machine.group_bytes) continue;
        AttentionTiling tiling;
        tiling.in_group = true;
        tiling.lanes = static_cast<int>(tile);
        tiling.block = block;
        return tiling;
    }
    return std::nullopt;
}

}  // namespace

AttentionTiling choose_attention_tiling(const Program& program, OpId op, const StitchOptions& options,
                                        const Machine& machine) {
    const OpNode& node = program.graph->op(op);
    const NodeView view(*program.graph, node);
    const AttentionShapes shapes = attention_shapes(view.view);
    const Library library = std::get<CompositeBody>(node.def->body).library;
    const bool keys_in_lanes = library == Library::attention_key_value_gradient;
    const Dim& staying = keys_in_lanes ? shapes.kv_tokens : shapes.tokens;
    // A number that is not known yet may be large the next time.
    const std::int64_t own = staying.is_known() ? staying.value() : std::max(options.estimate(staying), tile_tokens);
    const Dim& streaming = keys_in_lanes ? shapes.tokens : shapes.kv_tokens;

    const std::int64_t others = std::max<std::int64_t>(
        options.estimate(shapes.batch.num_elements() * (keys_in_lanes ? shapes.kv_heads : shapes.heads)), 1);
    const DType type = compute_type(view.view.input(0).dtype);
    if (type == DType::float32) {
        const auto in_group = choose_group_tiling(shapes, library, own, others, machine);
        if (in_group) return *in_group;
    }

    AttentionTiling tiling;
    const auto bytes = static_cast<int>(size_of(type));
    tiling.lanes = std::max(machine.vector_bytes / bytes, 1);
    tiling.panel_vectors = own > tiling.lanes ? 2 : 1;
    const bool on_unit =
        machine.matrix_unit && type == DType::float32 &&
        std::min(own, options.estimate(streaming)) >= min_tokens_of_unit &&
        std::min(options.estimate(shapes.features), options.estimate(shapes.value_features)) >= min_features_of_unit;
    // Many features leave room for fewer tokens in the second-level cache.
    const std::int64_t features = options.estimate(shapes.features + shapes.value_features);
    const std::int64_t room = machine.l2_bytes / 2 / (bytes * std::max<std::int64_t>(features, 1));
    if (on_unit) {
        tiling.matrix_parts = 3;
        tiling.lanes = loopir::matrix_tile;
        tiling.panel_vectors = 2;
        tiling.panel_rows = tiling.feature_rows = tiling.value_feature_rows = 2 * loopir::matrix_tile;
    } else {
        // As many sums as registers allow, beside a row of vectors and one broadcast number.
        const int most = (machine.vector_registers - 4) / tiling.panel_vectors;
        const int least = std::min(min_sums / tiling.panel_vectors, most);
        tiling.panel_rows = rows_for(streaming, least, most);
        tiling.feature_rows = rows_for(shapes.features, least, most);
        tiling.value_feature_rows = rows_for(shapes.value_features, least, most);
    }
    const std::int64_t most_tokens = std::min(on_unit ? block_tokens_of_unit : block_tokens, room);
    std::int64_t panels_of_block = std::max<std::int64_t>(most_tokens / tiling.panel_rows, 1);
    if (streaming.is_known()) {
        const std::int64_t all = std::max<std::int64_t>(ceil_div(streaming.value(), tiling.panel_rows), 1);
        panels_of_block = std::min(panels_of_block, all);
        // A last block that is shorter is copied more slowly.
        if (on_unit)
            panels_of_block =
                rows_for(Dim(all), static_cast<int>((panels_of_block + 1) / 2), static_cast<int>(panels_of_block));
    }
    tiling.block = panels_of_block * tiling.panel_rows;

    const std::int64_t panels = std::max<std::int64_t>(ceil_div(own, tiling.panel_columns()), 1);
    const std::int64_t most_panels =
        std::max<std::int64_t>(std::min(on_unit ? tile_tokens_of_unit : tile_tokens, room) / tiling.panel_columns(), 1);
    std::int64_t tiles = ceil_div(panels, most_panels);
    // Smaller tiles when there are fewer than threads.
    while (tiles < panels && others * tiles < 2 * machine.threads) ++tiles;
    tiling.tile_panels = ceil_div(panels, tiles);
    return tiling;
}

std::string str(const AttentionTiling& tiling) {
    if (tiling.in_group) {
        return concat("attention: a group of threads for each tile of ", tiling.tile(),
                      " tokens, past which the others stream in blocks of ", tiling.block);
    }
    return concat("attention: tiles of ", tiling.tile(), " tokens, past which the others stream in blocks of ",
                  tiling.block, "; panels of ", tiling.panel_rows, " by ", tiling.panel_columns(),
                  tiling.matrix_parts > 0 ? ", on the matrix unit" : "");
}

}  // namespace topstitch::stitch
