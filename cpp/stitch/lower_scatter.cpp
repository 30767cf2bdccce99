// Writes a scatter: in each part of the output first the base, then the updates that go there, in their order.
// Whatever is stitched to the base or to the updates is computed where they are.
#include "ops/indexing_rules.h"
#include "stitch/kernel_writer.h"

namespace topstitch::stitch {

namespace {

using loopir::no_value;
using loopir::ValueId;
using loopir::VarId;

class ScatterWriter : public KernelWriter {
public:
    ScatterWriter(const Program& program, const Partition& partition, const Region& region, const Schedule& schedule,
                  const std::map<OpId, TensorRef>& in_place, LoweredRegion& result)
        : KernelWriter(program, partition, region, schedule, in_place, result),
          op_(region.members.rbegin()->first),
          node_(graph_, graph_.op(op_)),
          body_(std::get<ScatterBody>(graph_.op(op_).def->body)),
          cut_(*schedule.scatter),
          shape_(node_.view.out_shape()),
          vars_(region.vars.size()) {
        length_ = shape_.rank() == 0 ? Dim(1) : ceil_div(shape_[cut_.axis], Dim(cut_.parts));
    }

    LoweredKernel write(const std::string& name) {
        first_ = begin_loop("part", {"part", Dim(cut_.parts), true}) * length_;
        if (!updates_in_place()) write_base();
        write_updates();
        close(1);
        return finish(name);
    }

    Dim work() const {
        const Dim updates = Shape(body_.domain(node_.view)).num_elements();
        const double cost = 1 + cost_of(partition_, region_);
        return shape_.num_elements() + updates * Dim(static_cast<std::int64_t>(cost));
    }

private:
    Index region_var(VarId var) const override { return vars_[static_cast<std::size_t>(var)]; }
    void set_var(VarId var, const Index& index) {
        vars_[static_cast<std::size_t>(var)] = index;
        forget_values();
    }

    // Where the part ends on the axis that is cut, counted from its beginning.
    Index part_end() const {
        if (shape_.rank() == 0) return 1;
        const Dim& extent = shape_[cut_.axis];
        const bool even = extent.is_known() && extent.value() % cut_.parts == 0;
        return even ? Index(length_) : Index(extent) - first_;
    }

    // The output is the variable that the updates go into: the base is there.
    bool updates_in_place() const {
        const auto replaced = in_place_.find(op_);
        return replaced != in_place_.end() && replaced->second == graph_.op(op_).inputs[0];
    }

    // Axes before the one that is cut have loops of their own; what lies behind in a part is one run of elements.
    void write_base() {
        Indices at(static_cast<std::size_t>(shape_.rank()), Index(0));
        int loops = 0;
        for (int axis = 0; axis < cut_.axis; ++axis, ++loops) {
            at[static_cast<std::size_t>(axis)] = begin_loop(concat("i", axis), {concat("i", axis), shape_[axis]});
        }
        Dim run = 1;
        for (int axis = cut_.axis + 1; axis < shape_.rank(); ++axis) run = run * shape_[axis];
        Index left = begin_loop("e", {"e", length_ * run, false, true, 4}, part_end() * run);
        for (int axis = shape_.rank() - 1; axis > cut_.axis; --axis) {
            at[static_cast<std::size_t>(axis)] = mod(left, shape_[axis]);
            left = floor_div(left, shape_[axis]);
        }
        if (shape_.rank() > 0) at[static_cast<std::size_t>(cut_.axis)] = first_ + left;
        const Indices& home = access(op_).home;
        for (std::size_t axis = 0; axis < home.size(); ++axis) {
            std::vector<VarId> var;
            home[axis].collect_vars(var);
            if (!var.empty()) set_var(var.front(), at[axis]);
        }
        const Value value = in_scatter([&](ElementContext& context) { return body_.base(context, at); });
        store_element(b_, slot(), dtype(op_), memory_offset(program_, {op_, 0}, at), value);
        close(loops + 1);
    }

    void write_updates() {
        const std::vector<Dim> extents = body_.domain(node_.view);
        const bool packed = program_.layout_of({op_, 0}) == nullptr;
        const VarId lanes = packed ? access(op_).scatter->lanes : -1;
        auto next = static_cast<VarId>(count_output_vars());
        Indices update;
        int loops = 0;
        for (const Dim& extent : extents) {
            update.push_back(extent == Dim(1) ? Index(0) : begin_update_loop(next, extent, lanes, loops));
            if (!(extent == Dim(1))) ++next;
        }
        const ValueId here = goes_here(update);
        if (lanes >= 0) {
            const bool cut = is_cut(lanes);
            const Dim extent = cut ? length_ : extents.back();
            Index end = cut ? part_end() : Index(extent);
            if (here != no_value) end = only_where(here, end);
            const Index lane = begin_loop("lane", {"lane", extent, false, true, 2}, end);
            update.back() = cut ? first_ + lane : lane;
            set_var(lanes, update.back());
        } else {
            begin_loop("once", {"once", Dim(1)}, here == no_value ? Index(1) : only_where(here, 1));
        }
        in_scatter([&](ElementContext& context) {
            const ScatterBody::Place place = body_.place(context, update);
            const Value after = body_.update(context, update);
            const Index offset = memory_offset(program_, {op_, 0}, place.at);
            const Value before = load_element(b_, slot(), dtype(op_), offset);
            store_element(b_, slot(), dtype(op_), offset, body_.combine(context, before, after));
            return after;
        });
        close(loops + 1);
    }

    bool is_cut(VarId var) const {
        return !cut_.searched && cut_.parts > 1 &&
               access(op_).scatter->direct[static_cast<std::size_t>(cut_.axis)] == var;
    }
    int count_output_vars() const {
        int count = 0;
        for (const Index& index : access(op_).home) count += index.is_constant() ? 0 : 1;
        return count;
    }
    Index begin_update_loop(VarId var, const Dim& extent, VarId lanes, int& loops) {
        if (var == lanes) return 0;  // opened last
        const std::string name = concat("u", loops++);
        Index index;
        if (is_cut(var)) {
            index = first_ + begin_loop(name, {name, length_}, part_end());
        } else {
            index = begin_loop(name, {name, extent});
        }
        set_var(var, index);
        return index;
    }

    // Whether an update goes anywhere, and into this part; no_value: it does.
    ValueId goes_here(const Indices& update) {
        ValueId here = no_value;
        in_scatter([&](ElementContext& context) {
            const ScatterBody::Place place = body_.place(context, update);
            here = place.valid;
            if (cut_.searched) {
                const Index in_part = place.at[static_cast<std::size_t>(cut_.axis)] - first_;
                here = ops::both(b_, here, ops::within(b_, in_part, length_));
            }
            return Value{};
        });
        return here;
    }
    Index only_where(ValueId predicate, const Index& end) {
        return Index::value(b_.select(predicate, b_.index_value(end), b_.constant_int(0, DType::int64)));
    }

    Value in_scatter(const std::function<Value(ElementContext&)>& use) {
        return in_context(op_, op_, no_value, [&](ElementContext& context, const OpDef&) { return use(context); });
    }
    int slot() { return buffer({op_, 0}, true); }

    OpId op_;
    NodeView node_;
    const ScatterBody& body_;
    const ScatterCut& cut_;
    Shape shape_;
    std::vector<Index> vars_;
    Dim length_;  // of a part
    Index first_;
};

}  // namespace

void lower_scatter(const Program& program, const Partition& partition, const Region& region, const Schedule& schedule,
                   const std::map<OpId, TensorRef>& in_place, const std::string& name, LoweredRegion& result) {
    ScatterWriter writer(program, partition, region, schedule, in_place, result);
    result.work = writer.work();
    result.kernels.push_back(writer.write(name));
}

}  // namespace topstitch::stitch
