// Variables of loops that are counted through as one number: rows, columns and steps of a product.
// The most significant digit comes first.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "loopir/index.h"

namespace topstitch::codegen {

struct Axis {
    loopir::VarId var = -1;
    Dim extent;
};

class AxisGroup {
public:
    AxisGroup() = default;
    explicit AxisGroup(Axis axis) : axes_{std::move(axis)} {}
    void add(const Axis& axis) { axes_.push_back(axis); }
    const std::vector<Axis>& axes() const { return axes_; }
    bool empty() const { return axes_.empty(); }
    const Axis& last() const { return axes_.back(); }
    // How many values the number has, if that is known.
    std::optional<std::int64_t> count() const;
    // Whether that is a multiple of `number`, whatever the sizes.
    bool is_multiple_of(std::int64_t number) const;
    // Whether the index grows by 1 with the number: neighbours by it are neighbours in memory.
    bool is_contiguous(const loopir::Index& index) const;

private:
    std::vector<Axis> axes_;
};

}  // namespace topstitch::codegen
