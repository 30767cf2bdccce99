// Reductions with every combiner and schedule: in lanes, in copies, over the outer loop's lanes, nested, guarded.
// Sums use small whole numbers, which are exact in any order, so that results must be equal.
#include <doctest/doctest.h>

#include "loopir/scalar_op.h"
#include "test_cpu_support.h"
#include "topstitch/error.h"

using namespace topstitch;
using namespace topstitch::cpu;
using namespace topstitch::cpu::testing;
using loopir::Builder;
using loopir::Combiner;
using loopir::Index;
using loopir::Kernel;
using loopir::ScalarOp;
using loopir::ValueId;
using Role = loopir::BufferParam::Role;

namespace {

const Dim rows = Dim::symbol("rows");
const Dim columns = Dim::symbol("columns");

constexpr Combiner combiners[] = {Combiner::sum,    Combiner::product, Combiner::min,         Combiner::max,
                                  Combiner::fmin,   Combiner::fmax,    Combiner::logical_and, Combiner::logical_or,
                                  Combiner::argmin, Combiner::argmax};
constexpr DType value_types[] = {DType::boolean, DType::int8,   DType::uint16,  DType::int32,
                                 DType::int64,   DType::uint64, DType::float32, DType::float64};

const std::vector<Schedule>& schedules() {
    static const std::vector<Schedule> list = {
        {},
        {{"r", {true, false, 1}}, {"c", {false, true, 1}}},
        {{"r", {true, false, 1}}, {"c", {false, true, 4}}},
        {{"r", {true, false, 2}}, {"c", {false, true, 2}}},
        {{"r", {true, true, 1}}},
        {{"r", {true, true, 3}}, {"c", {false, false, 2}}},
        {{"r", {false, false, 1}}, {"c", {false, false, 3}}},
    };
    return list;
}

std::vector<std::int64_t> sizes_of(const Kernel& kernel, std::int64_t r, std::int64_t c) {
    std::vector<std::int64_t> sizes;
    for (const Dim& param : loopir::size_params(kernel)) {
        sizes.push_back(param.evaluate([&](std::string_view name) { return name == "rows" ? r : c; }));
    }
    return sizes;
}

Data filled(DType type, std::int64_t count, std::mt19937_64& random, bool small) {
    Data data;
    data.bytes.resize(static_cast<std::size_t>(count) * size_of(type));
    (small ? fill_small : fill)(data.bytes.data(), type, static_cast<std::size_t>(count), random);
    return data;
}

void expect(const Kernel& kernel, const TargetInfo& target, const std::vector<Data>& buffers,
            const std::vector<std::int64_t>& sizes, double tolerance = 0) {
    const std::string difference = check_kernel(kernel, target, buffers, sizes, tolerance);
    CHECK_MESSAGE(difference.empty(), difference);
}

// y[r] = reduce over c of x[r, c] where p[c]; for argmin and argmax also their positions.
Kernel row_reduction(Combiner combiner, DType type, bool guarded) {
    Builder b;
    const bool position = loopir::is_arg_reduction(combiner);
    const int x = b.add_buffer({"x", type, Role::input, rows * columns});
    const int p = b.add_buffer({"p", DType::boolean, Role::input, columns});
    const int y = b.add_buffer({"y", type, Role::output, rows});
    const int where = b.add_buffer({"where", DType::int64, Role::output, rows});
    const int acc = b.add_accumulator(combiner, type);
    const Index r = b.begin_loop("r", rows);
    b.init_acc(acc);
    const Index c = b.begin_loop("c", columns);
    b.accumulate(acc, b.load(x, r * columns + c), position ? b.index_value(c + 5) : loopir::no_value,
                 guarded ? b.load(p, c) : loopir::no_value);
    b.end_loop();
    b.store(y, r, b.acc_read(acc));
    if (position) b.store(where, r, b.acc_read(acc, 1));
    b.end_loop();
    return b.finish(concat(loopir::name_of(combiner), "_", name_of(type)));
}

// y[r, c] = all of x[r, ...] up to c, or what comes before c; for argmin and argmax also where that is.
Kernel running_rows(Combiner combiner, DType type, bool before) {
    Builder b;
    const bool position = loopir::is_arg_reduction(combiner);
    const int x = b.add_buffer({"x", type, Role::input, rows * columns});
    const int y = b.add_buffer({"y", type, Role::output, rows * columns});
    const int at = b.add_buffer({"at", DType::int64, Role::output, rows * columns});
    const int acc = b.add_accumulator(combiner, type);
    const Index r = b.begin_loop("r", rows);
    b.init_acc(acc);
    const Index c = b.begin_loop("c", columns);
    const Index offset = r * columns + c;
    const auto accumulate = [&] {
        b.accumulate(acc, b.load(x, offset), position ? b.index_value(c) : loopir::no_value);
    };
    if (!before) accumulate();
    b.store(y, offset, b.acc_read(acc));
    b.store(at, offset, position ? b.acc_read(acc, 1) : b.index_value(c));
    if (before) accumulate();
    b.end_loop();
    b.end_loop();
    return b.finish("running");
}

}  // namespace

TEST_CASE("reduce: running values, read inside the loop that accumulates") {
    std::mt19937_64 random(test_seed());
    int turn = 0;
    for (const Combiner combiner : combiners) {
        for (const DType type : value_types) {
            if (!loopir::type_error(combiner, type).empty()) continue;
            const bool rounds = is_floating(type) && (combiner == Combiner::sum || combiner == Combiner::product);
            for (const bool before : {false, true}) {
                const Kernel plain = running_rows(combiner, type, before);
                for (const Schedule& schedule : schedules()) {
                    const Kernel kernel = scheduled(plain, schedule);
                    for (const TargetInfo& target : targets_for(type, ++turn)) {
                        for (const auto& [r, c] :
                             {std::pair<std::int64_t, std::int64_t>{1, 0}, {3, 1}, {9, 7}, {2, 8}, {19, 33}, {2, 70}}) {
                            expect(kernel, target,
                                   {filled(type, r * c, random, rounds), filled(type, r * c, random, false),
                                    filled(DType::int64, r * c, random, false)},
                                   sizes_of(kernel, r, c), combiner == Combiner::product ? 1e-5 : 0);
                        }
                    }
                }
            }
        }
    }
}

TEST_CASE("reduce: every combiner on every type and schedule") {
    std::mt19937_64 random(test_seed());
    int defined = 0;
    int turn = 0;
    for (const Combiner combiner : combiners) {
        for (const DType type : value_types) {
            if (!loopir::type_error(combiner, type).empty()) continue;
            ++defined;
            for (const bool guarded : {false, true}) {
                const Kernel plain = row_reduction(combiner, type, guarded);
                const bool rounds = is_floating(type) && (combiner == Combiner::sum || combiner == Combiner::product);
                for (const Schedule& schedule : schedules()) {
                    const Kernel kernel = scheduled(plain, schedule);
                    for (const TargetInfo& target : targets_for(guarded ? DType::boolean : type, ++turn)) {
                        for (const auto& [r, c] : {std::pair<std::int64_t, std::int64_t>{1, 0},
                                                   {3, 1},
                                                   {9, 7},
                                                   {2, 8},
                                                   {1, 31},
                                                   {19, 33},
                                                   {2, 100},
                                                   {40, 5},
                                                   {0, 4}}) {
                            const std::vector<Data> buffers = {
                                filled(type, r * c, random, rounds), filled(DType::boolean, c, random, false),
                                filled(type, r, random, false), filled(DType::int64, r, random, false)};
                            expect(kernel, target, buffers, sizes_of(kernel, r, c),
                                   combiner == Combiner::product ? 1e-5 : 0);
                        }
                    }
                }
            }
        }
    }
    CHECK(defined == 58);
}

TEST_CASE("reduce: tails of every length") {
    std::mt19937_64 random(test_seed());
    const Kernel plain = row_reduction(Combiner::sum, DType::float32, false);
    for (const int unroll : {1, 2, 4}) {
        const Kernel kernel = scheduled(plain, {{"r", {true, false, 1}}, {"c", {false, true, unroll}}});
        for (std::int64_t c = 0; c <= 80; ++c) {
            for (const TargetInfo& target : test_targets()) {
                expect(kernel, target,
                       {filled(DType::float32, 2 * c, random, true), filled(DType::boolean, c, random, false),
                        filled(DType::float32, 2, random, false), filled(DType::int64, 2, random, false)},
                       sizes_of(kernel, 2, c));
            }
        }
    }
}

TEST_CASE("reduce: of equals the first position wins, and NaN before all") {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const float inf = std::numeric_limits<float>::infinity();
    for (const Combiner combiner : {Combiner::argmax, Combiner::argmin}) {
        const float best = combiner == Combiner::argmax ? 9.f : -9.f;
        const float worst = combiner == Combiner::argmax ? -inf : inf;
        const Kernel plain = row_reduction(combiner, DType::float32, false);
        for (const Schedule& schedule : schedules()) {
            const Kernel kernel = scheduled(plain, schedule);
            for (const TargetInfo& target : test_targets()) {
                const auto compiled = compile(std::span(&kernel, 1), target).front();
                const auto position = [&](const std::vector<float>& row) {
                    const auto count = static_cast<std::int64_t>(row.size());
                    const std::vector<Data> result =
                        run_compiled(kernel, *compiled,
                                     {Data::of(row), Data::of(std::vector<std::uint8_t>(row.size(), 1)),
                                      Data::of(std::vector<float>(1)), Data::of(std::vector<std::int64_t>(1))},
                                     sizes_of(kernel, 1, count));
                    return result[3].as<std::int64_t>().front() - 5;
                };
                for (const int length : {1, 9, 40, 77}) {
                    CHECK(position(std::vector<float>(static_cast<std::size_t>(length), 3.f)) == 0);
                    CHECK(position(std::vector<float>(static_cast<std::size_t>(length), worst)) == 0);
                    for (int first = 0; first < length; ++first) {
                        std::vector<float> row(static_cast<std::size_t>(length), 1.f);
                        for (int k = first; k < length; k += 3) row[static_cast<std::size_t>(k)] = best;
                        CHECK(position(row) == first);
                        row[static_cast<std::size_t>(length - 1)] = nan;
                        row[static_cast<std::size_t>((first + length) / 2)] = nan;
                        CHECK(position(row) == (first + length) / 2);
                    }
                }
            }
        }
    }
}

TEST_CASE("reduce: softmax, whose accumulators feed loops") {
    std::mt19937_64 random(test_seed());
    Builder b;
    const int x = b.add_buffer({"x", DType::float32, Role::input, rows * columns});
    const int t = b.add_buffer({"t", DType::float32, Role::local, columns});
    const int y = b.add_buffer({"y", DType::float32, Role::output, rows * columns});
    const int top = b.add_accumulator(Combiner::max, DType::float32);
    const int sum = b.add_accumulator(Combiner::sum, DType::float32);
    const Index r = b.begin_loop("r", rows);
    b.init_acc(top);
    const Index c = b.begin_loop("c", columns);
    b.accumulate(top, b.load(x, r * columns + c));
    b.end_loop();
    const ValueId highest = b.acc_read(top);
    b.init_acc(sum);
    const Index d = b.begin_loop("d", columns);
    const ValueId power = b.op(ScalarOp::exp, b.sub(b.load(x, r * columns + d), highest));
    b.store(t, d, power);
    b.accumulate(sum, power);
    b.end_loop();
    const ValueId total = b.acc_read(sum);
    const Index e = b.begin_loop("e", columns);
    b.store(y, r * columns + e, b.div(b.load(t, e), total));
    b.end_loop();
    b.end_loop();
    const Kernel plain = b.finish("softmax");
    for (const Schedule& schedule :
         {Schedule{}, Schedule{{"r", {true, true, 1}}}, Schedule{{"r", {true, true, 2}}},
          Schedule{{"r", {true, false, 1}}, {"c", {false, true, 2}}, {"d", {false, true, 2}}, {"e", {false, true, 2}}},
          Schedule{
              {"r", {true, false, 3}}, {"c", {false, true, 1}}, {"d", {false, true, 1}}, {"e", {false, true, 1}}}}) {
        const Kernel kernel = scheduled(plain, schedule, true);
        for (const TargetInfo& target : test_targets()) {
            for (const auto& [r_count, c_count] :
                 {std::pair<std::int64_t, std::int64_t>{5, 10}, {17, 33}, {2, 128}, {9, 1}}) {
                std::vector<float> data;
                std::uniform_real_distribution<float> distribution(-10, 10);
                for (std::int64_t k = 0; k < r_count * c_count; ++k) data.push_back(distribution(random));
                expect(kernel, target, {Data::of(data), Data::of(std::vector<float>(data.size()))},
                       sizes_of(kernel, r_count, c_count), 1e-6);
            }
        }
    }
}

TEST_CASE("reduce: matrix product in register tiles, against plain C++") {
    const Dim m = Dim::symbol("m");
    const Dim n = Dim::symbol("n");
    const Dim k = Dim::symbol("k");
    std::mt19937_64 random(test_seed());
    for (const DType type : {DType::float32, DType::float64, DType::int32}) {
        Builder b;
        const int a = b.add_buffer({"a", type, Role::input, m * k});
        const int w = b.add_buffer({"w", type, Role::input, k * n});
        const int y = b.add_buffer({"y", type, Role::output, m * n});
        const int acc = b.add_accumulator(Combiner::sum, type);
        const Index i = b.begin_loop("i", m);
        const Index j = b.begin_loop("j", n);
        b.init_acc(acc);
        const Index l = b.begin_loop("l", k);
        b.accumulate(acc, b.mul(b.load(a, i * k + l), b.load(w, l * n + j)));
        b.end_loop();
        b.store(y, i * n + j, b.acc_read(acc));
        b.end_loop();
        b.end_loop();
        const Kernel plain = b.finish("matmul");
        for (const Schedule& schedule :
             {Schedule{{"i", {true, false, 4}}, {"j", {false, true, 2}}},
              Schedule{{"i", {true, false, 3}}, {"j", {false, true, 1}}},
              Schedule{{"i", {true, true, 1}}, {"j", {false, false, 4}}},
              Schedule{{"i", {true, false, 2}}, {"j", {false, false, 2}}, {"l", {false, true, 2}}},
              Schedule{{"j", {false, true, 2}}, {"l", {false, false, 4}}}}) {
            const Kernel kernel = scheduled(plain, schedule);
            for (const TargetInfo& target : test_targets()) {
                const auto compiled = compile(std::span(&kernel, 1), target).front();
                for (const auto& [mm, nn, kk] :
                     {std::tuple<int, int, int>{1, 1, 1}, {4, 16, 3}, {5, 19, 9}, {13, 37, 20}, {8, 64, 0}}) {
                    const auto run = [&](auto zero) {
                        using T = decltype(zero);
                        std::vector<T> av(static_cast<std::size_t>(mm * kk));
                        std::vector<T> wv(static_cast<std::size_t>(kk * nn));
                        for (T& value : av) value = static_cast<T>(static_cast<int>(random() % 17) - 8);
                        for (T& value : wv) value = static_cast<T>(static_cast<int>(random() % 17) - 8);
                        std::vector<T> product(static_cast<std::size_t>(mm * nn), T(0));
                        for (int r = 0; r < mm; ++r) {
                            for (int c = 0; c < nn; ++c) {
                                for (int d = 0; d < kk; ++d) {
                                    product[static_cast<std::size_t>(r * nn + c)] +=
                                        av[static_cast<std::size_t>(r * kk + d)] *
                                        wv[static_cast<std::size_t>(d * nn + c)];
                                }
                            }
                        }
                        std::vector<std::int64_t> sizes;
                        for (const Dim& param : loopir::size_params(kernel)) {
                            sizes.push_back(param.evaluate([&](std::string_view name) {
                                return name == "m" ? mm : name == "n" ? nn : kk;
                            }));
                        }
                        const std::vector<Data> result = run_compiled(
                            kernel, *compiled,
                            {Data::of(av), Data::of(wv), Data::of(std::vector<T>(product.size(), T(77)))}, sizes, 3);
                        const std::vector<T> computed = result[2].template as<T>();
                        CHECK(computed == product);
                    };
                    if (type == DType::float32) run(float{});
                    if (type == DType::float64) run(double{});
                    if (type == DType::int32) run(std::int32_t{});
                }
            }
        }
    }
}

TEST_CASE("reduce: several loops between the start of an accumulator and its end") {
    std::mt19937_64 random(test_seed());
    // y = sum over r, c of x[r, c] * w[c]; and the largest row sum, which is reset for each row.
    Builder b;
    const int x = b.add_buffer({"x", DType::float64, Role::input, rows * columns});
    const int w = b.add_buffer({"w", DType::float64, Role::input, columns});
    const int y = b.add_buffer({"y", DType::float64, Role::output, Dim(2)});
    const int all = b.add_accumulator(Combiner::sum, DType::float64);
    const int row = b.add_accumulator(Combiner::sum, DType::float64);
    const int largest = b.add_accumulator(Combiner::max, DType::float64);
    b.init_acc(all);
    b.init_acc(largest);
    const Index r = b.begin_loop("r", rows);
    b.init_acc(row);
    const Index c = b.begin_loop("c", columns);
    const ValueId value = b.load(x, r * columns + c);
    b.accumulate(all, b.mul(value, b.load(w, c)));
    b.accumulate(row, value);
    b.end_loop();
    b.accumulate(largest, b.acc_read(row));
    b.end_loop();
    b.store(y, Index(0), b.acc_read(all));
    b.store(y, Index(1), b.acc_read(largest));
    const Kernel plain = b.finish("nested");
    for (Schedule schedule : schedules()) {
        schedule["r"].parallel = false;
        const Kernel kernel = scheduled(plain, schedule);
        for (const TargetInfo& target : test_targets()) {
            for (const auto& [r_count, c_count] :
                 {std::pair<std::int64_t, std::int64_t>{0, 3}, {3, 0}, {7, 21}, {34, 6}, {65, 70}}) {
                expect(kernel, target,
                       {filled(DType::float64, r_count * c_count, random, true),
                        filled(DType::float64, c_count, random, true), filled(DType::float64, 2, random, false)},
                       sizes_of(kernel, r_count, c_count));
            }
        }
    }
}
