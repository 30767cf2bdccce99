// Kernels that must not compile, each for the reason that its file says.
// And kernels that compile, and whose errors must be found when they run.
#include <set>

#include "cases.h"
#import "harness.h"

using namespace metal_sim_test;

namespace {

void check_rejected(const std::string& file, std::size_t at_least) {
    const auto cases = split_cases(read_kernels(file));
    CHECK(cases.size() >= at_least);
    std::set<std::string> names;
    for (const Case& wrong : cases) {
        CHECK_MESSAGE(names.insert(wrong.name).second, wrong.name);
        std::string error;
        const Library library = compile(wrong.source, error);
        CHECK_MESSAGE(!library, "accepted: " << wrong.name);
        CHECK_MESSAGE(contains(error, wrong.reason),
                      wrong.name << ": expected '" << wrong.reason << "', got: " << error);
        CHECK_MESSAGE(contains(error, "program_source:"), wrong.name << " names no line: " << error);
    }
}

}  // namespace

TEST_CASE("kernels that break rules of address spaces are rejected") {
    check_rejected("wrong_address_spaces.metal", 31);
}
TEST_CASE("kernels that use what MSL lacks are rejected") {
    check_rejected("wrong_language.metal", 49);
}
TEST_CASE("kernels in which types do not fit are rejected") {
    check_rejected("wrong_types.metal", 37);
}
TEST_CASE("kernels with wrong declarations are rejected") {
    check_rejected("wrong_kernels.metal", 33);
}

TEST_CASE("kernels that go wrong end with an error that says where") {
    const WithSettings settings([](metal_sim::Settings& s) { s.timeout = std::chrono::milliseconds(300); });
    const auto cases = split_cases(read_kernels("wrong_execution.metal"));
    CHECK(cases.size() >= 20);
    for (const Case& wrong : cases) {
        std::string error;
        const Library library = compile(wrong.source, error);
        REQUIRE_MESSAGE(bool(library), wrong.name << ": " << error);
        std::vector<float> values(64);
        for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
        const Buffer memory = buffer_of(values), zeros = buffer_of(std::vector<int>(64));
        const std::string failure = run(pipeline(library, "k"), {memory, zeros}, 64, 64);
        CHECK_MESSAGE(contains(failure, wrong.reason),
                      wrong.name << ": expected '" << wrong.reason << "', got: " << failure);
        CHECK_MESSAGE(contains(failure, "kernel 'k'"), failure);
    }
    // The device works after all of this.
    std::string error;
    const Library library = compile(
        preamble + "kernel void k(device uint *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = i; }",
        error);
    REQUIRE(bool(library));
    const Buffer memory = new_buffer(256);
    CHECK(run(pipeline(library, "k"), {memory}, 64, 64) == "");
    CHECK(contents<unsigned>(memory)[63] == 63);
}

TEST_CASE("a kernel that writes just past the end is found with either kind of guard") {
    std::string error;
    const Library library = compile(
        preamble + "kernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = 1; }",
        error);
    REQUIRE(bool(library));
    for (const bool at_guard : {false, true}) {
        const WithSettings settings([&](metal_sim::Settings& s) { s.buffers_end_at_guard = at_guard; });
        const Buffer exact = new_buffer(64 * 4), short_one = new_buffer(64 * 4);
        CHECK(run(pipeline(library, "k"), {exact}, 64, 64) == "");
        CHECK(contains(run(pipeline(library, "k"), {short_one}, 65, 65), "past the end of buffer(0) of 256 bytes"));
    }
}

TEST_CASE("a kernel that reads past the end is found when buffers end at a guard page") {
    std::string error;
    const Library library =
        compile(preamble + "kernel void k(device const float *x [[buffer(0)]], device float *y [[buffer(1)]], uint i "
                           "[[thread_position_in_grid]]) { y[i] = x[i + 1]; }",
                error);
    REQUIRE(bool(library));
    const WithSettings settings([](metal_sim::Settings& s) { s.buffers_end_at_guard = true; });
    const Buffer x = new_buffer(64 * 4), y = new_buffer(64 * 4);
    CHECK(contains(run(pipeline(library, "k"), {x, y}, 64, 64), "read or wrote 0 bytes past the end of buffer(0)"));
    CHECK(run(pipeline(library, "k"), {x, y}, 63, 63) == "");
}

TEST_CASE("what a language version lacks is rejected") {
    const std::string source =
        preamble + "kernel void k(device bfloat *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = 1; }";
    std::string error;
    CHECK(!compile(source, error, MTLLanguageVersion3_0));
    CHECK(contains(error, "needs MSL 3.1"));
    CHECK(bool(compile(source, error, MTLLanguageVersion3_1)));
}

TEST_CASE("headers must be included") {
    std::string error;
    const std::string kernel =
        "using namespace metal;\nkernel void k(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { ";
    CHECK(!compile("#include <metal_stdlib>\n" + kernel + "simdgroup_float8x8 m(1); x[i] = 1; }", error));
    CHECK(contains(error, "unknown type name 'simdgroup_float8x8'"));
    CHECK(!compile("namespace metal {}\n" + kernel + "x[i] = sqrt(x[i]); }", error));
    CHECK(contains(error, "undeclared identifier 'sqrt'"));
}
