// Counts of variables that are counted through as one; see axis_group.h.
// What is not known of a size is known of none of its products.
#include "codegen/axis_group.h"

namespace topstitch::codegen {

std::optional<std::int64_t> AxisGroup::count() const {
    Dim count = 1;
    for (const Axis& axis : axes_) count = count * axis.extent;
    return count.is_known() ? std::optional(count.value()) : std::nullopt;
}

bool AxisGroup::is_multiple_of(std::int64_t number) const {
    Dim count = 1;
    for (const Axis& axis : axes_) count = count * axis.extent;
    return !exact_div(count, Dim(number)).is_unknown();
}

bool AxisGroup::is_contiguous(const loopir::Index& index) const {
    Dim step = 1;
    for (auto axis = axes_.rbegin(); axis != axes_.rend(); ++axis) {
        if (index.coefficient_of(axis->var) != step) return false;
        step = step * axis->extent;
    }
    return true;
}

}  // namespace topstitch::codegen
