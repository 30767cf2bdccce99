// Kernels as text: golden forms for people, and the canonical form that decides which kernels are the same.
// The texts were written by hand.
#include <doctest/doctest.h>

#include <cmath>
#include <string>

#include "loopir/builder.h"
#include "loopir/print.h"
#include "test_loopir_support.h"

using namespace topstitch;
using namespace topstitch::loopir;

namespace {

using Role = BufferParam::Role;
constexpr DType f32 = DType::float32;

Loop& first_loop(Block& block) {
    for (Stmt& stmt : block.stmts) {
        if (auto* loop = std::get_if<Loop>(&stmt)) return *loop;
    }
    throw std::runtime_error("there is no loop");
}

Kernel gelu(const char* name, const char* x_name, const Dim& n) {
    Builder b;
    const int x = b.add_buffer({x_name, f32, Role::input, n});
    const int y = b.add_buffer({"y", f32, Role::output, n});
    const Index i = b.begin_loop("i", n);
    const ValueId v = b.load(x, i);
    const ValueId scale = b.constant(0.70710678118654752, f32);
    const ValueId one = b.constant(1, f32);
    const ValueId half = b.constant(0.5, f32);
    const ValueId outer = b.add(one, b.op(ScalarOp::erf, b.mul(v, scale)));
    b.store(y, i, b.mul(b.mul(half, v), outer));
    b.end_loop();
    Kernel kernel = b.finish(name);
    Loop& loop = first_loop(kernel.body);
    loop.parallel = true;
    loop.vector = true;
    loop.unroll = 4;
    std::get<Store>(loop.body.front().stmts.back()).streaming = true;
    return kernel;
}

Kernel softmax(const Dim& rows, const Dim& cols) {
    Kernel kernel = softmax_rows(rows, cols, DType::bfloat16, DType::bfloat16);
    first_loop(kernel.body).parallel = true;
    return kernel;
}

}  // namespace

TEST_CASE("print: gelu") {
    CHECK(print(gelu("gelu", "x", Dim::symbol("n") * 784)) ==
          "kernel gelu(x: input float32[784*n], y: output float32[784*n])\n"
          "  %0: float32 = constant 0.70710677\n"
          "  %1: float32 = constant 1\n"
          "  %2: float32 = constant 0.5\n"
          "  parallel vector for i in 0..784*n unroll 4:\n"
          "    %3: float32 = load x[i]\n"
          "    %4: float32 = mul %3, %0\n"
          "    %5: float32 = erf %4\n"
          "    %6: float32 = add %1, %5\n"
          "    %7: float32 = mul %2, %3\n"
          "    %8: float32 = mul %7, %6\n"
          "    store y[i], %8 streaming\n");
}

TEST_CASE("print: gelu, canonical") {
    const std::string text =
        "kernel(b0: input float32, b1: output float32)\n"
        "  %0: float32 = constant 0x1.6a09e6p-1\n"
        "  %1: float32 = constant 0x1p+0\n"
        "  %2: float32 = constant 0x1p-1\n"
        "  parallel vector for v0 in 0..p0 unroll 4:\n"
        "    %3: float32 = load b0[v0]\n"
        "    %4: float32 = mul %3, %0\n"
        "    %5: float32 = erf %4\n"
        "    %6: float32 = add %1, %5\n"
        "    %7: float32 = mul %2, %3\n"
        "    %8: float32 = mul %7, %6\n"
        "    store b1[v0], %8 streaming\n";
    CHECK(print(gelu("gelu", "x", Dim::symbol("n") * 784), true) == text);
    // Names do not matter, nor where a size comes from.
    CHECK(print(gelu("other", "z", Dim::symbol("batch")), true) == text);
    CHECK(print(gelu("gelu", "x", 784), true) != text);
}

TEST_CASE("print: a row softmax with a local buffer and two reductions") {
    CHECK(print(softmax(Dim::symbol("rows"), 10)) ==
          "kernel softmax(x: input bfloat16[10*rows], y: output bfloat16[10*rows], t: local float32[10])\n"
          "  parallel for r in 0..rows:\n"
          "    init a0: max float32\n"
          "    for j in 0..10:\n"
          "      %0: float32 = load x[10*r + j]\n"
          "      accumulate a0, %0\n"
          "    %1: float32 = acc_read a0\n"
          "    init a1: sum float32\n"
          "    for k in 0..10:\n"
          "      %2: float32 = load x[10*r + k]\n"
          "      %3: float32 = sub %2, %1\n"
          "      %4: float32 = exp %3\n"
          "      store t[k], %4\n"
          "      accumulate a1, %4\n"
          "    %5: float32 = acc_read a1\n"
          "    for l in 0..10:\n"
          "      %6: float32 = load t[l]\n"
          "      %7: float32 = div %6, %5\n"
          "      store y[10*r + l], %7\n");
    CHECK(print(softmax(Dim::symbol("rows"), Dim::symbol("cols")), true) ==
          "kernel(b0: input bfloat16, b1: output bfloat16, b2: local float32[p1])\n"
          "  parallel for v0 in 0..p0:\n"
          "    init a0: max float32\n"
          "    for v1 in 0..p1:\n"
          "      %0: float32 = load b0[p1*v0 + v1]\n"
          "      accumulate a0, %0\n"
          "    %1: float32 = acc_read a0\n"
          "    init a1: sum float32\n"
          "    for v2 in 0..p1:\n"
          "      %2: float32 = load b0[p1*v0 + v2]\n"
          "      %3: float32 = sub %2, %1\n"
          "      %4: float32 = exp %3\n"
          "      store b2[v2], %4\n"
          "      accumulate a1, %4\n"
          "    %5: float32 = acc_read a1\n"
          "    for v3 in 0..p1:\n"
          "      %6: float32 = load b2[v3]\n"
          "      %7: float32 = div %6, %5\n"
          "      store b1[p1*v0 + v3], %7\n");
}

TEST_CASE("print: guards, positions, payloads and constants of every type") {
    Builder b;
    const int x = b.add_buffer({"x", f32, Role::input, 100});
    const int y = b.add_buffer({"y", DType::int64, Role::inout, 8});
    const int z = b.add_buffer({"z", f32, Role::output, 8});
    const int best = b.add_accumulator(Combiner::argmax, f32);
    b.init_acc(best);
    const Index i = b.begin_loop("i", 8);
    const ValueId at = b.index_value(mod(i * 3, 5));
    const ValueId p = b.op(ScalarOp::lt, at, b.constant_int(3, DType::int64));
    const ValueId v = b.load(x, i * 12 + 3, p);
    b.accumulate(best, b.round_to(v, DType::float16), at, p);
    b.store(z, i,
            b.from_bits16(b.to_bits16(b.select(p, v, b.constant(-INFINITY, f32)), DType::float16), DType::bfloat16));
    b.end_loop();
    const ValueId position = b.acc_read(best, 1);
    const ValueId value = b.acc_read(best);
    b.store(y, 0, position, b.op(ScalarOp::ne, value, b.constant(NAN, f32)));
    CHECK(print(b.finish("odd")) ==
          "kernel odd(x: input float32[100], y: inout int64[8], z: output float32[8])\n"
          "  init a0: argmax float32\n"
          "  %0: int64 = constant 3\n"
          "  %1: float32 = constant -inf\n"
          "  for i in 0..8:\n"
          "    %2: int64 = index ((3*i) % 5)\n"
          "    %3: bool = lt %2, %0\n"
          "    %4: float32 = load x[12*i + 3] if %3\n"
          "    %5: float32 = round_to float16 %4\n"
          "    accumulate a0, %5 at %2 if %3\n"
          "    %6: float32 = select %3, %4, %1\n"
          "    %7: uint16 = to_bits16 float16 %6\n"
          "    %8: float32 = from_bits16 bfloat16 %7\n"
          "    store z[i], %8\n"
          "  %9: int64 = acc_read a0.position\n"
          "  %10: float32 = acc_read a0\n"
          "  %11: float32 = constant nan\n"
          "  %12: bool = ne %10, %11\n"
          "  store y[0], %9 if %12\n");
}

TEST_CASE("print: constants") {
    const auto text = [](Instr instr, bool canonical) {
        Kernel kernel;
        kernel.instrs.push_back(instr);
        kernel.body.stmts.emplace_back(Let{0});
        const std::string all = print(kernel, canonical);
        const std::size_t start = all.find("constant ") + 9;
        return all.substr(start, all.size() - start - 1);
    };
    const auto real = [](double value, DType type) {
        return Instr{.op = ScalarOp::constant, .type = type, .real = value};
    };
    const auto whole = [](std::int64_t value, DType type) {
        return Instr{.op = ScalarOp::constant, .type = type, .integer = value};
    };
    CHECK(text(real(static_cast<double>(0.1f), f32), false) == "0.1");
    CHECK(text(real(static_cast<double>(0.1f), f32), true) == "0x1.99999ap-4");
    CHECK(text(real(0.1, DType::float64), false) == "0.1");
    CHECK(text(real(0.1, DType::float64), true) == "0x1.999999999999ap-4");
    CHECK(text(real(-0.0, f32), true) == "-0x0p+0");
    CHECK(text(real(-0.0, f32), false) == "-0");
    CHECK(text(real(-2.5, f32), true) == "-0x1.4p+1");
    CHECK(text(real(INFINITY, f32), true) == "inf");
    CHECK(text(whole(-5, DType::int8), true) == "-5");
    CHECK(text(whole(-1, DType::uint64), true) == "18446744073709551615");
    CHECK(text(whole(1, DType::boolean), false) == "true");
}

TEST_CASE("print: everything that changes code changes the canonical text") {
    const Dim n = Dim::symbol("n");
    const std::string base = print(softmax(n, 10), true);
    const auto changed = [&](auto change) {
        Kernel kernel = softmax(n, 10);
        change(kernel);
        return print(kernel, true) != base;
    };
    CHECK_FALSE(changed([](Kernel&) {}));
    CHECK(changed([](Kernel& k) { first_loop(k.body).parallel = false; }));
    CHECK(changed([](Kernel& k) { first_loop(k.body).vector = true; }));
    CHECK(changed([](Kernel& k) { first_loop(k.body).unroll = 2; }));
    CHECK(changed([](Kernel& k) { k.buffers[0].dtype = DType::float16; }));
    CHECK(changed([](Kernel& k) { k.buffers[1].role = Role::inout; }));
    CHECK(changed([](Kernel& k) { k.buffers[2].size = 16; }));
    CHECK(changed([](Kernel& k) { k.accumulators[0].combiner = Combiner::fmax; }));
    CHECK(changed([](Kernel& k) { k.instrs[4].op = ScalarOp::exp2; }));
    CHECK(changed([](Kernel& k) { std::swap(k.instrs[7].args[0], k.instrs[7].args[1]); }));
    CHECK(changed([](Kernel& k) { k.instrs[0].index = k.instrs[0].index + 1; }));
    // What does not.
    CHECK_FALSE(changed([](Kernel& k) { k.name = "other"; }));
    CHECK_FALSE(changed([](Kernel& k) { k.vars[0].name = "row"; }));
    CHECK_FALSE(changed([](Kernel& k) { k.buffers[0].name = "input"; }));
    CHECK_FALSE(changed([](Kernel& k) { k.buffers[0].size = 1000000; }));
    CHECK(print(softmax(Dim::symbol("m"), 10), true) == base);
}

TEST_CASE("print: names that are not unique get numbers") {
    Builder b;
    const int x = b.add_buffer({"x", f32, Role::input, 4});
    const int y = b.add_buffer({"x", f32, Role::output, 4});
    const Index i = b.begin_loop("i", 2);
    const Index j = b.begin_loop("i", 2);
    b.store(y, i * 2 + j, b.load(x, j * 2 + i));
    b.end_loop();
    b.end_loop();
    const int unnamed = b.add_buffer({"", f32, Role::output, 4});
    b.store(unnamed, 0, b.constant(1, f32));
    CHECK(print(b.finish("")) ==
          "kernel(x_0: input float32[4], x_1: output float32[4], b2: output float32[4])\n"
          "  for i_0 in 0..2:\n"
          "    for i_1 in 0..2:\n"
          "      %0: float32 = load x_0[i_0 + 2*i_1]\n"
          "      store x_1[2*i_0 + i_1], %0\n"
          "  %1: float32 = constant 1\n"
          "  store b2[0], %1\n");
}

TEST_CASE("print: sizes are numbered by their appearance in code, buffers come last") {
    const Dim n = Dim::symbol("n");
    const Dim m = Dim::symbol("m");
    Builder b;
    const int x = b.add_buffer({"x", f32, Role::input, n * m + 7});
    const int y = b.add_buffer({"y", f32, Role::output, n * m});
    const int t = b.add_buffer({"t", f32, Role::local, m * 2});
    const Index i = b.begin_loop("i", n);
    const Index j = b.begin_loop("j", m);
    b.store(t, j, b.load(x, i * m + floor_div(j, n + 1) + (m - 1)));
    b.store(y, i * m + j, b.load(t, j));
    b.end_loop();
    b.end_loop();
    const Kernel kernel = b.finish("sizes");
    const std::vector<Dim> params = size_params(kernel);
    REQUIRE(params.size() == 7);
    CHECK(params[0] == n);
    CHECK(params[1] == m);
    CHECK(params[2] == n + 1);
    CHECK(params[3] == m - 1);
    CHECK(params[4] == m * 2);
    CHECK(params[5] == n * m + 7);
    CHECK(params[6] == n * m);
    const std::string text = print(kernel, true);
    CHECK(text.find("load b0[p1*v0 + (v1 // p2) + p3]") != std::string::npos);
    CHECK(text.find("b2: local float32[p4]") != std::string::npos);
}

TEST_CASE("print: broken statements still print") {
    const Kernel kernel;
    CHECK(print_statement(kernel, Let{3}) == "%3 = ?");
    CHECK(print_statement(kernel, Store{2, Index::var(1, 4), 7, 8}) == "store b2?[i1?], %7 if %8");
    CHECK(print_statement(kernel, InitAcc{1}) == "init a1: ?");
    CHECK(print_statement(kernel, Accumulate{1, no_value}) == "accumulate a1, %?");
    Loop loop;
    loop.var = 5;
    loop.extent = 3;
    CHECK(print_statement(kernel, loop) == "for i5? in 0..3:");
}
