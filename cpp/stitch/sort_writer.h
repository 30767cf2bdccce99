// The pieces of a sort's kernels: rows, keys in the order of unsigned integers, where elements come from and go.
// Which kernels a method consists of is the business of lower_sort.cpp.
#pragma once

#include "stitch/kernel_writer.h"

namespace topstitch::stitch {

// Writes one kernel of a sort. Rows lie along the sorted axis; whatever is stitched to it is computed where it is read.
class SortWriter : public KernelWriter {
public:
    SortWriter(const Program& program, const Partition& partition, const Region& region, const Schedule& schedule,
               const std::map<OpId, TensorRef>& in_place, LoweredRegion& result);

    Dim rows() const;
    Dim work() const;

protected:
    Index region_var(loopir::VarId var) const override { return vars_[static_cast<std::size_t>(var)]; }

    // --- Rows.

    // A parallel loop over `parts` of each row; gives the number of the part.
    Index begin_rows(const Dim& parts);
    const Index& row() const { return row_; }
    Index in_row(const Index& position) const { return row_ * length_ + position; }  // of scratch memory

    // --- Keys.

    DType key_type() const;
    int key_bits() const;
    // An unsigned integer: the smaller, the earlier in the result. Equal elements have equal keys.
    ValueId key_of(ValueId value);

    // --- Elements.

    // What is sorted, or where it came from.
    struct Item {
        ValueId value = loopir::no_value;
        ValueId place = loopir::no_value;  // int32
    };
    // Memory that holds items between passes; without buffers, they are the elements of the input.
    struct Items {
        int values = -1;
        int places = -1;
    };
    ValueId element_at(const Index& position);
    Item item_at(const Items& items, const Index& at, const Index& position);
    void store_item(const Items& to, const Index& at, const Item& item, ValueId guard = loopir::no_value);
    // Only what comes first in the row is asked for.
    void store_result(const Index& position, const Item& item, ValueId guard = loopir::no_value);
    ValueId place_value(const Index& position) { return b_.cast(b_.index_value(position), DType::int32); }
    Index index_of(ValueId number) { return Index::value(b_.cast(number, DType::int64)); }
    ValueId number(std::int64_t value, DType type) { return b_.constant_int(value, type); }

    OpId op_;
    NodeView node_;
    const SortBody& body_;
    const SortPlan& plan_;
    int axis_;
    DType dtype_;
    Shape in_shape_;
    Dim length_, count_;

private:
    void set_var(loopir::VarId var, const Index& index);

    std::vector<Index> vars_;
    Indices at_;  // in the input
    Index row_;
};

// The kernels of a sort by merges (sort_merges.cpp).
void lower_merge_sort(const Program& program, const Partition& partition, const Region& region,
                      const Schedule& schedule, const std::map<OpId, TensorRef>& in_place, const std::string& name,
                      LoweredRegion& result);

}  // namespace topstitch::stitch
