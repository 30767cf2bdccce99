// The builder: where values are placed, which are shared, what is folded, and what it refuses.
// Expected kernels are written out by hand as text.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>

#include "loopir/builder.h"
#include "topstitch/error.h"

using namespace topstitch;
using namespace topstitch::loopir;

namespace {

using Role = BufferParam::Role;
constexpr DType f32 = DType::float32;
constexpr DType i32 = DType::int32;
constexpr DType i64 = DType::int64;
constexpr DType boolean = DType::boolean;

int input(Builder& b, const char* name, const Dim& size, DType dtype = f32) {
    return b.add_buffer({name, dtype, Role::input, size});
}
int output(Builder& b, const char* name, const Dim& size, DType dtype = f32) {
    return b.add_buffer({name, dtype, Role::output, size});
}

// A builder with one open loop and a value of each of several types that it knows nothing about.
struct Opaque {
    Builder b;
    Index i;
    ValueId x, y, d, k, l, u, byte, p, q, h;

    Opaque() {
        const auto load = [this](const char* name, DType type) { return b.load(input(b, name, 8, type), i); };
        i = b.begin_loop("i", 8);
        x = load("x", f32);
        y = load("y", f32);
        d = load("d", DType::float64);
        k = load("k", i32);
        l = load("l", i32);
        u = load("u", DType::uint32);
        byte = load("byte", DType::int8);
        p = load("p", boolean);
        q = load("q", boolean);
        h = load("h", DType::float16);
    }
    ValueId f(double value) { return b.constant(value, f32); }
    ValueId n(std::int64_t value) { return b.constant_int(value, i32); }
    ValueId t(bool value) { return b.constant_int(value ? 1 : 0, boolean); }
};

}  // namespace

TEST_CASE("builder: values go to the outermost loop that they allow") {
    Builder b;
    const Dim n = Dim::symbol("n");
    const int x = input(b, "x", n * 8);
    const int scale = input(b, "scale", n);
    const int bias = input(b, "bias", 8);
    const int y = output(b, "y", n * 8);
    const Index i = b.begin_loop("i", n);
    const Index j = b.begin_loop("j", 8);
    const ValueId two = b.constant(2.0, f32);
    const ValueId v = b.load(x, i * 8 + j);
    const ValueId product = b.mul(v, b.op(ScalarOp::sqrt, b.load(scale, i)));
    b.store(y, i * 8 + j, b.add(product, b.mul(b.load(bias, 3), two)));
    b.end_loop();
    b.end_loop();
    CHECK(print(b.finish("hoist")) ==
          "kernel hoist(x: input float32[8*n], scale: input float32[n], bias: input float32[8], y: output "
          "float32[8*n])\n"
          "  %0: float32 = constant 2\n"
          "  %1: float32 = load bias[3]\n"
          "  %2: float32 = mul %1, %0\n"
          "  for i in 0..n:\n"
          "    %3: float32 = load scale[i]\n"
          "    %4: float32 = sqrt %3\n"
          "    for j in 0..8:\n"
          "      %5: float32 = load x[8*i + j]\n"
          "      %6: float32 = mul %5, %4\n"
          "      %7: float32 = add %6, %2\n"
          "      store y[8*i + j], %7\n");
}

TEST_CASE("builder: equal values are shared, also with operands exchanged") {
    Builder b;
    const int x = input(b, "x", 16);
    const Index i = b.begin_loop("i", 16);
    const ValueId a = b.load(x, i);
    CHECK(b.load(x, i) == a);
    CHECK(b.load(x, Index(15) - i) != a);
    const ValueId c = b.load(x, Index(15) - i);
    CHECK(b.add(a, c) == b.add(c, a));
    CHECK(b.mul(a, c) == b.mul(c, a));
    CHECK(b.op(ScalarOp::eq, a, c) == b.op(ScalarOp::eq, c, a));
    CHECK(b.op(ScalarOp::fma, a, c, a) == b.op(ScalarOp::fma, c, a, a));
    CHECK(b.op(ScalarOp::fma, a, c, a) != b.op(ScalarOp::fma, a, a, c));
    CHECK(b.sub(a, c) != b.sub(c, a));
    CHECK(b.op(ScalarOp::lt, a, c) != b.op(ScalarOp::lt, c, a));
    CHECK(b.constant(0.5, f32) == b.constant(0.5, f32));
    CHECK(b.constant(0.0, f32) != b.constant(-0.0, f32));
    CHECK(b.constant(1.0, f32) != b.constant(1.0, DType::float64));
    CHECK(b.constant(std::nan(""), f32) == b.constant(std::nan(""), f32));
    CHECK(b.index_value(i * 2 + 1) == b.index_value(i + 1 + i));
    const ValueId guard = b.op(ScalarOp::lt, a, c);
    CHECK(b.load(x, i, guard) != a);
    CHECK(b.load(x, i, guard) == b.load(x, i, guard));
}

TEST_CASE("builder: values of a closed loop are forgotten and refused") {
    Builder b;
    const int x = input(b, "x", 4);
    const int y = output(b, "y", 8);
    const Index i = b.begin_loop("i", 4);
    const ValueId first = b.load(x, i);
    b.store(y, i, first);
    b.end_loop();
    CHECK_THROWS_WITH_AS(b.op(ScalarOp::neg, first),
                         "builder: %0 was computed in a loop that is closed; keep it in a local buffer instead",
                         InternalError);
    const Index j = b.begin_loop("j", 4);
    CHECK_THROWS_WITH_AS(b.load(x, i), "builder: index i0 uses the variable of a loop that is not open", InternalError);
    CHECK(b.load(x, j) != first);
    CHECK_THROWS_AS(b.store(y, j, first), InternalError);
    CHECK_THROWS_AS(b.store(y, j, b.load(x, j), first), InternalError);
    CHECK_THROWS_AS(b.op(ScalarOp::neg, 99), InternalError);
    CHECK_THROWS_AS(b.load(x, Index::value(first)), InternalError);
}

TEST_CASE("builder: reads of what is written stay in order") {
    Builder b;
    const int t = b.add_buffer({"t", f32, Role::local, 4});
    const int w = b.add_buffer({"w", f32, Role::inout, 4});
    const int y = output(b, "y", 4);
    const ValueId one = b.constant(1.0, f32);
    b.store(t, 0, one);
    const ValueId before = b.load(t, 0);
    CHECK(b.load(t, 0) == before);               // nothing was written in between
    b.store(y, 0, b.add(before, b.load(w, 1)));  // another buffer
    CHECK(b.load(t, 0) == before);
    b.store(t, 1, before);
    const ValueId after = b.load(t, 0);
    CHECK(after != before);
    const ValueId from_w = b.load(w, 1);
    const Index i = b.begin_loop("i", 4);
    CHECK(b.load(w, 1) != from_w);  // the loop may yet write it
    b.store(w, i, b.load(t, 0));
    b.end_loop();
    CHECK(b.load(w, 1) != from_w);
    b.store(y, 1, b.add(after, b.add(from_w, b.load(w, 1))));
    CHECK(print(b.finish("ordered")) ==
          "kernel ordered(t: local float32[4], w: inout float32[4], y: output float32[4])\n"
          "  %0: float32 = constant 1\n"
          "  store t[0], %0\n"
          "  %1: float32 = load t[0]\n"
          "  %2: float32 = load w[1]\n"
          "  %3: float32 = add %1, %2\n"
          "  store y[0], %3\n"
          "  store t[1], %1\n"
          "  %4: float32 = load t[0]\n"
          "  for i in 0..4:\n"
          "    %5: float32 = load t[0]\n"
          "    store w[i], %5\n"
          "  %6: float32 = load w[1]\n"
          "  %7: float32 = add %2, %6\n"
          "  %8: float32 = add %4, %7\n"
          "  store y[1], %8\n");
}

TEST_CASE("builder: accumulators are read where they are asked for, once") {
    Builder b;
    const int x = input(b, "x", 32);
    const int y = output(b, "y", 8);
    const int sum = b.add_accumulator(Combiner::sum, f32);
    const Index i = b.begin_loop("i", 8);
    b.init_acc(sum);
    const Index j = b.begin_loop("j", 4);
    b.accumulate(sum, b.load(x, i * 4 + j));
    b.end_loop();
    const ValueId total = b.acc_read(sum);
    CHECK(b.acc_read(sum) == total);
    b.store(y, i, b.mul(total, total));
    b.init_acc(sum);
    CHECK(b.acc_read(sum) != total);
    b.accumulate(sum, total);
    const ValueId again = b.acc_read(sum);
    b.accumulate(sum, total);
    CHECK(b.acc_read(sum) != again);
}

TEST_CASE("builder: guards that are always or never true vanish") {
    Opaque o;
    Builder& b = o.b;
    const int x = input(b, "x2", 8);
    const int y = output(b, "y2", 8);
    const int sum = b.add_accumulator(Combiner::sum, f32);
    CHECK(b.load(x, o.i, o.t(true)) == b.load(x, o.i));
    CHECK(b.load(x, o.i, o.t(false)) == o.f(0.0));
    CHECK(b.load(input(b, "h2", 8, DType::int16), o.i, o.t(false)) == b.constant_int(0, DType::int16));
    b.init_acc(sum);
    b.accumulate(sum, o.x, no_value, o.t(false));
    b.accumulate(sum, o.y, no_value, o.t(true));
    b.store(y, o.i, b.constant(3.0, f32), o.t(false));
    b.store(y, o.i, b.acc_read(sum), o.t(true));
    b.end_loop();
    const std::string text = print(b.finish("guards"));
    CHECK(text.find(" if ") == std::string::npos);
    CHECK(text.find("constant 3") == std::string::npos);
    CHECK(text.find("load y[i]") != std::string::npos);
    CHECK(text.find("load x[i]") == std::string::npos);
}

TEST_CASE("builder: constants are folded in their type") {
    Opaque o;
    Builder& b = o.b;
    CHECK(b.add(o.f(0.1), o.f(0.2)) == o.f(static_cast<double>(0.1f + 0.2f)));
    CHECK(b.constant_value(o.f(0.1)) == static_cast<double>(0.1f));
    CHECK(b.constant_value(o.x) == std::nullopt);
    CHECK(b.mul(o.n(1 << 20), o.n(1 << 20)) == o.n(0));
    CHECK(b.div(o.n(-7), o.n(2)) == o.n(-3));
    CHECK(b.div(o.n(5), o.n(0)) == o.n(0));
    CHECK(b.constant_value(b.div(o.f(1), o.f(0))) == std::numeric_limits<double>::infinity());
    CHECK(std::isnan(*b.constant_value(b.div(o.f(0), o.f(0)))));
    CHECK(b.op(ScalarOp::sqrt, o.f(2)) == o.f(static_cast<double>(std::sqrt(2.0f))));
    CHECK(b.op(ScalarOp::exp, o.f(0)) == o.f(1));
    CHECK(b.op(ScalarOp::lt, o.f(1), o.f(2)) == o.t(true));
    CHECK(b.cast(o.f(300.7), DType::uint8) == b.constant_int(255, DType::uint8));
    CHECK(b.round_to(o.f(1.0 + 0x1p-9), DType::bfloat16) == o.f(1));
    CHECK(b.bitcast(o.f(1), i32) == o.n(0x3f800000));
    CHECK(b.to_bits16(o.f(1), DType::float16) == b.constant_int(0x3c00, DType::uint16));
    CHECK(b.from_bits16(b.constant_int(0x3c00, DType::uint16), DType::float16) == o.f(1));
    // The payload of a NaN is no constant.
    CHECK(b.constant_value(b.bitcast(o.n(0x7fc00001), f32)) == std::nullopt);
    CHECK(b.constant_int(300, DType::uint8) == b.constant_int(44, DType::uint8));
    CHECK(b.constant_int(2, boolean) == o.t(false));
    CHECK(b.constant(2.7, i32) == o.n(2));
    CHECK(b.constant(2.0, boolean) == o.t(true));
}

TEST_CASE("builder: exact identities") {
    Opaque o;
    Builder& b = o.b;
    const ValueId x = o.x;
    const ValueId k = o.k;
    CHECK(b.mul(x, o.f(1)) == x);
    CHECK(b.mul(o.f(1), x) == x);
    CHECK(b.mul(k, o.n(1)) == k);
    CHECK(b.add(k, o.n(0)) == k);
    CHECK(b.add(o.n(0), k) == k);
    CHECK(b.add(x, o.f(-0.0)) == x);
    CHECK(b.sub(x, o.f(0)) == x);
    CHECK(b.sub(k, o.n(0)) == k);
    CHECK(b.sub(k, k) == o.n(0));
    CHECK(b.div(x, o.f(1)) == x);
    CHECK(b.div(x, o.f(4)) == b.mul(x, o.f(0.25)));
    CHECK(b.div(x, o.f(-0.5)) == b.mul(x, o.f(-2)));
    CHECK(b.div(k, o.n(1)) == k);
    const auto neg = [&](ValueId v) { return b.op(ScalarOp::neg, v); };
    const auto abs = [&](ValueId v) { return b.op(ScalarOp::abs, v); };
    CHECK(neg(neg(x)) == x);
    CHECK(abs(abs(x)) == abs(x));
    CHECK(abs(neg(x)) == abs(x));
    CHECK(abs(o.u) == o.u);
    for (ScalarOp op : {ScalarOp::min, ScalarOp::max, ScalarOp::fmin, ScalarOp::fmax}) CHECK(b.op(op, x, x) == x);
    const ValueId down = b.op(ScalarOp::floor, x);
    CHECK(b.op(ScalarOp::ceil, down) == down);
    const auto both = [&](ValueId v, ValueId w) { return b.op(ScalarOp::bit_and, v, w); };
    const auto any = [&](ValueId v, ValueId w) { return b.op(ScalarOp::bit_or, v, w); };
    const auto one = [&](ValueId v, ValueId w) { return b.op(ScalarOp::bit_xor, v, w); };
    const auto invert = [&](ValueId v) { return b.op(ScalarOp::bit_not, v); };
    CHECK(both(o.p, o.t(true)) == o.p);
    CHECK(both(o.t(false), o.p) == o.t(false));
    CHECK(any(o.p, o.t(false)) == o.p);
    CHECK(any(o.t(true), o.p) == o.t(true));
    CHECK(one(o.p, o.t(false)) == o.p);
    CHECK(one(o.t(true), o.p) == invert(o.p));
    CHECK(one(o.p, o.p) == o.t(false));
    CHECK(both(o.p, o.p) == o.p);
    CHECK(any(o.p, o.p) == o.p);
    CHECK(invert(invert(o.p)) == o.p);
    CHECK(both(k, o.n(-1)) == k);
    CHECK(both(k, o.n(0)) == o.n(0));
    CHECK(any(k, o.n(-1)) == o.n(-1));
    CHECK(both(o.byte, b.constant_int(-1, DType::int8)) == o.byte);
    CHECK(b.op(ScalarOp::shl, k, o.n(0)) == k);
    CHECK(b.op(ScalarOp::shr, k, o.n(0)) == k);
    CHECK(b.op(ScalarOp::eq, k, k) == o.t(true));
    CHECK(b.op(ScalarOp::ne, k, k) == o.t(false));
    CHECK(b.op(ScalarOp::le, k, k) == o.t(true));
    CHECK(b.op(ScalarOp::lt, x, x) == o.t(false));
    CHECK(b.select(o.p, x, x) == x);
    CHECK(b.select(o.t(true), x, o.y) == x);
    CHECK(b.select(o.t(false), x, o.y) == o.y);
    CHECK(b.select(invert(o.p), x, o.y) == b.select(o.p, o.y, x));
    CHECK(b.select(o.p, o.t(true), o.t(false)) == o.p);
    CHECK(b.select(o.p, o.t(false), o.t(true)) == invert(o.p));
    CHECK(b.cast(x, f32) == x);
    CHECK(b.cast(b.cast(x, DType::float64), f32) == x);
    CHECK(b.cast(b.cast(o.byte, i64), DType::int8) == o.byte);
    CHECK(b.cast(b.cast(o.byte, f32), DType::int8) == o.byte);
    CHECK(b.cast(b.cast(o.u, i32), DType::uint32) == o.u);
    CHECK(b.cast(b.cast(k, DType::float64), i32) == k);
    CHECK(b.cast(b.cast(o.p, f32), boolean) == o.p);
    CHECK(b.bitcast(x, f32) == x);
    CHECK(b.bitcast(b.bitcast(x, i32), f32) == x);
    CHECK(b.bitcast(b.bitcast(x, i32), DType::uint32) == b.bitcast(x, DType::uint32));
    CHECK(b.round_to(o.h, DType::float16) == o.h);
    const ValueId rounded = b.round_to(x, DType::bfloat16);
    CHECK(b.round_to(rounded, DType::bfloat16) == rounded);
    CHECK(b.from_bits16(b.to_bits16(x, DType::bfloat16), DType::bfloat16) == rounded);
}

TEST_CASE("builder: what could change a value is left alone") {
    Opaque o;
    Builder& b = o.b;
    const auto is_new = [&](ValueId value) { return value > o.h && !b.constant_value(value); };
    CHECK(is_new(b.add(o.x, o.f(0.0))));  // -0.0 + 0.0 is 0.0
    CHECK(is_new(b.sub(o.x, o.f(-0.0))));
    CHECK(is_new(b.mul(o.x, o.f(0.0))));  // NaN
    CHECK(is_new(b.sub(o.x, o.x)));
    CHECK(is_new(b.div(o.x, o.x)));
    CHECK(is_new(b.div(o.x, o.f(3.0))));  // 1/3 is not exact
    CHECK(is_new(b.op(ScalarOp::eq, o.x, o.x)));
    CHECK(is_new(b.op(ScalarOp::le, o.x, o.x)));
    CHECK(is_new(b.op(ScalarOp::ne, o.x, o.x)));
    CHECK(is_new(b.op(ScalarOp::abs, o.byte)));
    CHECK(is_new(b.cast(b.cast(o.k, DType::int8), i32)));
    CHECK(is_new(b.cast(b.cast(o.k, f32), i32)));
    CHECK(is_new(b.cast(b.cast(o.k, boolean), i32)));
    CHECK(is_new(b.cast(b.cast(o.d, f32), DType::float64)));
    CHECK(is_new(b.cast(b.cast(o.x, i64), f32)));
    CHECK(is_new(b.round_to(o.h, DType::bfloat16)));
    CHECK(is_new(b.round_to(b.round_to(o.x, DType::bfloat16), DType::float16)));
    CHECK(is_new(b.select(o.p, o.x, o.y)));
    const ValueId smallest = b.constant(0x1p-149, f32);
    CHECK(b.constant_value(smallest) == 0x1p-149);
    CHECK(is_new(b.div(o.x, smallest)));  // the reciprocal is infinite
    CHECK(b.div(o.x, b.constant(0x1p127, f32)) == b.mul(o.x, b.constant(0x1p-127, f32)));
}

TEST_CASE("builder: indices") {
    Opaque o;
    Builder& b = o.b;
    CHECK(b.index_value(Index(7)) == b.constant_int(7, i64));
    const ValueId loaded = b.cast(o.k, i64);
    CHECK(b.index_value(Index::value(loaded)) == loaded);
    CHECK(b.index_value(Index::value(b.index_value(o.i * 3))) == b.index_value(o.i * 3));
    CHECK(b.load(0, Index::value(b.constant_int(5, i64))) == b.load(0, 5));
    CHECK(b.load(0, Index::value(b.index_value(Index(7) - o.i))) == b.load(0, Index(7) - o.i));
    CHECK(b.load(0, Index::value(loaded)) != b.load(0, o.i));
    CHECK_THROWS_WITH_AS(b.load(0, Index::value(o.k)), "builder: a value in an index is int32, but must be int64",
                         InternalError);
    CHECK(b.type(b.index_value(o.i)) == i64);
}

TEST_CASE("builder: comparisons of positions that hold for the whole loop") {
    Builder b;
    const Dim n = Dim::symbol("n");
    const Index i = b.begin_loop("i", n);
    const Index j = b.begin_loop("j", 8);
    const ValueId yes = b.constant_int(1, boolean);
    const ValueId no = b.constant_int(0, boolean);
    const auto position = [&](const Index& index) { return b.index_value(index); };
    const auto compare = [&](ScalarOp op, const Index& x, const Index& y) {
        return b.op(op, position(x), position(y));
    };
    const auto unknown = [&](ValueId value) { return value != yes && value != no; };
    CHECK(compare(ScalarOp::le, 0, i) == yes);
    CHECK(compare(ScalarOp::lt, i, n) == yes);
    CHECK(compare(ScalarOp::le, i, n - 1) == yes);
    CHECK(compare(ScalarOp::lt, n, i) == no);
    CHECK(compare(ScalarOp::lt, i, 0) == no);
    CHECK(compare(ScalarOp::lt, j, 8) == yes);
    CHECK(compare(ScalarOp::eq, j, 8) == no);
    CHECK(compare(ScalarOp::ne, 8, j) == yes);
    CHECK(compare(ScalarOp::le, i * 8 + j, n * 8 - 1) == yes);
    CHECK(compare(ScalarOp::lt, floor_div(j, 3), 3) == yes);
    CHECK(unknown(compare(ScalarOp::lt, i, n - 1)));
    CHECK(unknown(compare(ScalarOp::le, 1, i)));
    CHECK(unknown(compare(ScalarOp::lt, j, 7)));
    CHECK(unknown(compare(ScalarOp::eq, j, 7)));
    CHECK(unknown(compare(ScalarOp::eq, i, j)));
    // A size may be 0 when the kernel runs, although Dim takes it to be at least 1.
    CHECK(unknown(compare(ScalarOp::lt, 0, n)));
    CHECK(compare(ScalarOp::le, 0, n) == yes);
    CHECK(unknown(b.op(ScalarOp::lt, position(i), b.constant_int(std::numeric_limits<std::int64_t>::max(), i64))));
    // Clamped positions.
    CHECK(b.op(ScalarOp::max, position(j), position(0)) == position(j));
    CHECK(b.op(ScalarOp::min, position(n - 1), position(i)) == position(i));
    CHECK(b.op(ScalarOp::min, position(j - 1), position(0)) != position(j - 1));
}

TEST_CASE("builder: casts in two steps") {
    Opaque o;
    Builder& b = o.b;
    const auto twice = [&](ValueId value, DType through, DType to) { return b.cast(b.cast(value, through), to); };
    CHECK(twice(o.byte, i32, i64) == b.cast(o.byte, i64));
    CHECK(twice(o.byte, i32, f32) == b.cast(o.byte, f32));
    CHECK(twice(o.k, i64, DType::int8) == b.cast(o.k, DType::int8));
    CHECK(twice(o.k, DType::uint16, DType::int8) == b.cast(o.k, DType::int8));
    CHECK(twice(o.x, DType::float64, i32) == b.cast(o.x, i32));
    CHECK(twice(o.p, i32, f32) == b.cast(o.p, f32));
    CHECK(twice(o.k, i64, boolean) == b.cast(o.k, boolean));
    // 300 becomes 127 by way of a float, and 44 directly.
    CHECK(twice(o.k, DType::float64, DType::int8) != b.cast(o.k, DType::int8));
    CHECK(twice(o.k, DType::int8, i64) != b.cast(o.k, i64));
    CHECK(twice(o.k, f32, DType::float64) != b.cast(o.k, DType::float64));
    CHECK(twice(o.byte, DType::uint8, i32) != b.cast(o.byte, i32));
    CHECK(twice(o.byte, DType::uint8, f32) != b.cast(o.byte, f32));
    CHECK(twice(o.k, DType::int8, boolean) != b.cast(o.k, boolean));
    CHECK(twice(o.d, f32, i32) != b.cast(o.d, i32));
}

TEST_CASE("builder: what is not used is left out") {
    Builder b;
    const int x = input(b, "x", 8);
    const int y = output(b, "y", 8);
    const Index i = b.begin_loop("i", 8);
    b.op(ScalarOp::exp, b.load(x, Index(7) - i));
    const Index j = b.begin_loop("j", 4);
    b.load(x, j);
    b.end_loop();
    b.store(y, i, b.add(b.load(x, i), b.add(b.constant(1, f32), b.constant(2, f32))));
    b.end_loop();
    const Kernel kernel = b.finish("pruned");
    CHECK(print(kernel) ==
          "kernel pruned(x: input float32[8], y: output float32[8])\n"
          "  %0: float32 = constant 3\n"
          "  for i in 0..8:\n"
          "    %1: float32 = load x[i]\n"
          "    %2: float32 = add %1, %0\n"
          "    store y[i], %2\n");
    CHECK(kernel.instrs.size() == 3);
}

TEST_CASE("builder: gathered positions survive the removal of unused values") {
    Builder b;
    const int x = input(b, "x", 100);
    const int at = input(b, "at", 8, i64);
    const int y = output(b, "y", 8);
    const Index i = b.begin_loop("i", 8);
    b.load(x, i);  // unused, so that numbers change
    b.store(y, i, b.load(x, Index::value(b.load(at, i)) * 2 + 1));
    b.end_loop();
    CHECK(print(b.finish("gather")) ==
          "kernel gather(x: input float32[100], at: input int64[8], y: output float32[8])\n"
          "  for i in 0..8:\n"
          "    %0: int64 = load at[i]\n"
          "    %1: float32 = load x[2*%0 + 1]\n"
          "    store y[i], %1\n");
}

TEST_CASE("builder: misuse is an internal error that says what is wrong") {
    Opaque o;
    Builder& b = o.b;
    const int y = output(b, "result", 8);
    CHECK_THROWS_WITH_AS(b.add(o.x, o.k), "builder: add: the operands are float32 and int32, but must be of one type",
                         InternalError);
    CHECK_THROWS_WITH_AS(b.add(o.p, o.q), "builder: add: the operand is bool, but must be an integer or float type",
                         InternalError);
    CHECK_THROWS_WITH_AS(b.op(ScalarOp::exp, o.k), "builder: exp: the operand is int32, but must be float32 or float64",
                         InternalError);
    CHECK_THROWS_WITH_AS(b.op(ScalarOp::bit_and, o.x, o.x),
                         "builder: and: the operand is float32, but must be bool or an integer type", InternalError);
    CHECK_THROWS_WITH_AS(b.op(ScalarOp::popcount, o.p),
                         "builder: popcount: the operand is bool, but must be an integer type", InternalError);
    CHECK_THROWS_WITH_AS(b.select(o.x, o.x, o.y), "builder: select: the predicate is float32, but must be bool",
                         InternalError);
    CHECK_THROWS_WITH_AS(b.op(ScalarOp::neg, o.x, o.y), "builder: neg takes 1 operands", InternalError);
    CHECK_THROWS_WITH_AS(b.op(ScalarOp::add, o.x), "builder: add takes 2 operands", InternalError);
    CHECK_THROWS_AS(b.op(ScalarOp::cast, o.x), InternalError);
    CHECK_THROWS_WITH_AS(b.bitcast(o.x, i64), "builder: bitcast: from float32 to int64: the sizes differ",
                         InternalError);
    CHECK_THROWS_AS(b.bitcast(o.p, DType::int8), InternalError);
    CHECK_THROWS_AS(b.cast(o.x, DType::float16), InternalError);
    CHECK_THROWS_WITH_AS(b.round_to(o.d, DType::float16),
                         "builder: round_to: the operand is float64, but must be float32", InternalError);
    CHECK_THROWS_AS(b.round_to(o.x, f32), InternalError);
    CHECK_THROWS_WITH_AS(b.constant(1, DType::bfloat16),
                         "builder: a constant of type bfloat16; use its compute type float32", InternalError);
    CHECK_THROWS_AS(b.constant_int(1, f32), InternalError);
    CHECK_THROWS_WITH_AS(b.load(77, o.i), "builder: there is no buffer 77", InternalError);
    CHECK_THROWS_WITH_AS(b.load(0, o.i, o.x), "builder: a guard is float32, but must be bool", InternalError);
    CHECK_THROWS_WITH_AS(b.store(0, o.i, o.x), "builder: a store to the input x", InternalError);
    CHECK_THROWS_WITH_AS(b.store(y, o.i, o.d), "builder: the value stored is float64, but must be float32",
                         InternalError);
    CHECK_THROWS_WITH_AS(b.add_accumulator(Combiner::sum, boolean),
                         "builder: sum: the accumulator is bool, but must be an integer or float type", InternalError);
    CHECK_THROWS_AS(b.add_accumulator(Combiner::logical_or, f32), InternalError);
    const int sum = b.add_accumulator(Combiner::sum, f32);
    const int best = b.add_accumulator(Combiner::argmax, f32);
    CHECK_THROWS_WITH_AS(b.accumulate(sum, o.k), "builder: the value accumulated is int32, but must be float32",
                         InternalError);
    CHECK_THROWS_AS(b.accumulate(best, o.x), InternalError);
    CHECK_THROWS_AS(b.accumulate(sum, o.x, b.index_value(o.i)), InternalError);
    CHECK_THROWS_AS(b.accumulate(best, o.x, o.k), InternalError);
    CHECK_THROWS_WITH_AS(b.acc_read(sum, 1), "builder: acc_read: component 1 of a sum does not exist", InternalError);
    CHECK_THROWS_AS(b.acc_read(9), InternalError);
    CHECK_THROWS_WITH_AS(b.finish("k"), "builder: 1 loops are still open", InternalError);
    b.end_loop();
    CHECK_THROWS_WITH_AS(b.end_loop(), "builder: end_loop without an open loop", InternalError);
}
