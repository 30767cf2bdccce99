// Loops with running values, drawn at random, as Metal source on the simulated device in three orders of threads,
// against the interpreter. All numbers are small integers, so that every grouping gives the same.
#include <doctest/doctest.h>

#include <random>
#include <string>
#include <vector>

#include "test_codegen_device.h"
#include "test_codegen_support.h"
#include "test_loopir_support.h"
#include "test_support.h"

using namespace topstitch;
using namespace topstitch::testing;
using loopir::Builder;
using loopir::Combiner;
using loopir::Index;
using loopir::Kernel;
using loopir::no_value;
using loopir::ScalarOp;
using loopir::ValueId;
using Role = loopir::BufferParam::Role;

namespace {

constexpr std::int64_t rows = 3;

// Rows of running values, each of which may be made of the one before it.
class RandomRows {
public:
    explicit RandomRows(std::uint64_t seed) : random_(seed) {
        const std::int64_t lengths[] = {1, 7, 32, 33, 100, 255, 300, 1024, 1500};
        const std::int64_t length = lengths[pick(9)];
        const bool is_limited = pick(3) == 0;
        const DType type = pick(2) == 0 ? DType::int32 : DType::float32;
        const int x = b_.add_buffer({"x", type, Role::input, rows * length});
        const int ends = b_.add_buffer({"ends", DType::int64, Role::input, rows});
        const int total = b_.add_buffer({"total", type, Role::output, rows});
        std::vector<int> outputs;
        const int count = 1 + pick(3);
        for (int k = 0; k < count; ++k)
            outputs.push_back(b_.add_buffer({"y", type, Role::inout, rows * length}));  // not all of it is written
        const int places = b_.add_buffer({"places", DType::int64, Role::inout, rows * length});

        const Index row = b_.begin_loop("row", rows);
        std::vector<int> running;
        for (int k = 0; k < count; ++k) running.push_back(begin(combiner(k), type));
        const int extreme = begin(pick(2) == 0 ? Combiner::argmin : Combiner::argmax, type);
        const int highest = begin(Combiner::max, type);  // of all, beside those that run
        std::optional<Index> limit;
        if (is_limited) limit = Index::value(b_.load(ends, row));
        const Index j = b_.begin_loop("j", length, limit);
        const Index from = pick(2) == 0 ? j : Index(length - 1) - j;
        const Index at = row * Dim(length) + from;
        const ValueId loaded = b_.load(x, at);
        const ValueId is_positive = b_.op(ScalarOp::lt, b_.op(ScalarOp::neg, loaded), loaded);
        ValueId value = loaded;
        for (int k = 0; k < count; ++k) {
            const ValueId guard = pick(3) == 0 ? is_positive : no_value;
            b_.accumulate(running[slot(k)], value, no_value, guard);
            const ValueId now = b_.acc_read(running[slot(k)]);
            b_.store(outputs[slot(k)], at, b_.add(now, loaded));
            // Either of this one, or beside it.
            if (pick(2) == 0) value = now;
        }
        b_.accumulate(extreme, loaded, b_.index_value(from));
        b_.store(places, at, b_.acc_read(extreme, 1));
        b_.accumulate(highest, value);
        b_.end_loop();
        b_.store(total, row, b_.add(b_.acc_read(highest), b_.acc_read(running[0])));
        b_.end_loop();
        kernel_ = scheduled(b_.finish("rows"), {{"row", {true, false, 1}}, {"j", {false, true, 1}}});

        for (const loopir::BufferParam& buffer : kernel_.buffers) {
            const auto elements = static_cast<std::size_t>(buffer.size.value());
            if (buffer.dtype == DType::int64 && buffer.role == Role::input) {
                std::vector<std::int64_t> numbers(elements);
                for (std::int64_t& number : numbers) number = pick(static_cast<int>(length) + 20) - 10;
                buffers_.push_back(Data::of(numbers));
            } else if (buffer.dtype == DType::int64) {
                buffers_.push_back(Data::of(std::vector<std::int64_t>(elements)));
            } else if (type == DType::int32) {
                buffers_.push_back(Data::of(drawn<std::int32_t>(elements)));
            } else {
                buffers_.push_back(Data::of(drawn<float>(elements)));
            }
        }
    }

    const Kernel& kernel() const { return kernel_; }
    const std::vector<Data>& buffers() const { return buffers_; }

private:
    static std::size_t slot(int k) { return static_cast<std::size_t>(k); }
    int pick(int count) { return static_cast<int>(random_() % static_cast<std::uint64_t>(count)); }
    // Only the first is a sum: sums of sums of floats would round.
    Combiner combiner(int k) {
        const Combiner extremes[] = {Combiner::min, Combiner::max, Combiner::fmin, Combiner::fmax};
        return k == 0 && pick(2) == 0 ? Combiner::sum : extremes[pick(4)];
    }
    int begin(Combiner combiner, DType type) {
        const int accumulator = b_.add_accumulator(combiner, type);
        b_.init_acc(accumulator);
        return accumulator;
    }
    template <typename T>
    std::vector<T> drawn(std::size_t count) {
        std::vector<T> numbers(count);
        for (T& number : numbers) number = static_cast<T>(pick(9) - 4);
        return numbers;
    }

    std::mt19937_64 random_;
    Builder b_;
    Kernel kernel_;
    std::vector<Data> buffers_;
};

}  // namespace

TEST_CASE("prefix: random rows of running values agree with the interpreter in each order of threads") {
    for (std::uint64_t number = 0; number < 24; ++number) {
        const RandomRows random(test_seed() + number);
        const Kernel& kernel = random.kernel();
        const codegen::Source source = emitted(kernel, {.narrow = number % 2 == 0});
        // The shortest rows have a thread each.
        CHECK(contains(source.text, "inline void prefix_") == source.launch.groups);
        std::string found;
        try {
            const std::vector<Data> expected = run_interpreted(kernel, random.buffers(), {});
            found = difference(kernel, expected, run_in_each_order(source, random.buffers(), {}), 0);
        } catch (const InternalError& error) { found = error.what(); }
        CHECK_MESSAGE(found.empty(), "seed ", test_seed() + number, ": ", found, "\n", source.text);
    }
}
