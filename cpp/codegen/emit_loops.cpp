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
            return emit_spread(loop);
        case GridPlan::Role::serial: {
            if (in_team()) return emit_steps_of_team(loop);
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

void Emitter::emit_spread(const Loop& loop) {
    order_before(loop);
    begin_parts(loop);
    in_spread_ = true;
    if (const MatrixNest* nest = plan_.matrices(loop)) {
        emit_matrices(*nest);
    } else if (const PrefixLoop* prefix = plan_.prefix(loop)) {
        emit_prefix(loop, *prefix);
    } else if (plan_.team(loop) > 1) {
        // Barriers inside are those of the team.
        const std::set<int> read = std::exchange(read_, {});
        const std::set<int> written = std::exchange(written_, {});
        team_ = plan_.team(loop);
        emit_iterations(loop);
        team_ = 1;
        read_ = read;
        written_ = written;
    } else {
        emit_iterations(loop);
    }
    in_spread_ = false;
    join_parts(loop);
}

// The lanes of a team take turns, and join what they have accumulated.
void Emitter::emit_steps_of_team(const Loop& loop) {
    order_before(loop);
    const int lanes = std::exchange(team_, 1);
    const std::string name = number_of(loop);
    const std::string end = end_of(loop);
    open(concat("for (", index_type(), " ", name, " = ", index_type(), "(thread_index) % ", lanes, "; ", name, " < ",
                end, "; ", name, " += ", lanes, ")"));
    declared_.emplace_back();
    emit_statements(loop.body.front());
    declared_.pop_back();
    close();
    team_ = lanes;
    for (const int accumulator : facts_.of(loop).accumulated) {
        fresh_.erase(accumulator);
        const std::string sum = acc_name(accumulator);
        const std::string& distance = local_name("distance");
        const loopir::Accumulator& acc = kernel_.accumulators[static_cast<std::size_t>(accumulator)];
        open(concat("for (", type(DType::uint16), " ", distance, " = ", lanes / 2, "; ", distance, " > 0; ", distance,
                    " /= 2)"));
        const std::string& other = local_name("other");
        line(concat("const ", type(acc.type), " ", other, " = ", dialect_.exchanged(acc.type, sum, distance), ";"));
        line(concat(sum, " = ", helpers_.combined(acc.combiner, acc.type, sum, other), ";"));
        close();
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

// The beginning of several loops that are counted through as one; by what is returned.
std::string Emitter::open_nest(const LoopStack& nest) {
    SizeExpr iterations = 1;
    for (const Loop* loop : nest) iterations = iterations * extent(loop->var);
    note_magnitude(iterations);
    std::string end;
    for (const Loop* loop : nest) end += (end.empty() ? "" : " * ") + dim_text(loop->extent, false);
    const std::string step = names_.unique("step", "step");
    const int together = plan_.wide(*nest.front()) != nullptr ? wide_count : 1;
    open(concat("for (", index_type(), " ", step, " = ", index_type(), "(thread_index)",
                together > 1 ? concat(" * ", together) : "", "; ", step, " < ", end, "; ", step,
                " += ", plan_.group_threads() * together, ")"));
    return step;
}

void Emitter::emit_in_nest(const LoopStack& nest, const std::string& step) {
    const WideAccesses* accesses = plan_.wide(*nest.front());
    AxisGroup digits;
    for (const Loop* loop : nest) digits.add({loop->var, loop->extent});
    const loopir::Block& block = nest.front()->body.front();
    if (accesses == nullptr) {
        emit_digits(digits, step);
        return emit_statements(block);
    }
    if (fuses_) find_fused(nest.back()->body.front());
    emit_four({*accesses, digits, step}, [&] { emit_statements(block); });
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
    std::string step_of_nest;
    if (nest.size() > 1) {
        step_of_nest = open_nest(nest);
    } else {
        end = end_of(loop);
        const int together = plan_.wide(loop) != nullptr ? wide_count : 1;
        const std::string name = number_of(loop);
        const std::string times = together > 1 ? concat(" * ", together) : "";
        const int lanes = plan_.team(loop);
        const std::string rank = lanes > 1 ? concat(" / ", lanes) : times;
        const std::string first = spread ? concat(index_type(), "(thread_index)", rank) : "0";
        const std::string step = spread ? concat(name, " += ", plan_.group_threads() * together / lanes) : "++" + name;
        open(concat("for (", index_type(), " ", name, " = ", first, "; ", name, " < ", end, "; ", step, ")"));
    }
    // What an accumulator holds inside is not what it holds before the loop.
    const std::set<int> fresh = std::exchange(fresh_, {});
    declared_.emplace_back();
    if (nest.size() > 1) {
        emit_in_nest(nest, step_of_nest);
    } else {
        emit_iteration(loop, end);
    }
    declared_.pop_back();
    fresh_ = fresh;
    for (const int accumulator : facts_.of(loop).accumulated) fresh_.erase(accumulator);
    for (const int accumulator : facts_.of(loop).initialised) fresh_.erase(accumulator);
    close();
}

}  // namespace topstitch::codegen
