// Random index expressions against the same expressions computed on plain integers.
// Bounds must hold for every point that was tried; the seed of a failing case is printed.
#include <doctest/doctest.h>

#include <array>
#include <map>
#include <random>
#include <string>

#include "loopir/index.h"
#include "topstitch/error.h"

using namespace topstitch;
using namespace topstitch::loopir;

namespace {

using Random = std::mt19937;

int pick(Random& random, int n) {
    return static_cast<int>(random() % static_cast<unsigned>(n));
}

std::int64_t floor_quotient(std::int64_t a, std::int64_t b) {
    return (a - ((a % b) + b) % b) / b;
}

// A size and what it is for the numbers chosen for a and b.
struct Size {
    Dim dim;
    std::int64_t number;
};

struct World {
    std::int64_t a;
    std::int64_t b;
    std::vector<Size> sizes;    // to choose from
    std::vector<Size> extents;  // of the variables
    std::vector<std::int64_t> vars;
    std::vector<std::int64_t> values;

    std::int64_t number(const Dim& dim) const {
        return dim.evaluate([this](std::string_view name) { return name == "a" ? a : b; });
    }
};

World random_world(Random& random) {
    World world;
    world.a = 1 + pick(random, 5);
    world.b = 1 + pick(random, 5);
    const Dim a = Dim::symbol("a");
    const Dim b = Dim::symbol("b");
    for (int k : {1, 2, 3, 4, 6, 8, 12}) world.sizes.push_back({k, k});
    for (const Dim& dim : {a, b, a * b, a * 2, b * 4, a + 1, a * b * 3}) {
        world.sizes.push_back({dim, world.number(dim)});
    }
    for (int k = 0; k < 4; ++k) {
        world.extents.push_back(world.sizes[random() % world.sizes.size()]);
        world.vars.push_back(0);
    }
    for (int k = 0; k < 2; ++k) world.values.push_back(pick(random, 41) - 20);
    return world;
}

// An expression tree, built as an Index and evaluated independently of it.
struct Tree {
    char op = 'n';
    std::int64_t id = 0;  // the number of 'n', the variable of 'i', the value of 'v'
    Size size{1, 1};      // the right operand of * / %
    std::vector<Tree> children;
};

Tree random_tree(Random& random, const World& world, int depth) {
    if (depth == 0 || pick(random, 8) == 0) {
        const int kind = pick(random, 8);
        if (kind == 0) return {'n', pick(random, 30) - 10};
        if (kind == 1) return {'v', pick(random, 2)};
        return {'i', pick(random, 4)};
    }
    constexpr std::string_view ops = "++-**//%%";
    Tree tree;
    tree.op = ops[random() % ops.size()];
    tree.children.push_back(random_tree(random, world, depth - 1));
    if (tree.op == '+' || tree.op == '-') {
        tree.children.push_back(random_tree(random, world, depth - 1));
    } else {
        tree.size = world.sizes[random() % world.sizes.size()];
    }
    return tree;
}

Index build(const Tree& tree, const World& world) {
    switch (tree.op) {
        case 'n':
            return Index(tree.id);
        case 'v':
            return Index::value(static_cast<ValueId>(tree.id));
        case 'i':
            return Index::var(static_cast<VarId>(tree.id), world.extents[static_cast<std::size_t>(tree.id)].dim);
        case '+':
            return build(tree.children[0], world) + build(tree.children[1], world);
        case '-':
            return build(tree.children[0], world) - build(tree.children[1], world);
        case '*':
            return build(tree.children[0], world) * tree.size.dim;
        case '/':
            return floor_div(build(tree.children[0], world), tree.size.dim);
        default:
            return mod(build(tree.children[0], world), tree.size.dim);
    }
}

std::int64_t evaluate(const Tree& tree, const World& world) {
    switch (tree.op) {
        case 'n':
            return tree.id;
        case 'v':
            return world.values[static_cast<std::size_t>(tree.id)];
        case 'i':
            return world.vars[static_cast<std::size_t>(tree.id)];
        case '+':
            return evaluate(tree.children[0], world) + evaluate(tree.children[1], world);
        case '-':
            return evaluate(tree.children[0], world) - evaluate(tree.children[1], world);
        case '*':
            return evaluate(tree.children[0], world) * tree.size.number;
        default:
            break;
    }
    const std::int64_t x = evaluate(tree.children[0], world);
    const std::int64_t q = floor_quotient(x, tree.size.number);
    return tree.op == '/' ? q : x - q * tree.size.number;
}

std::int64_t evaluate(const Index& index, const World& world) {
    std::int64_t sum = world.number(index.constant());
    for (const Index::Part& part : index.parts()) {
        std::int64_t term = 0;
        if (part.term.kind == IndexTerm::Kind::var) {
            term = world.vars[static_cast<std::size_t>(part.term.var)];
        } else if (part.term.kind == IndexTerm::Kind::value) {
            term = world.values[static_cast<std::size_t>(part.term.value)];
        } else {
            const std::int64_t x = evaluate(*part.term.inner, world);
            const std::int64_t d = world.number(part.term.extent);
            const std::int64_t q = floor_quotient(x, d);
            term = part.term.kind == IndexTerm::Kind::floor_div ? q : x - q * d;
        }
        sum += world.number(part.coefficient) * term;
    }
    return sum;
}

void move_to_random_point(Random& random, World& world) {
    for (std::size_t k = 0; k < world.vars.size(); ++k) {
        world.vars[k] = pick(random, static_cast<int>(world.extents[k].number));
    }
}

}  // namespace

TEST_CASE("random indices keep their value and their bounds") {
    for (unsigned seed = 0; seed < 6000; ++seed) {
        CAPTURE(seed);
        Random random(seed);
        World world = random_world(random);
        const Tree tree = random_tree(random, world, 1 + pick(random, 6));
        const Index index = build(tree, world);
        CAPTURE(index.str());
        const Dim low = index.lower_bound();
        const Dim high = index.upper_bound();
        for (int point = 0; point < 12; ++point) {
            move_to_random_point(random, world);
            const std::int64_t expected = evaluate(tree, world);
            REQUIRE(evaluate(index, world) == expected);
            if (!low.is_unknown()) REQUIRE(world.number(low) <= expected);
            if (!high.is_unknown()) REQUIRE(world.number(high) >= expected);
        }
    }
}

TEST_CASE("random substitutions keep the value") {
    for (unsigned seed = 0; seed < 2000; ++seed) {
        CAPTURE(seed);
        Random random(seed);
        World world = random_world(random);
        const Index index = build(random_tree(random, world, 4), world);
        // Each variable becomes itself reversed, each value a number.
        const Index changed =
            index.substitute([&](VarId var, const Dim& extent) { return Index(extent - 1) - Index::var(var, extent); })
                .substitute_values([&](ValueId value) { return Index(world.values[static_cast<std::size_t>(value)]); });
        CAPTURE(index.str());
        CAPTURE(changed.str());
        for (int point = 0; point < 8; ++point) {
            move_to_random_point(random, world);
            World reversed = world;
            for (std::size_t k = 0; k < world.vars.size(); ++k) {
                reversed.vars[k] = world.extents[k].number - 1 - world.vars[k];
            }
            REQUIRE(evaluate(changed, world) == evaluate(index, reversed));
        }
    }
}

TEST_CASE("a quotient and a remainder of a random index become whole again") {
    int whole = 0;
    int total = 0;
    for (unsigned seed = 0; seed < 3000; ++seed) {
        CAPTURE(seed);
        Random random(seed);
        World world = random_world(random);
        const Index index = build(random_tree(random, world, 2), world);
        const Size& d = world.sizes[random() % world.sizes.size()];
        const Index again = floor_div(index, d.dim) * d.dim + mod(index, d.dim);
        for (int point = 0; point < 5; ++point) {
            move_to_random_point(random, world);
            REQUIRE(evaluate(again, world) == evaluate(index, world));
        }
        ++total;
        if (again == index) ++whole;
    }
    // The rest are constants with symbolic remainders, and differences like i - i % n.
    CHECK(whole >= total - 10);
}
