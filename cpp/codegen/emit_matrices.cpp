// A product of matrices in the group's memory: its simdgroups share out blocks of the result, whose sums are in
// registers while they go through the steps.
#include "codegen/emitter.h"
#include "topstitch/error.h"

namespace topstitch::codegen {

void Emitter::emit_matrices(const MatrixNest& nest) {
    const int side = dialect_.limits().matrix_side;
    const int simdgroups = plan_.group_threads() / dialect_.limits().simd_width;
    const MatrixBlock block = choose_block(nest, side, simdgroups);
    const std::int64_t across = nest.column_count() / side / block.columns;
    const std::int64_t blocks = nest.row_count() / side / block.rows * across;
    const std::string& row = var(nest.rows->var);
    const std::string& column = var(nest.columns->var);
    const std::string& step = var(nest.steps->var);
    const std::string& number = local_name("block_number");
    const std::string& r = local_name("r");
    const std::string& c = local_name("c");
    const auto buffer = [&](int slot) -> const std::string& { return buffers_[static_cast<std::size_t>(slot)]; };
    const loopir::Instr& left = instr(nest.left.load);
    const loopir::Instr& right = instr(nest.right.load);
    line(concat("// ", buffer(nest.result->buffer), nest.adds ? " += " : " = ", buffer(left.slot), " times ",
                buffer(right.slot), ", as matrices."));
    open(concat("for (int ", number, " = int(simdgroup); ", number, " < ", blocks, "; ", number, " += ", simdgroups,
                ")"));
    const auto position = [&](const std::string& name, const std::string& of, int matrices) {
        line(concat("const ", index_type(), " ", name, " = ", number, of, " * ", matrices * side, ";"));
    };
    position(row, concat(" / ", across), block.rows);
    position(column, concat(" % ", across), block.columns);

    const std::string& sums = local_name("sums");
    const std::string sum = concat(sums, "[", r, "][", c, "]");
    const std::string pitch = std::to_string(nest.result_pitch);
    const std::string place = concat(buffer(nest.result->buffer), " + ", offset(nest.result->index), " + ", r, " * ",
                                     nest.result_pitch * side, " + ", c, " * ", side);
    const auto each_sum = [&](const std::string& statement) {
        emit_unrolled(r, block.rows, [&] { emit_unrolled(c, block.columns, [&] { line(statement); }); });
    };
    const std::string matrix = dialect_.matrix_type(DType::float32);
    line(concat(matrix, " ", sums, "[", block.rows, "][", block.columns, "];"));
    each_sum(nest.adds ? dialect_.load_matrix(sum, place, pitch, false)
                       : concat(sum, " = ", dialect_.zero_matrix(), ";"));
    open(concat("for (", index_type(), " ", step, " = 0; ", step, " < ", nest.step_count(), "; ", step, " += ", side,
                ")"));
    const auto load = [&](const MatrixNest::Factor& factor, const std::string& name, const std::string& counter,
                          int matrices, bool lines_by_counter) {
        const std::int64_t next = side * (lines_by_counter ? factor.pitch : 1);
        line(concat(matrix, " ", name, "[", matrices, "];"));
        emit_unrolled(counter, matrices, [&] {
            const std::string from = concat(buffer(instr(factor.load).slot), " + ", offset(instr(factor.load).index),
                                            " + ", counter, " * ", next);
            line(dialect_.load_matrix(concat(name, "[", counter, "]"), from, std::to_string(factor.pitch),
                                      factor.across));
        });
    };
    const std::string& rows = local_name("row_matrices");
    const std::string& columns = local_name("column_matrices");
    load(nest.left, rows, r, block.rows, !nest.left.across);
    load(nest.right, columns, c, block.columns, nest.right.across);
    each_sum(dialect_.multiply_accumulate(sum, concat(rows, "[", r, "]"), concat(columns, "[", c, "]")));
    close();
    each_sum(dialect_.store_matrix(sum, place, pitch));
    close();
}

}  // namespace topstitch::codegen
