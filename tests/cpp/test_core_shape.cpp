// Tests of shapes, element counts and axes.
#include <doctest/doctest.h>

#include "topstitch/error.h"
#include "topstitch/shape.h"

using namespace topstitch;

TEST_CASE("shapes of numbers") {
    const Shape shape{2, 3, 4};
    CHECK(shape.rank() == 3);
    CHECK(shape[1] == Dim(3));
    CHECK(shape.is_known());
    CHECK(shape.num_elements() == Dim(24));
    CHECK(shape.sizes() == Sizes{2, 3, 4});
    CHECK(shape.str() == "(2, 3, 4)");
    CHECK(shape == Shape::of({2, 3, 4}));
    CHECK(!(shape == Shape{2, 3}));
    CHECK(Shape{}.rank() == 0);
    CHECK(Shape{}.num_elements() == Dim(1));
    CHECK(Shape{}.str() == "()");
    CHECK(Shape{5}.str() == "(5,)");
}

TEST_CASE("shapes with symbols, unknown dims and unknown rank") {
    const Dim batch = Dim::symbol("batch");
    const Shape shape{64, batch, Dim::unknown()};
    CHECK(!shape.is_known());
    CHECK(!shape.sizes());
    CHECK(shape.str() == "(64, batch, ?)");
    CHECK(shape.num_elements().is_unknown());
    CHECK(!(shape == shape));  // unknowns equal nothing
    CHECK(Shape{64, batch} == Shape{64, batch});
    CHECK(Shape{64, batch}.num_elements() == 64 * batch);
    CHECK(Shape{Dim::unknown(), 0}.num_elements() == Dim(0));

    const Shape unranked = Shape::unranked();
    CHECK(!unranked.has_rank());
    CHECK(!unranked.is_known());
    CHECK(!unranked.sizes());
    CHECK(unranked.num_elements().is_unknown());
    CHECK(unranked.str() == "(?...)");
    CHECK_THROWS_AS(unranked.rank(), InternalError);
}

TEST_CASE("bad shapes are errors") {
    CHECK_NOTHROW(Shape(std::vector<Dim>(16, 1)));
    CHECK_THROWS_WITH_AS(Shape(std::vector<Dim>(17, 1)), doctest::Contains("17 dims"), UserError);
    CHECK_THROWS_WITH_AS((Shape{2, -3}), doctest::Contains("dim 1 is -3"), UserError);
    CHECK_THROWS_AS((Shape{std::int64_t{1} << 40, std::int64_t{1} << 40}.num_elements()), UserError);
}

TEST_CASE("element counts of sizes") {
    CHECK(num_elements({}) == 1);
    CHECK(num_elements({2, 3}) == 6);
    CHECK(num_elements({std::int64_t{1} << 62, 1}) == std::int64_t{1} << 62);
    CHECK(num_elements({std::int64_t{1} << 62, std::int64_t{1} << 62, 0}) == 0);
    CHECK_THROWS_WITH_AS(num_elements({std::int64_t{1} << 62, 2}), doctest::Contains("too large"), UserError);
    CHECK(sizes_str({2, 3}) == "(2, 3)");
    CHECK(sizes_str({7}) == "(7,)");
    CHECK(sizes_str({}) == "()");
}

TEST_CASE("axes") {
    CHECK(normalize_axis(0, 3, "sum") == 0);
    CHECK(normalize_axis(-1, 3, "sum") == 2);
    CHECK(normalize_axis(-3, 3, "sum") == 0);
    CHECK_THROWS_WITH_AS(normalize_axis(3, 3, "sum"), doctest::Contains("sum: axis 3 is out of range for 3 dims"),
                         UserError);
    CHECK_THROWS_AS(normalize_axis(-4, 3, "sum"), UserError);
    CHECK_THROWS_WITH_AS(normalize_axis(0, 0, "sum"), doctest::Contains("scalar"), UserError);
    CHECK_THROWS_AS(normalize_axis(std::int64_t{1} << 40, 3, "sum"), UserError);
}
