// Loops with running values, shared out among the threads of a group: see prefix_loop.h.
// An accumulator keeps its name between such loops, where it is the same in all threads.
#include <utility>

#include "codegen/emitter.h"
#include "topstitch/error.h"

namespace topstitch::codegen {

using loopir::Loop;

namespace {

// Neighbouring iterations of one thread: as many as make joining cheap beside them.
constexpr int most_together = 4;

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
    const std::string end = end_of(loop);
    const std::string name = var(loop.var);
    const std::string chunk = local_name(name + "_chunk");
    const std::string first = local_name(name + "_first");
    const std::string last = local_name(name + "_last");
    const std::string index = index_type();
    open(concat("for (", index, " ", chunk, " = 0; ", chunk, " < ", end, "; ", chunk,
                " += ", plan_.group_threads() * together, ")"));
    line(concat("const ", index, " ", first, " = ", chunk, " + ", index, "(thread_index)",
                together > 1 ? concat(" * ", together) : "", ";"));
    line(concat("const ", index, " ", last, " = min(", first, " + ", together, ", ",
                narrow_ ? end : concat(index, "(", end, ")"), ");"));
    const std::string iterations =
        concat("for (", index, " ", name, " = ", first, "; ", name, " < ", last, "; ++", name, ")");

    for (std::size_t step = 0; step < prefix.steps.size(); ++step) emit_parts(loop, prefix, step, iterations);

    for (const int accumulator : prefix.steps.back().accumulated) {
        running_[accumulator] = acc_name(accumulator) + "_part";
        fresh_.erase(accumulator);
    }
    const std::set<int> fresh = std::exchange(fresh_, {});
    open(iterations);
    declared_.emplace_back();
    emit_statements(loop.body.front());
    declared_.pop_back();
    close();
    running_.clear();
    fresh_ = fresh;
    for (const int accumulator : facts_.of(loop).accumulated) fresh_.erase(accumulator);
    close();
}

// What the iterations of each thread come to, and then what they go on from.
void Emitter::emit_parts(const Loop& loop, const PrefixLoop& prefix, std::size_t step, const std::string& iterations) {
    const PrefixLoop::Step& parts = prefix.steps[step];
    for (const int accumulator : parts.found) {
        running_[accumulator] = acc_name(accumulator) + "_part";
        declare(accumulator);
    }
    // Running values of earlier steps, which the iterations will go through again.
    if (step > 0) open("");
    for (const int accumulator : parts.accumulated) {
        if (running_.contains(accumulator)) continue;
        const std::string start = acc_name(accumulator) + "_part";
        running_[accumulator] = acc_name(accumulator) + "_now";
        declare(accumulator, start);
    }
    const std::set<int> fresh = std::exchange(fresh_, {});
    open(iterations);
    for (const loopir::Stmt& stmt : loop.body.front().stmts) {
        if (const auto* let = std::get_if<loopir::Let>(&stmt)) {
            if (parts.values.contains(let->value)) emit(*let);
        } else if (const auto* accumulate = std::get_if<loopir::Accumulate>(&stmt)) {
            if (parts.accumulated.contains(accumulate->accumulator)) emit(*accumulate);
        }
    }
    close();
    fresh_ = fresh;
    if (step > 0) close();
    running_.clear();
    for (const int accumulator : parts.found) join_prefix(accumulator);
}

void Emitter::join_prefix(int accumulator) {
    const DType type = acc_type(accumulator);
    const loopir::Combiner combiner = kernel_.accumulators[static_cast<std::size_t>(accumulator)].combiner;
    const bool second = has_second(accumulator);
    const auto numbers = [&] {
        return concat(acc_name(accumulator), second ? concat(", ", second_name(accumulator)) : "");
    };
    std::string arguments = numbers();
    running_[accumulator] = acc_name(accumulator) + "_part";
    arguments += ", " + numbers();
    running_.erase(accumulator);
    if (plan_.group_threads() > dialect_.limits().simd_width) {
        joined_types_.insert(type);
        joins_positions_ |= second;
        arguments += concat(", shared_", this->type(type), second ? ", shared_position" : "", ", lane, simdgroup");
    } else {
        arguments += ", lane";
    }
    line(concat(helpers_.use({Helper::prefix, type, combiner}), "(", arguments, ");"));
}

}  // namespace topstitch::codegen
