// Writes a scatter: in each part of the output first the base, then the updates that go there, in their order.
// Whatever is stitched to the base or to the updates is computed where they are.
#include <algorithm>

#include "ops/indexing_rules.h"
#include "stitch/scatter_writer.h"

namespace topstitch::stitch {

namespace {

using loopir::no_value;
using loopir::ScalarOp;
using loopir::ValueId;
using loopir::VarId;

// Updates of a chunk are numbered in segments of so many.
constexpr std::int64_t segment_length = 32;

class ScatterInParts : public ScatterWriter {
public:
    using ScatterWriter::ScatterWriter;

    LoweredKernel write(const std::string& name) {
        length_ = shape_.rank() == 0 ? Dim(1) : ceil_div(shape_[cut_.axis], Dim(cut_.parts));
        first_ = begin_loop("part", {"part", Dim(cut_.parts), true}) * length_;
        if (!updates_in_place()) write_base();
        write_updates();
        close(1);
        return finish(name);
    }

private:
    // Where the part ends on the axis that is cut, counted from its beginning.
    Index part_end() const {
        if (shape_.rank() == 0) return 1;
        const Dim& extent = shape_[cut_.axis];
        const bool even = extent.is_known() && extent.value() % cut_.parts == 0;
        return even ? Index(length_) : Index(extent) - first_;
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
        set_home(at);
        const Value value = in_scatter([&](ElementContext& context) { return body_.base(context, at); });
        store_element(b_, slot(), dtype(op_), memory_offset(program_, {op_, 0}, at), value);
        close(loops + 1);
    }

    // The variable whose updates lie side by side in the output, as they do in memory; -1: there is none.
    VarId lanes() const { return program_.layout_of({op_, 0}) == nullptr ? access(op_).scatter->lanes : -1; }

    void write_updates() {
        if (cut_.chunk > 0) return write_collected_updates();
        const std::vector<Dim> extents = body_.domain(node_.view);
        const VarId lanes = this->lanes();
        auto next = static_cast<VarId>(count_output_vars());
        Indices update;
        int loops = 0;
        for (const Dim& extent : extents) {
            update.push_back(extent == Dim(1) ? Index(0) : begin_update_loop(next, extent, lanes, loops));
            if (!(extent == Dim(1))) ++next;
        }
        make_update(update, goes_here(update, no_value));
        close(loops + 1);
    }

    // Those that go into the part, one after the other; `here`: whether this one does, unless that is no_value.
    void make_update(Indices& update, ValueId here) {
        const VarId lanes = this->lanes();
        if (lanes >= 0) {
            const bool cut = is_cut(lanes);
            const Dim extent = cut ? length_ : body_.domain(node_.view).back();
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
    }

    // A group of threads looks at a chunk of updates at once and numbers those that go into the part, in their order.
    void write_collected_updates() {
        const Dim chunk = cut_.chunk;
        const Dim segment = segment_length;
        const int here = local_buffer("here", DType::int32, chunk);
        const int counts = local_buffer("counts", DType::int32, floor_div(chunk, segment));
        const int found = local_buffer("found", DType::int32, chunk);
        const Dim updates = searched_updates();
        const Index first = begin_loop("chunk", {"chunk", ceil_div(updates, chunk)}) * chunk;
        forget_values();
        const int all = begin_count();
        {
            const Index u = begin_loop("u", {"u", chunk, false, true});
            const ValueId exists = b_.op(ScalarOp::lt, b_.index_value(u), b_.index_value(Index(updates) - first));
            const ValueId goes = goes_here(searched_update(first + u), exists);
            const ValueId one = b_.cast(goes, DType::int32);
            b_.store(here, u, one);
            b_.accumulate(all, one);
            close(1);
        }
        const ValueId count = b_.cast(b_.acc_read(all), DType::int64);
        const ValueId any = b_.op(ScalarOp::lt, b_.constant_int(0, DType::int64), count);
        {
            const Index s = begin_loop("s", {"s", floor_div(chunk, segment), false, true});
            const int sum = begin_count();
            b_.accumulate(sum, b_.load(here, s * segment + begin_loop("k", {"k", segment})));
            close(1);
            b_.store(counts, s, b_.acc_read(sum));
            close(1);
        }
        {
            const Index u = begin_loop("u", {"u", chunk, false, true}, only_where(any, Index(chunk)));
            const Index s = floor_div(u, segment);
            const int before = begin_count();
            b_.accumulate(before, b_.load(counts, begin_loop("earlier", {"earlier", floor_div(chunk, segment)}, s)));
            close(1);
            b_.accumulate(before, b_.load(here, s * segment + begin_loop("k", {"k", segment}, mod(u, segment))));
            close(1);
            const Index place = Index::value(b_.cast(b_.acc_read(before), DType::int64));
            const ValueId goes = b_.op(ScalarOp::lt, b_.constant_int(0, DType::int32), b_.load(here, u));
            b_.store(found, place, b_.cast(b_.index_value(u), DType::int32), goes);
            close(1);
        }
        const Index next = begin_loop("next", {"next", chunk}, Index::value(count));
        Indices update = searched_update(first + Index::value(b_.cast(b_.load(found, next), DType::int64)));
        make_update(update, no_value);
        close(3);
    }
    int begin_count() {
        const int count = b_.add_accumulator(loopir::Combiner::sum, DType::int32);
        b_.init_acc(count);
        return count;
    }

    // The updates without those that lie side by side.
    Dim searched_updates() const {
        Dim count = 1;
        for (const Dim& extent : searched_extents()) count = count * extent;
        return count;
    }
    std::vector<Dim> searched_extents() const {
        std::vector<Dim> extents = body_.domain(node_.view);
        if (lanes() >= 0) extents.back() = 1;
        return extents;
    }
    Indices searched_update(const Index& number) {
        const std::vector<Dim> extents = searched_extents();
        const std::vector<Dim> all = body_.domain(node_.view);
        Indices update(extents.size(), Index(0));
        Index left = number;
        for (std::size_t k = extents.size(); k-- > 0;) {
            const bool first = std::all_of(extents.begin(), extents.begin() + static_cast<std::ptrdiff_t>(k),
                                           [](const Dim& extent) { return extent == Dim(1); });
            update[k] = first ? left : mod(left, extents[k]);
            left = first ? Index(0) : floor_div(left, extents[k]);
        }
        auto next = static_cast<VarId>(count_output_vars());
        for (std::size_t k = 0; k < all.size(); ++k) {
            if (!(all[k] == Dim(1))) set_var(next++, update[k]);
        }
        return update;
    }

    bool is_cut(VarId var) const {
        return !cut_.searched && cut_.parts > 1 &&
               access(op_).scatter->direct[static_cast<std::size_t>(cut_.axis)] == var;
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

    // Whether an update, where it exists, goes anywhere, and into this part; no_value: it does.
    ValueId goes_here(const Indices& update, ValueId exists) {
        ValueId here = exists;
        in_context(op_, op_, exists, [&](ElementContext& context, const OpDef&) {
            const ScatterBody::Place place = body_.place(context, update);
            here = ops::both(b_, here, place.valid);
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

    Dim length_;  // of a part
    Index first_;
};

}  // namespace

ScatterWriter::ScatterWriter(const Program& program, const Partition& partition, const Region& region,
                             const Schedule& schedule, const std::map<OpId, TensorRef>& in_place, LoweredRegion& result)
    : KernelWriter(program, partition, region, schedule, in_place, result),
      op_(region.members.rbegin()->first),
      node_(graph_, graph_.op(op_)),
      body_(std::get<ScatterBody>(graph_.op(op_).def->body)),
      cut_(*schedule.scatter),
      shape_(node_.view.out_shape()),
      vars_(region.vars.size()) {}

void lower_scatter(const Program& program, const Partition& partition, const Region& region, const Schedule& schedule,
                   const std::map<OpId, TensorRef>& in_place, const std::string& name, LoweredRegion& result) {
    const auto write = [&](auto&& writer) {
        result.work = writer.work();
        result.kernels.push_back(writer.write(name));
    };
    if (schedule.scatter->pulled) {
        write(PulledScatter(program, partition, region, schedule, in_place, result));
    } else {
        write(ScatterInParts(program, partition, region, schedule, in_place, result));
    }
}

}  // namespace topstitch::stitch
