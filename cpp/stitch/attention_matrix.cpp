// Attention's products on a matrix unit: tokens that stay are packed as columns, those that stream past as rows, by
// token or by feature, and the weights of a panel as columns.
#include "ops/indexing_rules.h"
#include "stitch/attention_panels.h"

namespace topstitch::stitch {

using loopir::no_value;
using loopir::ScalarOp;
using loopir::ValueId;

namespace {

constexpr std::int64_t matrix_step = loopir::matrix_tile * loopir::matrix_word(DType::bfloat16);
constexpr double smallest_weight = 0x1p-100;

Index groups_of(const Index& steps) {
    return floor_div(steps + Index(matrix_step - 1), Dim(matrix_step));
}

}  // namespace

ValueId PanelAttention::cut(ValueId weight) {
    if (!on_unit()) return weight;
    return b_.select(b_.op(ScalarOp::lt, weight, number(smallest_weight)), number(0), weight);
}

PanelAttention::MatrixPanels PanelAttention::matrix_panels(const std::string& name, bool is_rows, const Dim& panels,
                                                           const Dim& steps) {
    MatrixPanels packed;
    packed.elements = is_rows ? tiling_.panel_rows : tiling_.panel_columns();
    packed.parts = tiling_.matrix_parts;
    packed.is_rows = is_rows;
    packed.groups = ceil_div(steps, Dim(matrix_step));
    packed.words = local_buffer(name, DType::uint32, panels * packed.panel_words());
    packed.ranges = local_buffer(name + "_range", DType::uint32, panels);
    return packed;
}

void PanelAttention::pack_staying_on_unit(Staying& staying, const std::string& name, int input, const Index& head,
                                          ValueId factor) {
    staying.packed = matrix_panels(name, false, Dim(tiling_.tile_panels), staying.features);
    begin_own_panel();
    const Dim groups = staying.packed.groups;
    pack_matrix_panel(staying.packed, panel_, 0, groups, Index(groups), [&](const Index& lane, const Index& feature) {
        forget_values();
        const Index token = own_token(lane);
        const ValueId guard = ops::both(b_, inside_own(token), within(feature, staying.features));
        const ValueId value = or_zero(guard, token_operand(input, head, token, feature, guard));
        return factor == no_value ? value : b_.mul(value, factor);
    });
    close(1);
}

ValueId PanelAttention::within(const Index& step, const Dim& steps) {
    return steps.is_known() && steps.value() % matrix_step == 0 ? no_value : less(step, Index(steps));
}

ValueId PanelAttention::or_zero(ValueId guard, ValueId value) {
    return guard == no_value ? value : b_.select(guard, value, number(0));
}

void PanelAttention::fill_on_unit(const Streaming& block, int input, const Index& head) {
    const std::optional<Index> rest = streaming_rest();
    const auto element = [&](const Index& t, const Index& feature, ValueId feature_exists) {
        forget_values();
        const ValueId guard = ops::both(b_, rest ? less(t, *rest) : no_value, feature_exists);
        return or_zero(guard, token_operand(input, head, first_streaming_ + t, feature, guard));
    };
    const Index all = rest ? groups_of(*rest) : Index(tiling_.block / matrix_step);
    if (block.by_token.words >= 0) {
        const MatrixPanels& rows = block.by_token;
        const Index panel = begin_loop("panel", {"panel", Dim(tiling_.block / tiling_.panel_rows)}, all);
        pack_matrix_panel(rows, panel, 0, rows.groups, Index(rows.groups), [&](const Index& t, const Index& feature) {
            return element(panel * Dim(tiling_.panel_rows) + t, feature, within(feature, block.features));
        });
        close(1);
    }
    if (block.by_feature.words >= 0) {
        const MatrixPanels& rows = block.by_feature;
        const Index panel = begin_loop("panel", {"panel", ceil_div(block.features, Dim(rows.elements))});
        pack_matrix_panel(rows, panel, 0, rows.groups, all, [&](const Index& e, const Index& t) {
            const Index feature = panel * Dim(rows.elements) + e;
            return element(t, feature, within(feature, block.features));
        });
        close(1);
    }
}

void PanelAttention::write_scores_on_unit(int target, const Streaming& rows, const Staying& columns) {
    std::optional<Index> limit;
    if (streaming_limit_) limit = groups_of(*streaming_limit_);  // a panel has as many rows as a group has steps
    const Index panel = begin_loop("panel", {"panel", Dim(tiling_.block / tiling_.panel_rows)}, limit);
    loopir::MultiplyTiles product = matrix_product(rows.by_token, panel, 0, columns.packed, panel_, 0);
    product.steps = Index(columns.packed.groups);
    product.sums = target;
    product.sums_row = tiling_.panel_columns();
    product.sums_at = weight_at(panel * Dim(tiling_.panel_rows), 0);
    b_.multiply_tiles(std::move(product));
    close(1);
}

void PanelAttention::gather_on_unit(const Gathered& sums, const Streaming& rows, int weights, int decay, bool bounded) {
    MatrixPanels packed = matrix_panels("packed_weights", false, 1, tiling_.block);
    packed.bounded = bounded;
    Index groups = Index(packed.groups);
    if (streaming_limit_) {
        const auto value = [this](ScalarOp op, const Index& a, const Index& b) {
            return Index::value(b_.op(op, b_.index_value(a), b_.index_value(b)));
        };
        const Index tokens = value(ScalarOp::max, *streaming_limit_, Index(0));
        groups = value(ScalarOp::min, groups_of(tokens), groups);
        // Weights of tokens that are not there.
        const Index t = begin_loop("rest", {"rest", Dim(matrix_step - 1)}, groups * Dim(matrix_step) - tokens);
        each_lane([&](const Index& lane) { b_.store(weights, weight_at(tokens + t, lane), number(0)); });
        close(1);
    }
    const MatrixRange range = begin_matrix_range(packed);
    const Index group = begin_loop("group", {"group", packed.groups}, groups);
    split_matrix_group(packed, weights, weight_at(group * Dim(matrix_step), 0), group * Dim(packed.group_words()),
                       range);
    close(1);
    end_matrix_range(packed, 0, range);

    if (decay != no_value) {
        const Index feature = begin_loop("feature", {"feature", sums.features});
        each_lane([&](const Index& lane) {
            const Index at = sums.layout.offset(panel_, lane, feature);
            b_.store(sums.buffer, at, b_.mul(b_.load(sums.buffer, at), b_.load(decay, lane)));
        });
        close(1);
    }
    const Index panel = begin_loop("panel", {"panel", ceil_div(sums.features, Dim(sums.rows))});
    loopir::MultiplyTiles product = matrix_product(rows.by_feature, panel, 0, packed, 0, 0);
    product.steps = groups;
    product.sums = sums.buffer;
    product.sums_row = tiling_.panel_columns();
    product.sums_at = sums.layout.offset(panel_, 0, panel * Dim(sums.rows));
    product.adds = b_.constant_int(1, DType::boolean);
    b_.multiply_tiles(std::move(product));
    close(1);
}

}  // namespace topstitch::stitch
