// Writes a sort for machines with groups of threads. A group sorts a block of a row in its memory; then runs are
// merged, in as many passes as it takes. Nothing is done in order: each element searches the other runs for its place.
#include <algorithm>
#include <optional>

#include "ops/indexing_rules.h"
#include "stitch/sort_writer.h"

namespace topstitch::stitch {

namespace {

using loopir::Combiner;
using loopir::no_value;
using loopir::ScalarOp;
using loopir::ValueId;

constexpr std::int64_t first_run = 16;                       // elements that are compared with each other
constexpr std::int64_t merged_runs = 4;                      // by a kernel; in the memory of a group it is two
constexpr std::int64_t longest_row = std::int64_t{1} << 31;  // positions are int32

bool is_within(const Dim& length, std::int64_t most) {
    return length.is_known() && length.value() <= most;
}
bool is_beyond(const Dim& length, std::int64_t most) {
    return length.is_known() && length.value() > most;
}

// 1 where the length is larger, else 0.
Dim exceeds(const Dim& length, std::int64_t number) {
    return min(max(length - Dim(number), 0), 1);
}

class MergeKernels : public SortWriter {
public:
    using SortWriter::SortWriter;

    // Level 0 sorts blocks of the row. Where only the first few are asked for, level k sorts what level k - 1 has kept
    // of its blocks.
    LoweredKernel write_blocks(const std::string& name, int level) {
        const Dim length = places_of(level);
        const Dim is_needed = level == 0 ? Dim(1) : exceeds(places_of(level - 1), plan_.block);
        const Index elements = elements_of(level);
        const Index number_in_row = begin_rows(ceil_div(length, Dim(plan_.block)) * is_needed);
        const Index first = number_in_row * Dim(plan_.block);
        const Items unsorted = level == 0 ? Items{} : stored(level - 1, rows() * length, false);
        const Target target = target_of(length, plan_.block, level, rows() * places_of(level + 1));
        Items spare[2] = {local_items(), local_items()};

        Runs runs{spare[0], 0, plan_.block, Index(plan_.block), 1};
        if (!length.is_known() || length.value() % plan_.block != 0) {
            const ValueId left = b_.index_value(elements - first);
            runs.valid = Index::value(b_.op(ScalarOp::min, left, number_of(plan_.block)));
        }
        {
            const Index i = begin_elements(runs);
            store_item(runs.items, i, item_at(unsorted, row() * length + first + i, first + i));
            close(1);
        }
        // What is sorted goes to the other memory, at last to the target.
        const auto finish_step = [&](std::int64_t group, const Index& i, ValueId place, const Item& item) {
            const std::int64_t kept = plan_.kept > 0 ? std::min(plan_.kept, group) : group;
            const ValueId is_kept = kept < group ? b_.op(ScalarOp::lt, place, number(kept, DType::int32)) : no_value;
            if (group < runs.slots) {
                store_item(spare[1], behind(floor_div(i, Dim(group)) * Dim(kept), place), item, is_kept);
            } else if (plan_.kept > 0) {
                const Index at = row() * places_of(level + 1) + behind(number_in_row * Dim(kept), place);
                store(target, index_of(place), at, item, is_kept);
            } else {
                const Index position = behind(first, place);
                store(target, position, row() * length + position, item);
            }
            close(1);
            if (kept < group) {
                const Index rest = mod(runs.valid, Dim(group));
                const ValueId last = b_.op(ScalarOp::min, b_.index_value(rest), number_of(kept));
                runs.valid = floor_div(runs.valid, Dim(group)) * Dim(kept) + Index::value(last);
            }
            runs.slots = runs.slots / group * kept;
            runs.run = kept;
            std::swap(spare[0], spare[1]);
            runs.items = spare[0];
        };
        {
            runs.run = std::min(first_run, plan_.block);
            const Index i = begin_elements(runs);
            const Item item = item_at(runs.items, i, i);
            finish_step(runs.run, i, counted_place(runs, i, key_of(item.value)), item);
        }
        while (runs.run < runs.slots) {
            const Index i = begin_elements(runs);
            const Item item = item_at(runs.items, i, i);
            finish_step(2 * runs.run, i, merged_place(runs, i, 2, key_of(item.value)), item);
        }
        close(1);
        return finish(name);
    }

    // Pass k merges runs of so many elements, of the whole row.
    LoweredKernel write_merge(const std::string& name, int pass) {
        const std::int64_t run = run_of(pass);
        const std::int64_t together = is_within(length_, 2 * run) ? 2 : merged_runs;
        const Index i = begin_rows(length_ * exceeds(length_, run));
        const Dim size = in_shape_.num_elements();
        const Runs runs{stored(pass % 2, size, false), in_row(0), 0, Index(length_), run};
        const Target target = target_of(length_, together * run, (pass + 1) % 2, size);
        const Item item = item_at(runs.items, in_row(i), i);
        const Index group = i - mod(i, Dim(together * run));
        const Index position = behind(group, merged_place(runs, i, together, key_of(item.value)));
        store(target, position, in_row(position), item);
        close(1);
        return finish(name);
    }

    // As many kernels as a row may need; those that turn out to be too many do nothing.
    int levels() const {
        int count = 1;
        if (plan_.kept == 0) return count;
        std::int64_t most = longest();
        while (most > plan_.block) {
            most = (most + plan_.block - 1) / plan_.block * plan_.kept;
            ++count;
        }
        return count;
    }
    int passes() const {
        int count = 0;
        while (plan_.kept == 0 && run_of(count) < longest()) ++count;
        return count;
    }

private:
    // Sorted runs, one behind the other: the first `valid` of `slots` elements from `first` on.
    struct Runs {
        Items items;
        Index first;
        std::int64_t slots = 0;
        Index valid;
        std::int64_t run = 1;
    };
    // The result, or memory from which the next kernel reads: a run decides, where the length is not known.
    struct Target {
        bool is_result = true;
        ValueId which = no_value;  // it is the result
        Items next;
    };

    std::int64_t longest() const { return length_.is_known() ? length_.value() : longest_row; }
    std::int64_t run_of(int pass) const {
        std::int64_t run = plan_.block;
        for (int k = 0; k < pass; ++k) run *= merged_runs;
        return run;
    }
    // Places of a level's row, in which its elements lie from the beginning on. All blocks of a level but the last
    // leave as many as they may keep; as many blocks are there for the places as for the elements.
    Dim places_of(int level) const {
        Dim places = length_;
        const Dim block = plan_.block, kept = plan_.kept;
        for (int k = 0; k < level && plan_.kept > 0; ++k) {
            places = places.is_known() ? floor_div(places, block) * kept + min(mod(places, block), kept)
                                       : ceil_div(places, block) * kept;
        }
        return places;
    }
    Index elements_of(int level) {
        if (length_.is_known()) return Index(places_of(level));
        Index elements(length_);
        for (int k = 0; k < level; ++k) {
            const ValueId last = b_.index_value(mod(elements, Dim(plan_.block)));
            const ValueId kept = b_.op(ScalarOp::min, last, number_of(plan_.kept));
            elements = floor_div(elements, Dim(plan_.block)) * Dim(plan_.kept) + Index::value(kept);
        }
        return elements;
    }
    ValueId number_of(std::int64_t value) { return number(value, DType::int64); }

    // --- Memory.

    Items local_items() {
        Items items;
        items.values = local_buffer("values", stored_dtype(dtype_), Dim(plan_.block));
        if (body_.positions) items.places = local_buffer("places", DType::int32, Dim(plan_.block));
        return items;
    }
    Items stored(int which, const Dim& size, bool writing) {
        const int first_scratch = which * (body_.positions ? 2 : 1);
        Items items;
        items.values = scratch_buffer("values", first_scratch, stored_dtype(dtype_), size, writing);
        if (body_.positions) items.places = scratch_buffer("places", first_scratch + 1, DType::int32, size, writing);
        return items;
    }
    Target target_of(const Dim& length, std::int64_t sorted, int which, const Dim& size) {
        Target target;
        if (is_within(length, sorted)) return target;
        target.is_result = !is_beyond(length, sorted);
        if (target.is_result) target.which = b_.op(ScalarOp::le, b_.index_value(Index(length)), number_of(sorted));
        target.next = stored(which, size, true);
        return target;
    }
    void store(const Target& target, const Index& position, const Index& at, const Item& item,
               ValueId guard = no_value) {
        if (target.is_result) store_result(position, item, ops::both(b_, guard, target.which));
        if (target.next.values < 0) return;
        const ValueId elsewhere = target.which == no_value
                                      ? no_value
                                      : b_.op(ScalarOp::bit_xor, target.which, b_.constant_int(1, DType::boolean));
        store_item(target.next, at, item, ops::both(b_, guard, elsewhere));
    }

    // --- Places, which are int32.

    // So many elements behind a position of the row.
    Index behind(const Index& position, ValueId place) { return index_of(b_.add(place_value(position), place)); }

    // Threads share the elements out.
    Index begin_elements(const Runs& runs) {
        const bool whole = runs.valid == Index(runs.slots);
        return begin_loop("i", {"i", Dim(runs.slots), false, true}, whole ? std::nullopt : std::optional(runs.valid));
    }

    // Of an element among those of its run, which is not sorted yet: all are compared with it.
    ValueId counted_place(const Runs& runs, const Index& i, ValueId key) {
        const Index in_run = mod(i, Dim(runs.run));
        const Index begin = i - in_run;
        const int count = b_.add_accumulator(Combiner::sum, DType::int32);
        b_.init_acc(count);
        const bool whole = runs.valid == Index(runs.slots);
        const Index j = begin_loop("j", {"j", Dim(runs.run)}, whole ? std::nullopt : std::optional(runs.valid - begin));
        const ValueId other = key_of(b_.load(runs.items.values, begin + j));
        const ValueId is_earlier = b_.op(ScalarOp::lt, b_.index_value(j), b_.index_value(in_run));
        b_.accumulate(count, b_.cast(goes_before(other, key, is_earlier), DType::int32));
        close(1);
        return b_.acc_read(count);
    }

    // Of an element among those of `together` runs: behind those of its own run that are before it, and those of the
    // other runs that are less, or equal in earlier runs.
    ValueId merged_place(const Runs& runs, const Index& i, std::int64_t together, ValueId key) {
        const Index in_group = mod(i, Dim(runs.run * together));
        const ValueId group = place_value(i - in_group);
        const ValueId own = place_value(floor_div(in_group, Dim(runs.run)));
        const ValueId in_run = place_value(mod(i, Dim(runs.run)));
        if (together == 2) {
            const ValueId other = b_.sub(number(1, DType::int32), own);
            return b_.add(in_run, count_before(runs, group, other, own, key));
        }
        const int count = b_.add_accumulator(Combiner::sum, DType::int32);
        b_.init_acc(count);
        const ValueId other = place_value(begin_loop("other", {"other", Dim(together - 1)}));
        const ValueId skips = b_.cast(b_.op(ScalarOp::le, own, other), DType::int32);
        b_.accumulate(count, count_before(runs, group, b_.add(other, skips), own, key));
        close(1);
        return b_.add(in_run, b_.acc_read(count));
    }

    // How many elements of run `searched` come before the key, which is in run `own`: the bits of that number are found
    // from the highest on.
    ValueId count_before(const Runs& runs, ValueId group, ValueId searched, ValueId own, ValueId key) {
        const ValueId run = number(runs.run, DType::int32);
        const ValueId begin = b_.add(group, b_.mul(searched, run));
        const ValueId left = b_.op(ScalarOp::max, b_.sub(place_value(runs.valid), begin), number(0, DType::int32));
        const ValueId length = b_.op(ScalarOp::min, left, run);
        const ValueId is_earlier = b_.op(ScalarOp::lt, searched, own);
        const ValueId before_begin = b_.sub(begin, number(1, DType::int32));
        int bits = 1;
        while (std::int64_t{1} << (bits - 1) < runs.run) ++bits;
        const int found = b_.add_accumulator(Combiner::sum, DType::int32);
        b_.init_acc(found);
        const ValueId more = b_.op(ScalarOp::shr, run, place_value(begin_loop("bit", {"bit", Dim(bits)})));
        const ValueId tried = b_.add(b_.acc_read(found), more);
        const ValueId exists = b_.op(ScalarOp::le, tried, length);
        const Index last = runs.first + index_of(b_.add(before_begin, tried));
        const ValueId other = key_of(b_.load(runs.items.values, last, exists));
        b_.accumulate(found, more, no_value, b_.op(ScalarOp::bit_and, exists, goes_before(other, key, is_earlier)));
        close(1);
        return b_.acc_read(found);
    }

    ValueId goes_before(ValueId other, ValueId key, ValueId is_earlier) {
        const ValueId ties = b_.op(ScalarOp::bit_and, b_.op(ScalarOp::eq, other, key), is_earlier);
        return b_.op(ScalarOp::bit_or, b_.op(ScalarOp::lt, other, key), ties);
    }
};

}  // namespace

void lower_merge_sort(const Program& program, const Partition& partition, const Region& region,
                      const Schedule& schedule, const std::map<OpId, TensorRef>& in_place, const std::string& name,
                      LoweredRegion& result) {
    const auto kernels = [&] { return MergeKernels(program, partition, region, schedule, in_place, result); };
    const int levels = kernels().levels();
    const int passes = kernels().passes();
    for (int level = 0; level < levels; ++level) {
        const std::string suffix = levels > 1 ? concat("_blocks", level) : passes > 0 ? "_blocks" : "";
        result.kernels.push_back(kernels().write_blocks(name + suffix, level));
    }
    for (int pass = 0; pass < passes; ++pass) {
        result.kernels.push_back(kernels().write_merge(concat(name, "_merge", pass), pass));
    }
}

}  // namespace topstitch::stitch
