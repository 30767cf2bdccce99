// Random Dim expressions against the same expressions computed on plain integers.
// Also checks that no proof of a sign is wrong. The seed of a failing case is printed.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <optional>
#include <random>
#include <string>

#include "topstitch/dim.h"
#include "topstitch/error.h"

using namespace topstitch;

namespace {

using Values = std::array<std::int64_t, 3>;  // of the symbols a, b and c

// An expression tree: built as a Dim and evaluated independently of it.
struct Tree {
    char op = 'n';
    std::int64_t number = 0;  // of 'n'; the symbol's index for 's'
    std::vector<Tree> children;
};

Tree random_tree(std::mt19937& random, int depth) {
    const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    if (depth == 0 || pick(6) == 0) {
        if (pick(3) == 0) return {'n', pick(9) - 3, {}};
        return {'s', pick(3), {}};
    }
    constexpr std::string_view ops = "++--**/%<>";
    const char op = ops[static_cast<std::size_t>(pick(static_cast<int>(ops.size())))];
    return {op, 0, {random_tree(random, depth - 1), random_tree(random, depth - 1)}};
}

Dim build(const Tree& tree) {
    constexpr std::array names = {"a", "b", "c"};
    if (tree.op == 'n') return tree.number;
    if (tree.op == 's') return Dim::symbol(names[static_cast<std::size_t>(tree.number)]);
    const Dim x = build(tree.children[0]);
    const Dim y = build(tree.children[1]);
    switch (tree.op) {
        case '+':
            return x + y;
        case '-':
            return x - y;
        case '*':
            return x * y;
        case '/':
            return floor_div(x, y);
        case '%':
            return mod(x, y);
        case '<':
            return min(x, y);
        default:
            return max(x, y);
    }
}

// Nothing where a divisor is 0.
std::optional<std::int64_t> compute(const Tree& tree, const Values& values) {
    if (tree.op == 'n') return tree.number;
    if (tree.op == 's') return values[static_cast<std::size_t>(tree.number)];
    const auto x = compute(tree.children[0], values);
    const auto y = compute(tree.children[1], values);
    if (!x || !y) return std::nullopt;
    switch (tree.op) {
        case '+':
            return *x + *y;
        case '-':
            return *x - *y;
        case '*':
            return *x * *y;
        case '<':
            return std::min(*x, *y);
        case '>':
            return std::max(*x, *y);
        default:
            break;
    }
    if (*y == 0) return std::nullopt;
    std::int64_t quotient = *x / *y;
    while (quotient * *y > *x && *y > 0) --quotient;
    while (quotient * *y < *x && *y < 0) --quotient;
    return tree.op == '/' ? quotient : *x - quotient * *y;
}

std::string text(const Tree& tree) {
    if (tree.op == 'n') return std::to_string(tree.number);
    if (tree.op == 's') return std::string(1, static_cast<char>('a' + tree.number));
    return "(" + text(tree.children[0]) + " " + tree.op + " " + text(tree.children[1]) + ")";
}

template <typename Visit>
void for_all_values(Visit visit) {
    for (const std::int64_t a : {1, 2, 3, 5, 12}) {
        for (const std::int64_t b : {1, 2, 4, 7}) {
            for (const std::int64_t c : {1, 3, 6}) visit(Values{a, b, c});
        }
    }
}

}  // namespace

TEST_CASE("random expressions evaluate to what integers give") {
    int compared = 0;
    int proved = 0;
    for (unsigned seed = 0; seed < 4000; ++seed) {
        std::mt19937 random(seed);
        const Tree tree = random_tree(random, 3);
        CAPTURE(seed);
        CAPTURE(text(tree));
        Dim dim;
        try {
            dim = build(tree);
        } catch (const UserError&) {  // a divisor that simplifies to 0
            for_all_values([&](const Values& values) { CHECK(!compute(tree, values)); });
            continue;
        }
        CAPTURE(dim.str());
        const bool nonnegative = provably_nonnegative(dim);
        proved += nonnegative ? 1 : 0;
        for_all_values([&](const Values& values) {
            const auto expected = compute(tree, values);
            if (!expected) return;
            const auto lookup = [&](std::string_view name) { return values[static_cast<std::size_t>(name[0] - 'a')]; };
            ++compared;
            if (dim.evaluate(lookup) != *expected) CHECK(dim.evaluate(lookup) == *expected);
            if (nonnegative && *expected < 0) CHECK(*expected >= 0);
        });
        // The normal form is a fixed point.
        CHECK((dim - dim) == Dim(0));
        CHECK(dim.substitute([](std::string_view name) { return Dim::symbol(name); }) == dim);
    }
    CHECK(compared > 100000);
    CHECK(proved > 500);
}
