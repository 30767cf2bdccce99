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
            return emit_statements(loop.body.front());  // the block of such a loop is the function's
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
        const std::size_t last = plan_.groups() ? grid.size() : grid.size() - 1;
        for (std::size_t k = last; k-- > place + 1;) text += concat(" / ", dim_text(grid[k]->extent, false));
        if (place > 0) text += concat(" % ", dim_text(loop.extent, false));
    }
    line(concat("const ", index_type(), " ", var(loop.var), " = ", text, ";"));
    // Groups of threads may reach past the end of a grid; digits of y other than the first cannot.
    if (!plan_.groups() && (by_x || place == 0)) {
        line(concat("if (", var(loop.var), " >= ", dim_text(loop.extent, false), ") return;"));
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
    for (std::size_t k = 0; k < nest.size(); ++k) {
        std::string digit = step;
        for (std::size_t inner = nest.size(); inner-- > k + 1;) {
            digit += concat(" / ", dim_text(nest[inner]->extent, false));
        }
        if (k > 0) digit += concat(" % ", dim_text(nest[k]->extent, false));
        line(concat("const ", index_type(), " ", var(nest[k]->var), " = ", digit, ";"));
    }
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
    if (nest.size() > 1) {
        emit_nest(nest);
    } else {
        const std::string end = end_of(loop);
        const std::string& name = var(loop.var);
        const std::string first = spread ? concat(index_type(), "(thread_index)") : "0";
        const std::string step = spread ? concat(name, " += ", plan_.group_threads()) : "++" + name;
        open(concat("for (", index_type(), " ", name, " = ", first, "; ", name, " < ", end, "; ", step, ")"));
    }
    // What an accumulator holds inside is not what it holds before the loop.
    const std::set<int> fresh = std::exchange(fresh_, {});
    emit_block(loop.body.front());
    fresh_ = fresh;
    for (const int accumulator : facts_.of(loop).accumulated) fresh_.erase(accumulator);
    for (const int accumulator : facts_.of(loop).initialised) fresh_.erase(accumulator);
    close();
}

}  // namespace topstitch::codegen
