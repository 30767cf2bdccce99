// One rejection for each invariant of a kernel: a sound kernel is damaged in one place.
// The message must name the statement and say what is wrong.
#include <doctest/doctest.h>

#include <functional>
#include <string>

#include "loopir/builder.h"
#include "topstitch/error.h"

using namespace topstitch;
using namespace topstitch::loopir;

namespace {

using Role = BufferParam::Role;
constexpr DType f32 = DType::float32;

// y[i] = sum over j of x[4*i + j] * scale, where j is below limit[i]; t keeps the last product; p the best position.
//   %0: float32 = constant 0.5
//   for i in 0..n:                                       (A)
//     %1: int64 = load limit[i]
//     init a0: sum float32
//     init a1: argmax float32
//     for j in 0..4:                                     (B)
//       %2: int64 = index j
//       %3: bool = lt %2, %1
//       %4: float32 = load x[4*i + j] if %3
//       %5: float32 = mul %4, %0
//       accumulate a0, %5 if %3
//       accumulate a1, %5 at %2 if %3
//       store t[j], %5
//     %6: float32 = acc_read a0
//     store y[i], %6
//     %7: int64 = acc_read a1.position
//     store p[i], %7
Kernel sound() {
    const Dim n = Dim::symbol("n");
    Builder b;
    const int x = b.add_buffer({"x", f32, Role::input, n * 4});
    const int limit = b.add_buffer({"limit", DType::int64, Role::input, n});
    const int y = b.add_buffer({"y", f32, Role::output, n});
    const int p = b.add_buffer({"p", DType::int64, Role::output, n});
    const int t = b.add_buffer({"t", f32, Role::local, 4});
    const int sum = b.add_accumulator(Combiner::sum, f32);
    const int best = b.add_accumulator(Combiner::argmax, f32);
    const ValueId scale = b.constant(0.5, f32);
    const Index i = b.begin_loop("i", n);
    const ValueId bound = b.load(limit, i);
    b.init_acc(sum);
    b.init_acc(best);
    const Index j = b.begin_loop("j", 4);
    const ValueId position = b.index_value(j);
    const ValueId inside = b.op(ScalarOp::lt, position, bound);
    const ValueId product = b.mul(b.load(x, i * 4 + j, inside), scale);
    b.accumulate(sum, product, no_value, inside);
    b.accumulate(best, product, position, inside);
    b.store(t, j, product);
    b.end_loop();
    b.store(y, i, b.acc_read(sum));
    b.store(p, i, b.acc_read(best, 1));
    b.end_loop();
    return b.finish("damaged");
}

Loop& loop_a(Kernel& k) {
    return std::get<Loop>(k.body.stmts.at(1));
}
std::vector<Stmt>& body_a(Kernel& k) {
    return loop_a(k).body.front().stmts;
}
Loop& loop_b(Kernel& k) {
    return std::get<Loop>(body_a(k).at(3));
}
std::vector<Stmt>& body_b(Kernel& k) {
    return loop_b(k).body.front().stmts;
}
Instr& instr(Kernel& k, int id) {
    return k.instrs.at(static_cast<std::size_t>(id));
}
Accumulate& accumulate_sum(Kernel& k) {
    return std::get<Accumulate>(body_b(k).at(4));
}
Accumulate& accumulate_best(Kernel& k) {
    return std::get<Accumulate>(body_b(k).at(5));
}
Store& store_t(Kernel& k) {
    return std::get<Store>(body_b(k).at(6));
}
Store& store_y(Kernel& k) {
    return std::get<Store>(body_a(k).at(5));
}

// The message about the kernel after `damage`, without its opening.
std::string message_after(const std::function<void(Kernel&)>& damage) {
    Kernel kernel = sound();
    damage(kernel);
    try {
        verify(kernel);
    } catch (const InternalError& error) {
        const std::string text = error.what();
        const std::string opening = "verify: kernel damaged: in ";
        REQUIRE(text.rfind(opening, 0) == 0);
        return text.substr(opening.size());
    }
    return "(accepted)";
}

}  // namespace

TEST_CASE("verify: the sound kernel is as described, and accepted") {
    const Kernel kernel = sound();
    CHECK(print(kernel) ==
          "kernel damaged(x: input float32[4*n], limit: input int64[n], y: output float32[n], p: output int64[n], t: "
          "local float32[4])\n"
          "  %0: float32 = constant 0.5\n"
          "  for i in 0..n:\n"
          "    %1: int64 = load limit[i]\n"
          "    init a0: sum float32\n"
          "    init a1: argmax float32\n"
          "    for j in 0..4:\n"
          "      %2: int64 = index j\n"
          "      %3: bool = lt %2, %1\n"
          "      %4: float32 = load x[4*i + j] if %3\n"
          "      %5: float32 = mul %4, %0\n"
          "      accumulate a0, %5 if %3\n"
          "      accumulate a1, %5 at %2 if %3\n"
          "      store t[j], %5\n"
          "    %6: float32 = acc_read a0\n"
          "    store y[i], %6\n"
          "    %7: int64 = acc_read a1.position\n"
          "    store p[i], %7\n");
    CHECK_NOTHROW(verify(kernel));
    CHECK(message_after([](Kernel& k) {
              loop_a(k).parallel = true;
              loop_a(k).unroll = 2;
              loop_b(k).vector = true;
          }) == "(accepted)");
    CHECK_NOTHROW(verify(Kernel{}));
}

TEST_CASE("verify: values") {
    CHECK(message_after([](Kernel& k) { body_b(k).push_back(Let{99}); }) == "\"%99 = ?\": value 99 does not exist");
    CHECK(message_after([](Kernel& k) { body_b(k).push_back(Let{2}); }) ==
          "\"%2: int64 = index j\": the value is evaluated a second time");
    CHECK(message_after([](Kernel& k) {
              Instr extra;
              extra.type = f32;
              k.instrs.push_back(extra);
          }) == "\"%8: float32 = constant 0\": the value is never evaluated");
    CHECK(message_after([](Kernel& k) { instr(k, 5).args[0] = 77; }) ==
          "\"%5: float32 = mul %77, %0\": operand %77 does not exist");
    CHECK(message_after([](Kernel& k) { instr(k, 5).args[0] = no_value; }) ==
          "\"%5: float32 = mul %?, %0\": operand %-1 does not exist");
    CHECK(message_after([](Kernel& k) { instr(k, 5).args[2] = 0; }) ==
          "\"%5: float32 = mul %4, %0\": mul takes 2 operands");
    CHECK(message_after([](Kernel& k) { std::swap(body_b(k)[2], body_b(k)[3]); }) ==
          "\"%5: float32 = mul %4, %0\": operand %4 is used before it is evaluated");
    CHECK(message_after([](Kernel& k) { store_y(k).value = 5; }) ==
          "\"store y[i], %5\": the value %5 is evaluated in a loop that does not contain this statement");
}

TEST_CASE("verify: types of values") {
    CHECK(message_after([](Kernel& k) { instr(k, 5).type = DType::float64; }) ==
          "\"%5: float64 = mul %4, %0\": the result is float64, but must be float32");
    CHECK(message_after([](Kernel& k) { instr(k, 5).args[1] = 2; }) ==
          "\"%5: float32 = mul %4, %2\": the operands are float32 and int64, but must be of one type");
    CHECK(message_after([](Kernel& k) { instr(k, 0).type = DType::float16; }) ==
          "\"%0: float16 = constant 0\": the result is float16, but must be bool, an integer type, float32 or float64");
    CHECK(message_after([](Kernel& k) { instr(k, 2).type = DType::int32; }) ==
          "\"%2: int32 = index j\": an index is int32, but must be int64");
    CHECK(message_after([](Kernel& k) { instr(k, 4).type = DType::float64; }) ==
          "\"%4: float64 = load x[4*i + j] if %3\": the value loaded is float64, but must be float32");
    CHECK(message_after([](Kernel& k) { instr(k, 4).args[0] = 2; }) ==
          "\"%4: float32 = load x[4*i + j] if %2\": the guard is int64, but must be bool");
    CHECK(message_after([](Kernel& k) { instr(k, 3).type = DType::int64; }) ==
          "\"%3: int64 = lt %2, %1\": the result is int64, but must be bool");
    CHECK(message_after([](Kernel& k) { instr(k, 5).op = ScalarOp::bit_and; }) ==
          "\"%5: float32 = and %4, %0\": the operand is float32, but must be bool or an integer type");
}

TEST_CASE("verify: buffers") {
    CHECK(message_after([](Kernel& k) { k.buffers[0].dtype = DType::complex64; }) ==
          "\"buffer x: complex64\": complex numbers are passed as pairs of float32");
    CHECK(message_after([](Kernel& k) { k.buffers[4].size = Dim::unknown(); }) ==
          "\"buffer t: float32\": the size of a local buffer must be known or symbolic");
    CHECK(message_after([](Kernel& k) { k.buffers[0].size = Dim::unknown(); }) == "(accepted)");
    CHECK(message_after([](Kernel& k) { k.buffers[2].role = Role::input; }) ==
          "\"store y[i], %6\": buffer y is an input and cannot be written");
    CHECK(message_after([](Kernel& k) { instr(k, 4).slot = 9; }) ==
          "\"%4: float32 = load b9?[4*i + j] if %3\": buffer 9 does not exist");
    CHECK(message_after([](Kernel& k) { store_t(k).buffer = -1; }) ==
          "\"store b-1?[j], %5\": buffer -1 does not exist");
    CHECK(message_after([](Kernel& k) { k.buffers[4].dtype = DType::float64; }) ==
          "\"store t[j], %5\": the value %5 is float32, but must be float64");
    CHECK(message_after([](Kernel& k) { store_t(k).guard = 5; }) ==
          "\"store t[j], %5 if %5\": the guard %5 is float32, but must be bool");
}

TEST_CASE("verify: indices") {
    CHECK(message_after([](Kernel& k) { store_y(k).index = Index::var(1, 4); }) ==
          "\"store y[j], %6\": loop variable 1 is used outside its loop");
    CHECK(message_after([](Kernel& k) { store_y(k).index = Index::var(7, 4); }) ==
          "\"store y[i7?], %6\": loop variable 7 does not exist");
    CHECK(message_after([](Kernel& k) { store_t(k).index = Index::var(1, 3); }) ==
          "\"store t[j], %5\": the index takes variable 1 to be below 3, but its loop runs to 4");
    CHECK(message_after([](Kernel& k) { store_t(k).index = Index::var(1, 8); }) == "(accepted)");
    CHECK(message_after([](Kernel& k) { store_t(k).index = Index::value(5); }) ==
          "\"store t[%5], %5\": the value in the index %5 is float32, but must be int64");
    CHECK(message_after([](Kernel& k) { store_y(k).index = floor_div(Index::value(2), 3); }) ==
          "\"store y[(%2 // 3)], %6\": the value in the index %2 is evaluated in a loop that does not contain this "
          "statement");
    CHECK(message_after([](Kernel& k) { store_t(k).index = Index(Dim::unknown()); }) ==
          "\"store t[?], %5\": the index has an unknown constant");
    CHECK(message_after([](Kernel& k) { store_t(k).index = Index::var(1, 4) * Dim::unknown(); }) ==
          "\"store t[?*j], %5\": the index has an unknown coefficient");
    CHECK(message_after([](Kernel& k) { instr(k, 2).index = mod(Index::var(1, 4), Dim::unknown()); }) ==
          "\"%2: int64 = index (j % ?)\": the index has an unknown divisor");
}

TEST_CASE("verify: accumulators") {
    CHECK(message_after([](Kernel& k) { k.accumulators[0].type = DType::boolean; }) ==
          "\"accumulator: sum bool\": the accumulator is bool, but must be an integer or float type");
    CHECK(message_after([](Kernel& k) { k.accumulators[0].combiner = Combiner::logical_or; }) ==
          "\"accumulator: logical_or float32\": the accumulator is float32, but must be bool");
    CHECK(message_after([](Kernel& k) { body_a(k).erase(body_a(k).begin() + 1); }) ==
          "\"accumulate a0, %5 if %3\": accumulator 0 is not initialised here");
    CHECK(message_after([](Kernel& k) { std::get<InitAcc>(body_a(k)[1]).accumulator = 6; }) ==
          "\"init a6: ?\": accumulator 6 does not exist");
    CHECK(message_after([](Kernel& k) { instr(k, 6).slot = 6; }) ==
          "\"%6: float32 = acc_read a6\": accumulator 6 does not exist");
    CHECK(message_after([](Kernel& k) {
              // Initialised in the inner loop, read after it.
              body_b(k).insert(body_b(k).begin(), body_a(k)[1]);
              body_a(k).erase(body_a(k).begin() + 1);
          }) == "\"%6: float32 = acc_read a0\": accumulator 0 is not initialised here");
    CHECK(message_after([](Kernel& k) { instr(k, 6).type = DType::float64; }) ==
          "\"%6: float64 = acc_read a0\": the value read is float64, but must be float32");
    CHECK(message_after([](Kernel& k) { instr(k, 6).integer = 1; }) ==
          "\"%6: float32 = acc_read a0.position\": component 1 of a sum does not exist");
    CHECK(message_after([](Kernel& k) { instr(k, 7).type = DType::int32; }) ==
          "\"%7: int32 = acc_read a1.position\": the position read is int32, but must be int64");
    CHECK(message_after([](Kernel& k) { accumulate_sum(k).value = 2; }) ==
          "\"accumulate a0, %2 if %3\": the value %2 is int64, but must be float32");
    CHECK(message_after([](Kernel& k) { accumulate_sum(k).guard = 2; }) ==
          "\"accumulate a0, %5 if %2\": the guard %2 is int64, but must be bool");
    CHECK(message_after([](Kernel& k) { accumulate_sum(k).position = 2; }) ==
          "\"accumulate a0, %5 at %2 if %3\": sum takes no position");
    CHECK(message_after([](Kernel& k) { accumulate_best(k).position = no_value; }) ==
          "\"accumulate a1, %5 if %3\": argmax needs a position");
    CHECK(message_after([](Kernel& k) { accumulate_best(k).position = 5; }) ==
          "\"accumulate a1, %5 at %5 if %3\": the position %5 is float32, but must be int64");
}

TEST_CASE("verify: loops") {
    CHECK(message_after([](Kernel& k) { loop_b(k).var = 4; }) ==
          "\"for i4? in 0..4:\": loop variable 4 does not exist");
    CHECK(message_after([](Kernel& k) { loop_b(k).var = 0; }) ==
          "\"for i in 0..4:\": variable 0 belongs to another loop already");
    CHECK(message_after([](Kernel& k) { loop_b(k).extent = 5; }) ==
          "\"for j in 0..5:\": the extent is 5, but the variable's is 4");
    CHECK(message_after([](Kernel& k) {
              loop_b(k).extent = -1;
              k.vars[1].extent = -1;
          }) == "\"for j in 0..-1:\": the extent is -1, but must not be negative");
    CHECK(message_after([](Kernel& k) { loop_b(k).extent = Dim::unknown(); }) ==
          "\"for j in 0..?:\": the extent is unknown");
    CHECK(message_after([](Kernel& k) { loop_b(k).body.emplace_back(); }) ==
          "\"for j in 0..4:\": a loop has one body, but this has 2");
    CHECK(message_after([](Kernel& k) { loop_b(k).body.clear(); }) ==
          "\"for j in 0..4:\": a loop has one body, but this has 0");
    CHECK(message_after([](Kernel& k) { loop_b(k).unroll = 0; }) ==
          "\"for j in 0..4 unroll 0:\": the loop is unrolled 0 times, but must be at least once");
    CHECK(message_after([](Kernel& k) { loop_b(k).parallel = true; }) ==
          "\"parallel for j in 0..4:\": a parallel loop must be the outermost statement");
    CHECK(message_after([](Kernel& k) {
              loop_a(k).parallel = true;
              k.body.stmts.insert(k.body.stmts.begin(), InitAcc{0});
          }) ==
          "\"parallel for i in 0..n:\": a parallel loop stands alone: beside it the kernel may only evaluate values");
    CHECK(message_after([](Kernel& k) { loop_a(k).vector = loop_b(k).vector = true; }) ==
          "\"vector for j in 0..4:\": a vector loop inside another vector loop");
}
