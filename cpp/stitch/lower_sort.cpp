// Writes a sort. Short rows: each element's rank is counted. Long ones: by digits of their keys, the least significant
// first (D. E. Knuth, The Art of Computer Programming 3, 5.2.5). The first few: the best so far are kept in order.
#include "stitch/sort_writer.h"

namespace topstitch::stitch {

namespace {

using loopir::Combiner;
using loopir::no_value;
using loopir::ScalarOp;
using loopir::ValueId;

constexpr int vectors_together = 4;

// How many elements come before each: all are compared with all.
class RankKernel : public SortWriter {
public:
    using SortWriter::SortWriter;

    LoweredKernel write(const std::string& name) {
        begin_rows(1);
        // Where there is room, the place goes into the key, so that no two are equal.
        const bool unique = key_bits() <= 32;
        const DType type = unique ? DType::uint64 : key_type();
        const int keys = local_buffer("keys", type, length_);
        const int ranks = local_buffer("ranks", DType::int64, length_);
        {
            const Index i = begin_loop("i", {"i", length_, false, true, vectors_together});
            ValueId key = key_of(element_at(i));
            if (unique) {
                key = b_.op(ScalarOp::shl, b_.cast(key, type), number(place_bits, type));
                key = b_.op(ScalarOp::bit_or, key, b_.cast(b_.index_value(i), type));
            }
            b_.store(keys, i, key);
            close(1);
        }
        {
            const Index i = begin_loop("i", {"i", length_, false, true, vectors_together});
            const ValueId own = b_.load(keys, i);
            const int rank = b_.add_accumulator(Combiner::sum, DType::int64);
            b_.init_acc(rank);
            const Index j = begin_loop("j", {"j", length_});
            const ValueId other = b_.load(keys, j);
            ValueId before = b_.op(ScalarOp::lt, other, own);
            if (!unique) {
                const ValueId earlier = b_.op(ScalarOp::lt, b_.index_value(j), b_.index_value(i));
                const ValueId ties = b_.op(ScalarOp::bit_and, b_.op(ScalarOp::eq, other, own), earlier);
                before = b_.op(ScalarOp::bit_or, before, ties);
            }
            b_.accumulate(rank, b_.cast(before, DType::int64));
            close(1);
            b_.store(ranks, i, b_.acc_read(rank));
            close(1);
        }
        const Index i = begin_loop("i", {"i", length_});
        store_result(Index::value(b_.load(ranks, i)), item_at({}, i, i));
        close(2);
        return finish(name);
    }

private:
    static constexpr std::int64_t place_bits = 8;
};

// The best so far, in order; what is not better than the last of them is passed over, a block at a time.
class SelectionKernel : public SortWriter {
public:
    using SortWriter::SortWriter;

    LoweredKernel write(const std::string& name) {
        begin_rows(1);
        keys_ = local_buffer("keys", key_type(), count_);
        places_ = local_buffer("places", DType::int32, count_);
        const Index i = begin_loop("i", {"i", count_});
        insert(key_of(element_at(i)), i, i);
        close(1);

        const Dim rest = length_ - count_;
        const Index first = begin_loop("block", {"block", ceil_div(rest, Dim(block))}) * Dim(block);
        const Index left = Index(rest) - first;
        const int least = b_.add_accumulator(Combiner::min, key_type());
        b_.init_acc(least);
        const Index lane = begin_loop("lane", {"lane", Dim(block), false, true, vectors_together}, left);
        b_.accumulate(least, key_of(element_at(Index(count_) + first + lane)));
        close(1);
        const ValueId promising = b_.op(ScalarOp::lt, b_.acc_read(least), last_key());
        const Index e = begin_loop("e", {"e", Dim(block)}, only_where(promising, left));
        const Index position = Index(count_) + first + e;
        const ValueId key = key_of(element_at(position));
        begin_loop("once", {"once", Dim(1)}, only_where(b_.op(ScalarOp::lt, key, last_key()), 1));
        insert(key, position, Index(count_) - 1);
        close(3);

        const Index p = begin_loop("p", {"p", count_});
        store_result(p, {no_value, b_.load(places_, p)});
        close(2);
        return finish(name);
    }

private:
    static constexpr std::int64_t block = 256;

    ValueId last_key() { return b_.load(keys_, Index(count_) - 1); }
    Index only_where(ValueId predicate, const Index& end) {
        return Index::value(b_.select(predicate, b_.index_value(end), number(0, DType::int64)));
    }

    // Behind all that are not larger, among the first `kept`; those behind it move up by one.
    void insert(ValueId key, const Index& position, const Index& kept) {
        const int smaller = b_.add_accumulator(Combiner::sum, DType::int32);
        b_.init_acc(smaller);
        const Index p = begin_loop("p", {"p", count_}, kept);
        b_.accumulate(smaller, b_.cast(b_.op(ScalarOp::le, b_.load(keys_, p), key), DType::int32));
        close(1);
        const Index place = index_of(b_.acc_read(smaller));
        const Index q = begin_loop("q", {"q", count_}, kept - place);
        const Index to = kept - q;
        b_.store(keys_, to, b_.load(keys_, to - 1));
        b_.store(places_, to, b_.load(places_, to - 1));
        close(1);
        b_.store(keys_, place, key);
        b_.store(places_, place, place_value(position));
    }

    int keys_ = -1, places_ = -1;
};

// Passes over the row, one for each digit: elements go behind all that have smaller digits, in their order.
class DigitKernels : public SortWriter {
public:
    using SortWriter::SortWriter;

    // All passes over a row in one kernel.
    LoweredKernel write_rows(const std::string& name) {
        begin_rows(1);
        const int counters = local_buffer("counters", DType::int32, Dim(radix() * plan_.digits));
        clear(counters, radix() * plan_.digits);
        const Index i = begin_loop("i", {"i", length_});
        const ValueId key = key_of(element_at(i));
        for (int digit = 0; digit < plan_.digits; ++digit) count(counters, counter_of(key, digit) + digit * radix());
        close(1);
        for (int digit = 0; digit < plan_.digits; ++digit) {
            const int before = b_.add_accumulator(Combiner::sum, DType::int32);
            b_.init_acc(before);
            const Index at = begin_loop("d", {"d", Dim(radix()), false, true, vectors_together}) + digit * radix();
            const ValueId here = b_.load(counters, at);
            b_.accumulate(before, here);
            b_.store(counters, at, b_.sub(b_.acc_read(before), here));
            close(1);
        }
        Items from;
        Items spare[2];
        for (int digit = 0; digit < plan_.digits; ++digit) {
            const bool last = digit + 1 == plan_.digits;
            Items& to = spare[digit % 2];
            if (!last && to.values < 0) {
                to.values = local_buffer("values", stored_dtype(dtype_), length_);
                if (body_.positions) to.places = local_buffer("places", DType::int32, length_);
            }
            const Index at = begin_loop("i", {"i", length_});
            const Item item = item_at(from, at, at);
            const Index counter = counter_of(key_of(item.value), digit) + digit * radix();
            const Index position = next_place(counters, counter);
            if (last) {
                store_result(position, item);
            } else {
                store_item(to, position, item);
            }
            close(1);
            from = to;
        }
        close(1);
        return finish(name);
    }

    // Of one pass over rows in chunks: how often each digit occurs in each chunk.
    LoweredKernel write_counts(const std::string& name, int digit) {
        const Index chunk = begin_rows(Dim(plan_.chunks));
        const Items from = stored(digit - 1, false);
        const int counters = local_buffer("counters", DType::int32, Dim(radix()));
        clear(counters, radix());
        walk(chunk, [&](const Index& position) {
            count(counters, counter_of(key_of(item_at(from, in_row(position), position).value), digit));
        });
        const int counts = counts_buffer(digit, true);
        const Index d = begin_loop("d", {"d", Dim(radix()), false, true, vectors_together});
        b_.store(counts, count_at(chunk, d), b_.load(counters, d));
        close(2);
        return finish(name);
    }

    // And the elements to their places: behind those of smaller digits, and of the same digit in earlier chunks.
    LoweredKernel write_places(const std::string& name, int digit) {
        const Index chunk = begin_rows(Dim(plan_.chunks));
        const Items from = stored(digit - 1, false);
        const bool last = digit + 1 == plan_.digits;
        const Items to = last ? Items{} : stored(digit, true);
        const int counts = counts_buffer(digit, false);
        const int counters = local_buffer("counters", DType::int32, Dim(radix()));
        const int totals = local_buffer("totals", DType::int32, Dim(radix()));
        {
            const Index d = begin_loop("d", {"d", Dim(radix()), false, true, vectors_together});
            const auto sum = [&](int target, const std::optional<Index>& limit) {
                const int total = b_.add_accumulator(Combiner::sum, DType::int32);
                b_.init_acc(total);
                const Index c = begin_loop("c", {"c", Dim(plan_.chunks)}, limit);
                b_.accumulate(total, b_.load(counts, count_at(c, d)));
                close(1);
                b_.store(target, d, b_.acc_read(total));
            };
            sum(counters, chunk);
            sum(totals, std::nullopt);
            close(1);
        }
        {
            const int before = b_.add_accumulator(Combiner::sum, DType::int32);
            b_.init_acc(before);
            const Index d = begin_loop("d", {"d", Dim(radix()), false, true, vectors_together});
            const ValueId here = b_.load(totals, d);
            b_.accumulate(before, here);
            b_.store(counters, d, b_.add(b_.load(counters, d), b_.sub(b_.acc_read(before), here)));
            close(1);
        }
        walk(chunk, [&](const Index& position) {
            const Item item = item_at(from, in_row(position), position);
            const Index place = next_place(counters, counter_of(key_of(item.value), digit));
            if (last) {
                store_result(place, item);
            } else {
                store_item(to, in_row(place), item);
            }
        });
        close(1);
        return finish(name);
    }

private:
    std::int64_t radix() const { return std::int64_t{1} << std::min(plan_.digit_bits, key_bits()); }

    Index counter_of(ValueId key, int digit) {
        const DType type = key_type();
        const ValueId shifted =
            digit == 0 ? key : b_.op(ScalarOp::shr, key, number(std::int64_t{plan_.digit_bits} * digit, type));
        const bool narrow = size_of(type) == 1;
        return index_of(narrow ? shifted : b_.op(ScalarOp::bit_and, shifted, number(radix() - 1, type)));
    }

    void clear(int counters, std::int64_t size) {
        const Index d = begin_loop("d", {"d", Dim(size), false, true, vectors_together});
        b_.store(counters, d, number(0, DType::int32));
        close(1);
    }
    void count(int counters, const Index& counter) {
        b_.store(counters, counter, b_.add(b_.load(counters, counter), number(1, DType::int32)));
    }
    Index next_place(int counters, const Index& counter) {
        const ValueId place = b_.load(counters, counter);
        b_.store(counters, counter, b_.add(place, number(1, DType::int32)));
        return index_of(place);
    }

    // --- Chunks.

    template <typename Body>
    void walk(const Index& chunk, Body body) {
        const Dim length = ceil_div(length_, Dim(plan_.chunks));
        const Index first = chunk * length;
        body(first + begin_loop("i", {"i", length}, Index(length_) - first));
        close(1);
    }
    Index count_at(const Index& chunk, const Index& digit) const {
        return (row() * Dim(plan_.chunks) + chunk) * Dim(radix()) + digit;
    }
    // Scratch memory of the region: for each pass its counts, and the items that it leaves to the next.
    int first_scratch(int digit) const { return digit * (body_.positions ? 3 : 2); }
    int counts_buffer(int digit, bool writing) {
        return scratch_buffer("counts", first_scratch(digit), DType::int32, rows() * Dim(plan_.chunks * radix()),
                              writing);
    }
    Items stored(int digit, bool writing) {
        if (digit < 0) return {};
        Items items;
        const Dim size = in_shape_.num_elements();
        items.values = scratch_buffer("values", first_scratch(digit) + 1, stored_dtype(dtype_), size, writing);
        if (body_.positions)
            items.places = scratch_buffer("places", first_scratch(digit) + 2, DType::int32, size, writing);
        return items;
    }
};

}  // namespace

void lower_sort(const Program& program, const Partition& partition, const Region& region, const Schedule& schedule,
                const std::map<OpId, TensorRef>& in_place, const std::string& name, LoweredRegion& result) {
    const SortPlan& plan = *schedule.sort;
    result.work = SortWriter(program, partition, region, schedule, in_place, result).work();
    switch (plan.method) {
        case SortPlan::Method::ranks:
            result.kernels.push_back(RankKernel(program, partition, region, schedule, in_place, result).write(name));
            return;
        case SortPlan::Method::selection:
            result.kernels.push_back(
                SelectionKernel(program, partition, region, schedule, in_place, result).write(name));
            return;
        case SortPlan::Method::merges:
            return lower_merge_sort(program, partition, region, schedule, in_place, name, result);
        case SortPlan::Method::digits:
            break;
    }
    const auto kernels = [&] { return DigitKernels(program, partition, region, schedule, in_place, result); };
    if (plan.chunks == 1) {
        result.kernels.push_back(kernels().write_rows(name));
        return;
    }
    for (int digit = 0; digit < plan.digits; ++digit) {
        result.kernels.push_back(kernels().write_counts(concat(name, "_counts", digit), digit));
        result.kernels.push_back(kernels().write_places(concat(name, "_places", digit), digit));
    }
}

}  // namespace topstitch::stitch
