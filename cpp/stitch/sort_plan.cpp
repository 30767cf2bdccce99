// Chooses how the rows of a sort are put in order: by counting, by digits, or by keeping the best.
// See SortPlan in schedule.h.
#include <algorithm>
#include <bit>

#include "stitch/schedule.h"

namespace topstitch::stitch {

namespace {

constexpr std::int64_t longest_ranked = 96;      // comparing all with all is faster than counting digits
constexpr std::int64_t most_selected = 64;       // of a row, kept in order while the rest is looked through
constexpr std::int64_t selection_ratio = 8;      // elements for each that is kept
constexpr std::int64_t worth_wide_digits = 512;  // elements, for which tables of many counters pay
constexpr std::int64_t worth_chunks = 1 << 16;   // elements of a row, to be shared among threads
constexpr int narrow_digit = 8;
constexpr int wide_digit = 11;
constexpr int chunks_for_each_thread = 2;
// For machines with groups of threads.
constexpr std::int64_t largest_block = 1024;
constexpr std::int64_t smallest_block = 256;  // of rows of any length

std::int64_t power_above(std::int64_t number) {
    return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(number, 1))));
}

// Two copies of a block, with positions, are in the memory of the group.
SortPlan choose_merges(const TensorType& type, const Dim& length, const Dim& count, std::int64_t elements,
                       std::int64_t group_bytes) {
    SortPlan plan;
    plan.method = SortPlan::Method::merges;
    const std::int64_t bytes = static_cast<std::int64_t>(size_of(type.dtype) + sizeof(std::int32_t));
    const std::int64_t room = power_above(group_bytes / (2 * bytes) + 1) / 2;
    const std::int64_t wanted = power_above(length.is_known() ? length.value() : std::max(elements, smallest_block));
    plan.block = std::min({wanted, room, largest_block});
    const bool few = count.is_known() && !(count == length) && count.value() <= most_selected;
    if (few && elements >= selection_ratio * count.value()) plan.kept = power_above(count.value());
    return plan;
}

}  // namespace

SortPlan choose_sort(const Program& program, OpId op, const StitchOptions& options, const Machine& machine) {
    const OpNode& node = program.graph->op(op);
    const NodeView view(*program.graph, node);
    const int axis = std::get<SortBody>(node.def->body).axis(view.view);
    const TensorType& type = view.inputs[0];
    const Dim& length = type.shape[axis];
    const Dim& count = node.outputs[0].shape[axis];
    const std::int64_t elements = options.estimate(length);
    if (machine.group_bytes > 0) return choose_merges(type, length, count, elements, machine.group_bytes);
    SortPlan plan;
    if (length.is_known() && length.value() <= longest_ranked) return plan;
    if (count.is_known() && count.value() <= most_selected && elements >= selection_ratio * count.value()) {
        plan.method = SortPlan::Method::selection;
        return plan;
    }
    plan.method = SortPlan::Method::digits;
    const int bits = type.dtype == DType::boolean ? 1 : 8 * static_cast<int>(size_of(type.dtype));
    plan.digit_bits = bits >= 32 && elements >= worth_wide_digits ? wide_digit : narrow_digit;
    plan.digits = (bits + plan.digit_bits - 1) / plan.digit_bits;
    std::int64_t rows = 1;
    for (int k = 0; k < type.shape.rank(); ++k) rows *= k == axis ? 1 : options.estimate(type.shape[k]);
    if (rows < machine.threads && elements >= worth_chunks) plan.chunks = machine.threads * chunks_for_each_thread;
    return plan;
}

std::string str(const SortPlan& plan) {
    switch (plan.method) {
        case SortPlan::Method::ranks:
            return "parallel row: the rank of each element is counted";
        case SortPlan::Method::selection:
            return "parallel row: the best are kept in order";
        case SortPlan::Method::merges: {
            const std::string blocks =
                concat("parallel block(", plan.block, ") of each row, in the memory of a group: ");
            if (plan.kept > 0) return concat(blocks, "its first ", plan.kept, " are kept, and sorted again");
            return concat(blocks, "each element searches the other runs for its place");
        }
        case SortPlan::Method::digits:
            break;
    }
    const std::string digits = concat(plan.digits, " digits of ", plan.digit_bits, " bits, the least first");
    if (plan.chunks > 1) return concat("parallel chunk(", plan.chunks, ") of each row: by ", digits);
    return concat("parallel row: by ", digits);
}

}  // namespace topstitch::stitch
