// Tests of reshape, transpose, broadcasting, squeeze and the like: values, inferred shapes, and the indices of views.
// A view must come out as plain index arithmetic, without quotients where none are needed, also for symbolic dims.
#include <numeric>

#include "loopir/builder.h"
#include "ops/element_lowering.h"
#include "test_ops_support.h"

using namespace topstitch;
using namespace topstitch::ops_test;

namespace {

constexpr DType f32 = DType::float32;
constexpr DType f64 = DType::float64;
using Ints = std::vector<std::int64_t>;

const Dim unknown = Dim::unknown();
const Dim batch = Dim::symbol("batch");
const Dim width = Dim::symbol("width");

NDArray counted(const Sizes& shape) {
    Doubles values(static_cast<std::size_t>(num_elements(shape)));
    std::iota(values.begin(), values.end(), 0.0);
    return array(f64, shape, values);
}

Shape shape_after(const char* op, const Shape& shape, const NamedAttributes& attributes = {}) {
    return infer(op, {{f32, shape}}, attributes).shape;
}

NamedAttributes to(const Shape& shape) {
    return {{"shape", shape}};
}

// Where the operation reads its input for output (i0, i1, ...): the offset in the input, as text.
std::string offset_read(const char* op, const Shape& shape, const NamedAttributes& attributes) {
    const OpDef& def = *find_op(op);
    const std::vector<Attribute> complete = complete_attributes(def, attributes);
    const std::vector<TensorType> inputs = {{f32, shape}};
    const std::vector<TensorType> outputs = infer_types(def, inputs, complete);
    const OpView view(def, inputs, outputs, complete);
    loopir::Builder builder;
    std::string text;
    FunctionContext context(builder, view, [&](int, const Indices& at, loopir::ValueId) {
        text = row_major_offset(shape, at).str();
        return Value{builder.constant(0.0, f32)};
    });
    Indices at;
    for (const Dim& dim : outputs[0].shape.dims()) at.push_back(builder.begin_loop("i", dim));
    std::get<ElementBody>(def.body).element(context, at);
    return text;
}

}  // namespace

TEST_CASE("reshape keeps the row-major order") {
    const NDArray x = counted({2, 6});
    for (const Shape& shape : {Shape{12}, Shape{3, 4}, Shape{1, 2, 2, 3}, Shape{2, 3, 2}, Shape{4, 1, 3}}) {
        const NDArray y = run("reshape", {x}, to(shape));
        CHECK(y.shape() == *shape.sizes());
        check_same(y, values_of(x));
    }
    check_same(run("reshape", {x.transpose({1, 0})}, to({12})), {0, 6, 1, 7, 2, 8, 3, 9, 4, 10, 5, 11});
    CHECK(run("reshape", {x}, to({unknown, 4})).shape() == Sizes{3, 4});
    CHECK(run("reshape", {counted({1})}, to({})).shape() == Sizes{});
    CHECK(run("reshape", {counted({0, 3})}, to({5, 0})).shape() == Sizes{5, 0});
    CHECK(run("reshape", {counted({1})}, to(Shape(std::vector<Dim>(16, Dim(1))))).shape() == Sizes(16, 1));
}

TEST_CASE("shapes of reshape") {
    CHECK(shape_after("reshape", {batch, 28, 28}, to({unknown, 784})) == Shape{batch, 784});
    CHECK(shape_after("reshape", {batch, 28, 28}, to({batch, 784})) == Shape{batch, 784});
    CHECK(shape_after("reshape", {batch, width}, to({unknown})) == Shape{batch * width});
    CHECK(shape_after("reshape", {unknown, 28, 28}, to({batch, 784})) == Shape{batch, 784});
    CHECK(shape_after("reshape", {unknown, 28}, to({unknown, 784})).str() == "(?, 784)");
    CHECK(shape_after("reshape", Shape::unranked(), to({4, unknown})).str() == "(4, ?)");
    CHECK(shape_after("reshape", {64, 28, 28}, to({batch, 784})) == Shape{64, 784});
    CHECK(shape_after("reshape", {batch, 3}, to({unknown, 2})).str() == "(batch + (batch // 2), 2)");
    const auto message = [](const Shape& from, const Shape& shape) {
        return message_of([&] { shape_after("reshape", from, to(shape)); });
    };
    CHECK(contains(message({2, 3}, {4, 2}), "[reshape] a tensor of shape (2, 3) has 6 elements"));
    CHECK(contains(message({2, 3}, {4, unknown}), "6 elements"));
    CHECK(contains(message({2, 3}, {unknown, unknown}), "one at most"));
    CHECK(contains(message({0, 3}, {0, unknown}), "any length"));
}

TEST_CASE("views are plain index arithmetic") {
    CHECK(offset_read("reshape", {batch, 28, 28}, to({batch, 784})) == "784*i0 + i1");
    CHECK(offset_read("reshape", {batch, 784}, to({batch, 28, 28})) == "784*i0 + 28*i1 + i2");
    CHECK(offset_read("reshape", {batch, 2, width, 3}, to({batch, 2 * width, 3})) == "6*width*i0 + 3*i1 + i2");
    CHECK(offset_read("squeeze", {batch, 1, 3}, {{"axes", Ints{1}}}) == "3*i0 + i1");
    CHECK(offset_read("expand_dims", {batch, 3}, {{"axes", Ints{0, -1}}}) == "3*i1 + i2");
    CHECK(offset_read("flatten2d", {batch, width, 3}, {{"axis", std::int64_t{1}}}) == "3*width*i0 + i1");
    CHECK(offset_read("transpose", {batch, 3}, {}) == "i0 + 3*i1");
    CHECK(offset_read("reverse", {batch, 3}, {{"axes", Ints{0}}}) == "3*batch - 3 - 3*i0 + i1");
    CHECK(offset_read("broadcast_to", {3}, to({batch, 3})) == "i1");
    CHECK(offset_read("slice", {batch, 8}, {{"starts", Ints{1, 7}}, {"stops", Ints{9, -9}}, {"steps", Ints{2, -1}}}) ==
          "16*i0 - i1 + 15");
}

TEST_CASE("transpose and swap_axes") {
    const NDArray x = counted({2, 3, 2});
    check_same(run("transpose", {x}), {0, 6, 2, 8, 4, 10, 1, 7, 3, 9, 5, 11});
    check_same(run("transpose", {x}, {{"permutation", Ints{1, -1, 0}}}), {0, 6, 1, 7, 2, 8, 3, 9, 4, 10, 5, 11});
    check_same(run("swap_axes", {x}, {{"axis1", std::int64_t{0}}, {"axis2", std::int64_t{-1}}}),
               {0, 6, 2, 8, 4, 10, 1, 7, 3, 9, 5, 11});
    CHECK(shape_after("transpose", {batch, unknown, 3}, {{"permutation", Ints{2, 0, 1}}}).str() == "(3, batch, ?)");
    CHECK(shape_after("transpose", Shape::unranked(), {{"permutation", Ints{1, 0}}}).str() == "(?, ?)");
    CHECK(!shape_after("transpose", Shape::unranked()).has_rank());
    CHECK(!shape_after("swap_axes", Shape::unranked(), {{"axis1", std::int64_t{0}}, {"axis2", std::int64_t{1}}})
               .has_rank());
    CHECK(contains(message_of([] { shape_after("transpose", {2, 3}, {{"permutation", Ints{0}}}); }),
                   "list each axis once"));
    CHECK(contains(message_of([] { shape_after("transpose", {2, 3}, {{"permutation", Ints{0, -2}}}); }), "twice"));
}

TEST_CASE("broadcasting to a shape, to another tensor, and back") {
    const NDArray row = counted({3});
    check_same(run("broadcast_to", {row}, to({2, 3})), {0, 1, 2, 0, 1, 2});
    check_same(run("broadcast_to", {counted({2, 1})}, to({2, 2})), {0, 0, 1, 1});
    CHECK(run("broadcast_to", {counted({2, 1})}, to({4, unknown, 3})).shape() == Sizes{4, 2, 3});
    CHECK(run("broadcast_to", {counted({1, 3})}, to({0, 3})).shape() == Sizes{0, 3});
    check_same(run("broadcast_like", {row, counted({2, 3})}), {0, 1, 2, 0, 1, 2});
    const NDArray big = counted({2, 2, 3});
    check_same(run("sum_like", {big, row}), {18, 22, 26});
    check_same(run("sum_like", {big, counted({2, 1})}), {24, 42});
    check_same(run("sum_like", {big, counted({1, 1, 1})}), {66});
    check_same(run("sum_like", {big, counted({})}), {66});
    check_same(run("sum_like", {big, big}), values_of(big));
    check_same(run("reshape_like", {big, counted({3, 4})}), values_of(big));
    CHECK(infer("broadcast_like", {{f32, {3}}, {f32, {batch, unknown}}}).shape == Shape{batch, 3});
    CHECK(infer("sum_like", {{f32, {batch, 3}}, {f32, {unknown}}}).shape.str() == "(?,)");
    CHECK(!infer("sum_like", {{f32, {batch, 3}}, {f32, Shape::unranked()}}).shape.has_rank());
    CHECK(infer("reshape_like", {{f32, {unknown, 3}}, {f32, {batch, 6}}}).shape == Shape{batch, 6});
    const auto broadcast_message = [](const Shape& from, const Shape& target) {
        return message_of([&] { shape_after("broadcast_to", from, to(target)); });
    };
    CHECK(contains(broadcast_message({3}, {2, 4}), "(3,) does not broadcast to (2, 4)"));
    CHECK(contains(broadcast_message({3}, {1}), "does not broadcast"));
    CHECK(contains(broadcast_message({2, 3}, {3}), "does not broadcast"));
    CHECK(contains(broadcast_message({3}, {unknown, 3}), "leaves dim 0 open"));
    CHECK(contains(message_of([] { run("sum_like", {counted({3}), counted({2})}); }), "[sum_like]"));
    CHECK(contains(message_of([] { run("reshape_like", {counted({3}), counted({2})}); }), "3 elements"));
}

TEST_CASE("squeeze and expand_dims") {
    CHECK(run("squeeze", {counted({1, 3, 1, 2})}).shape() == Sizes{3, 2});
    CHECK(run("squeeze", {counted({1, 3, 1})}, {{"axes", Ints{-1}}}).shape() == Sizes{1, 3});
    check_same(run("squeeze", {counted({1, 3, 1})}), {0, 1, 2});
    CHECK(run("expand_dims", {counted({3})}, {{"axes", Ints{0, -1}}}).shape() == Sizes{1, 3, 1});
    CHECK(shape_after("squeeze", {batch, 1, 3}, {{"axes", Ints{1}}}) == Shape{batch, 3});
    CHECK(shape_after("squeeze", {unknown, 3}, {{"axes", Ints{0}}}) == Shape{3});
    CHECK(!shape_after("squeeze", {batch, 1, 3}).has_rank());  // batch may be 1
    CHECK(shape_after("squeeze", {1, 3}) == Shape{3});
    CHECK(shape_after("expand_dims", {batch, 3}, {{"axes", Ints{1}}}) == Shape{batch, 1, 3});
    CHECK(contains(message_of([] { shape_after("squeeze", {2, 3}, {{"axes", Ints{1}}}); }), "has length 3"));
    CHECK(contains(message_of([] { shape_after("expand_dims", {2}, {{"axes", Ints{3}}}); }), "out of range"));
    CHECK(contains(
        message_of([] { shape_after("expand_dims", Shape(std::vector<Dim>(16, Dim(1))), {{"axes", Ints{0}}}); }),
        "17 dims"));
}

TEST_CASE("flatten2d, shape_of") {
    CHECK(shape_after("flatten2d", {2, 3, 4}, {{"axis", std::int64_t{-1}}}) == Shape{6, 4});
    CHECK(shape_after("flatten2d", {2, 3, 4}, {{"axis", std::int64_t{0}}}) == Shape{1, 24});
    CHECK(shape_after("flatten2d", {2, 3, 4}, {{"axis", std::int64_t{3}}}) == Shape{24, 1});
    CHECK(shape_after("flatten2d", {batch, unknown, 4}).str() == "(batch, ?)");
    CHECK(shape_after("flatten2d", Shape::unranked()).str() == "(?, ?)");
    CHECK(contains(message_of([] { shape_after("flatten2d", {2, 3}, {{"axis", std::int64_t{3}}}); }), "-2 to 2"));
    check_same(run("shape_of", {counted({2, 0, 5})}), {2, 0, 5});
    CHECK(run("shape_of", {counted({2})}, {{"dtype", DType::int64}}).dtype() == DType::int64);
    CHECK(run("shape_of", {counted({})}).shape() == Sizes{0});
    CHECK(shape_after("shape_of", {batch, unknown}) == Shape{2});
    CHECK(shape_after("shape_of", Shape::unranked()).str() == "(?,)");
}

TEST_CASE("reverse and roll") {
    const NDArray x = counted({2, 3});
    check_same(run("reverse", {x}), {5, 4, 3, 2, 1, 0});
    check_same(run("reverse", {x}, {{"axes", Ints{-1}}}), {2, 1, 0, 5, 4, 3});
    check_same(run("roll", {x}, {{"shifts", Ints{1}}, {"axes", Ints{1}}}), {2, 0, 1, 5, 3, 4});
    check_same(run("roll", {x}, {{"shifts", Ints{-7, 3}}, {"axes", Ints{1, 0}}}), {4, 5, 3, 1, 2, 0});
    CHECK(run("roll", {counted({0})}, {{"shifts", Ints{1}}, {"axes", Ints{0}}}).shape() == Sizes{0});
    CHECK(contains(message_of([] { shape_after("roll", {3}, {{"shifts", Ints{1, 2}}, {"axes", Ints{0}}}); }),
                   "one shift for each axis"));
}

TEST_CASE("complex and bool elements move unchanged") {
    const NDArray z = run("reverse", {complex_array({{1, 2}, {3, 4}})});
    CHECK(exact_values<std::complex<float>>(z) == Complexes{{3, 4}, {1, 2}});
    CHECK(run("transpose", {array(DType::boolean, {1, 2}, {1, 0})}).dtype() == DType::boolean);
    CHECK(exact_values<std::uint64_t>(run("reshape", {exact<std::uint64_t>(DType::uint64, {~0ULL, 1})}, to({2, 1}))) ==
          std::vector<std::uint64_t>{~0ULL, 1});
}

TEST_CASE("gradients of movement against differences") {
    const NDArray x = array(f64, {2, 3}, {1.5, -0.4, 0.3, 0.9, -1.6, 2.5});
    check_gradient("reshape", {x}, to({3, 2}));
    check_gradient("transpose", {x});
    check_gradient("transpose", {array(f64, {1, 2, 2}, {1, 2, 3, 4})}, {{"permutation", Ints{2, 0, 1}}});
    check_gradient("swap_axes", {x}, {{"axis1", std::int64_t{0}}, {"axis2", std::int64_t{1}}});
    check_gradient("broadcast_to", {array(f64, {2, 1}, {1, 2})}, to({3, 2, 2}));
    check_gradient("expand_dims", {x}, {{"axes", Ints{1}}});
    check_gradient("squeeze", {array(f64, {1, 2, 1}, {1, 2})});
    check_gradient("flatten2d", {x}, {{"axis", std::int64_t{0}}});
    check_gradient("reverse", {x}, {{"axes", Ints{1}}});
    check_gradient("roll", {x}, {{"shifts", Ints{1, 1}}, {"axes", Ints{0, 1}}});
}
