// What has no Metal form is refused with a reason; names of people, widths of indices, sizes of launches.
// Expected numbers are worked out by hand.
#include <doctest/doctest.h>

#include <string>

#include "codegen/names.h"
#include "codegen/size_expr.h"
#include "loopir/builder.h"
#include "test_codegen_support.h"
#include "test_kernel_support.h"
#include "test_loopir_support.h"
#include "test_support.h"

using namespace topstitch;
using namespace topstitch::codegen;
using namespace topstitch::testing;
using loopir::Builder;
using loopir::Combiner;
using loopir::Index;
using loopir::Kernel;
using loopir::ScalarOp;
using loopir::ValueId;
using Role = loopir::BufferParam::Role;

namespace {

constexpr DType f32 = DType::float32;

// y[i] = the sum of `buffers` inputs.
Kernel sum_of_buffers(int buffers, const Dim& n) {
    Builder b;
    std::vector<int> inputs;
    for (int k = 0; k < buffers; ++k) inputs.push_back(b.add_buffer({"x", f32, Role::input, n}));
    const int y = b.add_buffer({"y", f32, Role::output, n});
    const Index i = b.begin_loop("i", n);
    ValueId sum = b.load(inputs[0], i);
    for (int k = 1; k < buffers; ++k) sum = b.add(sum, b.load(inputs[static_cast<std::size_t>(k)], i));
    b.store(y, i, sum);
    b.end_loop();
    return b.finish("sums");
}

Kernel rows(const Dim& cols) {
    return scheduled(
        loopir::softmax_rows(Dim(4), cols, f32, f32),
        {{"r", {true, false, 1}}, {"j", {false, true, 1}}, {"k", {false, true, 1}}, {"l", {false, true, 1}}});
}

// The row sums of x, added up in `total`, which is float64 in between as the stitcher makes it.
Kernel wide_sums(Combiner combiner) {
    Builder b;
    const int x = b.add_buffer({"x", f32, Role::input, 4000});
    const int y = b.add_buffer({"y", f32, Role::output, 1});
    const int total = b.add_accumulator(combiner, DType::float64);
    b.init_acc(total);
    const Index i = b.begin_loop("i", 4000);
    b.accumulate(total, b.cast(b.load(x, i), DType::float64));
    b.end_loop();
    b.store(y, Index(0), b.cast(b.acc_read(total), f32));
    return b.finish("wide");
}

}  // namespace

TEST_CASE("Metal: float64 is refused, but for sums that are kept in pairs") {
    const auto same = [](Builder&, const std::vector<ValueId>& v) { return v[0]; };
    CHECK(contains(refusal_of(elementwise("copy", {DType::float64}, same, DType::float64)),
                   "kernel copy has no Metal form: buffer x0 has elements of float64"));
    const auto inside = [](Builder& b, const std::vector<ValueId>& v) {
        return b.cast(b.op(ScalarOp::sqrt, b.cast(v[0], DType::float64)), DType::float32);
    };
    CHECK(contains(refusal_of(elementwise("root", {f32}, inside, f32)), "in float64"));
    CHECK(contains(refusal_of(wide_sums(Combiner::max)), "in float64"));
    CHECK(refusal_of(wide_sums(Combiner::sum)).empty());
}

TEST_CASE("Metal: 31 buffers at most, with the one for sizes") {
    CHECK(refusal_of(sum_of_buffers(30, 8)).empty());
    CHECK(contains(refusal_of(sum_of_buffers(31, 8)), "it needs 32 buffers, and 31 is the most"));
    CHECK(refusal_of(sum_of_buffers(29, Dim::symbol("n"))).empty());
    CHECK(contains(refusal_of(sum_of_buffers(30, Dim::symbol("n"))), "it needs 32 buffers"));
}

TEST_CASE(
    "Metal: rows that do not fit into threadgroup memory are refused, others of unknown size are sized by the launch") {
    CHECK(refusal_of(rows(8000)).empty());
    CHECK(contains(refusal_of(rows(10000)), "take 40000 bytes of each group of threads, which has 32768"));
    const Source source = emitted(rows(Dim::symbol("cols")));
    REQUIRE(source.launch.group_bytes.size() == 1);
    REQUIRE(source.sizes.size() == 2);  // cols, and the 4 * cols elements of a buffer
    CHECK(source.launch.group_bytes[0].evaluate(std::vector<std::int64_t>{100, 400}) == 400);
}

TEST_CASE("Metal: arrays of one thread have a known and sensible size") {
    const auto kernel = [](const Dim& size) {
        Builder b;
        const int y = b.add_buffer({"y", f32, Role::output, 100});
        const int t = b.add_buffer({"t", f32, Role::local, size});
        const Index i = b.begin_loop("i", 100);
        b.store(t, Index(0), b.cast(b.index_value(i), f32));
        b.store(y, i, b.load(t, Index(0)));
        b.end_loop();
        return scheduled(b.finish("scratch"), {{"i", {true, false, 1}}});
    };
    CHECK(refusal_of(kernel(100)).empty());
    CHECK(contains(refusal_of(kernel(4000)), "take 16000 bytes of each thread"));
    CHECK(contains(refusal_of(kernel(Dim::symbol("n"))), "arrays of a thread have a fixed size"));
}

TEST_CASE("Metal: indices have 32 bits where numbers prove that they fit, or where the caller vouches for it") {
    CHECK(emitted(sum_of_buffers(1, 1000)).narrow);
    CHECK_FALSE(emitted(sum_of_buffers(1, std::int64_t{1} << 31)).narrow);
    const Kernel symbolic = sum_of_buffers(1, Dim::symbol("n"));
    const Source wide = emitted(symbolic);
    CHECK_FALSE(wide.narrow);
    CHECK(wide.fits_narrow(std::vector<std::int64_t>{1000000}));
    CHECK_FALSE(wide.fits_narrow(std::vector<std::int64_t>{std::int64_t{1} << 31}));
    CHECK(contains(wide.text, "const long i_first = long(at.x) * 4;"));
    CHECK(contains(emitted(symbolic, {.narrow = true}).text, "const int i_first = int(at.x) * 4;"));
}

TEST_CASE("Metal: what comes from memory is an index of 64 bits everywhere") {
    Builder b;
    const int x = b.add_buffer({"x", f32, Role::input, 1000});
    const int at = b.add_buffer({"at", DType::int64, Role::input, 10});
    const int y = b.add_buffer({"y", f32, Role::output, 10});
    const Index i = b.begin_loop("i", 10);
    b.store(y, i, b.load(x, Index::value(b.load(at, i)) * Dim(3) + i));
    b.end_loop();
    const Source source = emitted(b.finish("gather"));
    CHECK(source.narrow);
    CHECK(contains(source.text, "= x[long(i) + v0 * 3];"));
}

TEST_CASE("names: whatever a graph is called, it becomes an identifier that nothing else has") {
    Names names(msl_dialect());
    CHECK(names.unique("x", "b") == "x");
    CHECK(names.unique("x", "b") == "x_1");
    CHECK(names.unique("", "b") == "b");
    CHECK(names.unique("layer 1/kernel:0", "b") == "layer_1_kernel_0");
    CHECK(names.unique("__x__y", "b") == "x_y");
    CHECK(names.unique("3d", "b") == "b3d");
    CHECK(names.unique("device", "b") == "device_1");
    CHECK(names.unique("thread_index", "b") == "thread_index_1");
    CHECK(names.unique("v12", "b") == "v12_1");
    CHECK(names.unique("erf_float", "b") == "erf_float_1");
    CHECK(names.unique("shared_low", "b") == "shared_low_1");
    CHECK(names.unique("\xc3\xa9", "b") == "b_1");
    CHECK(names.unique("*/ } kernel void evil() {", "b") == "kernel_void_evil");
    CHECK(names.unique(std::string(1000, 'x'), "b").size() <= 60);
    CHECK(comment_text("a\nb\\") == "a b");
}

TEST_CASE("size expressions: sums of products, which saturate") {
    const std::vector<Dim> params = {Dim::symbol("n"), Dim::symbol("m") * 3};
    const SizeExpr n = SizeExpr::of(params[0], params);
    const SizeExpr m = SizeExpr::of(params[1], params);
    const std::vector<std::int64_t> sizes = {5, 7};
    CHECK((n * m + n * 2 + 4).evaluate(sizes) == 5 * 7 + 5 * 2 + 4);
    CHECK((SizeExpr(-3) * n).evaluate(sizes) == 15);  // magnitudes
    CHECK(n * m == m * n);
    CHECK(SizeExpr(12).is_number());
    CHECK_FALSE(n.is_number());
    CHECK(ceil_div(n, 4).evaluate(sizes) == 2);
    CHECK((ceil_div(n * m, 8) * ceil_div(m, 2) + n).evaluate(sizes) == 5 * 4 + 5);
    CHECK(ceil_div(n, 4) * m == m * ceil_div(n, 4));
    CHECK_FALSE(ceil_div(n, 4) == ceil_div(n, 5));
    CHECK_FALSE(ceil_div(n, 4).is_number());
    CHECK(ceil_div(13, 4) == SizeExpr(4));
    const std::vector<std::int64_t> huge = {std::int64_t{1} << 62, 8};
    CHECK((n * m).evaluate(huge) == INT64_MAX);
    CHECK((n * m + n * m).evaluate(huge) == INT64_MAX);
    CHECK_THROWS_AS(SizeExpr::of(Dim::symbol("k"), params), InternalError);
}
