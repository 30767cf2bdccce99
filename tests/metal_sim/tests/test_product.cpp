// The product's Metal code (metal/) on the simulated device: memory, pipelines, commands, and what goes wrong.
// Plain C++, as the rest of the back end will be.
#include <doctest/doctest.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "metal/memory.h"
#include "metal/pipeline_cache.h"
#include "metal_sim/control.h"
#include "settled.h"
#include "topstitch/error.h"

using namespace topstitch;
using namespace topstitch::metal;

namespace {

const std::string source = R"(#include <metal_stdlib>
using namespace metal;
kernel void axpy(device const float* x [[buffer(0)]], device float* y [[buffer(1)]], constant float& a [[buffer(2)]],
                 constant uint& n [[buffer(3)]], uint i [[thread_position_in_grid]]) {
    if (i < n) y[i] += a * x[i];
}
kernel void group_sum(device const float* x [[buffer(0)]], device float* y [[buffer(1)]], threadgroup float* parts [[threadgroup(0)]],
                      uint i [[thread_position_in_grid]], uint lane [[thread_position_in_threadgroup]],
                      uint group [[threadgroup_position_in_grid]], uint size [[threads_per_threadgroup]]) {
    parts[lane] = x[i];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint step = size / 2; step > 0; step /= 2) {
        if (lane < step) parts[lane] += parts[lane + step];
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    if (lane == 0) y[group] = parts[0];
}
kernel void overrun(device float* x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i + 1000] = 1; }
)";

// The simulation names what is not released.
class NoLeaks {
public:
    ~NoLeaks() { CHECK(metal_sim_test::settled_objects() == before_); }

private:
    std::map<std::string, std::int64_t> before_ = metal_sim_test::settled_objects();
};

const Gpu& gpu() {
    static const Gpu instance = Gpu::system();
    return instance;
}

void encode_axpy(GpuCommands& commands, const Pipeline& axpy, const Binding& x, const Binding& y, float a, unsigned n) {
    commands.set_pipeline(axpy);
    commands.set_buffer(x.buffer(), x.offset(), 0);
    commands.set_buffer(y.buffer(), y.offset(), 1);
    commands.set_bytes(&a, sizeof a, 2);
    commands.set_bytes(&n, sizeof n, 3);
    commands.dispatch_groups({(n + 63) / 64}, {64});
}

std::vector<float> counting(std::size_t n) {
    std::vector<float> values(n);
    std::iota(values.begin(), values.end(), 0.0f);
    return values;
}

template <typename E, typename F>
std::string message_of(const F& call) {
    try {
        call();
    } catch (const E& error) { return error.what(); }
    return "";
}

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != text.npos;
}

}  // namespace

TEST_CASE("the GPU tells its limits") {
    const GpuLimits& limits = gpu().limits();
    CHECK(!limits.name.empty());
    CHECK(limits.unified_memory);
    CHECK(limits.threadgroup_bytes == 32768);
    CHECK(limits.threads_per_threadgroup == 1024);
    CHECK(limits.memory_bytes > 0);
    CHECK(Gpu::page_bytes() == 16384);
    const Gpu own(gpu().metal_device());  // the caller's device
    CHECK(own.limits().name == limits.name);
}

TEST_CASE("kernels run on memory in place, on whole pages of the host, and on copies") {
    gpu();
    const NoLeaks no_leaks;
    const unsigned n = 4096;
    Memory memory(gpu());
    const Pipeline axpy = gpu().compile(source, "axpy");
    CHECK(axpy.max_threads == 1024);
    CHECK(axpy.simd_width == 32);
    CHECK(axpy.compile_milliseconds > 0);

    const auto shared = memory.allocate(2 * n * sizeof(float));
    auto* x = reinterpret_cast<float*>(shared.get());
    for (unsigned i = 0; i < 2 * n; ++i) x[i] = static_cast<float>(i);
    const auto page_memory =
        std::unique_ptr<void, void (*)(void*)>(std::aligned_alloc(16384, n * sizeof(float)), std::free);
    auto* pages = static_cast<float*>(page_memory.get());
    std::fill(pages, pages + n, 1.0f);
    std::vector<float> plain(n, 2.0f);

    const Binding x_binding = memory.bind(x + n / 2, n * sizeof(float));  // in the middle of an allocation
    const Binding pages_binding = memory.bind(pages, n * sizeof(float));
    const Binding plain_binding = memory.bind(plain.data() + 1, (n - 1) * sizeof(float));
    CHECK(x_binding.in_place());
    CHECK(x_binding.offset() == n / 2 * sizeof(float));
    CHECK(pages_binding.in_place());
    CHECK(!plain_binding.in_place());

    GpuCommands commands = gpu().new_commands();
    encode_axpy(commands, axpy, x_binding, pages_binding, 2, n);
    encode_axpy(commands, axpy, pages_binding, plain_binding, 1, n - 1);  // sees what the first wrote
    commands.commit();
    commands.wait();
    CHECK(commands.gpu_seconds() >= 0);
    CHECK(plain[1] == 2);  // not yet brought back
    plain_binding.copy_back();
    CHECK(plain[0] == 2);
    for (unsigned i = 0; i < n; ++i) CHECK(pages[i] == 1 + 2.0f * (n / 2 + i));
    for (unsigned i = 0; i + 1 < n; ++i) CHECK(plain[i + 1] == 2 + pages[i]);
}

TEST_CASE("memory is freed with its last owner, also after the Memory it came from") {
    gpu();
    const NoLeaks no_leaks;
    std::shared_ptr<std::byte> last;
    {
        Memory memory(gpu());
        const auto first = memory.allocate(100);
        last = memory.allocate(0);
        CHECK(memory.allocations() == 2);
        {
            const auto third = memory.allocate(50);
            CHECK(memory.bind(third.get() + 10, 40).in_place());
            CHECK(!memory.bind(third.get() + 10, 41).in_place());  // leaves the allocation
        }
        CHECK(memory.allocations() == 2);
    }
    CHECK(last != nullptr);
}

TEST_CASE("memory that cannot be had is an error that says how much there is") {
    Memory memory(gpu());
    CHECK(contains(message_of<MemoryError>([&] { memory.allocate(std::size_t{1} << 40); }),
                   "[metal] 1099511627776 bytes cannot be had"));
    const auto saved = metal_sim::settings();
    metal_sim::settings().memory_bytes = 1 << 20;
    CHECK(contains(message_of<MemoryError>([&] { memory.allocate(2 << 20); }), "nothing has been changed"));
    metal_sim::settings() = saved;
    CHECK(memory.allocations() == 0);
    CHECK(memory.allocate(2 << 20) != nullptr);
}

TEST_CASE("a kernel that does not compile is an error with the line and the source") {
    const std::string wrong =
        "#include <metal_stdlib>\nkernel void k(device float* x [[buffer(0)]]) {\n  x[0] = missing;\n}\n";
    const std::string message = message_of<InternalError>([&] { gpu().compile(wrong, "k"); });
    CHECK(contains(message, "[metal] kernel \"k\" does not compile"));
    CHECK(contains(message, "program_source:3:"));
    CHECK(contains(message, "undeclared identifier 'missing'"));
    CHECK(contains(message, "\n3:   x[0] = missing;\n"));
    CHECK(contains(message_of<InternalError>([&] { gpu().compile(source, "nothing"); }),
                   "the source has no such function"));
}

TEST_CASE("pipelines are compiled once and shared between threads; failures are not remembered") {
    gpu();
    const NoLeaks no_leaks;
    PipelineCache cache(gpu(), 2);
    std::vector<std::shared_ptr<const Pipeline>> found(4);
    std::vector<std::thread> threads;
    for (auto& pipeline : found) threads.emplace_back([&] { pipeline = cache.get(source, "axpy"); });
    for (std::thread& thread : threads) thread.join();
    for (const auto& pipeline : found) CHECK(pipeline == found[0]);
    CHECK(cache.stats().misses == 1);
    CHECK(cache.stats().hits == 3);
    for (int i = 0; i < 2; ++i)
        CHECK(contains(message_of<InternalError>([&] { cache.get("wrong", "k"); }), "does not compile"));
    CHECK(cache.stats().misses == 3);
    cache.get(source, "group_sum");
    cache.get(source, "overrun");
    CHECK(cache.stats().entries == 2);
    CHECK(cache.stats().evictions == 1);
    CHECK(found[0]->name == "axpy");  // whoever has it keeps it
}

TEST_CASE("threadgroup memory, and a callback when the commands are done") {
    gpu();
    const NoLeaks no_leaks;
    Memory memory(gpu());
    const Pipeline sum = gpu().compile(source, "group_sum");
    std::vector<float> x = counting(256), y(4);
    const Binding x_binding = memory.bind(x.data(), 256 * 4), y_binding = memory.bind(y.data(), 4 * 4);
    std::atomic<int> calls{0};
    std::atomic<bool> without_error{false};
    GpuCommands commands = gpu().new_commands();
    commands.set_pipeline(sum);
    commands.set_buffer(x_binding.buffer(), x_binding.offset(), 0);
    commands.set_buffer(y_binding.buffer(), y_binding.offset(), 1);
    commands.set_threadgroup_memory(64 * 4, 0);
    commands.dispatch_groups({4}, {64});
    commands.commit([&](const std::string& error) {
        without_error = error.empty();
        ++calls;
    });
    commands.wait();
    CHECK(calls == 1);
    CHECK(without_error);
    y_binding.copy_back();
    for (int g = 0; g < 4; ++g) CHECK(y[g] == 64 * (64 * g) + 63 * 32);
}

TEST_CASE("an error of the GPU reaches the callback and whoever waits; the next commands run") {
    gpu();
    const NoLeaks no_leaks;
    Memory memory(gpu());
    const Pipeline overrun = gpu().compile(source, "overrun"), axpy = gpu().compile(source, "axpy");
    const auto shared = memory.allocate(256);
    std::memset(shared.get(), 0, 256);
    const Binding binding = memory.bind(shared.get(), 256);
    std::string reported;
    GpuCommands commands = gpu().new_commands();
    commands.set_pipeline(overrun);
    commands.set_buffer(binding.buffer(), binding.offset(), 0);
    commands.dispatch_groups({1}, {32});
    commands.commit([&](const std::string& error) { reported = error; });
    CHECK(contains(message_of<InternalError>([&] { commands.wait(); }),
                   "[metal] the GPU reported an error: kernel 'overrun'"));
    CHECK(contains(reported, "past the end of buffer(0)"));

    std::vector<float> x = counting(64);
    GpuCommands next = gpu().new_commands();
    const Binding x_binding = memory.bind(x.data(), 256);
    encode_axpy(next, axpy, x_binding, binding, 3, 64);
    next.commit();
    next.wait();
    CHECK(reinterpret_cast<float*>(shared.get())[63] == 189);
}
