// Rows, keys and elements of a sort's kernels.
// See sort_writer.h.
#include "stitch/sort_writer.h"

#include "core/element_bits.h"
#include "ops/indexing_rules.h"

namespace topstitch::stitch {

using loopir::no_value;
using loopir::ScalarOp;
using loopir::ValueId;
using loopir::VarId;

SortWriter::SortWriter(const Program& program, const Partition& partition, const Region& region,
                       const Schedule& schedule, const std::map<OpId, TensorRef>& in_place, LoweredRegion& result)
    : KernelWriter(program, partition, region, schedule, in_place, result),
      op_(region.members.rbegin()->first),
      node_(graph_, graph_.op(op_)),
      body_(std::get<SortBody>(graph_.op(op_).def->body)),
      plan_(*schedule.sort),
      axis_(body_.axis(node_.view)),
      dtype_(node_.view.input(0).dtype),
      in_shape_(node_.view.in_shape(0)),
      length_(in_shape_[axis_]),
      count_(node_.view.out_shape()[axis_]),
      vars_(region.vars.size()),
      at_(static_cast<std::size_t>(in_shape_.rank()), Index(0)) {}

Dim SortWriter::rows() const {
    Dim rows = 1;
    for (int axis = 0; axis < in_shape_.rank(); ++axis) rows = axis == axis_ ? rows : rows * in_shape_[axis];
    return rows;
}

Dim SortWriter::work() const {
    constexpr std::int64_t cost_of_pass = 8;
    std::int64_t passes = plan_.method == SortPlan::Method::digits ? plan_.digits + 1 : 2;
    for (std::int64_t run = 1; plan_.method == SortPlan::Method::merges && run < plan_.block; run *= 2) ++passes;
    const double cost = static_cast<double>(passes * cost_of_pass) + cost_of(partition_, region_);
    return in_shape_.num_elements() * Dim(static_cast<std::int64_t>(cost));
}

void SortWriter::set_var(VarId var, const Index& index) {
    vars_[static_cast<std::size_t>(var)] = index;
    forget_values();
}

Index SortWriter::begin_rows(const Dim& parts) {
    const Index both = begin_loop("row", {"row", rows() * parts, true});
    row_ = floor_div(both, parts);
    Index left = row_;
    for (int axis = in_shape_.rank() - 1; axis >= 0; --axis) {
        const Index& own = access(op_).home[static_cast<std::size_t>(axis)];
        if (axis == axis_) continue;
        const Dim& extent = in_shape_[axis];
        const Index digit = extent == Dim(1) ? Index(0) : mod(left, extent);
        left = floor_div(left, extent);
        at_[static_cast<std::size_t>(axis)] = digit;
        if (!own.is_constant()) set_var(own.parts().front().term.var, digit);
    }
    return mod(both, parts);
}

// --- Keys.

DType SortWriter::key_type() const {
    return bits_type(dtype_);
}

int SortWriter::key_bits() const {
    return dtype_ == DType::boolean ? 1 : 8 * static_cast<int>(size_of(dtype_));
}

// Signed integers: the sign turned over. Floats: the bits of negative ones turned over, of others the sign; -0 as 0,
// and every NaN as the largest key.
ValueId SortWriter::key_of(ValueId value) {
    const DType type = key_type();
    const int bits = 8 * static_cast<int>(size_of(type));
    const ValueId sign = number(static_cast<std::int64_t>(std::uint64_t{1} << (bits - 1)), type);
    ValueId key = value;
    if (dtype_ == DType::boolean) {
        key = b_.cast(value, type);
    } else if (is_floating(dtype_)) {
        const DType computed = compute_type(dtype_);
        const ValueId zero = b_.constant(0, computed);
        const ValueId unsigned_zero = b_.select(b_.op(ScalarOp::eq, value, zero), zero, value);
        const ValueId pattern = is_half(dtype_) ? b_.to_bits16(unsigned_zero, dtype_) : b_.bitcast(unsigned_zero, type);
        const ValueId negative = b_.op(ScalarOp::ne, b_.op(ScalarOp::bit_and, pattern, sign), number(0, type));
        key = b_.select(negative, b_.op(ScalarOp::bit_not, pattern), b_.op(ScalarOp::bit_or, pattern, sign));
        key = b_.select(b_.op(ScalarOp::ne, value, value), number(-1, type), key);
    } else if (is_signed_integer(dtype_)) {
        key = b_.op(ScalarOp::bit_xor, b_.bitcast(value, type), sign);
    }
    if (!body_.descending(node_.view)) return key;
    if (dtype_ == DType::boolean) return b_.op(ScalarOp::bit_xor, key, number(1, type));
    return b_.op(ScalarOp::bit_not, key);
}

// --- Elements.

ValueId SortWriter::element_at(const Index& position) {
    at_[static_cast<std::size_t>(axis_)] = position;
    if (const VarId along = access(op_).sorted; along >= 0) set_var(along, position);
    return in_context(op_, op_, no_value,
                      [&](ElementContext& context, const OpDef&) { return body_.element(context, at_); })
        .re;
}

SortWriter::Item SortWriter::item_at(const Items& items, const Index& at, const Index& position) {
    Item item;
    item.value = items.values >= 0 ? b_.load(items.values, at) : element_at(position);
    if (body_.positions) item.place = items.places >= 0 ? b_.load(items.places, at) : place_value(position);
    return item;
}

void SortWriter::store_item(const Items& to, const Index& at, const Item& item, ValueId guard) {
    b_.store(to.values, at, item.value, guard);
    if (to.places >= 0) b_.store(to.places, at, item.place, guard);
}

void SortWriter::store_result(const Index& position, const Item& item, ValueId guard) {
    ValueId wanted = guard;
    if (!(count_ == length_)) {
        const ValueId asked = b_.op(ScalarOp::lt, b_.index_value(position), b_.index_value(Index(count_)));
        wanted = ops::both(b_, guard, asked);
    }
    Indices at = at_;
    at[static_cast<std::size_t>(axis_)] = position;
    const Index offset = memory_offset(program_, {op_, 0}, at);
    const Value value{body_.positions ? b_.cast(item.place, dtype(op_)) : item.value, no_value};
    store_element(b_, buffer({op_, 0}, true), dtype(op_), offset, value, wanted);
}

}  // namespace topstitch::stitch
