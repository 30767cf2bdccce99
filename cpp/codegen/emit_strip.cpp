// A product of few rows in strips: each lane has four columns of all rows, and the simdgroups of a group take turns at
// the steps. What they have summed up is added in the group's memory, and finished by what is stitched to it.
#include "codegen/emitter.h"
#include "topstitch/error.h"

namespace topstitch::codegen {

using loopir::ValueId;

void Emitter::emit_strip() {
    const Product& product = product_->product;
    const auto constant = [this](const std::string& name, std::int64_t number) {
        line(concat("constexpr int ", name, " = ", number, ";"));
    };
    const std::string& strip = local_name("strip");
    const std::string& simdgroups = local_name("simdgroups");
    const std::string& rows = local_name("rows");
    const std::string& parts = local_name("parts");
    const std::string& columns = local_name("columns");
    constant(strip, ProductPlan::strip_columns(dialect_.limits()));
    constant(simdgroups, ProductPlan::strip_simdgroups);
    constant(rows, product_->strip_rows);
    line(concat(dialect_.group_array(type(DType::float32)), " ", parts, "[", simdgroups, " * ", rows, " * ", strip,
                "];"));
    emit_count(columns, product.columns);
    emit_count(local_name("steps"), product.steps);
    note_magnitude(product_launch().x);
    const std::string& strips = local_name("strips");
    const std::string group = concat(index_type(), "(group)");
    line(concat("const ", index_type(), " ", strips, " = (", columns, " + ", strip, " - 1) / ", strip, ";"));
    line(concat("const ", index_type(), " ", local_name("first_column"), " = ", group, " % ", strips, " * ", strip,
                ";"));
    emit_batch(concat(group, " / ", strips));

    const std::string& sums = local_name("sums");
    const std::string& r = local_name("r");
    const std::string& part = local_name("part");
    const auto for_each = [&](const std::string& statement) {
        emit_unrolled(r, product_->strip_rows, [&] { emit_unrolled(part, wide_count, [&] { line(statement); }); });
    };
    line(concat(type(DType::float32), " ", sums, "[", rows, "][", wide_count, "];"));
    for_each(concat(sums, "[", r, "][", part, "] = ", dialect_.real(0), ";"));
    emit_strip_sums(sums);
    for_each(concat(parts, "[(int(simdgroup) * ", rows, " + ", r, ") * ", strip, " + int(lane) * ", wide_count, " + ",
                    part, "] = ", sums, "[", r, "][", part, "];"));
    line(dialect_.barrier(false));
    emit_strip_results(parts);
}

void Emitter::emit_strip_sums(const std::string& sums) {
    const Product& product = product_->product;
    const std::string& columns = local_name("columns");
    const std::string first = local_name(number_name(product.columns, "column_number") + "_first");
    line(concat("const ", index_type(), " ", first, " = ", local_name("first_column"), " + int(lane) * ", wide_count,
                ";"));
    open(concat("if (", first, " < ", columns, ")"));
    const std::string step = number_name(product.steps, "step_number");
    open(concat("for (", index_type(), " ", step, " = ", index_type(), "(simdgroup); ", step, " < ",
                local_name("steps"), "; ", step, " += ", local_name("simdgroups"), ")"));
    emit_digits(product.steps, step);
    // The columns of this step, then each row by them.
    const std::string& factors = local_name("column_factors");
    line(concat(type(DType::float32), " ", factors, "[", wide_count, "];"));
    const std::string left = product.columns.is_multiple_of(wide_count) ? "" : emit_left(first, columns);
    emit_four({*product_->column_staging.wide, product.columns, first, left}, [&] {
        for (const ValueId id : product.column_factor.values) emit(loopir::Let{id});
        line(concat(factors, "[", local_name("part"), "] = ", value(product.column_factor.value), ";"));
    });
    const std::string& r = local_name("r");
    emit_unrolled(r, product_->strip_rows, [&] {
        emit_strip_row(r);
        for (const ValueId id : product.row_factor.values) emit(loopir::Let{id});
        const std::string& part = local_name("part");
        const std::string sum = concat(sums, "[", r, "][", part, "]");
        const std::string factor = concat(factors, "[", part, "]");
        const std::string& by = value(product.row_factor.value);
        emit_unrolled(part, wide_count, [&] {
            line(fuses_ ? concat(sum, " = ", dialect_.call(BuiltIn::fma), "(", by, ", ", factor, ", ", sum, ");")
                        : concat(sum, " += ", by, " * ", factor, ";"));
        });
    });
    close();
    close();
}

// The variables of a row, if there are any.
void Emitter::emit_strip_row(const std::string& number) {
    const AxisGroup& rows = product_->product.rows;
    if (rows.empty()) return;
    const std::string name = number_name(rows, "row_number");
    line(concat("const ", index_type(), " ", name, " = ", number, ";"));
    emit_digits(rows, name);
}

void Emitter::emit_strip_results(const std::string& parts) {
    const Product& product = product_->product;
    const std::string& element = local_name("element");
    const std::string& strip = local_name("strip");
    const std::string& rows = local_name("rows");
    open(concat("for (int ", element, " = int(thread_index); ", element, " < ", rows, " * ", strip, "; ", element,
                " += ", plan_.group_threads(), ")"));
    const std::string column = number_name(product.columns, "column_number");
    line(concat("const ", index_type(), " ", column, " = ", local_name("first_column"), " + ", element, " % ", strip,
                ";"));
    line(concat("if (", column, " >= ", local_name("columns"), ") continue;"));
    emit_digits(product.columns, column);
    emit_strip_row(concat(element, " / ", strip));
    const std::string& sum = local_name("sum");
    const std::string& s = local_name("s");
    line(concat(type(DType::float32), " ", sum, " = ", parts, "[", element, "];"));
    line(concat("for (int ", s, " = 1; ", s, " < ", local_name("simdgroups"), "; ++", s, ") ", sum, " += ", parts, "[",
                s, " * ", rows, " * ", strip, " + ", element, "];"));
    emit_result(sum);
    close();
}

}  // namespace topstitch::codegen
