// Tests of Dim against identities worked by hand.
// Random expressions are checked in test_core_dim_random.cpp.
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <thread>
#include <vector>

#include "topstitch/dim.h"
#include "topstitch/error.h"

using namespace topstitch;

namespace {

const Dim s = Dim::symbol("s0");
const Dim t = Dim::symbol("s1");
const Dim batch = Dim::symbol("batch");
const Dim unknown = Dim::unknown();

}  // namespace

TEST_CASE("numbers") {
    CHECK(Dim(3) + Dim(4) == Dim(7));
    CHECK(Dim(3) - 4 == Dim(-1));
    CHECK(6 * Dim(7) == Dim(42));
    CHECK(floor_div(7, 2) == Dim(3));
    CHECK(floor_div(-7, 2) == Dim(-4));
    CHECK(floor_div(7, -2) == Dim(-4));
    CHECK(mod(-7, 2) == Dim(1));
    CHECK(mod(7, -2) == Dim(-1));
    CHECK(ceil_div(7, 2) == Dim(4));
    CHECK(ceil_div(-7, 2) == Dim(-3));
    CHECK(ceil_div(8, 2) == Dim(4));
    CHECK(exact_div(8, 2) == Dim(4));
    CHECK(exact_div(7, 2).is_unknown());
    CHECK(exact_div(7, 0).is_unknown());
    CHECK(exact_div(0, 0).is_unknown());
    CHECK(min(3, -4) == Dim(-4));
    CHECK(max(3, -4) == Dim(3));
    CHECK(Dim().value() == 0);
    CHECK(Dim(64).str() == "64");
}

TEST_CASE("sums and products have one normal form") {
    CHECK(s + t == t + s);
    CHECK(s - s == Dim(0));
    CHECK((s - s).is_known());
    CHECK(0 * s == Dim(0));
    CHECK(s + s == 2 * s);
    CHECK((s + 1) * (s - 1) == s * s - 1);
    CHECK((s + t) * (s + t) == s * s + 2 * (s * t) + t * t);
    CHECK(s * (t * batch) == (batch * s) * t);
    CHECK(!(s == t));
    CHECK(!(s == Dim(1)));
    CHECK(!(s == s + 1));
    CHECK(s * t - t * s + 5 == Dim(5));
}

TEST_CASE("unknown absorbs everything and equals nothing") {
    CHECK(!(unknown == unknown));
    CHECK(!(unknown == Dim(1)));
    CHECK(!(unknown == s));
    for (const Dim& other : {Dim(0), Dim(3), s, s * t, unknown}) {
        CHECK((unknown + other).is_unknown());
        CHECK((other - unknown).is_unknown());
        CHECK((unknown * other).is_unknown());
        CHECK(floor_div(unknown, other).is_unknown());
        CHECK(floor_div(other, unknown).is_unknown());
        CHECK(mod(other, unknown).is_unknown());
        CHECK(ceil_div(other, unknown).is_unknown());
        CHECK(min(unknown, other).is_unknown());
        CHECK(max(other, unknown).is_unknown());
        CHECK(exact_div(unknown, other).is_unknown());
    }
    CHECK(!provably_nonnegative(unknown));
    CHECK(!unknown.is_known());
    CHECK(!unknown.is_symbol());
    CHECK(unknown.str() == "?");
}

TEST_CASE("quotients of reshapes are exact") {
    CHECK(floor_div(784 * s, 784) == s);
    CHECK(floor_div(784 * s, 28) == 28 * s);
    CHECK(floor_div(s * t, t) == s);
    CHECK(exact_div(6 * s * t, 2 * t) == 3 * s);
    CHECK(exact_div(s * t * batch, t * s) == batch);
    CHECK(exact_div(s * (t + 1), t + 1) == s);
    CHECK(exact_div(s * t + 2 * s, t + 2) == s);
    CHECK(exact_div((s + 1) * (t - 3) * batch, (t - 3) * (s + 1)) == batch);
    CHECK(exact_div(s * s - 1, s + 1) == s - 1);
    CHECK(exact_div(7 * s, 2).is_unknown());
    CHECK(exact_div(s, t).is_unknown());
    CHECK(exact_div(s + 1, s).is_unknown());
    CHECK(exact_div(0, s) == Dim(0));
    CHECK(exact_div(-(6) * s, -3) == 2 * s);
    CHECK(exact_div(6 * s, -3) == -2 * s);
}

TEST_CASE("whole parts move out of quotients and remainders") {
    CHECK(floor_div(784 * s + 5, 784) == s);
    CHECK(mod(784 * s + 5, 784) == Dim(5));
    CHECK(floor_div(784 * s + t, 784) == s + floor_div(t, 784));
    CHECK(mod(784 * s + t, 784) == mod(t, 784));
    CHECK(floor_div(5 * s, 2) == 2 * s + floor_div(s, 2));
    CHECK(floor_div(s - 1, 2) == floor_div(s + 1, 2) - 1);
    CHECK(mod(s - 1, 2) == mod(s + 1, 2));
    CHECK(floor_div(s * t + t + 3, t) == s + 1 + floor_div(3, t));
    CHECK(floor_div(2 * s, 4) == floor_div(s, 2));
    CHECK(mod(2 * s + 1, 4) == 2 * mod(s, 2) + 1);
    CHECK(floor_div(2 * s + 1, 4) == floor_div(s, 2));
    CHECK(floor_div(s * t, s * batch) == floor_div(t, batch));
    CHECK(mod(s * t, s * batch) == s * mod(t, batch));
    CHECK(floor_div(floor_div(s, 2), 3) == floor_div(s, 6));
    CHECK(floor_div(floor_div(s, 2) + 1, 3) == floor_div(s + 2, 6));
    CHECK(mod(mod(s, 12), 4) == mod(s, 4));
    CHECK(mod(mod(s, 4), 12) == mod(s, 4));
    CHECK(!(mod(mod(s, 10), 4) == mod(s, 4)));
    CHECK(floor_div(s, -2) == floor_div(-1 * s, 2));
    CHECK(mod(s, -2) == 0 - mod(-1 * s, 2));
    CHECK(ceil_div(4 * s, 4) == s);
    CHECK(ceil_div(s, 4) == floor_div(s + 3, 4));
}

TEST_CASE("quotients of small dividends are numbers") {
    CHECK(floor_div(s, s + 1) == Dim(0));
    CHECK(mod(s, s + 1) == s);
    CHECK(floor_div(s - 1, s) == Dim(0));
    CHECK(floor_div(-1, s) == Dim(-1));
    CHECK(mod(-1, s) == s - 1);
    CHECK(floor_div(mod(s, 4), 4) == Dim(0));
    CHECK(floor_div(mod(s, t), t) == Dim(0));
}

TEST_CASE("a quotient and its remainder join again") {
    CHECK(2 * floor_div(s, 2) + mod(s, 2) == s);
    CHECK(mod(s, t) + t * floor_div(s, t) == s);
    CHECK(3 * batch * mod(s, 4) + 12 * batch * floor_div(s, 4) == 3 * batch * s);
    CHECK(28 * floor_div(s, 28) + mod(s, 28) + t - s == t);
    CHECK(!(3 * floor_div(s, 2) + mod(s, 2) == s));
}

TEST_CASE("minimum and maximum simplify where the order is provable") {
    CHECK(min(s, s + 1) == s);
    CHECK(max(s, s + 1) == s + 1);
    CHECK(min(s, s) == s);
    CHECK(max(s, 1) == s);
    CHECK(max(1, s) == s);
    CHECK(min(s, 0) == Dim(0));
    CHECK(min(s, t) == min(t, s));
    CHECK(max(s, t) == max(t, s));
    CHECK(!(min(s, t) == max(s, t)));
    CHECK(min(min(s, t), s) == min(s, t));
    CHECK(max(max(s, t), t) == max(s, t));
    CHECK(min(max(s, t), t) == t);
    CHECK(min(s * t, t) == t);
}

TEST_CASE("signs are proved") {
    for (const Dim& dim : {s - 1,
                           3 * s - 3,
                           s * t - s,
                           s * t - 1,
                           s * t - s - t + 1,
                           s * t * batch - t * batch,
                           floor_div(s, 2),
                           mod(s, t),
                           s - floor_div(s, 2),
                           s - 2 * floor_div(s, 2),
                           3 - mod(s, 4),
                           t - 1 - mod(s, t),
                           s - mod(s, 4),
                           floor_div(s + 3, 4) - 1,
                           4 * floor_div(s + 3, 4) - s,
                           s - min(s, t),
                           max(s, t) - s,
                           min(s, t) - 1,
                           s * max(s, t) - s * s,
                           s * s - 2 * s + 1,
                           Dim(0),
                           Dim(5)}) {
        CAPTURE(dim.str());
        CHECK(provably_nonnegative(dim));
    }
    for (const Dim& dim : {s - 2, s - t, 2 - mod(s, 4), 0 - s, 1 - s, s * t - s - t, floor_div(s, 2) - 1, min(s, t) - 2,
                           s - max(s, t), Dim(-1), floor_div(s, 2 - t), mod(s, t - 2)}) {
        CAPTURE(dim.str());
        CHECK(!provably_nonnegative(dim));
    }
}

TEST_CASE("text") {
    CHECK(batch.str() == "batch");
    CHECK((2 * batch + 1).str() == "2*batch + 1");
    CHECK((1 - batch).str() == "-batch + 1");
    CHECK((s * t - 3 * s).str() == "s0*s1 - 3*s0");
    CHECK((s * s + s).str() == "s0*s0 + s0");
    CHECK(floor_div(batch, 2).str() == "batch // 2");
    CHECK(floor_div(batch + 1, 2).str() == "(batch + 1) // 2");
    CHECK((3 * floor_div(batch, 2) - 1).str() == "3*(batch // 2) - 1");
    CHECK(mod(batch, t).str() == "batch % s1");
    CHECK(min(s, t).str() == "min(s0, s1)");
    CHECK((mod(s, 2) * mod(t, 2)).str() == "(s0 % 2)*(s1 % 2)");
}

TEST_CASE("evaluation, substitution and symbols") {
    const auto lookup = [](std::string_view name) -> std::int64_t {
        if (name == "s0") return 7;
        if (name == "s1") return 3;
        throw std::out_of_range("no such symbol");
    };
    CHECK((2 * s * t - 5).evaluate(lookup) == 37);
    CHECK(floor_div(s, t).evaluate(lookup) == 2);
    CHECK(mod(s, t).evaluate(lookup) == 1);
    CHECK(min(s, t).evaluate(lookup) == 3);
    CHECK(max(s, t).evaluate(lookup) == 7);
    CHECK(Dim(12).evaluate(lookup) == 12);
    CHECK_THROWS_AS(batch.evaluate(lookup), std::out_of_range);
    CHECK_THROWS_AS(floor_div(s, t - 3).evaluate(lookup), UserError);

    std::vector<std::string> names;
    (t * s + floor_div(batch + s, 2)).collect_symbols(names);
    CHECK(names == std::vector<std::string>{"s0", "s1", "batch"});

    const auto rename = [](std::string_view name) { return name == "s0" ? 2 * Dim::symbol("s1") : Dim::symbol(name); };
    CHECK(floor_div(s, 2).substitute(rename) == t);
    CHECK((s + t).substitute(rename) == 3 * t);
    CHECK((s + t).substitute([](std::string_view) { return Dim::unknown(); }).is_unknown());
    CHECK(batch.symbol_name() == "batch");
    CHECK(!(2 * batch).is_symbol());
    CHECK(!floor_div(batch, 2).is_symbol());
}

TEST_CASE("misuse is an error and not a crash") {
    constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();
    constexpr std::int64_t lowest = std::numeric_limits<std::int64_t>::min();
    CHECK_THROWS_AS(Dim(largest) + 1, UserError);
    CHECK_THROWS_AS(Dim(lowest) - 1, UserError);
    CHECK_THROWS_AS(Dim(largest) * 2, UserError);
    CHECK_THROWS_AS(floor_div(lowest, -1), UserError);
    CHECK_THROWS_AS((largest * s) * 2, UserError);
    CHECK_THROWS_AS(largest * s + s, UserError);
    CHECK_THROWS_WITH_AS(Dim(std::int64_t{1} << 40) * (std::int64_t{1} << 40), doctest::Contains("too large"),
                         UserError);
    CHECK(floor_div(lowest, 2) == Dim(lowest / 2));
    CHECK(Dim(lowest) + Dim(largest) == Dim(-1));
    CHECK_THROWS_AS(floor_div(s, 0), UserError);
    CHECK_THROWS_AS(floor_div(0, 0), UserError);
    CHECK_THROWS_AS(mod(3, 0), UserError);
    CHECK_THROWS_AS(ceil_div(s, 0), UserError);
    CHECK(!provably_nonnegative(largest * s - lowest / 2 * t - largest * t * s));
    for (const char* name : {"", "2", "a b", "a+b", "?", "f(x)", "a,b"}) {
        CAPTURE(name);
        CHECK_THROWS_AS(Dim::symbol(name), UserError);
    }
    CHECK_NOTHROW(Dim::symbol("größe_1.x"));
    CHECK_THROWS_AS(s.value(), InternalError);
    CHECK_THROWS_AS(Dim(3).symbol_name(), InternalError);
}

TEST_CASE("questions are answered alike however often and in whichever thread they are asked") {
    constexpr int questions = 6000;  // more than are remembered
    const auto ask = [](int n) {
        return std::vector<Dim>{floor_div(n * s + 7 * t, n), mod(n * s + 3, 2 * n), min(n * s, t + n), n * s - n * t};
    };
    const auto check = [&](const std::vector<Dim>& answers, std::int64_t n) {
        const std::vector<std::int64_t> expected = {5 + 21 / n, (5 * n + 3) % (2 * n), std::min(5 * n, 3 + n), 2 * n};
        for (std::size_t k = 0; k < answers.size(); ++k) {
            const std::int64_t value = answers[k].evaluate([](std::string_view name) { return name == "s0" ? 5 : 3; });
            if (value != expected[k]) CHECK(value == expected[k]);
        }
    };
    std::vector<std::vector<Dim>> first;
    for (int n = 1; n <= questions; ++n) {
        first.push_back(ask(n));
        check(first.back(), n);
    }
    const auto again = [&](bool& equal) {
        for (int n = questions; n > 0; --n) equal = equal && ask(n) == first[static_cast<std::size_t>(n) - 1];
    };
    bool here = true, there = true;
    std::thread thread([&] { again(there); });
    again(here);
    thread.join();
    CHECK(here);
    CHECK(there);
    // An error is not remembered as an answer.
    for (int k = 0; k < 2; ++k) CHECK_THROWS_AS(std::numeric_limits<std::int64_t>::max() * s + s, UserError);
}
