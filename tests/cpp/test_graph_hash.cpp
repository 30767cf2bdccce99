// Tests of the structural hash, and of SipHash against the vectors of its reference implementation.
#include <cstdio>
#include <numeric>

#include "core/hash128.h"
#include "test_graph_support.h"

using namespace topstitch;
using namespace topstitch::graph_test;

namespace {

std::string bytes_hex(const Hash128& hash) {
    std::string text;
    for (const std::uint64_t word : hash.value()) {
        for (int k = 0; k < 8; ++k) {
            char digits[3];
            std::snprintf(digits, sizeof(digits), "%02x", static_cast<unsigned>((word >> (8 * k)) & 255U));
            text += digits;
        }
    }
    return text;
}

std::vector<unsigned char> counting_bytes() {
    std::vector<unsigned char> bytes(64);
    std::iota(bytes.begin(), bytes.end(), static_cast<unsigned char>(0));
    return bytes;
}

constexpr std::uint64_t key0 = 0x0706050403020100U;
constexpr std::uint64_t key1 = 0x0f0e0d0c0b0a0908U;

}  // namespace

TEST_CASE("SipHash-2-4-128 gives the reference vectors") {
    // vectors_sip128 of the authors' implementation: key 00 01 ... 0f, messages 00 01 02 ... of these lengths.
    const std::pair<std::size_t, const char*> rows[] = {
        {0, "a3817f04ba25a8e66df67214c7550293"},  {1, "da87c1d86b99af44347659119b22fc45"},
        {2, "8177228da4a45dc7fca38bdef60affe4"},  {7, "a1f1ebbed8dbc153c0b84aa61ff08239"},
        {8, "3b62a9ba6258f5610f83e264f31497b4"},  {15, "5493e99933b0a8117e08ec0f97cfc3d9"},
        {63, "5150d1772f50834a503e069a973fbd7c"},
    };
    const auto bytes = counting_bytes();
    for (const auto& [length, expected] : rows) {
        Hash128 hash(key0, key1);
        hash.add_bytes(bytes.data(), length);
        CHECK(bytes_hex(hash) == expected);
    }
}

TEST_CASE("the pieces in which bytes are added do not matter") {
    const auto bytes = counting_bytes();
    for (std::size_t first = 0; first <= 63; ++first) {
        Hash128 hash(key0, key1);
        hash.add_bytes(bytes.data(), first);
        hash.value();  // looking does not change it
        hash.add_bytes(bytes.data() + first, (63 - first) / 2);
        hash.add_bytes(bytes.data() + first + (63 - first) / 2, 63 - first - (63 - first) / 2);
        CHECK(bytes_hex(hash) == "5150d1772f50834a503e069a973fbd7c");
    }
}

TEST_CASE("texts are hashed with their length") {
    Hash128 a, b;
    a.add(std::string_view("ab"));
    a.add(std::string_view("c"));
    b.add(std::string_view("a"));
    b.add(std::string_view("bc"));
    CHECK(a.hex() != b.hex());
    CHECK(a.hex().size() == 32);
}

namespace {

const OpDef add = make_add();
const OpDef every_kind = make_every_kind();

struct Variation {
    Shape shape = {2, 3};
    DType dtype = DType::float32;
    float value = 1;
    NamedAttributes attributes = {{"needed", std::int64_t{1}}};
    bool swapped = false;
    bool controlled = false;
    std::string name;
    float initial = 0;
    DType variable = DType::float32;
};

std::string hash_of(const Variation& v) {
    Graph graph;
    const Tensor x = graph.placeholder(v.shape, v.dtype, v.name);
    const Tensor w = graph.variable(NDArray::scalar(static_cast<double>(v.initial), v.variable), v.name);
    set_current_location({v.name + ".py", 7});
    const Tensor c = graph.constant(NDArray::scalar(static_cast<double>(v.value), v.dtype), v.name);
    if (v.controlled) graph.push_control_dependencies({x.operation()});
    const Tensor sum = v.swapped ? apply(graph.data(), add, {c, x}, {}, v.name).front()
                                 : apply(graph.data(), add, {x, c}, {}, v.name).front();
    apply(graph.data(), every_kind, {sum}, v.attributes);
    set_current_location({});
    CHECK(w.operation().id() == 1);
    return graph.structural_hash();
}

}  // namespace

TEST_CASE("names, locations and initial values do not count in the structural hash") {
    const std::string base = hash_of({});
    CHECK(base == hash_of({}));
    CHECK(base == hash_of({.name = "other"}));
    CHECK(base == hash_of({.initial = 5}));
    // An attribute given as its fallback is the same as one left out.
    CHECK(base == hash_of({.attributes = {{"needed", std::int64_t{1}}, {"count", std::int64_t{3}}}}));
}

TEST_CASE("what counts in the structural hash") {
    Variation v;
    const auto with = [&v](const char* name, Attribute value) { v.attributes.emplace_back(name, std::move(value)); };
    SUBCASE("the type of a variable") {
        v.variable = DType::float64;
    }
    SUBCASE("shapes") {
        v.shape = {2, 4};
    }
    SUBCASE("unknown dims") {
        v.shape = {Dim::unknown(), 3};
    }
    SUBCASE("names of dims") {
        v.shape = {Dim::symbol("n"), 3};
    }
    SUBCASE("unknown rank") {
        v.shape = Shape::unranked();
    }
    SUBCASE("dtypes") {
        v.dtype = DType::float16;
    }
    SUBCASE("contents of constants") {
        v.value = 2;
    }
    SUBCASE("the order of inputs") {
        v.swapped = true;
    }
    SUBCASE("control dependencies") {
        v.controlled = true;
    }
    SUBCASE("booleans") {
        with("flag", true);
    }
    SUBCASE("integers") {
        with("count", std::int64_t{4});
    }
    SUBCASE("reals") {
        with("scale", 0.25);
    }
    SUBCASE("strings") {
        with("mode", std::string("reflect"));
    }
    SUBCASE("dtype attributes") {
        with("dtype", DType::int8);
    }
    SUBCASE("lists") {
        with("axes", std::vector<std::int64_t>{});
    }
    SUBCASE("shape attributes") {
        with("shape", Shape{});
    }
    SUBCASE("arrays") {
        with("table", floats({1}, {1}));
    }
    CHECK(hash_of({}) != hash_of(v));
}

TEST_CASE("the sign of zero counts in the structural hash") {
    CHECK(hash_of({.value = 0.0f}) != hash_of({.value = -0.0f}));
}

TEST_CASE("lists that share a concatenation hash differently") {
    Variation a, b;
    a.attributes = {{"needed", std::int64_t{1}}, {"axes", std::vector<std::int64_t>{1, 2}}};
    b.attributes = {{"needed", std::int64_t{1}}, {"axes", std::vector<std::int64_t>{1, 2, 0}}};
    CHECK(hash_of(a) != hash_of(b));
    a.attributes[1].second = floats({2, 1}, {1, 2});
    a.attributes[1].first = b.attributes[1].first = "table";
    b.attributes[1].second = floats({1, 2}, {1, 2});
    CHECK(hash_of(a) != hash_of(b));
}
