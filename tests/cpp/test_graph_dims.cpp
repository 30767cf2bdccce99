// Tests of when dims agree and how shapes broadcast: while building, and with present values.
#include <map>

#include "test_graph_support.h"

using namespace topstitch;
using namespace topstitch::graph_test;

namespace {

const Dim n = Dim::symbol("n");
const Dim m = Dim::symbol("m");
const Dim unknown = Dim::unknown();

std::string broadcast(const Dim& a, const Dim& b) {
    Dim result;
    return broadcast_dims(a, b, result) ? result.str() : "impossible";
}

// Values of n and m, and the equalities that were assumed, as text.
class Assumed : public DimAssumptions {
public:
    explicit Assumed(std::map<std::string, std::int64_t> values) : values_(std::move(values)) {}
    std::int64_t hint(const Dim& dim) override {
        return dim.evaluate([this](std::string_view name) { return values_.at(std::string(name)); });
    }
    void assume_equal(const Dim& a, const Dim& b) override { record.push_back(a.str() + "==" + b.str()); }
    std::vector<std::string> record;

private:
    std::map<std::string, std::int64_t> values_;
};

using Record = std::vector<std::string>;

}  // namespace

TEST_CASE("while building, what may agree does") {
    CHECK(dims_agree(3, 3));
    CHECK(!dims_agree(3, 4));
    CHECK(dims_agree(n, 3));
    CHECK(dims_agree(n, m));
    CHECK(dims_agree(unknown, n));
    CHECK(dims_agree(n + 1, n + 1));
    CHECK(!dims_agree(n, n + 1));
    CHECK(unify_dims(n, 3).str() == "3");
    CHECK(unify_dims(unknown, n).str() == "n");
    CHECK(unify_dims(3, unknown).str() == "3");
    CHECK(unify_dims(unknown, unknown).is_unknown());
    CHECK(dim_is_one(1));
    CHECK(!dim_is_one(n));
    CHECK(!dim_is_one(unknown));
}

TEST_CASE("while building, dims broadcast to what is certain") {
    for (const bool swapped : {false, true}) {
        const auto check = [&](const Dim& a, const Dim& b, const std::string& expected) {
            CHECK((swapped ? broadcast(b, a) : broadcast(a, b)) == expected);
        };
        check(3, 3, "3");
        check(1, 3, "3");
        check(0, 1, "0");
        check(2, 3, "impossible");
        check(0, 3, "impossible");
        check(n, n, "n");
        check(n, 1, "n");
        check(n, 3, "3");
        check(n, 0, "0");
        check(n, m, "?");
        check(n, n + 1, "?");  // 1 and 2 broadcast
        check(unknown, 1, "?");
        check(unknown, 4, "4");
        check(unknown, n, "?");
        check(unknown, unknown, "?");
    }
}

TEST_CASE("with present values, dims are decided and assumptions recorded") {
    Assumed assumed({{"n", 5}, {"m", 1}});
    const ScopedDimAssumptions scope(&assumed);
    SUBCASE("agreement") {
        CHECK(dims_agree(n, 5));
        CHECK(!dims_agree(n, 6));
        CHECK(!dims_agree(n, m));
        CHECK(dims_agree(n, m * 5));
        CHECK(dims_agree(n, n));
        CHECK(dims_agree(n, unknown));
        CHECK(assumed.record == Record{"n==5", "n==5*m"});
    }
    SUBCASE("broadcasting") {
        CHECK(broadcast(n, m) == "n");
        CHECK(broadcast(m, 7) == "7");
        CHECK(broadcast(n, 7) == "impossible");
        CHECK(broadcast(n, 5) == "5");
        CHECK(broadcast(n, n) == "n");
        CHECK(broadcast(n, unknown) == "?");
        CHECK(assumed.record == Record{"m==1", "m==1", "n==5"});
    }
    SUBCASE("being one") {
        CHECK(dim_is_one(m));
        CHECK(!dim_is_one(n));
        CHECK(dim_is_one(1));
        CHECK(assumed.record == Record{"m==1"});
        {
            const ScopedDimAssumptions building(nullptr);
            CHECK(!dim_is_one(m));
        }
        CHECK(dim_is_one(m));
    }
}

TEST_CASE("shapes broadcast from the last dim") {
    const OpDef def = make_add();
    const OpView view(def, {}, {}, {});
    const auto shape = [&](const Shape& a, const Shape& b) { return broadcast_shapes(view, a, b).str(); };
    CHECK(shape({2, 3}, {3}) == "(2, 3)");
    CHECK(shape({}, {4}) == "(4,)");
    CHECK(shape({}, {}) == "()");
    CHECK(shape({n, 1, 3}, {4, 1}) == "(n, 4, 3)");
    CHECK(shape({unknown, 3}, {3}) == "(?, 3)");
    CHECK(shape({2, 0}, {1}) == "(2, 0)");
    CHECK(shape(Shape::unranked(), {2}) == "(?...)");
    const std::string message = message_of([&] { shape({5, 2, 3}, {4, 3}); });
    CHECK(contains(message, "(5, 2, 3) and (4, 3)"));
    CHECK(contains(message, "2 meets 4 at axis -2"));
}

TEST_CASE("the index of a broadcast operand") {
    const Index i = Index::var(0, 2), j = Index::var(1, 3);
    const auto index = broadcast_index({1, 3}, {2, 3}, {i, j});
    REQUIRE(index.size() == 2);
    CHECK(index[0] == Index(0));
    CHECK(index[1] == j);
    CHECK(broadcast_index({}, {2, 3}, {i, j}).empty());
    CHECK(broadcast_index({3}, {2, 3}, {i, j}) == Indices{j});
}
