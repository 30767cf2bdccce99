// Loops with running values, shared out among the threads of a group: see prefix_loop.h.
// An accumulator keeps its name between such loops, where it is the same in all threads.
#include <utility>

#include "codegen/emitter.h"
#include "topstitch/error.h"

namespace topstitch::codegen {

using loopir::Loop;

namespace {

// Neighbouring iterations of one thread: as many as make joining cheap beside them.
constexpr int most_together = wide_count;
// Products of floats: how large the part of a thread may be, or its inverse, so that it stays in range after what is
// before.
constexpr float most_in_part = 0x1p30F;

int iterations_together(const Loop& loop, int threads) {
    int together = most_together;
    while (together > 1 && loop.extent.is_known() && loop.extent.value() * 2 <= std::int64_t{threads} * together)
        together /= 2;
    return together;
}

}  // namespace

void Emitter::emit_prefix(const Loop& loop, const PrefixLoop& prefix) {
    if (fuses_) find_fused(loop.body.front());
    const int together = iterations_together(loop, plan_.group_threads());
    const int step = plan_.group_threads() * together;
    const std::string end = end_of(loop);
    const std::string name = var(loop.var);
    const std::string last = local_name(name + "_last");
    const std::string index = index_type();
    const std::string below = narrow_ ? end : concat(index, "(", end, ")");
    Chunk chunk{loop, prefix, local_name(name + "_chunk"), "", local_name(name + "_first"), "", nullptr, ""};
    if (together == wide_count) chunk.wide = plan_.wide(loop);
    chunk.end = concat("min(", chunk.begin, " + ", step, ", ", below, ")");
    chunk.own = concat("for (", index, " ", name, " = ", chunk.first, "; ", name, " < ", last, "; ++", name, ")");
    open(concat("for (", index, " ", chunk.begin, " = 0; ", chunk.begin, " < ", end, "; ", chunk.begin, " += ", step,
                ")"));
    line(concat("const ", index, " ", chunk.first, " = ", chunk.begin, " + ", index, "(thread_index)",
                together > 1 ? concat(" * ", together) : "", ";"));
    const bool whole = !loop.limit && !exact_div(loop.extent, Dim(step)).is_unknown();
    if (chunk.wide == nullptr) {
        line(concat("const ", index, " ", last, " = min(", chunk.first, " + ", together, ", ", below, ");"));
    } else if (!whole) {
        chunk.left = emit_left(chunk.first, end);
    }

    const std::set<int> fresh = std::exchange(fresh_, {});
    for (std::size_t k = 0; k < prefix.steps.size(); ++k) emit_parts(chunk, k);
    for (const int accumulator : prefix.steps.back().accumulated) running_[accumulator] = of_acc(accumulator, "part");
    declared_.emplace_back();
    emit_own(chunk, nullptr, [&] { emit_statements(loop.body.front()); });
    declared_.pop_back();
    running_.clear();
    fresh_ = fresh;
    for (const int accumulator : facts_.of(loop).accumulated) fresh_.erase(accumulator);
    close();
}

// The iterations of each thread: all of them, or what of them is needed to find `parts`.
void Emitter::emit_own(const Chunk& chunk, const PrefixLoop::Step* parts, const std::function<void()>& each) {
    if (chunk.wide == nullptr) {
        open(chunk.own);
        each();
        return close();
    }
    WideAccesses accesses = *chunk.wide;
    if (parts != nullptr) {
        std::erase_if(accesses.loads, [&](loopir::ValueId load) { return !parts->values.contains(load); });
        accesses.stores.clear();
    }
    const AxisGroup iterations(Axis{chunk.loop.var, chunk.loop.extent});
    emit_four({accesses, iterations, chunk.first, chunk.left, true}, each);
}

// What the iterations of each thread come to, and then what they go on from.
void Emitter::emit_parts(const Chunk& chunk, std::size_t step) {
    const PrefixLoop::Step& parts = chunk.prefix.steps[step];
    for (const int accumulator : parts.found) {
        running_[accumulator] = of_acc(accumulator, "part");
        declare(accumulator);
        if (chunk.prefix.checked.contains(accumulator))
            line(concat(type(DType::boolean), " ", of_acc(accumulator, "safe"), " = true;"));
    }
    // Running values of earlier steps, which the iterations will go through again.
    if (step > 0) open("");
    for (const int accumulator : parts.accumulated) {
        if (running_.contains(accumulator)) continue;
        const std::string start = of_acc(accumulator, "part");
        running_[accumulator] = of_acc(accumulator, "now");
        declare(accumulator, start);
    }
    emit_own(chunk, &parts, [&] {
        emit_part_statements(chunk, parts);
        for (const int accumulator : chunk.prefix.checked) {
            const std::string safe = of_acc(accumulator, "safe");
            line(concat(safe, " = ", safe, " && ", helpers_.use({Helper::is_moderate, acc_type(accumulator)}), "(",
                        acc_name(accumulator), ", ", dialect_.real(most_in_part), ");"));
        }
    });
    if (step > 0) close();
    running_.clear();
    for (const int accumulator : parts.found) {
        if (chunk.prefix.checked.contains(accumulator)) {
            join_checked(chunk, accumulator);
        } else {
            join_prefix(accumulator, acc_name(accumulator));
        }
    }
}

void Emitter::emit_part_statements(const Chunk& chunk, const PrefixLoop::Step& parts) {
    for (const loopir::Stmt& stmt : chunk.loop.body.front().stmts) {
        if (const auto* let = std::get_if<loopir::Let>(&stmt)) {
            if (parts.values.contains(let->value)) emit(*let);
        } else if (const auto* accumulate = std::get_if<loopir::Accumulate>(&stmt)) {
            if (parts.accumulated.contains(accumulate->accumulator)) emit(*accumulate);
        }
    }
}

// The part of each thread becomes what its iterations go on from, and `carry` what the next chunk does.
void Emitter::join_prefix(int accumulator, const std::string& carry, const std::string& safe) {
    const DType type = acc_type(accumulator);
    const loopir::Combiner combiner = kernel_.accumulators[static_cast<std::size_t>(accumulator)].combiner;
    const bool second = has_second(accumulator);
    std::string arguments;
    for (const std::string& name : {carry, of_acc(accumulator, "part")})
        arguments += concat(name, ", ", second ? concat(name, "_at, ") : "");
    if (!safe.empty()) arguments += safe + ", ";
    if (is_joined_in_memory()) {
        joined_types_.insert(type);
        joins_positions_ |= second;
        arguments += concat("shared_", this->type(type), ", ", second ? "shared_position, " : "", "lane, simdgroup");
    } else {
        arguments += "lane";
    }
    line(concat(helpers_.use({Helper::prefix, type, combiner}), "(", arguments, ");"));
}

// Where a number came near the ends of the range in any thread, all threads take the chunk in order.
void Emitter::join_checked(const Chunk& chunk, int accumulator) {
    const std::string carry = acc_name(accumulator);
    const std::string part = of_acc(accumulator, "part");
    const std::string next = of_acc(accumulator, "next");
    const std::string safe = of_acc(accumulator, "safe");
    line(concat(type(acc_type(accumulator)), " ", next, " = ", carry, ";"));
    join_prefix(accumulator, next, safe);
    std::string arguments = safe;
    if (is_joined_in_memory()) {
        joined_types_.insert(DType::boolean);
        arguments += concat(", shared_", type(DType::boolean), ", lane, simdgroup");
    }
    const std::string all = helpers_.use({Helper::join, DType::boolean, loopir::Combiner::logical_and});
    open(concat("if (", all, "(", arguments, "))"));
    line(concat(carry, " = ", next, ";"));
    open_else();
    const std::string& name = var(chunk.loop.var);
    const std::string stop = local_name(name + "_stop");
    line(concat("const ", index_type(), " ", stop, " = ", chunk.end, ";"));
    open(concat("for (", index_type(), " ", name, " = ", chunk.begin, "; ", name, " < ", stop, "; ++", name, ")"));
    line(concat("if (", name, " == ", chunk.first, ") ", part, " = ", carry, ";"));
    PrefixLoop::Step alone = chunk.prefix.steps.front();
    alone.accumulated = {accumulator};
    emit_part_statements(chunk, alone);
    close();
    // Elements of other threads have been read.
    line(dialect_.barrier(true));
    close();
}

}  // namespace topstitch::codegen
