// Emitted Metal source, run on the simulated device, against the interpreter: random kernels, every scalar instruction
// on every type, every reduction in every form. TOPSTITCH_TEST_SEED and TOPSTITCH_TEST_KERNELS as for the CPU.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <numeric>

#include "loopir/scalar_op.h"
#include "test_codegen_device.h"
#include "test_codegen_support.h"
#include "test_kernel_random.h"
#include "test_loopir_support.h"

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

const std::vector<DType> value_types = {DType::boolean, DType::int8,   DType::int16,  DType::int32,  DType::int64,
                                        DType::uint8,   DType::uint16, DType::uint32, DType::uint64, DType::float32};
constexpr std::int64_t count = 700;
constexpr std::size_t most_outputs = 20;  // of one kernel: compiling takes the time

int kernel_count() {
    const char* text = std::getenv("TOPSTITCH_TEST_KERNELS");
    return text != nullptr ? std::atoi(text) : 40;
}

using Make = std::function<ValueId(Builder&, const std::vector<ValueId>&)>;

// One kernel with an output for each function of three inputs of `type`.
void check_functions(DType type, std::span<const Make> functions) {
    Builder b;
    std::mt19937_64 random(test_seed());
    std::vector<Data> buffers;
    const auto add = [&](const std::string& name, DType dtype, Role role) {
        Data data;
        data.bytes.resize(static_cast<std::size_t>(count) * size_of(dtype));
        if (role == Role::input) fill(data.bytes.data(), dtype, static_cast<std::size_t>(count), random);
        buffers.push_back(std::move(data));
        return b.add_buffer({name, dtype, role, count});
    };
    std::vector<int> inputs;
    for (const char* name : {"x", "y", "z"}) inputs.push_back(add(name, type, Role::input));
    const Index i = b.begin_loop("i", count);
    std::vector<ValueId> args;
    for (const int input : inputs) args.push_back(b.load(input, i));
    std::vector<ValueId> results;
    for (const Make& function : functions) results.push_back(function(b, args));
    for (const ValueId result : results) b.store(add("out", b.type(result), Role::output), i, result);
    b.end_loop();
    const Kernel kernel = scheduled(b.finish("functions"), {{"i", {true, true, 1}}});
    const std::string found = check_emitted(kernel, buffers, {});
    CHECK_MESSAGE(found.empty(), std::string(name_of(type)), ": ", found);
}

void check_in_parts(DType type, const std::vector<Make>& functions) {
    for (std::size_t first = 0; first < functions.size(); first += most_outputs) {
        const std::size_t size = std::min(most_outputs, functions.size() - first);
        check_functions(type, std::span(functions).subspan(first, size));
    }
}

// Is the instruction defined on the type?
bool is_defined(ScalarOp op, DType type) {
    try {
        Builder b;
        const int x = b.add_buffer({"x", type, Role::input, 1});
        const ValueId v = b.load(x, Index(0));
        const int arity = loopir::info(op).arity;
        if (op == ScalarOp::select) return true;
        b.op(op, v, arity > 1 ? v : no_value, arity > 2 ? v : no_value);
        return true;
    } catch (const InternalError&) { return false; }
}

constexpr auto last_op = static_cast<int>(ScalarOp::atan2);

// Loops over the columns of rows: `row` gets the accumulator ids and adds to them.
struct RowCase {
    Combiner combiner;
    DType type;
};

Kernel row_reductions(const std::vector<RowCase>& cases, const Dim& rows, const Dim& cols, bool guarded) {
    Builder b;
    std::vector<int> inputs, outputs, positions;
    for (const RowCase& one : cases) {
        inputs.push_back(b.add_buffer({"x", one.type, Role::input, rows * cols}));
        outputs.push_back(b.add_buffer({"y", one.type, Role::output, rows}));
        if (loopir::is_arg_reduction(one.combiner)) {
            positions.push_back(b.add_buffer({"at", DType::int64, Role::output, rows}));
        }
    }
    const Index i = b.begin_loop("i", rows);
    std::size_t position = 0;
    for (std::size_t k = 0; k < cases.size(); ++k) {
        const int acc = b.add_accumulator(cases[k].combiner, cases[k].type);
        b.init_acc(acc);
        const bool arg = loopir::is_arg_reduction(cases[k].combiner);
        const Index j = b.begin_loop("j", cols);
        const ValueId number = b.index_value(j);
        const ValueId three = b.constant_int(3, DType::int64);
        const ValueId guard =
            guarded ? b.op(ScalarOp::ne, b.op(ScalarOp::rem, number, three), b.constant_int(1, DType::int64))
                    : no_value;
        b.accumulate(acc, b.load(inputs[k], i * cols + j), arg ? number : no_value, guard);
        b.end_loop();
        b.store(outputs[k], i, b.acc_read(acc));
        if (arg) b.store(positions[position++], i, b.acc_read(acc, 1));
    }
    b.end_loop();
    return scheduled(b.finish("rows"), {{"i", {true, false, 1}}, {"j", {false, true, 1}}});
}

std::vector<Data> data_for(const Kernel& kernel, const std::function<std::int64_t(const Dim&)>& number, bool small,
                           std::mt19937_64& random) {
    std::vector<Data> buffers;
    for (const loopir::BufferParam& buffer : kernel.buffers) {
        if (buffer.role == Role::local) continue;
        Data data;
        const auto elements = static_cast<std::size_t>(number(buffer.size));
        data.bytes.resize(elements * size_of(buffer.dtype));
        (small ? fill_small : fill)(data.bytes.data(), buffer.dtype, elements, random);
        buffers.push_back(std::move(data));
    }
    return buffers;
}

}  // namespace

TEST_CASE("run: random kernels agree with the interpreter") {
    for (int number = 0; number < kernel_count(); ++number) {
        const std::uint64_t seed = test_seed() + static_cast<std::uint64_t>(number);
        RandomKernel random(seed, false);
        const std::string found =
            check_emitted(random.kernel(), random.buffers(), random.sizes(), {.narrow = number % 2 == 0});
        CHECK_MESSAGE(found.empty(), "kernel seed ", seed, ": ", found);
    }
}

TEST_CASE("run: every instruction on every type, math functions included") {
    for (const DType type : value_types) {
        std::vector<Make> functions;
        for (int k = 0; k <= last_op; ++k) {
            const auto op = static_cast<ScalarOp>(k);
            const int arity = loopir::info(op).arity;
            const bool source = op == ScalarOp::constant || op == ScalarOp::index_value || op == ScalarOp::load ||
                                op == ScalarOp::acc_read;
            const bool conversion = op == ScalarOp::cast || op == ScalarOp::round_to || op == ScalarOp::bitcast ||
                                    op == ScalarOp::to_bits16 || op == ScalarOp::from_bits16 ||
                                    op == ScalarOp::dot_pairs;
            if (source || conversion || !is_defined(op, type)) continue;
            if (op == ScalarOp::select) {
                functions.push_back([](Builder& b, const std::vector<ValueId>& v) {
                    return b.select(b.op(ScalarOp::lt, v[0], v[1]), v[1], v[2]);
                });
                continue;
            }
            functions.push_back([=](Builder& b, const std::vector<ValueId>& v) {
                return b.op(op, v[0], arity > 1 ? v[1] : no_value, arity > 2 ? v[2] : no_value);
            });
        }
        check_in_parts(type, functions);
    }
}

TEST_CASE("run: shifts by constants, which have no test") {
    for (const DType type : value_types) {
        if (!is_integer(type)) continue;
        std::vector<Make> functions;
        const auto bits = static_cast<int>(8 * size_of(type));
        for (const ScalarOp op : {ScalarOp::shl, ScalarOp::shr}) {
            for (const int by : {0, 1, bits - 1, bits, bits + 1, -1}) {
                functions.push_back([=](Builder& b, const std::vector<ValueId>& v) {
                    return b.op(op, v[0], b.constant_int(by, type));
                });
            }
        }
        check_in_parts(type, functions);
    }
}

TEST_CASE("run: conversions from every type to every type") {
    std::vector<DType> types = value_types;
    types.push_back(DType::float16);
    types.push_back(DType::bfloat16);
    for (const DType from : types) {
        std::vector<Make> functions;
        const DType computed = compute_type(from);
        for (const DType to : value_types) {
            functions.push_back([=](Builder& b, const std::vector<ValueId>& v) { return b.cast(v[0], to); });
            const bool bits = size_of(to) == size_of(computed) && to != DType::boolean && computed != DType::boolean;
            // Of NaN only that it is one is promised, not its bits.
            if (bits) {
                functions.push_back([=](Builder& b, const std::vector<ValueId>& v) {
                    const ValueId raw = b.bitcast(v[0], to);
                    return is_floating(to) ? raw : b.select(b.op(ScalarOp::eq, v[0], v[0]), raw, b.constant_int(0, to));
                });
            }
        }
        for (const DType half : {DType::float16, DType::bfloat16}) {
            if (computed == DType::float32) {
                functions.push_back([=](Builder& b, const std::vector<ValueId>& v) { return b.round_to(v[0], half); });
                functions.push_back([=](Builder& b, const std::vector<ValueId>& v) {
                    const ValueId number = b.op(ScalarOp::eq, v[0], v[0]);
                    return b.select(number, b.to_bits16(v[0], half), b.constant_int(0, DType::uint16));
                });
            }
            if (computed == DType::uint16) {
                functions.push_back(
                    [=](Builder& b, const std::vector<ValueId>& v) { return b.from_bits16(v[0], half); });
            }
        }
        check_in_parts(from, functions);
    }
}

TEST_CASE("run: rows reduced by groups of threads, all combiners and types") {
    // Exact in any order: numbers are small for sums and products, and products mostly 0 or wrapped.
    const std::vector<Combiner> combiners = {Combiner::sum,  Combiner::product, Combiner::min,    Combiner::max,
                                             Combiner::fmin, Combiner::fmax,    Combiner::argmin, Combiner::argmax};
    std::mt19937_64 random(test_seed());
    for (const DType type : value_types) {
        std::vector<RowCase> cases;
        if (type == DType::boolean) {
            cases = {{Combiner::logical_and, type}, {Combiner::logical_or, type}};
        } else {
            for (const Combiner combiner : combiners) {
                if (combiner != Combiner::product || is_integer(type)) cases.push_back({combiner, type});
            }
        }
        // One simdgroup, several, and rows of a length that only the launch knows.
        struct Extent {
            std::int64_t cols;
            bool symbolic;
        };
        int turn = 0;
        for (const Extent extent : {Extent{33, false}, Extent{700, false}, Extent{1100, false}, Extent{7, true}}) {
            const Dim cols = extent.symbolic ? Dim::symbol("cols") : Dim(extent.cols);
            const Dim rows = Dim::symbol("rows");
            const bool guarded = ++turn % 2 == 0;
            const Kernel kernel = row_reductions(cases, rows, cols, guarded);
            const auto number = [&](const Dim& dim) {
                return dim.evaluate([&](std::string_view name) { return name == "rows" ? 3 : extent.cols; });
            };
            std::vector<std::int64_t> sizes;
            for (const Dim& dim : loopir::size_params(kernel)) sizes.push_back(number(dim));
            // Special values are for what does not add; sums of those are not exact.
            const bool small = turn % 2 == 0 || type == DType::float32;
            const std::string found = check_emitted(kernel, data_for(kernel, number, small, random), sizes);
            CHECK_MESSAGE(found.empty(), std::string(name_of(type)), " in rows of ", extent.cols, ": ", found);
        }
    }
}

TEST_CASE("run: extrema of floats with NaN, infinities and zeros of both signs") {
    std::mt19937_64 random(test_seed() + 1);
    const std::vector<RowCase> cases = {{Combiner::min, DType::float32},    {Combiner::max, DType::float32},
                                        {Combiner::fmin, DType::float32},   {Combiner::fmax, DType::float32},
                                        {Combiner::argmin, DType::float32}, {Combiner::argmax, DType::float32}};
    for (const std::int64_t cols : {20, 400}) {
        const Kernel kernel = row_reductions(cases, 50, cols, false);
        const auto number = [](const Dim& dim) { return dim.value(); };
        const std::string found = check_emitted(kernel, data_for(kernel, number, false, random), {});
        CHECK_MESSAGE(found.empty(), found);
    }
}

TEST_CASE("run: a long sum in blocks has the accuracy of float64") {
    // As the stitcher writes it: blocks in float32, and their sum in float64, which becomes a pair.
    constexpr std::int64_t length = 300007;
    constexpr std::int64_t block = 1024;
    Builder b;
    const int x = b.add_buffer({"x", DType::float32, Role::input, length});
    const int y = b.add_buffer({"y", DType::float32, Role::output, 1});
    const int total = b.add_accumulator(Combiner::sum, DType::float64);
    const int part = b.add_accumulator(Combiner::sum, DType::float32);
    b.init_acc(total);
    const Index at = b.begin_loop("block", (length + block - 1) / block);
    b.init_acc(part);
    const Index j = b.begin_loop("j", block, Index(length) - at * Dim(block));
    b.accumulate(part, b.load(x, at * Dim(block) + j));
    b.end_loop();
    b.accumulate(total, b.cast(b.acc_read(part), DType::float64));
    b.end_loop();
    b.store(y, Index(0), b.cast(b.acc_read(total), DType::float32));
    const Kernel kernel = scheduled(b.finish("long_sum"), {{"j", {false, true, 1}}});
    const codegen::Source source = emitted(kernel);
    CHECK(source.launch.groups);

    std::vector<float> numbers(length);
    double exact = 0;
    std::mt19937_64 random(test_seed());
    for (float& number : numbers) {
        number = std::ldexp(static_cast<float>(random() % 1000 + 1), -8);
        exact += static_cast<double>(number);  // exact: whole multiples of 2^-8 far below 2^45
    }
    const auto sum_of = [&] {
        return run_emitted(source, {Data::of(numbers), Data::of(std::vector<float>{0})}, {})[1].as<float>()[0];
    };
    CHECK(std::abs(static_cast<double>(sum_of()) - exact) <= 1.5e-7 * exact);
    numbers[4711] = std::numeric_limits<float>::infinity();
    CHECK(sum_of() == std::numeric_limits<float>::infinity());
    numbers[12] = -std::numeric_limits<float>::infinity();
    CHECK(std::isnan(sum_of()));
}

TEST_CASE("run: short loops inside each other are shared out as one") {
    // y[i] = the sum of x[i] over 5 x 7 x 11, and where its maximum is.
    Builder b;
    const int x = b.add_buffer({"x", DType::int32, Role::input, 6 * 385});
    const int y = b.add_buffer({"y", DType::int32, Role::output, 6});
    const int at = b.add_buffer({"at", DType::int64, Role::output, 6});
    const Index i = b.begin_loop("i", 6);
    const int sum = b.add_accumulator(Combiner::sum, DType::int32);
    const int best = b.add_accumulator(Combiner::argmax, DType::int32);
    b.init_acc(sum);
    b.init_acc(best);
    const Index p = b.begin_loop("p", 5);
    const Index q = b.begin_loop("q", 7);
    const Index r = b.begin_loop("r", 11);
    const Index place = (p * Dim(7) + q) * Dim(11) + r;
    const ValueId value = b.load(x, i * Dim(385) + place);
    b.accumulate(sum, value);
    b.accumulate(best, value, b.index_value(place));
    for (int k = 0; k < 3; ++k) b.end_loop();
    b.store(y, i, b.acc_read(sum));
    b.store(at, i, b.acc_read(best, 1));
    b.end_loop();
    const Kernel kernel = scheduled(b.finish("nest"), {{"i", {true, false, 1}}, {"r", {false, true, 1}}});
    CHECK(emitted(kernel).text.find("step < 5 * 7 * 11") != std::string::npos);
    std::mt19937_64 random(test_seed());
    const auto number = [](const Dim& dim) { return dim.value(); };
    const std::string found = check_emitted(kernel, data_for(kernel, number, false, random), {});
    CHECK_MESSAGE(found.empty(), found);
}

TEST_CASE("run: loops stop at limits, also at those that come from memory and are out of range") {
    // y[i] = the sum of x[j] for j below length[i]; z[i] for j below i - 3.
    Builder b;
    constexpr std::int64_t cols = 90;
    const int x = b.add_buffer({"x", DType::int32, Role::input, cols});
    const int length = b.add_buffer({"length", DType::int64, Role::input, 12});
    const int y = b.add_buffer({"y", DType::int32, Role::output, 12});
    const int z = b.add_buffer({"z", DType::int32, Role::output, 12});
    const Index i = b.begin_loop("i", 12);
    const auto sum_below = [&](const char* name, int to, const Index& limit) {
        const int sum = b.add_accumulator(Combiner::sum, DType::int32);
        b.init_acc(sum);
        const Index j = b.begin_loop(name, cols, limit);
        b.accumulate(sum, b.load(x, j));
        b.end_loop();
        b.store(to, i, b.acc_read(sum));
    };
    sum_below("j", y, Index::value(b.load(length, i)));
    sum_below("k", z, i - Index(3));
    b.end_loop();
    const Kernel kernel = b.finish("limits");
    std::vector<std::int32_t> numbers(cols);
    std::iota(numbers.begin(), numbers.end(), 1);
    const std::vector<std::int64_t> lengths = {0,  1,  2,         31,        32,          33,
                                               89, 90, INT64_MAX, INT64_MIN, -5000000000, 5000000000};
    const std::vector<std::int32_t> nothing(12);
    const std::vector<Data> buffers = {Data::of(numbers), Data::of(lengths), Data::of(nothing), Data::of(nothing)};
    for (const bool groups : {false, true}) {
        const Kernel form = scheduled(kernel, {{"i", {true, false, 1}}, {"j", {false, groups, 1}}});
        const std::string found = check_emitted(form, buffers, {});
        CHECK_MESSAGE(found.empty(), found);
    }
}

TEST_CASE("run: softmax keeps its row in threadgroup memory, sized by the kernel or by the launch") {
    std::mt19937_64 random(test_seed());
    for (const bool symbolic : {false, true}) {
        const Dim cols = symbolic ? Dim::symbol("cols") : Dim(500);
        const Kernel kernel = scheduled(
            loopir::softmax_rows(7, cols, DType::float16, DType::float32),
            {{"r", {true, false, 1}}, {"j", {false, true, 1}}, {"k", {false, true, 1}}, {"l", {false, true, 1}}});
        const auto number = [](const Dim& dim) { return dim.evaluate([](std::string_view) { return 500; }); };
        std::vector<std::int64_t> sizes;
        for (const Dim& dim : loopir::size_params(kernel)) sizes.push_back(number(dim));
        // The sum of the row is added up in another order.
        const std::string found =
            check_emitted(kernel, data_for(kernel, number, true, random), sizes, {.narrow = symbolic}, 1e-6);
        CHECK_MESSAGE(found.empty(), found);
    }
}

TEST_CASE("run: a row is updated in place, pass by pass") {
    // x[r, j] <- x[r, j] - max of row r, then halved where the last pass reads what the one before wrote.
    Builder b;
    constexpr std::int64_t cols = 600;
    const int x = b.add_buffer({"x", DType::float32, Role::inout, 5 * cols});
    const Index r = b.begin_loop("r", 5);
    const int highest = b.add_accumulator(Combiner::max, DType::float32);
    b.init_acc(highest);
    Index j = b.begin_loop("j", cols);
    b.accumulate(highest, b.load(x, r * Dim(cols) + j));
    b.end_loop();
    const ValueId m = b.acc_read(highest);
    j = b.begin_loop("k", cols);
    b.store(x, r * Dim(cols) + j, b.sub(b.load(x, r * Dim(cols) + j), m));
    b.end_loop();
    j = b.begin_loop("l", cols / 2);
    // Reads what another thread wrote: the mirrored half.
    b.store(x, r * Dim(cols) + j, b.load(x, r * Dim(cols) + Index(cols - 1) - j));
    b.end_loop();
    b.end_loop();
    const Kernel kernel =
        scheduled(b.finish("in_place"),
                  {{"r", {true, false, 1}}, {"j", {false, true, 1}}, {"k", {false, true, 1}}, {"l", {false, true, 1}}});
    CHECK(emitted(kernel).text.find("mem_flags::mem_device") != std::string::npos);
    std::mt19937_64 random(test_seed());
    const auto number = [](const Dim& dim) { return dim.value(); };
    const std::string found = check_emitted(kernel, data_for(kernel, number, true, random), {});
    CHECK_MESSAGE(found.empty(), found);
}
