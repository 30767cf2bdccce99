// Chooses tiles by the sizes that are known, and the order in which slices are staged by what lies side by side.
// See product_plan.h.
#include "codegen/product_plan.h"

#include <algorithm>
#include <cstdlib>

namespace topstitch::codegen {

using loopir::Instr;
using loopir::Kernel;
using loopir::ScalarOp;
using loopir::ValueId;

namespace {

// Smaller products would leave most of each matrix empty.
constexpr std::int64_t min_side = 8;
constexpr std::int64_t min_steps = 8;
// Shorter sums, and fewer columns, would leave most threads of a strip without work.
constexpr std::int64_t min_strip = 32;
// Elements from one read to the next that still share lines of the cache.
constexpr std::int64_t near = 4;
// Large tiles read less, but there must be so many of them to occupy a machine.
constexpr int small_tile = 32;
constexpr int large_tile = 64;
constexpr std::int64_t enough_tiles = 32;

std::int64_t tiles(std::int64_t count, int tile) {
    return (count + tile - 1) / tile;
}

class ProductPlanner {
public:
    ProductPlanner(const Kernel& kernel, const LoopFacts& facts) : kernel_(kernel), facts_(facts) {}

    std::optional<ProductPlan> run() {
        std::optional<Product> product = find_product(kernel_, facts_);
        if (!product) return std::nullopt;
        plan_.product = *std::move(product);
        if (!fills_matrices()) return plan_strips();
        choose_tiles();
        choose_element();
        plan_.row_staging = staging(plan_.product.row_factor, plan_.product.rows);
        plan_.column_staging = staging(plan_.product.column_factor, plan_.product.columns);
        plan_.wide_results =
            find_wide(kernel_, facts_, plan_.product.columns, plan_.product.result_values, plan_.product.stores);
        return plan_;
    }

private:
    const Instr& instr(ValueId id) const { return kernel_.instrs[static_cast<std::size_t>(id)]; }

    bool fills_matrices() const {
        const Product& product = plan_.product;
        return product.rows.count().value_or(min_side) >= min_side &&
               product.columns.count().value_or(min_side) >= min_side &&
               product.steps.count().value_or(min_steps) >= min_steps;
    }

    // Where the other factor is read along the columns; along the steps, lanes of plain loops go.
    std::optional<ProductPlan> plan_strips() {
        Product& product = plan_.product;
        if (product.rows.count().value_or(min_side) >= min_side) product.exchange_factors();
        const std::int64_t rows = product.rows.count().value_or(min_side);
        const bool is_long = product.columns.count().value_or(min_strip) >= min_strip &&
                             product.steps.count().value_or(min_strip) >= min_strip;
        if (rows < 1 || rows >= min_side || !is_long) return std::nullopt;
        plan_.form = ProductPlan::Form::strips;
        plan_.strip_rows = static_cast<int>(rows);
        plan_.column_staging = staging(product.column_factor, product.columns);
        if (!plan_.column_staging.wide || plan_.column_staging.along_steps) return std::nullopt;
        return plan_;
    }

    void choose_tiles() {
        plan_.tile_rows = plan_.tile_columns = small_tile;
        const std::optional<std::int64_t> rows = plan_.product.rows.count();
        const std::optional<std::int64_t> columns = plan_.product.columns.count();
        // What is not known is taken to be one tile.
        const std::int64_t batch = plan_.product.batch.count().value_or(1);
        const auto is_enough = [&](int tile_rows, int tile_columns) {
            return batch * tiles(rows.value_or(1), tile_rows) * tiles(columns.value_or(1), tile_columns) >=
                   enough_tiles;
        };
        const auto is_large = [](const std::optional<std::int64_t>& count) { return count.value_or(0) >= large_tile; };
        if (is_large(columns) && is_enough(plan_.tile_rows, large_tile)) plan_.tile_columns = large_tile;
        if (is_large(rows) && is_enough(large_tile, plan_.tile_columns)) plan_.tile_rows = large_tile;
    }

    // A 16-bit type when all values of both factors are numbers of it.
    void choose_element() {
        for (const DType type : {DType::float16, DType::bfloat16}) {
            if (is_exact(plan_.product.row_factor.value, type) && is_exact(plan_.product.column_factor.value, type)) {
                plan_.element = type;
            }
        }
    }

    bool is_exact(ValueId value, DType type) const {
        const Instr& i = instr(value);
        switch (i.op) {
            case ScalarOp::load:
                return kernel_.buffers[static_cast<std::size_t>(i.slot)].dtype == type;
            case ScalarOp::round_to:
            case ScalarOp::from_bits16:
                return i.memory == type;
            case ScalarOp::constant:
                return i.type == DType::float32 && i.real == 0;
            case ScalarOp::neg:
            case ScalarOp::abs:
                return is_exact(i.args[0], type);
            case ScalarOp::min:
            case ScalarOp::max:
                return is_exact(i.args[0], type) && is_exact(i.args[1], type);
            case ScalarOp::select:
                return is_exact(i.args[1], type) && is_exact(i.args[2], type);
            default:
                return false;
        }
    }

    // Neighbours in memory are read by neighbouring threads, four by each where that can be.
    Staging staging(const Product::Factor& factor, const AxisGroup& lines) const {
        Staging staging;
        staging.wide = find_wide(kernel_, facts_, plan_.product.steps, factor.values, {});
        staging.along_steps = staging.wide.has_value();
        if (staging.along_steps) return staging;
        staging.wide = find_wide(kernel_, facts_, lines, factor.values, {});
        staging.along_steps =
            !staging.wide && near_loads(factor, plan_.product.steps.last()) > near_loads(factor, lines.last());
        return staging;
    }

    // Loads that go in short steps along the axis, and for a while.
    std::ptrdiff_t near_loads(const Product::Factor& factor, const Axis& axis) const {
        if (axis.extent.is_known() && axis.extent.value() < min_side) return 0;
        return std::count_if(factor.values.begin(), factor.values.end(), [&](ValueId value) {
            if (instr(value).op != ScalarOp::load) return false;
            const Dim step = instr(value).index.coefficient_of(axis.var);
            return step.is_known() && step.value() != 0 && std::abs(step.value()) <= near;
        });
    }

    const Kernel& kernel_;
    const LoopFacts& facts_;
    ProductPlan plan_;
};

}  // namespace

std::int64_t ProductPlan::group_bytes(const Dialect& dialect) const {
    if (form == Form::strips) {
        return std::int64_t{strip_simdgroups} * strip_rows * strip_columns(dialect.limits()) *
               static_cast<std::int64_t>(sizeof(float));
    }
    const auto elements = [](const Staging& staging, int lines) {
        return staging.along_steps ? lines * (slice + padding) : slice * (lines + padding);
    };
    const std::int64_t staged = elements(row_staging, tile_rows) + elements(column_staging, tile_columns);
    const std::int64_t results = std::int64_t{simd_rows} * dialect.limits().matrix_side * tile_columns;
    const bool may_be_wider = dialect.tile_type(element) != dialect.memory_type(element);
    const auto bytes = static_cast<std::int64_t>(may_be_wider ? sizeof(float) : size_of(element));
    return staged * bytes + results * static_cast<std::int64_t>(sizeof(float));
}

std::optional<ProductPlan> plan_product(const Kernel& kernel, const LoopFacts& facts) {
    return ProductPlanner(kernel, facts).run();
}

}  // namespace topstitch::codegen
