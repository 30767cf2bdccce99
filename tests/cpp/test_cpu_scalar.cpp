// Every scalar instruction on every type, in vector bodies and in tails of every length, against the interpreter.
// Also conversions between all pairs of types, and between 16-bit floats and memory.
#include <doctest/doctest.h>

#include <set>

#include "loopir/scalar_op.h"
#include "test_cpu_support.h"
#include "topstitch/error.h"

using namespace topstitch;
using namespace topstitch::cpu;
using namespace topstitch::cpu::testing;
using loopir::Builder;
using loopir::Kernel;
using loopir::ScalarOp;
using loopir::ValueId;

namespace {

constexpr DType value_types[] = {DType::boolean, DType::int8,    DType::int16,  DType::int32,
                                 DType::int64,   DType::uint8,   DType::uint16, DType::uint32,
                                 DType::uint64,  DType::float32, DType::float64};

// Runs `kernel` for n = 0, ..., 40 and some larger sizes, scalar and in vectors.
int check_lengths(const Kernel& plain, const std::vector<DType>& types, std::mt19937_64& random) {
    int checks = 0;
    std::vector<std::int64_t> lengths;
    for (std::int64_t n = 0; n <= 40; ++n) lengths.push_back(n);
    lengths.insert(lengths.end(), {64, 67, 129, 500});
    static int turn = 0;
    for (const TargetInfo& target : targets_for(types.front(), ++turn)) {
        for (const int unroll : {0, 1, 3}) {  // 0: no vectors
            const Schedule schedule{{"i", {unroll == 3, unroll > 0, std::max(1, unroll)}}};
            const Kernel kernel = scheduled(plain, schedule, unroll == 3);
            for (const std::int64_t n : lengths) {
                if (unroll == 0 && n != 500) continue;
                std::vector<Data> buffers;
                for (const DType type : types) {
                    Data data;
                    data.bytes.resize(static_cast<std::size_t>(n) * size_of(type));
                    fill(data.bytes.data(), type, static_cast<std::size_t>(n), random);
                    buffers.push_back(std::move(data));
                }
                const std::string difference = check_kernel(kernel, target, buffers, {n});
                CHECK_MESSAGE(difference.empty(), difference);
                ++checks;
                if (!difference.empty()) return checks;
            }
        }
    }
    return checks;
}

bool is_source(ScalarOp op) {
    return op == ScalarOp::constant || op == ScalarOp::index_value || op == ScalarOp::load || op == ScalarOp::acc_read;
}

bool is_conversion(ScalarOp op) {
    return op == ScalarOp::cast || op == ScalarOp::bitcast || op == ScalarOp::round_to || op == ScalarOp::to_bits16 ||
           op == ScalarOp::from_bits16 || op == ScalarOp::dot_pairs;
}

}  // namespace

TEST_CASE("code: every instruction agrees with the interpreter on every type") {
    std::mt19937_64 random(test_seed());
    std::set<std::string> defined;
    for (int number = 0; number <= static_cast<int>(ScalarOp::atan2); ++number) {
        const auto op = static_cast<ScalarOp>(number);
        if (is_source(op) || is_conversion(op)) continue;
        for (const DType type : value_types) {
            const int arity = loopir::info(op).arity;
            std::vector<DType> inputs(static_cast<std::size_t>(arity), type);
            if (op == ScalarOp::select) inputs[0] = DType::boolean;
            std::vector<DType> types = inputs;
            Kernel kernel;
            try {
                types.push_back(loopir::result_type(op, type));
                kernel = elementwise(
                    concat(loopir::info(op).name, "_", name_of(type)), inputs,
                    [&](Builder& b, const std::vector<ValueId>& x) {
                        return b.op(op, x[0], arity > 1 ? x[1] : loopir::no_value, arity > 2 ? x[2] : loopir::no_value);
                    },
                    types.back());
            } catch (const InternalError&) {
                continue;  // not defined on this type
            }
            defined.insert(loopir::info(op).name);
            check_lengths(kernel, types, random);
        }
    }
    // Nothing may drop out silently.
    for (int number = 0; number <= static_cast<int>(ScalarOp::atan2); ++number) {
        const auto op = static_cast<ScalarOp>(number);
        if (is_source(op) || is_conversion(op)) continue;
        CHECK_MESSAGE(defined.count(loopir::info(op).name) == 1, loopir::info(op).name);
    }
}

TEST_CASE("code: casts between all types") {
    std::mt19937_64 random(test_seed());
    for (const DType from : value_types) {
        for (const DType to : value_types) {
            const Kernel kernel = elementwise(
                concat("cast_", name_of(from), "_", name_of(to)), {from},
                [&](Builder& b, const std::vector<ValueId>& x) { return b.cast(x[0], to); }, to);
            check_lengths(kernel, {from, to}, random);
        }
    }
}

TEST_CASE("code: bitcasts") {
    std::mt19937_64 random(test_seed());
    for (const DType from : value_types) {
        for (const DType to : value_types) {
            if (from == DType::boolean || to == DType::boolean || size_of(from) != size_of(to)) continue;
            const Kernel kernel = elementwise(
                concat("bitcast_", name_of(from), "_", name_of(to)), {from},
                [&](Builder& b, const std::vector<ValueId>& x) { return b.bitcast(x[0], to); }, to);
            check_lengths(kernel, {from, to}, random);
        }
    }
}

TEST_CASE("code: 16-bit floats in memory and in bits") {
    std::mt19937_64 random(test_seed());
    for (const DType half : {DType::float16, DType::bfloat16}) {
        const auto same = [](Builder&, const std::vector<ValueId>& x) { return x[0]; };
        check_lengths(elementwise("widen", {half}, same, DType::float32), {half, DType::float32}, random);
        check_lengths(elementwise("narrow", {DType::float32}, same, half), {DType::float32, half}, random);
        check_lengths(elementwise("copy", {half}, same, half), {half, half}, random);
        check_lengths(
            elementwise(
                "round_to", {DType::float32},
                [&](Builder& b, const std::vector<ValueId>& x) { return b.round_to(x[0], half); }, DType::float32),
            {DType::float32, DType::float32}, random);
        check_lengths(
            elementwise(
                "to_bits", {DType::float32},
                [&](Builder& b, const std::vector<ValueId>& x) { return b.to_bits16(x[0], half); }, DType::uint16),
            {DType::float32, DType::uint16}, random);
        check_lengths(
            elementwise(
                "from_bits", {DType::uint16},
                [&](Builder& b, const std::vector<ValueId>& x) { return b.from_bits16(x[0], half); }, DType::float32),
            {DType::uint16, DType::float32}, random);
    }
}

TEST_CASE("code: pairs of factors") {
    std::mt19937_64 random(test_seed());
    const auto dot = [](Builder& b, const std::vector<ValueId>& x) { return b.dot_pairs(x[0], x[1], DType::int16); };
    const Kernel kernel = elementwise("dot", {DType::uint32, DType::uint32}, dot, DType::int32);
    check_lengths(kernel, {DType::uint32, DType::uint32, DType::int32}, random);
}

TEST_CASE("code: all 65536 half floats, and the floats around their midpoints") {
    // Independent of the interpreter: the conversions of the core are tested against NumPy's elsewhere.
    for (const DType half : {DType::float16, DType::bfloat16}) {
        const auto same = [](Builder&, const std::vector<ValueId>& x) { return x[0]; };
        const Kernel widen = scheduled(elementwise("widen", {half}, same, DType::float32), {{"i", {true, true, 2}}});
        const Kernel narrow = scheduled(elementwise("narrow", {DType::float32}, same, half), {{"i", {true, true, 2}}});
        std::vector<std::uint16_t> bits;
        for (int i = 0; i < 65536; ++i) bits.push_back(static_cast<std::uint16_t>(i));
        std::vector<float> floats;
        for (const std::uint16_t b : bits) {
            const float value = half == DType::float16 ? half_to_float(b) : bfloat_to_float(b);
            const auto word = std::bit_cast<std::uint32_t>(value);
            const std::uint32_t middle = half == DType::float16 ? 0x1000u : 0x8000u;
            for (const std::uint32_t offset : {0u, middle - 1, middle, middle + 1}) {
                floats.push_back(std::bit_cast<float>(word + offset));
            }
        }
        const auto count = static_cast<std::int64_t>(floats.size());
        for (const TargetInfo& target : test_targets()) {
            const std::string wide =
                check_kernel(widen, target, {Data::of(bits), Data::of(std::vector<float>(bits.size()))}, {65536});
            CHECK_MESSAGE(wide.empty(), wide);
            const std::string narrowed = check_kernel(
                narrow, target, {Data::of(floats), Data::of(std::vector<std::uint16_t>(floats.size()))}, {count});
            CHECK_MESSAGE(narrowed.empty(), narrowed);
        }
    }
}

TEST_CASE("code: constants and uniform operands") {
    std::mt19937_64 random(test_seed());
    for (const DType type : {DType::int32, DType::uint8, DType::int64, DType::float32, DType::float64}) {
        // Division by constants, and a chain whose operands are partly uniform.
        const Kernel kernel = elementwise(
            "constants", {type},
            [&](Builder& b, const std::vector<ValueId>& x) {
                const ValueId seven = b.constant(7, type);
                const ValueId quotient = b.div(x[0], seven);
                const ValueId rest = b.op(ScalarOp::rem, x[0], b.constant(3, type));
                return b.select(b.op(ScalarOp::lt, quotient, rest), b.mul(quotient, seven), b.sub(rest, seven));
            },
            type);
        check_lengths(kernel, {type, type}, random);
    }
}
