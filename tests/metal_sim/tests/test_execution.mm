// Kernels as a back end writes them, against results that are worked out on the host in float64.
// And the defects that another order of threads or poisoned memory shows.
#include <atomic>
#include <cmath>
#include <random>

#import "harness.h"

using namespace metal_sim_test;

namespace {

const Library& library() {
    static const Library instance = compile_file("execution.metal");
    return instance;
}

// The upper half of a float, which is all that these tests need of bfloat.
struct BFloat {
    unsigned short bits = 0;
    BFloat() = default;
    explicit BFloat(float value) : bits(static_cast<unsigned short>(__builtin_bit_cast(unsigned, value) >> 16)) {}
    operator double() const { return __builtin_bit_cast(float, static_cast<unsigned>(bits) << 16); }
};

// Multiples of 1/8 below 1: products and their sums are exact, whatever the order.
template <typename T>
std::vector<T> eighths(std::size_t n, unsigned seed) {
    std::mt19937 random(seed);
    std::vector<T> values(n);
    for (T& value : values) value = static_cast<T>((static_cast<int>(random() % 15) - 7) / 8.0f);
    return values;
}

struct Product {
    unsigned m, n, k;
};

// The largest error of c = a * b.
template <typename T>
double product_error(const std::vector<T>& a, const std::vector<T>& b, const float* c, Product size) {
    double worst = 0;
    for (unsigned i = 0; i < size.m; ++i) {
        for (unsigned j = 0; j < size.n; ++j) {
            double sum = 0;
            for (unsigned q = 0; q < size.k; ++q) sum += double(a[i * size.k + q]) * double(b[q * size.n + j]);
            const double error = std::abs(sum - c[i * size.n + j]);
            worst = error <= worst ? worst : error;  // a NaN is the worst
            if (std::isnan(error)) return error;
        }
    }
    return worst;
}

template <typename T>
double run_product(const std::string& kernel, Product size, MTLSize groups, MTLSize group, NSUInteger scratch) {
    const auto a = eighths<T>(size.m * size.k, 1), b = eighths<T>(size.k * size.n, 2);
    const Buffer a_buffer = buffer_of(a), b_buffer = buffer_of(b), c = new_buffer(size.m * size.n * 4);
    const Pipeline state = pipeline(library(), kernel);
    const std::string error = submit_compute([&](id<MTLComputeCommandEncoder> encoder) {
        const unsigned sizes[4] = {size.m, size.n, size.k, 0};
        [encoder setComputePipelineState:state.get()];
        [encoder setBuffer:a_buffer.get() offset:0 atIndex:0];
        [encoder setBuffer:b_buffer.get() offset:0 atIndex:1];
        [encoder setBuffer:c.get() offset:0 atIndex:2];
        [encoder setBytes:sizes length:sizeof sizes atIndex:3];
        if (scratch > 0) [encoder setThreadgroupMemoryLength:scratch atIndex:0];
        [encoder dispatchThreadgroups:groups threadsPerThreadgroup:group];
    });
    CHECK(error == "");
    return product_error(a, b, contents<float>(c), size);
}

double tiled(const std::string& kernel, Product size) {
    return run_product<float>(kernel, size, MTLSizeMake((size.n + 15) / 16, (size.m + 15) / 16, 1),
                              MTLSizeMake(16, 16, 1), 0);
}

template <typename T>
double simdgroup(const std::string& kernel, Product size) {
    return run_product<T>(kernel, size, MTLSizeMake(size.n / 16, size.m / 16, 1), MTLSizeMake(128, 1, 1), 4 * 64 * 4);
}

}  // namespace

TEST_CASE("GELU waits for an event, signals one, and calls its completion handler") {
    const unsigned n = 10007;
    std::vector<float> x(n);
    for (unsigned i = 0; i < n; ++i) x[i] = -6 + 12.0f * i / n;
    const Buffer x_buffer = buffer_of(x), y = new_buffer(n * 4);
    const Queue queue = new_queue();
    const auto event = adopt([device() newSharedEvent]);
    const Pipeline state = pipeline(library(), "gelu");
    std::atomic<int> completed{0}, scheduled{0};
    auto *completed_at = &completed, *scheduled_at = &scheduled;
    @autoreleasepool {
        id<MTLCommandBuffer> buffer = [queue.get() commandBuffer];
        [buffer encodeWaitForEvent:event.get() value:1];
        id<MTLComputeCommandEncoder> encoder = [buffer computeCommandEncoder];
        [encoder setComputePipelineState:state.get()];
        [encoder setBuffer:x_buffer.get() offset:0 atIndex:0];
        [encoder setBuffer:y.get() offset:0 atIndex:1];
        [encoder setBytes:&n length:sizeof n atIndex:2];
        [encoder dispatchThreads:MTLSizeMake(n, 1, 1) threadsPerThreadgroup:MTLSizeMake(256, 1, 1)];
        [encoder endEncoding];
        [buffer encodeSignalEvent:event.get() value:2];
        NSString* captured = [NSString stringWithFormat:@"%u elements", n];  // only the block keeps it alive
        [buffer addScheduledHandler:^(id<MTLCommandBuffer> done) {
          if ([done status] == MTLCommandBufferStatusScheduled) scheduled_at->fetch_add(1);
        }];
        [buffer addCompletedHandler:^(id<MTLCommandBuffer> done) {
          if ([done status] == MTLCommandBufferStatusCompleted && [captured isEqualToString:@"10007 elements"])
              completed_at->fetch_add(1);
        }];
        [buffer commit];
        [buffer waitUntilScheduled];
        CHECK(completed == 0);
        CHECK([event.get() signaledValue] == 0);
        [event.get() setSignaledValue:1];
        [buffer waitUntilCompleted];
        CHECK([buffer error] == nil);
        CHECK([buffer GPUEndTime] >= [buffer GPUStartTime]);
    }
    CHECK(scheduled == 1);
    CHECK(completed == 1);
    CHECK([event.get() signaledValue] == 2);
    double worst = 0;
    for (unsigned i = 0; i < n; ++i) {
        worst = std::max(worst, std::abs(contents<float>(y)[i] - 0.5 * x[i] * (1 + std::erf(x[i] * std::sqrt(0.5)))));
    }
    CHECK(worst < 1e-6);
}

TEST_CASE("matrix product through tiles in threadgroup memory") {
    CHECK(tiled("matmul_tiled", {16, 16, 16}) == 0);
    CHECK(tiled("matmul_tiled", {70, 50, 90}) == 0);
    CHECK(tiled("matmul_tiled", {1, 33, 7}) == 0);
}

TEST_CASE("matrix product of simdgroup_matrix") {
    CHECK(simdgroup<float>("matmul_simdgroup_float", {64, 48, 80}) == 0);
    CHECK(simdgroup<_Float16>("matmul_simdgroup_half", {32, 48, 64}) == 0);
    CHECK(simdgroup<BFloat>("matmul_simdgroup_bfloat", {32, 16, 24}) == 0);
}

TEST_CASE("a tile is loaded transposed, from an origin") {
    const unsigned n = 24;
    std::vector<float> x(n * n);
    for (unsigned i = 0; i < n * n; ++i) x[i] = static_cast<float>(i);
    const Buffer x_buffer = buffer_of(x), y = new_buffer(n * n * 4);
    const Pipeline state = pipeline(library(), "transposed_tile");
    const std::string error = submit_compute([&](id<MTLComputeCommandEncoder> encoder) {
        [encoder setComputePipelineState:state.get()];
        [encoder setBuffer:x_buffer.get() offset:0 atIndex:0];
        [encoder setBuffer:y.get() offset:0 atIndex:1];
        [encoder setBytes:&n length:sizeof n atIndex:2];
        [encoder dispatchThreadgroups:MTLSizeMake(n / 8, n / 8, 1) threadsPerThreadgroup:MTLSizeMake(32, 1, 1)];
    });
    CHECK(error == "");
    for (unsigned i = 0; i < n * n; ++i) CHECK(contents<float>(y)[i % n * n + i / n] == float(i));
}

TEST_CASE("reduction with simd_sum, shuffles and an atomic counter") {
    const auto x = eighths<float>(4096, 3);
    double expected = 0;
    for (const float value : x) expected += value;
    const Buffer x_buffer = buffer_of(x), sums = new_buffer(4 * 4), done = buffer_of(std::vector<unsigned>(1));
    CHECK(run(pipeline(library(), "reduce"), {x_buffer, sums, done}, 1024, 256) == "");
    double sum = 0;
    for (int i = 0; i < 4; ++i) sum += contents<float>(sums)[i];
    CHECK(sum == expected);
    CHECK(contents<unsigned>(done)[0] == 4);
}

TEST_CASE("a missing barrier shows in some order of threads") {
    const Product size = {32, 32, 64};
    int wrong = 0;
    for (const auto order : {metal_sim::Order::forward, metal_sim::Order::reversed, metal_sim::Order::shuffled}) {
        const WithSettings settings([&](metal_sim::Settings& s) { s.order = order; });
        CHECK(tiled("matmul_tiled", size) == 0);
        if (tiled("matmul_without_barrier", size) != 0) ++wrong;
    }
    CHECK(wrong > 0);
}

TEST_CASE("threadgroup memory holds NaN until it is written") {
    const Buffer y = buffer_of(std::vector<float>(64));
    CHECK(run(pipeline(library(), "uninitialized"), {y}, 64, 32) == "");
    for (int i = 0; i < 64; ++i) CHECK(std::isnan(contents<float>(y)[i]));
}

TEST_CASE("a seed gives one order, another seed another") {
    std::string error;
    const Library ordered = compile(
        "#include <metal_stdlib>\nusing namespace metal;\nkernel void order(device atomic_uint *next [[buffer(0)]], "
        "device uint *y [[buffer(1)]], "
        "uint i [[thread_position_in_grid]]) { y[i] = atomic_fetch_add_explicit(next, 1, memory_order_relaxed); }",
        error);
    REQUIRE_MESSAGE(bool(ordered), error);
    const auto order_with = [&](metal_sim::Order order, std::uint64_t seed) {
        const WithSettings settings([&](metal_sim::Settings& s) {
            s.order = order;
            s.seed = seed;
        });
        const Buffer next = buffer_of(std::vector<unsigned>(1)), y = new_buffer(96 * 4);
        CHECK(run(pipeline(ordered, "order"), {next, y}, 96, 32) == "");
        return std::vector<unsigned>(contents<unsigned>(y), contents<unsigned>(y) + 96);
    };
    const auto forward = order_with(metal_sim::Order::forward, 1), reversed = order_with(metal_sim::Order::reversed, 1);
    for (unsigned i = 0; i < 96; ++i) {
        CHECK(forward[i] == i);
        CHECK(reversed[i] == 95 - i);
    }
    const auto shuffled = order_with(metal_sim::Order::shuffled, 1);
    CHECK(shuffled == order_with(metal_sim::Order::shuffled, 1));
    CHECK(shuffled != order_with(metal_sim::Order::shuffled, 2));
    CHECK(shuffled != forward);
}

TEST_CASE("many small grids in one command buffer run in order") {
    const Buffer x = buffer_of(std::vector<float>(1));
    const Pipeline increment = pipeline(library(), "increment"), scale = pipeline(library(), "scale_by");
    const std::string error = submit_compute([&](id<MTLComputeCommandEncoder> encoder) {
        const float factor = 2;
        [encoder setBuffer:x.get() offset:0 atIndex:0];
        [encoder setBytes:&factor length:4 atIndex:1];
        for (int i = 0; i < 20; ++i) {
            [encoder setComputePipelineState:increment.get()];
            [encoder dispatchThreads:MTLSizeMake(1, 1, 1) threadsPerThreadgroup:MTLSizeMake(1, 1, 1)];
            [encoder memoryBarrierWithScope:MTLBarrierScopeBuffers];
            [encoder setComputePipelineState:scale.get()];
            [encoder dispatchThreads:MTLSizeMake(1, 1, 1) threadsPerThreadgroup:MTLSizeMake(1, 1, 1)];
        }
    });
    CHECK(error == "");
    CHECK(contents<float>(x)[0] == float((1 << 21) - 2));  // x = 2 (x + 1), 20 times
}

TEST_CASE("an indirect grid has the size that a kernel or the host wrote") {
    const Buffer x = buffer_of(std::vector<float>(96)), size = buffer_of(std::vector<unsigned>{9, 2, 1, 1}),
                 none = buffer_of(std::vector<unsigned>{0, 1, 1});
    const Pipeline increment = pipeline(library(), "increment");
    const std::string error = submit_compute([&](id<MTLComputeCommandEncoder> encoder) {
        [encoder setComputePipelineState:increment.get()];
        [encoder setBuffer:x.get() offset:0 atIndex:0];
        [encoder dispatchThreadgroupsWithIndirectBuffer:size.get()
                                   indirectBufferOffset:4
                                  threadsPerThreadgroup:MTLSizeMake(32, 1, 1)];
        [encoder dispatchThreadgroupsWithIndirectBuffer:none.get()
                                   indirectBufferOffset:0
                                  threadsPerThreadgroup:MTLSizeMake(32, 1, 1)];
    });
    CHECK(error == "");
    for (int i = 0; i < 96; ++i) CHECK(contents<float>(x)[i] == (i < 64 ? 1.0f : 0.0f));
}
