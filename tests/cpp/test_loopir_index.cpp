// Index expressions: normal form, text, ranges, and the simplifications that make views free.
// The expected texts were worked out by hand; values are checked in test_loopir_index_random.cpp.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "loopir/index.h"
#include "topstitch/error.h"

using namespace topstitch;
using namespace topstitch::loopir;

namespace {

const Dim a = Dim::symbol("a");
const Dim b = Dim::symbol("b");
const Dim c = Dim::symbol("c");
const Dim n = Dim::symbol("n");

using Indices = std::vector<Index>;

// The variables i0, i1, ... of loops over `extents`.
Indices vars(const std::vector<Dim>& extents) {
    Indices result;
    for (const Dim& extent : extents) result.push_back(Index::var(static_cast<VarId>(result.size()), extent));
    return result;
}

// Row-major position of `at` in an array of `shape`.
Index flatten(const Indices& at, const std::vector<Dim>& shape) {
    Index flat;
    for (std::size_t k = 0; k < at.size(); ++k) flat = flat * shape[k] + at[k];
    return flat;
}

// The coordinates of the element at row-major position `flat`.
Indices unflatten(Index flat, const std::vector<Dim>& shape) {
    Indices at(shape.size());
    for (std::size_t k = shape.size(); k-- > 1;) {
        at[k] = mod(flat, shape[k]);
        flat = floor_div(flat, shape[k]);
    }
    if (!at.empty()) at[0] = flat;
    return at;
}

Indices reshape(const Indices& at, const std::vector<Dim>& from, const std::vector<Dim>& to) {
    return unflatten(flatten(at, from), to);
}

std::string text(const Indices& indices) {
    std::string joined;
    for (const Index& index : indices) joined += (joined.empty() ? "" : ", ") + index.str();
    return joined;
}

}  // namespace

TEST_CASE("index: the normal form merges equal terms and drops zeros") {
    const Index i = Index::var(0, 10);
    const Index j = Index::var(1, n);
    CHECK((i + i).str() == "2*i0");
    CHECK((i - i).str() == "0");
    CHECK((i - i).is_constant());
    CHECK((j + i * 3 + 4).str() == "3*i0 + i1 + 4");
    CHECK((i * 3 + 4 + j) == (j + 4 + i * 3));
    CHECK((i * 3 + 4 + j).hash() == (j + 4 + i * 3).hash());
    CHECK_FALSE(i == j);
    CHECK_FALSE(i * 2 == i * 3);
    CHECK_FALSE(i + 1 == i + 2);
    CHECK((i * n - i * n).str() == "0");
    CHECK((i * n + i * n).str() == "2*n*i0");
    CHECK((i * 0).str() == "0");
    CHECK(Index().str() == "0");
    CHECK(Index(-7).str() == "-7");
    CHECK(Index(n + 1).str() == "n + 1");
}

TEST_CASE("index: text") {
    const Index i = Index::var(0, 784);
    const Index j = Index::var(1, 28);
    CHECK((i * 784 + j + floor_div(Index::var(2, 9), 3)).str() == "784*i0 + i1 + (i2 // 3)");
    CHECK((Index(783) - i).str() == "783 - i0");
    CHECK((Index(n - 1) - i).str() == "n - 1 - i0");
    CHECK((j - i).str() == "-i0 + i1");
    CHECK((i * -2 + j - 5).str() == "-5 - 2*i0 + i1");
    CHECK((i * (n + 1)).str() == "(n + 1)*i0");
    CHECK((Index::value(5) * 3 + i).str() == "i0 + 3*%5");
    CHECK(mod(i * 2 + j, 7).str() == "((2*i0 + i1) % 7)");
    CHECK((floor_div(i + j, 7) * -3 + i).str() == "i0 - 3*((i0 + i1) // 7)");
    CHECK(floor_div(i, n + 1).str() == "(i0 // (n + 1))");
    const IndexNames names{[](VarId var) { return std::string(1, static_cast<char>('x' + var)); },
                           [](ValueId) { return std::string("loaded"); }, [](const Dim& dim) { return dim.str(); }};
    CHECK((i + j * 2 + Index::value(3)).str(names) == "x + 2*y + loaded");
}

TEST_CASE("index: dependence, coefficients and collected leaves") {
    const Index i = Index::var(0, 100);
    const Index j = Index::var(1, 100);
    const Index e = i * 3 + floor_div(j + Index::value(7), 9) + Index::value(2);
    CHECK(e.depends_on(0));
    CHECK(e.depends_on(1));
    CHECK_FALSE(e.depends_on(2));
    CHECK(e.coefficient_of(0) == Dim(3));
    CHECK(e.coefficient_of(1).is_unknown());
    CHECK(e.coefficient_of(2) == Dim(0));
    std::vector<VarId> found;
    e.collect_vars(found);
    CHECK(found == std::vector<VarId>{0, 1});
    std::vector<ValueId> values;
    e.collect_values(values);
    CHECK(values.size() == 2);
    CHECK((std::count(values.begin(), values.end(), 2) == 1 && std::count(values.begin(), values.end(), 7) == 1));
}

TEST_CASE("index: ranges") {
    const Index i = Index::var(0, 10);
    const Index j = Index::var(1, n);
    CHECK((i * 3 + 2).lower_bound() == Dim(2));
    CHECK((i * 3 + 2).upper_bound() == Dim(29));
    CHECK((Index(9) - i).lower_bound() == Dim(0));
    CHECK((Index(9) - i).upper_bound() == Dim(9));
    CHECK((j * 4 + i).upper_bound() == n * 4 + 5);
    CHECK((i - j).lower_bound() == Dim(1) - n);
    CHECK(mod(i + 5, 7).upper_bound() == Dim(6));
    CHECK(floor_div(i + 5, 7).upper_bound() == Dim(2));
    CHECK(floor_div(i - 5, 3).lower_bound() == Dim(-2));
    CHECK(floor_div(Index::var(0, a * b), b).upper_bound() == a - 1);
    CHECK(floor_div(Index::var(0, a * b), b).lower_bound() == Dim(0));
    CHECK((Index::value(0) + i).lower_bound().is_unknown());
    CHECK((i * (a - b)).upper_bound().is_unknown());
    CHECK(Index::var(0, Dim::unknown()).upper_bound().is_unknown());
    CHECK(Index::var(0, Dim::unknown()).lower_bound() == Dim(0));
}

TEST_CASE("index: quotients and remainders of known sizes") {
    const Index i = Index::var(0, 10);
    const Index j = Index::var(1, 28);
    CHECK(floor_div(i, 1) == i);
    CHECK(mod(i, 1) == Index(0));
    CHECK(floor_div(i, 10) == Index(0));
    CHECK(mod(i, 10) == i);
    CHECK(floor_div(i * 28 + j, 28) == i);
    CHECK(mod(i * 28 + j, 28) == j);
    CHECK(floor_div(i * 56 + j, 28).str() == "2*i0");
    CHECK(floor_div(i * 28 + j, 14).str() == "2*i0 + (i1 // 14)");
    CHECK(floor_div(i * 28 + j, 56).str() == "(i0 // 2)");
    CHECK(mod(i * 28 + j, 56).str() == "i1 + 28*(i0 % 2)");
    CHECK(floor_div(i * 6 + 4, 10).str() == "((3*i0 + 2) // 5)");
    CHECK(mod(i * 6 + 3, 10).str() == "2*((3*i0 + 1) % 5) + 1");
    CHECK(floor_div(j + 30, 7).str() == "((i1 + 2) // 7) + 4");
    CHECK(floor_div(j - 1, 7).str() == "((i1 + 6) // 7) - 1");
    CHECK(floor_div(j * 5, 3).str() == "i1 + ((2*i1) // 3)");
    CHECK(floor_div(Index(27) - j, 28) == Index(0));
    CHECK(mod(Index(27) - j, 28) == Index(27) - j);
    CHECK(floor_div(Index(-1), 28) == Index(-1));
    CHECK(mod(Index(-1), 28) == Index(27));
}

TEST_CASE("index: nested quotients and remainders") {
    const Index i = Index::var(0, 1000);
    CHECK(floor_div(floor_div(i, 3), 5).str() == "(i0 // 15)");
    CHECK(floor_div(floor_div(i, 3) + 2, 5).str() == "((i0 + 6) // 15)");
    CHECK(mod(mod(i, 12), 4).str() == "(i0 % 4)");
    CHECK(mod(mod(i, 12) + 3, 4).str() == "((i0 + 3) % 4)");
    CHECK(mod(mod(i, 4), 12).str() == "(i0 % 4)");
    CHECK(floor_div(mod(i, 12), 4).str() == "((i0 // 4) % 3)");
    CHECK(mod(floor_div(i, 4), 3).str() == "((i0 // 4) % 3)");
    CHECK(mod(mod(i + 1, n) + 2, n).str() == "((i0 + 3) % n)");
    CHECK(floor_div(floor_div(i, a), b).str() == "(i0 // (a*b))");
    CHECK(floor_div(mod(i, a * b), a).str() == "((i0 // a) % b)");
    CHECK(floor_div(floor_div(i, 100), 10) == Index(0));
}

TEST_CASE("index: quotient and remainder become whole again") {
    const Index i = Index::var(0, 1000);
    const Index j = Index::var(1, 50);
    for (const Dim& d : {Dim(7), Dim(10), n, n * 2, n + 3}) {
        const Index q = floor_div(i, d);
        const Index r = mod(i, d);
        CHECK(q * d + r == i);
        CHECK(r + q * d == i);
        CHECK(q * (d * 5) + r * 5 + j * 2 == i * 5 + j * 2);
        CHECK(j - q * d - r == j - i);
        CHECK((q * d + j) + (r + 1) == i + j + 1);
        CHECK(q * d * n + r * n == i * n);
        // Not the same thing.
        CHECK_FALSE(q * (d + 1) + r == i);
        CHECK_FALSE(q * d - r == i);
    }
    const Index k = i * 3 + j;
    CHECK(floor_div(k, 7) * 7 + mod(k, 7) == k);
    CHECK(floor_div(k, 6) * 6 + mod(k, 6) == k);
    CHECK(floor_div(i, 12) * 12 + mod(floor_div(i, 4), 3) * 4 + mod(i, 4) == i);
    CHECK((mod(floor_div(i, 4), 3) * 4 + mod(i, 4)).str() == "(i0 % 12)");
}

TEST_CASE("index: reshapes and their inverses vanish, for numbers and symbols") {
    struct Case {
        std::vector<Dim> from;
        std::vector<Dim> to;
    };
    const Dim s0 = Dim::symbol("s0");
    for (const Case& test : {
             Case{{4, 5, 6}, {20, 6}},        Case{{4, 5, 6}, {4, 30}},          Case{{4, 5, 6}, {120}},
             Case{{4, 5, 6}, {6, 20}},        Case{{4, 5, 6}, {10, 12}},         Case{{4, 5, 6}, {2, 2, 5, 2, 3}},
             Case{{4, 6, 5}, {8, 15}},        Case{{12, 35}, {5, 7, 3, 4}},      Case{{7, 9}, {9, 7}},
             Case{{a, b, c}, {a * b, c}},     Case{{a, b, c}, {a, b * c}},       Case{{a, b, c}, {a * b * c}},
             Case{{a, b, c}, {c, a * b}},     Case{{a, b, c}, {b, a, c}},        Case{{a * 2, b}, {a, 2, b}},
             Case{{a * 2, b * 3}, {a, 6, b}}, Case{{s0, 28, 28}, {s0, 784}},     Case{{s0, 784}, {s0, 28, 28}},
             Case{{s0, 784}, {s0 * 784}},     Case{{s0, 784}, {s0, 7, 4, 7, 4}}, Case{{s0, 784}, {s0 * 4, 196}},
             Case{{a + 1, 6}, {a * 6 + 6}},   Case{{a + 1, b}, {b, a + 1}},
         }) {
        const Indices at = vars(test.from);
        CAPTURE(text(reshape(at, test.from, test.to)));
        CHECK(text(reshape(reshape(at, test.from, test.to), test.to, test.from)) == text(at));
        // The offset in memory stays what it was.
        CHECK(flatten(reshape(at, test.from, test.to), test.to) == flatten(at, test.from));
        const Indices to = vars(test.to);
        CHECK(text(reshape(reshape(to, test.to, test.from), test.from, test.to)) == text(to));
        CHECK(flatten(reshape(to, test.to, test.from), test.from) == flatten(to, test.to));
    }
}

TEST_CASE("index: reshape and transpose together") {
    const Dim s0 = Dim::symbol("s0");
    // y = reshape(x, (s0, 784)), z = transpose(y), element (i0, i1) of z, with x of shape (s0, 28, 28).
    const Indices z = vars({784, s0});
    const Indices x = reshape({z[1], z[0]}, {s0, 784}, {s0, 28, 28});
    CHECK(text(x) == "i1, (i0 // 28), (i0 % 28)");
    CHECK(flatten(x, {s0, 28, 28}).str() == "i0 + 784*i1");

    // Heads of attention: (b, t, h*64) -> (b, t, h, 64) -> (b, h, t, 64), and back.
    const Dim t = Dim::symbol("t");
    const Indices at = vars({b, a, t, 64});
    const Indices source = reshape({at[0], at[2], at[1], at[3]}, {b, t, a, 64}, {b, t, a * 64});
    CHECK(text(source) == "i0, i2, 64*i1 + i3");
    const Indices merged = vars({b, t, a * 64});
    const Indices split = reshape(merged, {b, t, a * 64}, {b, t, a, 64});
    CHECK(text(split) == "i0, i1, (i2 // 64), (i2 % 64)");

    // Space to depth: (4, 6) -> (2, 2, 3, 2) -> (2, 3, 2, 2) -> (2, 3, 4).
    const Indices blocks = vars({2, 3, 4});
    const Indices parts = reshape(blocks, {2, 3, 4}, {2, 3, 2, 2});
    const Indices pixels = reshape({parts[0], parts[2], parts[1], parts[3]}, {2, 2, 3, 2}, {4, 6});
    CHECK(text(pixels) == "2*i0 + (i2 // 2), 2*i1 + (i2 % 2)");
}

TEST_CASE("index: flattened loops over row-major arrays") {
    // One loop over all the elements of (s0, 3, 4), with a broadcast operand of shape (1, 3, 1).
    const Dim s0 = Dim::symbol("s0");
    const Indices flat = vars({s0 * 12});
    const Indices at = unflatten(flat[0], {s0, 3, 4});
    CHECK(text(at) == "(i0 // 12), ((i0 // 4) % 3), (i0 % 4)");
    CHECK(flatten(at, {s0, 3, 4}).str() == "i0");
    CHECK((at[0] * 4 + at[2]).str() == "4*(i0 // 12) + (i0 % 4)");
}

TEST_CASE("index: substitution simplifies again") {
    const Index i = Index::var(0, n * 12);
    const Index e = floor_div(i, 12) * 100 + mod(i, 12);
    const Index outer = Index::var(1, n);
    const Index inner = Index::var(2, 12);
    const Index tiled = e.substitute([&](VarId var, const Dim& extent) {
        CHECK(var == 0);
        CHECK(extent == n * 12);
        return outer * 12 + inner;
    });
    CHECK(tiled.str() == "100*i1 + i2");
    const Index gathered = Index::value(4) * 3 + i;
    CHECK(gathered.substitute_values([&](ValueId) { return inner + 1; }).str() == "i0 + 3*i2 + 3");
    CHECK(gathered.substitute([&](VarId, const Dim&) { return Index(5); }).str() == "3*%4 + 5");
    CHECK(mod(Index::value(4), 6).substitute_values([](ValueId) { return Index(13); }) == Index(1));
}

TEST_CASE("index: a negative divisor is refused, and an extent of 0 is never asked for") {
    CHECK(floor_div(Index::var(0, 4), 0) == Index(0));
    CHECK(mod(Index::var(0, 4), 0) == Index(0));
    CHECK_THROWS_WITH_AS(mod(Index::var(0, 4), -3), "mod: the divisor of an index is -3; it must not be negative",
                         InternalError);
}

TEST_CASE("index: blocks of a flattened axis walk through a view as through the whole") {
    // 242 is no multiple of 7 or 49: the quotients and remainders of a block's first position are spread over the sum.
    const Indices at = vars({13, 242});
    const Index flat = at[0] * Dim(242) + at[1];
    CHECK(flatten(unflatten(flat, {64, 7, 7}), {64, 7, 7}) == flat);
    CHECK(floor_div(floor_div(flat, 7), 7) == floor_div(flat, 49));
    CHECK(floor_div(at[0] * Dim(5) + floor_div(at[1], 7), 3).str() == "i0 + ((14*i0 + i1) // 21)");
}
