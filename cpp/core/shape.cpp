// Shapes: construction with checks, their product and their text.
// The algebra of single dims is in dim.cpp.
#include "topstitch/shape.h"

#include "core/checked.h"
#include "topstitch/error.h"

namespace topstitch {

namespace {

// A dim of -1 is one that is not known yet.
void check_dims(std::vector<Dim>& dims) {
    if (dims.size() > static_cast<std::size_t>(max_rank)) {
        throw UserError(concat("shape: ", dims.size(), " dims were given; at most ", max_rank,
                               " are supported, so merge some with reshape"));
    }
    for (std::size_t axis = 0; axis < dims.size(); ++axis) {
        if (!dims[axis].is_known() || dims[axis].value() >= 0) continue;
        if (dims[axis].value() != -1) {
            throw UserError(concat("shape: dim ", axis, " is ", dims[axis].value(),
                                   "; a dim must be 0 or more, or -1 when it is known only at run time"));
        }
        dims[axis] = Dim::unknown();
    }
}

}  // namespace

Shape::Shape(std::initializer_list<Dim> dims) : Shape(std::vector<Dim>(dims)) {}

Shape::Shape(std::vector<Dim> dims) : dims_(std::move(dims)) {
    check_dims(dims_);
}

Shape Shape::of(const Sizes& sizes) {
    for (std::int64_t size : sizes) {
        if (size < 0) throw UserError(concat("shape: an array has no dim of ", size, "; its dims must be 0 or more"));
    }
    return Shape(std::vector<Dim>(sizes.begin(), sizes.end()));
}

Shape Shape::unranked() {
    Shape shape;
    shape.ranked_ = false;
    return shape;
}

int Shape::rank() const {
    internal_check(ranked_, "Shape::rank() of an unranked shape");
    return static_cast<int>(dims_.size());
}

bool Shape::is_known() const {
    if (!ranked_) return false;
    for (const Dim& dim : dims_) {
        if (!dim.is_known()) return false;
    }
    return true;
}

Dim Shape::num_elements() const {
    if (!ranked_) return Dim::unknown();
    Dim product = 1;
    for (const Dim& dim : dims_) {
        if (dim.is_known() && dim.value() == 0) return 0;  // whatever the others are
    }
    for (const Dim& dim : dims_) product = product * dim;
    return product;
}

std::optional<Sizes> Shape::sizes() const {
    if (!is_known()) return std::nullopt;
    Sizes sizes;
    sizes.reserve(dims_.size());
    for (const Dim& dim : dims_) sizes.push_back(dim.value());
    return sizes;
}

std::string Shape::str() const {
    if (!ranked_) return "(?...)";
    std::string text = "(";
    for (std::size_t axis = 0; axis < dims_.size(); ++axis) {
        if (axis > 0) text += ", ";
        text += dims_[axis].str();
    }
    if (dims_.size() == 1) text += ",";
    return text + ")";
}

std::int64_t num_elements(const Sizes& sizes) {
    for (const std::int64_t size : sizes) {
        if (size == 0) return 0;
    }
    std::int64_t product = 1;
    for (const std::int64_t size : sizes) {
        const auto next = checked_mul(product, size);
        if (!next)
            throw UserError(
                concat("shape: ", sizes_str(sizes), " is too large: its number of elements does not fit in 63 bits"));
        product = *next;
    }
    return product;
}

std::string sizes_str(const Sizes& sizes) {
    std::string text = "(";
    for (std::size_t axis = 0; axis < sizes.size(); ++axis) {
        if (axis > 0) text += ", ";
        text += std::to_string(sizes[axis]);
    }
    if (sizes.size() == 1) text += ",";
    return text + ")";
}

int normalize_axis(std::int64_t axis, int rank, const std::string& what) {
    if (axis < -rank || axis >= rank) {
        if (rank == 0)
            throw UserError(concat(what, ": axis ", axis, " was given, but the tensor is a scalar, which has no axes"));
        throw UserError(concat(what, ": axis ", axis, " is out of range for ", rank, (rank == 1 ? " dim" : " dims"),
                               "; allowed are ", -rank, " to ", rank - 1));
    }
    return static_cast<int>(axis < 0 ? axis + rank : axis);
}

}  // namespace topstitch
