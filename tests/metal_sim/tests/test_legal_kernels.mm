// Kernels that Metal allows: they must compile, run, and give what is worked out here on the host.
// In each order of threads.
#include <cmath>

#import "harness.h"

using namespace metal_sim_test;

namespace {

constexpr unsigned threads = 64, threadgroup = 32;

const Library& library() {
    static const Library instance = compile_file("legal.metal");
    return instance;
}

std::vector<float> counting() {
    std::vector<float> values(threads);
    for (unsigned i = 0; i < threads; ++i) values[i] = static_cast<float>(i);
    return values;
}

void for_each_order(const std::function<void()>& check) {
    for (const auto order : {metal_sim::Order::forward, metal_sim::Order::reversed, metal_sim::Order::shuffled}) {
        const WithSettings settings([&](metal_sim::Settings& s) { s.order = order; });
        CAPTURE(static_cast<int>(order));
        check();
    }
}

// Runs `kernel` over x = 0, 1, 2, ... and compares y.
void check_kernel(const std::string& kernel, const std::function<double(unsigned)>& expected, double tolerance = 0) {
    const Pipeline state = pipeline(library(), kernel);
    for_each_order([&] {
        const Buffer x = buffer_of(counting()), y = buffer_of(std::vector<float>(threads));
        CHECK(run(state, {x, y}, threads, threadgroup) == "");
        for (unsigned i = 0; i < threads; ++i) {
            const double value = contents<float>(y)[i];
            CHECK_MESSAGE(std::abs(value - expected(i)) <= tolerance,
                          kernel << "[" << i << "] = " << value << ", not " << expected(i));
        }
    });
}

}  // namespace

TEST_CASE("scaled: parameters, a guard, tables") {
    struct Sizes {
        unsigned n;
        float scale;
    };
    const Pipeline state = pipeline(library(), "scaled");
    const Buffer x = buffer_of(counting()), y = buffer_of(std::vector<float>(threads));
    const std::string error = submit_compute([&](id<MTLComputeCommandEncoder> encoder) {
        const Sizes sizes = {60, 2};
        [encoder setComputePipelineState:state.get()];
        [encoder setBuffer:x.get() offset:0 atIndex:0];
        [encoder setBuffer:y.get() offset:0 atIndex:1];
        [encoder setBytes:&sizes length:sizeof sizes atIndex:2];
        [encoder dispatchThreadgroups:MTLSizeMake(2, 1, 1) threadsPerThreadgroup:MTLSizeMake(32, 1, 1)];
    });
    CHECK(error == "");
    for (unsigned i = 0; i < threads; ++i) CHECK(contents<float>(y)[i] == (i < 60 ? 2.0f * i + (i % 4 + 0.5f) + 3 : 0));
}

TEST_CASE("swizzled") {
    check_kernel("swizzled",
                 [](unsigned i) { return 1 + 10 * (i % 2 ? 3.5 : 1.5) + 100 * (i % 2 ? 4.5 : 2.5) + 1000.0 * i; });
}
TEST_CASE("constructed") {
    check_kernel("constructed", [](unsigned i) { return i + 2 + 3 + 4 + 3; });
}
TEST_CASE("rounded: 16-bit arithmetic rounds each time") {
    // half: 2048 + 1 rounds back to 2048, twice; bfloat: 256 + 1 rounds back to 256, twice.
    check_kernel("rounded", [](unsigned) { return 2048 + 256 + 0.25 + 0.5; });
}
TEST_CASE("overloaded") {
    check_kernel("overloaded", [](unsigned i) { return double(i) * i * i + 64; });
}
TEST_CASE("controlled") {
    check_kernel("controlled",
                 [](unsigned i) { return 100 + i + (i % 3 + 1) + 1000.0 * std::max(1u, std::min(i, 5u)); });
}
TEST_CASE("two instances of a template") {
    check_kernel("prefix_total_float", [](unsigned i) { return i * (i - 1.0) / 2; });
    std::vector<int> ones(threads, 1);
    const Buffer x = buffer_of(ones), y = buffer_of(ones);
    CHECK(run(pipeline(library(), "prefix_total_int"), {x, y}, threads, threadgroup) == "");
    for (int i = 0; i < int(threads); ++i) CHECK(contents<int>(y)[i] == i);
}
TEST_CASE("reversed_in_group: threadgroup variables and barriers") {
    check_kernel("reversed_in_group",
                 [](unsigned i) { return (i / 32 * 32 + 31 - i % 32) + 1000.0 * (i / 32 * 32 + 31); });
    CHECK([pipeline(library(), "reversed_in_group").get() staticThreadgroupMemoryLength] == 32 * 4 + 16);
}
TEST_CASE("rows: references and structs in threadgroup memory") {
    check_kernel("rows", [](unsigned i) { return i + 1000.0 * (i / 32 * 32 + 1 - i % 2); });
}
TEST_CASE("entries: threadgroup memory as an argument") {
    const Pipeline state = pipeline(library(), "entries");
    for_each_order([&] {
        const Buffer x = buffer_of(counting()), y = buffer_of(std::vector<float>(threads));
        const std::string error = submit_compute([&](id<MTLComputeCommandEncoder> encoder) {
            [encoder setComputePipelineState:state.get()];
            [encoder setBuffer:x.get() offset:0 atIndex:0];
            [encoder setBuffer:y.get() offset:0 atIndex:1];
            [encoder setThreadgroupMemoryLength:32 * 8 atIndex:0];
            [encoder dispatchThreads:MTLSizeMake(threads, 1, 1) threadsPerThreadgroup:MTLSizeMake(threadgroup, 1, 1)];
        });
        CHECK(error == "");
        for (unsigned i = 0; i < threads; ++i) CHECK(contents<float>(y)[i] == float((i ^ 1) + 100 * ((i ^ 1) % 32)));
    });
}
TEST_CASE("integers") {
    check_kernel("integers", [](unsigned i) {
        unsigned population = 0, leading = 0;
        for (unsigned b = i; b; b >>= 1) population += b & 1;
        for (int b = 31; b >= 0 && !(((i | 1) >> b) & 1); --b) ++leading;
        return population + 10.0 * leading + 1000.0 * (2 * i) + 0.5 + 15;
    });
}
TEST_CASE("bits") {
    check_kernel("bits", [](unsigned i) {
        const double chosen = (i > 0 ? 2 : 1) + (i > 10 ? 2 : 1) + (i > 20 ? 2 : 1) + (i > 30 ? 2 : 1);
        return (i % 2 == 0 ? -1.0 : i) + 100 * chosen + (i > 0 ? 0.5 : 0);
    });
}
TEST_CASE("simdgroups") {
    check_kernel("simdgroups", [](unsigned i) {
        const double begin = i / 32 * 32, lane = i % 32;
        const double total = 32 * begin + 31 * 16, before = lane * begin + lane * (lane - 1) / 2;
        const double next = lane < 31 ? i + 1.0 : i, across = begin + (i % 32 ^ 16u);
        return total + before + next + across + begin + 3 + 0.75;
    });
}
TEST_CASE("some_lanes") {
    check_kernel("some_lanes", [](unsigned i) { return i % 32 < 20 ? 20 : 0; });
}
TEST_CASE("quads") {
    check_kernel("quads", [](unsigned i) { return 4.0 * (i / 4 * 4) + 6 + 1000.0 * (i / 4 * 4 + 2); });
}

TEST_CASE("counted: atomics") {
    for_each_order([&] {
        const Buffer x = buffer_of(counting()), count = buffer_of(std::vector<unsigned>(2)),
                     total = buffer_of(std::vector<float>(1)), largest = buffer_of(std::vector<int>(1));
        CHECK(run(pipeline(library(), "counted"), {x, count, total, largest}, threads, threadgroup) == "");
        CHECK(contents<unsigned>(count)[0] == 32);
        CHECK(contents<unsigned>(count)[1] == 128);
        CHECK(contents<float>(total)[0] == 63 * 32);
        CHECK(contents<int>(largest)[0] == 63);
    });
}
TEST_CASE("packed") {
    check_kernel("packed", [](unsigned i) { return i < 16 ? 4 * i + 3 + 1000.0 * (3 * i + 2) + 3 : 0.0; });
}
TEST_CASE("positions, in three dimensions and at the edges of a grid") {
    const Pipeline state = pipeline(library(), "positions");
    for_each_order([&] {
        const unsigned grid[3] = {7, 5, 3}, size[3] = {4, 3, 2};
        const Buffer y = buffer_of(std::vector<unsigned>(7 * 5 * 3));
        const std::string error = submit_compute([&](id<MTLComputeCommandEncoder> encoder) {
            [encoder setComputePipelineState:state.get()];
            [encoder setBuffer:y.get() offset:0 atIndex:0];
            [encoder dispatchThreads:MTLSizeMake(7, 5, 3) threadsPerThreadgroup:MTLSizeMake(4, 3, 2)];
        });
        CHECK(error == "");
        const auto part = [&](unsigned at, int d) { return std::min(size[d], grid[d] - at / size[d] * size[d]); };
        for (unsigned i = 0; i < 7 * 5 * 3; ++i) {
            CHECK(contents<unsigned>(y)[i] == part(i % 7, 0) * 100 + part(i / 7 % 5, 1) * 10 + part(i / 35, 2));
        }
    });
}
TEST_CASE("functions") {
    check_kernel(
        "functions",
        [](unsigned i) {
            const double v = i / 8.0 - 4, sign = v > 0 ? 1 : v < 0 ? -1 : 0;
            return v * 2 + 1 + std::min(std::max(v, -1.0), 1.0) + 2.5 + std::copysign(3, v) + v + std::fmod(v, 1.5) +
                   0.5 + std::exp(v) + std::exp2(v) + 1 / std::sqrt(v * v + 1) + sign + std::floor(v);
        },
        1e-4);
}
