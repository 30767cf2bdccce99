// A product in tiles: slices of both factors are staged in the group's memory, multiplied there as matrices, and each
// sum is finished by what is stitched to it. Sizes that no tile divides are filled up with zeros, and not stored.
#include "codegen/emitter.h"
#include "topstitch/error.h"

namespace topstitch::codegen {

using loopir::ValueId;

// One factor, its lines being rows or columns of the result.
struct Emitter::TiledFactor {
    const Product::Factor& factor;
    const Staging& staging;
    const AxisGroup& lines;
    std::string line;        // what one is called
    std::string tile_lines;  // so many in a tile
    std::string count;       // so many there are
    std::string first;       // the first one of the tile
    std::string tile;        // the memory
    std::string pitch;       // elements from one line of that memory to the next
    std::string matrices;    // one matrix for each of the simdgroup's parts
    std::string part;        // the first line of that part
    int parts = 0;
    bool whole = false;  // tiles are never cut off
};

SizeExpr Emitter::count_of(const AxisGroup& group) const {
    SizeExpr count = 1;
    for (const Axis& axis : group.axes()) count = count * size(axis.extent);
    return count;
}

// The buffers that a factor is read from, as a comment names them.
std::string Emitter::sources(const Product::Factor& factor) const {
    std::set<int> slots;
    for (const ValueId id : factor.values) {
        if (instr(id).op == loopir::ScalarOp::load) slots.insert(instr(id).slot);
    }
    std::string text;
    for (const int slot : slots) text += concat(text.empty() ? "" : ", ", buffers_[static_cast<std::size_t>(slot)]);
    return text.empty() ? "what is computed here" : text;
}

void Emitter::emit_product() {
    const bool tiles = product_->form == ProductPlan::Form::tiles;
    line(concat("// ", sources(product_->product.row_factor), " times ", sources(product_->product.column_factor),
                ", a ", tiles ? "tile" : "strip", " of the result for each group of threads."));
    in_spread_ = true;  // each thread does something else
    if (tiles) {
        emit_tile();
    } else {
        emit_strip();
    }
}

void Emitter::emit_tile() {
    const Product& product = product_->product;
    const int side = dialect_.limits().matrix_side;
    const auto tiled = [&](const Product::Factor& factor, const Staging& staging, const AxisGroup& lines,
                           const std::string& what, int tile, int simdgroups) {
        return TiledFactor{factor,
                           staging,
                           lines,
                           what,
                           local_name(concat("tile_", what, "s")),
                           local_name(what + "s"),
                           local_name("first_" + what),
                           local_name(what + "_tile"),
                           local_name(what + "_pitch"),
                           local_name(what + "_matrices"),
                           local_name("part_" + what),
                           tile / simdgroups / side,
                           lines.is_multiple_of(tile)};
    };
    const TiledFactor rows = tiled(product.row_factor, product_->row_staging, product.rows, "row", product_->tile_rows,
                                   ProductPlan::simd_rows);
    const TiledFactor columns = tiled(product.column_factor, product_->column_staging, product.columns, "column",
                                      product_->tile_columns, ProductPlan::simd_columns);
    declare_tiles(rows, columns);
    emit_tile_position(rows, columns);
    emit_sums(rows, columns);
    emit_results(rows, columns);
}

// Sizes, and the group's memory.
void Emitter::declare_tiles(const TiledFactor& rows, const TiledFactor& columns) {
    const auto constant = [this](const std::string& name, const std::string& number) {
        line(concat("constexpr int ", name, " = ", number, ";"));
    };
    const std::string& slice = local_name("slice");
    constant(rows.tile_lines, std::to_string(product_->tile_rows));
    constant(columns.tile_lines, std::to_string(product_->tile_columns));
    constant(slice, std::to_string(ProductPlan::slice));
    for (const TiledFactor* factor : {&rows, &columns}) {
        const bool along_steps = factor->staging.along_steps;
        constant(factor->pitch, concat(along_steps ? slice : factor->tile_lines, " + ", ProductPlan::padding));
        line(concat(dialect_.group_array(dialect_.tile_type(product_->element)), " ", factor->tile, "[",
                    along_steps ? factor->tile_lines : slice, " * ", factor->pitch, "];"));
    }
    constant(local_name("width"), concat(columns.tile_lines, " / ", ProductPlan::simd_columns));
    constexpr int simdgroups = ProductPlan::simd_rows * ProductPlan::simd_columns;
    line(concat(dialect_.group_array(type(DType::float32)), " ", local_name("results"), "[", simdgroups, " * ",
                dialect_.limits().matrix_side, " * ", local_name("width"), "];"));
    emit_count(rows.count, rows.lines);
    emit_count(columns.count, columns.lines);
    emit_count(local_name("steps"), product_->product.steps);
}

void Emitter::emit_count(const std::string& name, const AxisGroup& group) {
    note_magnitude(count_of(group));
    std::string text;
    std::string names;
    for (const Axis& axis : group.axes()) {
        text += concat(text.empty() ? "" : " * ", dim_text(axis.extent, false));
        names += concat(names.empty() ? "" : ", ", var(axis.var));
    }
    line(concat("const ", index_type(), " ", name, " = ", text, ";  // ", names));
}

// Which tile of the result the group computes, and which part of it the simdgroup.
void Emitter::emit_tile_position(const TiledFactor& rows, const TiledFactor& columns) {
    note_magnitude(product_launch().x);
    const auto define = [this](const std::string& name, const std::string& text) {
        line(concat("const ", index_type(), " ", name, " = ", text, ";"));
    };
    const auto tiles = [&](const TiledFactor& factor) {
        const std::string& name = local_name(factor.line + "_tiles");
        define(name, concat("(", factor.count, " + ", factor.tile_lines, " - 1) / ", factor.tile_lines));
        return name;
    };
    const std::string row_tiles = tiles(rows);
    const std::string column_tiles = tiles(columns);
    const std::string group = concat(index_type(), "(group)");
    define(rows.first, concat(group, " / ", column_tiles, " % ", row_tiles, " * ", rows.tile_lines));
    define(columns.first, concat(group, " % ", column_tiles, " * ", columns.tile_lines));
    emit_batch(concat(group, " / ", column_tiles, " / ", row_tiles));
    const auto part = [&](const TiledFactor& factor, const std::string& text, int simdgroups) {
        line(concat("const int ", factor.part, " = ", text, " * (", factor.tile_lines, " / ", simdgroups, ");"));
    };
    part(rows, concat("int(simdgroup) / ", ProductPlan::simd_columns), ProductPlan::simd_rows);
    part(columns, concat("int(simdgroup) % ", ProductPlan::simd_columns), ProductPlan::simd_columns);
}

void Emitter::emit_batch(const std::string& text) {
    const AxisGroup& batch = product_->product.batch;
    if (batch.empty()) return;
    const std::string number = number_name(batch, "batch");
    line(concat("const ", index_type(), " ", number, " = ", text, ";"));
    emit_digits(batch, number);
}

// What the number that stands for the group's variables is called: like the only one, or by what it counts.
std::string Emitter::number_name(const AxisGroup& group, const std::string& what) {
    return group.axes().size() == 1 ? var(group.last().var) : local_name(what);
}

// The statement in loops over all matrices of the simdgroup.
void Emitter::for_each_sum(const TiledFactor& rows, const TiledFactor& columns, const std::string& statement) {
    emit_unrolled(local_name("r"), rows.parts,
                  [&] { emit_unrolled(local_name("c"), columns.parts, [&] { line(statement); }); });
}

void Emitter::emit_unrolled(const std::string& counter, int count, const std::function<void()>& inside) {
    line(dialect_.unroll());
    open(concat("for (int ", counter, " = 0; ", counter, " < ", count, "; ++", counter, ")"));
    inside();
    close();
}

void Emitter::emit_sums(const TiledFactor& rows, const TiledFactor& columns) {
    const std::string sum = concat(local_name("sums"), "[", local_name("r"), "][", local_name("c"), "]");
    line(concat(dialect_.matrix_type(DType::float32), " ", local_name("sums"), "[", rows.parts, "][", columns.parts,
                "];"));
    for_each_sum(rows, columns, concat(sum, " = ", dialect_.zero_matrix(), ";"));
    const std::string& first = local_name("first_step");
    const std::string& slice = local_name("slice");
    open(concat("for (", index_type(), " ", first, " = 0; ", first, " < ", local_name("steps"), "; ", first,
                " += ", slice, ")"));
    emit_staging(rows);
    emit_staging(columns);
    line(dialect_.barrier(false));
    const std::string& step = local_name("step");
    line(dialect_.unroll());
    open(concat("for (int ", step, " = 0; ", step, " < ", slice, "; ", step, " += ", dialect_.limits().matrix_side,
                ")"));
    emit_matrix_loads(rows, local_name("r"), rows.staging.along_steps);
    emit_matrix_loads(columns, local_name("c"), !columns.staging.along_steps);
    for_each_sum(rows, columns,
                 dialect_.multiply_accumulate(sum, concat(rows.matrices, "[", local_name("r"), "]"),
                                              concat(columns.matrices, "[", local_name("c"), "]")));
    close();
    line(dialect_.barrier(false));
    close();
}

// `upright`: the lines of the memory are the rows of the matrix.
void Emitter::emit_matrix_loads(const TiledFactor& factor, const std::string& counter, bool upright) {
    line(concat(dialect_.matrix_type(product_->element), " ", factor.matrices, "[", factor.parts, "];"));
    const std::string place = concat("(", factor.part, " + ", dialect_.limits().matrix_side, " * ", counter, ")");
    const std::string& step = local_name("step");
    const std::string pointer = factor.staging.along_steps
                                    ? concat(factor.tile, " + ", place, " * ", factor.pitch, " + ", step)
                                    : concat(factor.tile, " + ", step, " * ", factor.pitch, " + ", place);
    emit_unrolled(counter, factor.parts, [&] {
        line(dialect_.load_matrix(concat(factor.matrices, "[", counter, "]"), pointer, factor.pitch, !upright));
    });
}

// All threads of the group fill a slice of the tile: `together` elements of a line of the memory each.
void Emitter::emit_staging(const TiledFactor& factor) {
    const AxisGroup& steps = product_->product.steps;
    const bool along_steps = factor.staging.along_steps;
    const int together = factor.staging.wide ? wide_count : 1;
    const std::string& slice = local_name("slice");
    line(concat("// A slice of ", sources(factor.factor)));
    const std::string& length = along_steps ? slice : factor.tile_lines;  // of a line of the memory
    const std::string& element = local_name("element");
    const std::string thread = concat("int(thread_index)", together > 1 ? concat(" * ", together) : "");
    open(concat("for (int ", element, " = ", thread, "; ", element, " < ", factor.tile_lines, " * ", slice, "; ",
                element, " += ", together * plan_.group_threads(), ")"));
    const std::string outer = concat(element, " / ", length);
    const std::string inner = concat(element, " % ", length);
    line(concat(dialect_.group_pointer(dialect_.tile_type(product_->element)), " ", local_name("to"), " = ",
                factor.tile, " + ", outer, " * ", factor.pitch, " + ", inner, ";"));
    // The number of the line and that of the step: of the first of several, where they go along it.
    const auto number = [&](const AxisGroup& group, const std::string& what, bool first, const std::string& text) {
        const std::string name = number_name(group, what + "_number");
        const std::string called = first && together > 1 ? local_name(name + "_first") : name;
        line(concat("const ", index_type(), " ", called, " = ", text, ";"));
        return called;
    };
    const std::string line_number =
        number(factor.lines, factor.line, !along_steps, concat(factor.first, " + ", along_steps ? outer : inner));
    const std::string step_number =
        number(steps, "step", along_steps, concat(local_name("first_step"), " + ", along_steps ? inner : outer));
    std::string inside = factor.whole ? "" : concat(line_number, " < ", factor.count);
    if (!steps.is_multiple_of(ProductPlan::slice)) {
        inside += concat(inside.empty() ? "" : " && ", step_number, " < ", local_name("steps"));
    }
    if (!inside.empty()) open(concat("if (", inside, ")"));
    emit_staged(factor, line_number, step_number);
    if (!inside.empty()) {
        open_else();
        const std::string zero = staged(dialect_.real(0));
        const std::string& part = local_name("part");
        line(together > 1 ? concat("for (int ", part, " = 0; ", part, " < ", together, "; ++", part, ") ",
                                   local_name("to"), "[", part, "] = ", zero, ";")
                          : concat(local_name("to"), "[0] = ", zero, ";"));
        close();
    }
    close();
}

// A float32 as an element of a tile.
std::string Emitter::staged(const std::string& number) const {
    return product_->element == DType::float32 ? number
                                               : concat(dialect_.tile_type(product_->element), "(", number, ")");
}

void Emitter::emit_staged(const TiledFactor& factor, const std::string& line_number, const std::string& step_number) {
    const AxisGroup& steps = product_->product.steps;
    const bool along_steps = factor.staging.along_steps;
    const auto emit_values = [&] {
        for (const ValueId id : factor.factor.values) emit(loopir::Let{id});
    };
    if (!factor.staging.wide) {
        emit_digits(factor.lines, line_number);
        emit_digits(steps, step_number);
        emit_values();
        line(concat(local_name("to"), "[0] = ", staged(value(factor.factor.value)), ";"));
        return;
    }
    const AxisGroup& moving = along_steps ? steps : factor.lines;
    emit_digits(along_steps ? factor.lines : steps, along_steps ? line_number : step_number);
    const std::string& first = along_steps ? step_number : line_number;
    const std::string& end = along_steps ? local_name("steps") : factor.count;
    const std::string left = moving.is_multiple_of(wide_count) ? "" : emit_left(first, end);
    emit_four({*factor.staging.wide, moving, first, left}, [&] {
        emit_values();
        const std::string& part = local_name("part");
        const std::string& number = value(factor.factor.value);
        const std::string text =
            left.empty() ? number : concat(part, " < ", left, " ? ", number, " : ", dialect_.real(0));
        line(concat(local_name("to"), "[", part, "] = ", staged(text), ";"));
    });
}

// Each simdgroup finishes its sums by itself, one row of matrices after the other.
void Emitter::emit_results(const TiledFactor& rows, const TiledFactor& columns) {
    const int side = dialect_.limits().matrix_side;
    const std::string& r = local_name("r");
    const std::string& c = local_name("c");
    const std::string& mine = local_name("simdgroup_results");
    const std::string& width = local_name("width");
    line("// Each simdgroup finishes its sums, a row of matrices after the other.");
    line(concat(dialect_.group_pointer(type(DType::float32)), " ", mine, " = ", local_name("results"),
                " + int(simdgroup) * ", side, " * ", width, ";"));
    emit_unrolled(r, rows.parts, [&] {
        emit_unrolled(c, columns.parts, [&] {
            line(dialect_.store_matrix(concat(local_name("sums"), "[", r, "][", c, "]"),
                                       concat(mine, " + ", side, " * ", c), width));
        });
        line(dialect_.simdgroup_barrier());
        emit_result_stores(rows, columns);
        line(dialect_.simdgroup_barrier());
    });
}

void Emitter::emit_result_stores(const TiledFactor& rows, const TiledFactor& columns) {
    const int together = product_->wide_results ? wide_count : 1;
    const std::string& element = local_name("element");
    const std::string& mine = local_name("simdgroup_results");
    const std::string& width = local_name("width");
    const std::string lane = concat("int(lane)", together > 1 ? concat(" * ", together) : "");
    open(concat("for (int ", element, " = ", lane, "; ", element, " < ", dialect_.limits().matrix_side, " * ", width,
                "; ", element, " += ", together * dialect_.limits().simd_width, ")"));
    const auto number = [&](const TiledFactor& factor, bool first, const std::string& text) {
        const std::string name = number_name(factor.lines, factor.line + "_number");
        const std::string called = first ? local_name(name + "_first") : name;
        line(concat("const ", index_type(), " ", called, " = ", factor.first, " + ", factor.part, " + ", text, ";"));
        return called;
    };
    const std::string row = number(
        rows, false, concat(dialect_.limits().matrix_side, " * ", local_name("r"), " + ", element, " / ", width));
    const std::string column = number(columns, together > 1, concat(element, " % ", width));
    std::string outside = rows.whole ? "" : concat(row, " >= ", rows.count);
    if (!columns.whole) outside += concat(outside.empty() ? "" : " || ", column, " >= ", columns.count);
    if (!outside.empty()) line(concat("if (", outside, ") continue;"));
    emit_digits(rows.lines, row);
    if (together == 1) {
        emit_digits(columns.lines, column);
        emit_result(concat(mine, "[", element, "]"));
    } else {
        const std::string left = columns.lines.is_multiple_of(wide_count) ? "" : emit_left(column, columns.count);
        emit_four({*product_->wide_results, columns.lines, column, left},
                  [&] { emit_result(concat(mine, "[", element, " + ", local_name("part"), "]")); });
    }
    close();
}

// What is done to a sum.
void Emitter::emit_result(const std::string& sum) {
    const Product& product = product_->product;
    line(concat("const ", type(DType::float32), " ", acc_name(product.sum), " = ", sum, ";"));
    for (const ValueId id : product.result_values) emit(loopir::Let{id});
    for (const loopir::Store* store : product.stores) emit(*store);
}

Launch Emitter::product_launch() const {
    const Product& product = product_->product;
    Launch launch;
    launch.groups = true;
    launch.group_threads = plan_.group_threads();
    const bool tiles = product_->form == ProductPlan::Form::tiles;
    launch.x = count_of(product.batch);
    if (tiles) launch.x = launch.x * ceil_div(count_of(product.rows), product_->tile_rows);
    launch.x = launch.x * ceil_div(count_of(product.columns),
                                   tiles ? product_->tile_columns : ProductPlan::strip_columns(dialect_.limits()));
    launch.simd_width = dialect_.limits().simd_width;
    launch.static_group_bytes = product_->group_bytes(dialect_);
    return launch;
}

}  // namespace topstitch::codegen
