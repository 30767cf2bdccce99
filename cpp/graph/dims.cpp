// When two dims may be the same number, what they then are, and NumPy's broadcasting of dims and shapes.
// While building, everything possible is accepted; during specialisation the present values decide.
#include "graph/dims.h"

#include <algorithm>

#include "graph/apply.h"

namespace topstitch {

namespace {

thread_local DimAssumptions* current_assumptions = nullptr;

// The number to decide with during specialisation; none for an unknown dim.
std::optional<std::int64_t> present_value(const Dim& dim) {
    if (dim.is_known()) return dim.value();
    if (dim.is_unknown()) return std::nullopt;
    return current_assumptions->hint(dim);
}

bool is_number(const Dim& dim, std::int64_t value) {
    return dim.is_known() && dim.value() == value;
}

// Decides with the present values; false in `decided` when one of the dims has none.
struct Decision {
    bool decided = false;
    bool possible = false;
};

Decision broadcast_by_value(const Dim& a, const Dim& b, Dim& result) {
    const auto value_a = present_value(a);
    const auto value_b = present_value(b);
    if (!value_a || !value_b) return {};
    if (*value_a == *value_b) {
        current_assumptions->assume_equal(a, b);
        result = unify_dims(a, b);
    } else if (*value_a == 1) {
        current_assumptions->assume_equal(a, 1);
        result = b;
    } else if (*value_b == 1) {
        current_assumptions->assume_equal(b, 1);
        result = a;
    } else {
        return {true, false};
    }
    return {true, true};
}

}  // namespace

ScopedDimAssumptions::ScopedDimAssumptions(DimAssumptions* assumptions) : previous_(current_assumptions) {
    current_assumptions = assumptions;
}

ScopedDimAssumptions::~ScopedDimAssumptions() {
    current_assumptions = previous_;
}

bool dims_agree(const Dim& a, const Dim& b) {
    if (a.is_unknown() || b.is_unknown()) return true;
    const Dim difference = a - b;
    if (difference.is_known()) return difference.value() == 0;
    if (current_assumptions == nullptr) return true;
    if (*present_value(a) != *present_value(b)) return false;
    current_assumptions->assume_equal(a, b);
    return true;
}

Dim unify_dims(const Dim& a, const Dim& b) {
    if (a.is_known()) return a;
    if (b.is_known()) return b;
    return a.is_unknown() ? b : a;
}

bool broadcast_dims(const Dim& a, const Dim& b, Dim& result) {
    if (is_number(a, 1) || a == b) {
        result = b;
        return true;
    }
    if (is_number(b, 1)) {
        result = a;
        return true;
    }
    if (a.is_known() && b.is_known()) return false;
    if (current_assumptions != nullptr) {
        const Decision decision = broadcast_by_value(a, b, result);
        if (decision.decided) return decision.possible;
    }
    // A number other than 1 is the result whatever the other turns out to be; otherwise either may be 1.
    result = a.is_known() ? a : b.is_known() ? b : Dim::unknown();
    return true;
}

Shape broadcast_shapes(const OpView& op, const Shape& a, const Shape& b) {
    if (!a.has_rank() || !b.has_rank()) return Shape::unranked();
    const int rank = std::max(a.rank(), b.rank());
    std::vector<Dim> dims(static_cast<std::size_t>(rank));
    for (int axis = 0; axis < rank; ++axis) {
        const int axis_a = axis - (rank - a.rank());
        const int axis_b = axis - (rank - b.rank());
        const Dim dim_a = axis_a < 0 ? Dim(1) : a[axis_a];
        const Dim dim_b = axis_b < 0 ? Dim(1) : b[axis_b];
        if (!broadcast_dims(dim_a, dim_b, dims[static_cast<std::size_t>(axis)])) {
            op.fail(
                concat("the shapes ", a.str(), " and ", b.str(), " do not broadcast together: ", dim_a.str(), " meets ",
                       dim_b.str(), " at axis ", axis - rank,
                       "; counted from the end, dims must be equal or one of them 1 (see reshape and expand_dims)"));
        }
    }
    return Shape(std::move(dims));
}

Dim dims_quotient(const Dim& dim, const Dim& divisor) {
    if (dim == divisor) return 1;
    if (dim_is_one(divisor)) return dim;
    if (dim.is_unknown() || divisor.is_unknown() || is_number(divisor, 0)) return Dim::unknown();
    const Dim quotient = floor_div(dim, divisor);
    if (quotient * divisor == dim) return quotient;
    if (current_assumptions == nullptr) return Dim::unknown();
    const std::int64_t value = *present_value(dim);
    const std::int64_t parts = *present_value(divisor);
    if (parts == 0 || value % parts != 0) return Dim::unknown();
    current_assumptions->assume_equal(dim, divisor * Dim(value / parts));
    return value / parts;
}

bool shapes_agree(const Shape& a, const Shape& b) {
    if (!a.has_rank() || !b.has_rank()) return true;
    if (a.rank() != b.rank()) return false;
    for (int axis = 0; axis < a.rank(); ++axis) {
        if (!dims_agree(a[axis], b[axis])) return false;
    }
    return true;
}

bool dim_is_one(const Dim& dim) {
    if (dim.is_known()) return dim.value() == 1;
    if (current_assumptions == nullptr || dim.is_unknown()) return false;
    if (current_assumptions->hint(dim) != 1) return false;
    current_assumptions->assume_equal(dim, 1);
    return true;
}

}  // namespace topstitch
