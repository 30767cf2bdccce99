// Writes a scatter as a reduction: for each element, of the updates that name it. For few elements or few updates, on
// machines with many threads; sums are then not added in the order of the updates, but always in the same one.
#include <algorithm>

#include "ops/indexing_rules.h"
#include "stitch/scatter_writer.h"

namespace topstitch::stitch {

using loopir::Combiner;
using loopir::no_value;
using loopir::ScalarOp;

LoweredKernel PulledScatter::write(const std::string& name) {
    Indices at;
    for (int axis = 0; axis < shape_.rank(); ++axis) {
        at.push_back(begin_loop(concat("i", axis), {concat("i", axis), shape_[axis], axis == 0}));
    }
    if (at.empty()) begin_loop("once", {"once", Dim(1), true});
    set_home(at);
    const Index offset = memory_offset(program_, {op_, 0}, at);
    const Value before = updates_in_place()
                             ? load_element(b_, slot(), dtype(op_), offset)
                             : in_scatter([&](ElementContext& context) { return body_.base(context, at); });
    store_element(b_, slot(), dtype(op_), offset, joined_updates(at, before));
    close(std::max(shape_.rank(), 1));
    return finish(name);
}

Value PulledScatter::joined_updates(const Indices& at, const Value& before) {
    const Combiner combiner = *body_.joined(node_.view);
    const bool last = combiner == Combiner::argmax;  // the one with the highest number
    const DType type = last ? DType::int64 : b_.type(before.re);
    std::vector<int> joins;
    for (int part = 0; part < (!last && before.is_complex() ? 2 : 1); ++part) {
        joins.push_back(b_.add_accumulator(last ? Combiner::max : combiner, type));
        b_.init_acc(joins.back());
    }
    const SearchedUpdate searched = begin_search(at);
    const ValueId named = names(at, searched.update);
    const auto update = [&](const Indices& which, ValueId guard) {
        return in_context(op_, op_, guard,
                          [&](ElementContext& context, const OpDef&) { return body_.update(context, which); });
    };
    const Value value = last ? Value{b_.index_value(searched.number)} : update(searched.update, named);
    b_.accumulate(joins[0], value.re, no_value, named);
    if (joins.size() > 1) b_.accumulate(joins[1], value.im, no_value, named);
    close(searched.loops);
    forget_values();

    Value met{b_.acc_read(joins[0])};
    if (joins.size() > 1) met.im = b_.acc_read(joins[1]);
    ValueId any = no_value;
    if (last) {
        any = b_.op(ScalarOp::le, b_.constant_int(0, DType::int64), met.re);
        met = update(numbered_update(at, Index::value(met.re)), any);
    }
    Value after = in_scatter([&](ElementContext& context) { return body_.combine(context, before, met); });
    if (last) {
        after.re = b_.select(any, after.re, before.re);
        if (before.is_complex()) after.im = b_.select(any, after.im, before.im);
    }
    return after;
}

int PulledScatter::axis_of(VarId var) const {
    const std::vector<VarId>& direct = access(op_).scatter->direct;
    const auto found = std::find(direct.begin(), direct.end(), var);
    return found == direct.end() ? -1 : static_cast<int>(found - direct.begin());
}

PulledScatter::SearchedUpdate PulledScatter::begin_search(const Indices& at) {
    const std::vector<Dim> extents = body_.domain(node_.view);
    VarId last = -1;  // searched variable: the one that threads share out
    for (auto var = static_cast<VarId>(count_output_vars()); var < static_cast<VarId>(access(op_).vars.size()); ++var) {
        if (axis_of(var) < 0) last = var;
    }
    SearchedUpdate searched;
    auto next = static_cast<VarId>(count_output_vars());
    for (const Dim& extent : extents) {
        Index& index = searched.update.emplace_back(0);
        if (extent == Dim(1)) continue;
        const VarId var = next++;
        if (const int axis = axis_of(var); axis >= 0) {
            index = at[static_cast<std::size_t>(axis)];
        } else {
            const std::string name = concat("u", searched.loops++);
            index = begin_loop(name, {name, extent, false, cut_.shared && var == last});
            searched.number = searched.number * extent + index;
        }
        set_var(var, index);
    }
    if (searched.loops == 0) {
        begin_loop("once", {"once", Dim(1)});
        searched.loops = 1;
    }
    return searched;
}

Indices PulledScatter::numbered_update(const Indices& at, Index number) {
    const std::vector<Dim> extents = body_.domain(node_.view);
    Indices update(extents.size(), Index(0));
    auto next = static_cast<VarId>(access(op_).vars.size());
    for (std::size_t k = extents.size(); k-- > 0;) {
        if (extents[k] == Dim(1)) continue;
        const int axis = axis_of(--next);
        update[k] = axis >= 0 ? at[static_cast<std::size_t>(axis)] : mod(number, extents[k]);
        if (axis < 0) number = floor_div(number, extents[k]);
        set_var(next, update[k]);
    }
    return update;
}

ScatterWriter::ValueId PulledScatter::names(const Indices& at, const Indices& update) {
    ValueId named = no_value;
    in_scatter([&](ElementContext& context) {
        const ScatterBody::Place place = body_.place(context, update);
        named = place.valid;
        for (std::size_t axis = 0; axis < at.size(); ++axis) {
            if (place.at[axis] == at[axis]) continue;
            const ValueId same = b_.op(ScalarOp::eq, b_.index_value(place.at[axis]), b_.index_value(at[axis]));
            named = ops::both(b_, named, same);
        }
        return Value{};
    });
    return named;
}

}  // namespace topstitch::stitch
