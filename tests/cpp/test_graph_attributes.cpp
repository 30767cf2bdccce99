// Tests of attributes against their schema: order, fallbacks, conversions, equality and messages.
#include <cmath>
#include <limits>

#include "test_graph_support.h"

using namespace topstitch;
using namespace topstitch::graph_test;

TEST_CASE("attributes come in schema order with fallbacks") {
    const OpDef def = make_every_kind();
    const auto values = complete_attributes(def, {{"needed", std::int64_t{7}}, {"scale", 2.0}});
    REQUIRE(values.size() == 9);
    CHECK(std::get<bool>(values[0]) == false);
    CHECK(std::get<std::int64_t>(values[1]) == 3);
    CHECK(std::get<double>(values[2]) == 2.0);
    CHECK(std::get<std::string>(values[3]) == "constant");
    CHECK(std::get<DType>(values[4]) == DType::float32);
    CHECK(kind_of(values[5]) == AttributeKind::none);
    CHECK(std::get<std::int64_t>(values[8]) == 7);
}

TEST_CASE("harmless conversions of attributes") {
    const OpDef def = make_every_kind();
    const std::int64_t one = 1;
    const auto values = complete_attributes(def, {{"needed", one},
                                                  {"scale", one},
                                                  {"axes", one},
                                                  {"dtype", std::string("int8")},
                                                  {"shape", std::vector<std::int64_t>{-1, 3}},
                                                  {"count", std::monostate()}});
    CHECK(std::get<std::int64_t>(values[1]) == 3);  // none means left out
    CHECK(std::get<double>(values[2]) == 1.0);
    CHECK(std::get<DType>(values[4]) == DType::int8);
    CHECK(std::get<std::vector<std::int64_t>>(values[5]) == std::vector{one});
    CHECK(std::get<Shape>(values[6]).str() == "(?, 3)");
}

TEST_CASE("an array attribute is packed") {
    const OpDef def = make_every_kind();
    const NDArray column = floats({2, 2}, {1, 2, 3, 4}).transpose({1, 0});
    const auto values = complete_attributes(def, {{"needed", std::int64_t{1}}, {"table", column}});
    CHECK(std::get<NDArray>(values[7]).is_contiguous());
    CHECK(values_of(std::get<NDArray>(values[7])) == std::vector<double>{1, 3, 2, 4});
}

TEST_CASE("messages about attributes") {
    const OpDef def = make_every_kind();
    const std::int64_t one = 1;
    const auto complain = [&](const NamedAttributes& given) {
        return message_of([&] { complete_attributes(def, given); });
    };
    const std::string unknown = complain({{"needed", one}, {"axis", one}});
    CHECK(contains(unknown, "[test_every_kind] has no attribute 'axis'"));
    CHECK(contains(unknown, "did you mean 'axes'?"));
    CHECK(contains(unknown, "'flag', 'count'"));
    CHECK(!contains(complain({{"needed", one}, {"zzzzzz", one}}), "did you mean"));
    CHECK(contains(complain({}), "needs the attribute 'needed' (an integer: what must be given)"));
    CHECK(contains(complain({{"needed", one}, {"needed", one}}), "given twice"));
    CHECK(contains(complain({{"needed", 1.5}}), "'needed' must be an integer, but got the real number 1.5"));
    CHECK(contains(complain({{"needed", true}}), "must be an integer, but got true"));
    const std::string choice = complain({{"needed", one}, {"mode", std::string("reflected")}});
    CHECK(contains(choice, "got 'reflected'; allowed are 'constant' and 'reflect'; did you mean 'reflect'?"));
    CHECK(contains(complain({{"needed", one}, {"dtype", std::string("flaot32")}}), "did you mean 'float32'?"));
    CHECK_THROWS_AS(complete_attributes(def, {{"needed", 1.5}}), TypeError);
}

TEST_CASE("equality of attributes is by kind and bits") {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    CHECK(equal(Attribute(nan), Attribute(nan)));
    CHECK(!equal(Attribute(0.0), Attribute(-0.0)));
    CHECK(!equal(Attribute(1.0), Attribute(std::int64_t{1})));
    CHECK(equal(Attribute(std::monostate()), Attribute(std::monostate())));
    CHECK(equal(Attribute(Shape{Dim::unknown(), 3}), Attribute(Shape{Dim::unknown(), 3})));
    CHECK(!equal(Attribute(Shape{Dim::unknown(), 3}), Attribute(Shape{Dim::symbol("n"), 3})));
    CHECK(!equal(Attribute(Shape{}), Attribute(Shape::unranked())));
    CHECK(!equal(Attribute(DType::int8), Attribute(DType::uint8)));
    const NDArray a = floats({2}, {std::nanf(""), 0.0f});
    CHECK(equal(Attribute(a), Attribute(a.copy())));
    CHECK(!equal(Attribute(a), Attribute(floats({2}, {std::nanf(""), -0.0f}))));
    CHECK(!equal(Attribute(floats({2, 1}, {1, 2})), Attribute(floats({1, 2}, {1, 2}))));
    CHECK(equal(Attribute(floats({2, 2}, {1, 2, 3, 4}).transpose({1, 0})), Attribute(floats({2, 2}, {1, 3, 2, 4}))));
}
