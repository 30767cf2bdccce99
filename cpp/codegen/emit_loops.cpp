// Loops: those of the grid become a position, spread ones start at the thread's number, the others stay as they are.
// Limits become the end of a loop, or a test where the grid is concerned.
#include <algorithm>
#include <utility>

#include "codegen/emitter.h"
#include "topstitch/error.h"

namespace topstitch::codegen {

using loopir::Loop;

void Emitter::emit(const Loop& loop) {
    switch (plan_.role(loop)) {
        case GridPlan::Role::grid:
            emit_grid_variable(loop);
            // The block of such a loop is the function's.
            return emit_iteration(loop, plan_.wide(loop) != nullptr ? dim_text(loop.extent, false) : "");
        case GridPlan::Role::nested:
            return emit_statements(loop.body.front());  // and of these the outer loop's, which has set the variable
        case GridPlan::Role::spread:
            order_before(loop);
            begin_parts(loop);
            in_spread_ = true;
            emit_iterations(loop);
            in_spread_ = false;
            join_parts(loop);
            return;
        case GridPlan::Role::serial: {
            if (!is_uniform()) return emit_iterations(loop);
            begin_parts(loop);
            // What follows a loop may come after no iteration.
            const std::set<int> read = read_;
            const std::set<int> written = written_;
            note_accesses(loop);
            emit_iterations(loop);
            read_.insert(read.begin(), read.end());
            written_.insert(written.begin(), written.end());
            join_parts(loop);
            return;
        }
    }
}

// The last loop of the grid is counted by x, and the others together by y; groups are counted by one number.
void Emitter::emit_grid_variable(const Loop& loop) {
    const LoopStack& grid = plan_.grid();
    note_magnitude(extent(loop.var));
    const auto place = static_cast<std::size_t>(std::find(grid.begin(), grid.end(), &loop) - grid.begin());
    const bool by_x = !plan_.groups() && place + 1 == grid.size();
    const std::string counter = plan_.groups() ? "group" : by_x ? "at.x" : "at.y";
    std::string text = concat(index_type(), "(", counter, ")");
    if (!by_x) {
        std::vector<Dim> radices;
        for (const Loop* other : grid) radices.push_back(other->extent);
        if (!plan_.groups()) radices.pop_back();
        text = digit_text(text, radices, place);
    }
    const std::string name = number_of(loop);
    line(concat("const ", index_type(), " ", name, " = ", text,
                plan_.wide(loop) != nullptr ? concat(" * ", wide_count) : "", ";"));
    // Groups of threads may reach past the end of a grid; digits of y other than the first cannot.
    if (!plan_.groups() && (by_x || place == 0)) {
        line(concat("if (", name, " >= ", dim_text(loop.extent, false), ") return;"));
    }
    if (loop.limit) line(concat("if (", var(loop.var), " >= ", offset(*loop.limit), ") return;"));
}

// Several loops counted through as one: its variable, and those of the loops.
void Emitter::emit_nest(const LoopStack& nest) {
    SizeExpr iterations = 1;
    for (const Loop* loop : nest) iterations = iterations * extent(loop->var);
    note_magnitude(iterations);
    std::string end;
    for (const Loop* loop : nest) end += (end.empty() ? "" : " * ") + dim_text(loop->extent, false);
    const std::string step = names_.unique("step", "step");
    open(concat("for (", index_type(), " ", step, " = ", index_type(), "(thread_index); ", step, " < ", end, "; ", step,
                " += ", plan_.group_threads(), ")"));
    AxisGroup digits;
    for (const Loop* loop : nest) digits.add({loop->var, loop->extent});
    emit_digits(digits, step);
}

// What a loop counts: its variable, or the first of four values of it.
std::string Emitter::number_of(const Loop& loop) {
    return plan_.wide(loop) != nullptr ? local_name(var(loop.var) + "_first") : var(loop.var);
}

// One iteration, or four of them below `end`.
void Emitter::emit_iteration(const Loop& loop, const std::string& end) {
    const loopir::Block& block = loop.body.front();
    const WideAccesses* accesses = plan_.wide(loop);
    if (accesses == nullptr) return emit_statements(block);
    if (fuses_) find_fused(block);
    const bool whole = !loop.limit && !exact_div(loop.extent, Dim(wide_count)).is_unknown();
    const std::string first = number_of(loop);
    const std::string left = whole ? "" : emit_left(first, end);
    const AxisGroup iterations(Axis{loop.var, loop.extent});
    emit_four({*accesses, iterations, first, left, true}, [&] { emit_statements(block); });
}

std::string Emitter::end_of(const Loop& loop) {
    note_magnitude(extent(loop.var));
    const std::string whole = dim_text(loop.extent, false);
    if (!loop.limit) return whole;
    const std::string name = names_.unique(concat(var(loop.var), "_end"), "end");
    const bool wide = !fits_narrow(*loop.limit);
    std::string limit = index_text(*loop.limit, wide);
    const DType computed = wide ? DType::int64 : DType::int32;
    if (loop.limit->is_constant()) limit = concat(type(computed), "(", limit, ")");
    std::string text = concat("min(", limit, ", ", type(computed), "(", whole, "))");
    // A limit that comes from memory may be far below 0.
    if (wide && narrow_) { text = concat(index_type(), "(max(", text, ", ", dialect_.integer(0, DType::int64), "))"); }
    line(concat("const ", index_type(), " ", name, " = ", text, ";"));
    return name;
}

void Emitter::emit_iterations(const Loop& loop) {
    const bool spread = plan_.role(loop) == GridPlan::Role::spread;
    const LoopStack nest = spread ? plan_.nest(loop) : LoopStack{&loop};
    std::string end;
    if (nest.size() > 1) {
        emit_nest(nest);
    } else {
        end = end_of(loop);
        const int together = plan_.wide(loop) != nullptr ? wide_count : 1;
        const std::string name = number_of(loop);
        const std::string times = together > 1 ? concat(" * ", together) : "";
        const std::string first = spread ? concat(index_type(), "(thread_index)", times) : "0";
        const std::string step = spread ? concat(name, " += ", plan_.group_threads() * together) : "++" + name;
        open(concat("for (", index_type(), " ", name, " = ", first, "; ", name, " < ", end, "; ", step, ")"));
    }
    // What an accumulator holds inside is not what it holds before the loop.
    const std::set<int> fresh = std::exchange(fresh_, {});
    declared_.emplace_back();
    emit_iteration(loop, end);
    declared_.pop_back();
    fresh_ = fresh;
    for (const int accumulator : facts_.of(loop).accumulated) fresh_.erase(accumulator);
    for (const int accumulator : facts_.of(loop).initialised) fresh_.erase(accumulator);
    close();
}

}  // namespace topstitch::codegen
