// The product's Metal code (metal/) on the simulated device: memory, pipelines, commands, and what goes wrong.
// Plain C++, as the rest of the back end will be.
#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <thread>
#include <vector>

#include "core/disk_cache.h"
#include "core/memory.h"
#include "core/settings.h"
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

void encode_axpy(GpuCommands& commands, const Pipeline& axpy, const Place& x, const Place& y, float a, unsigned n) {
    commands.set_pipeline(axpy);
    commands.set_buffer(x.buffer, x.offset, 0);
    commands.set_buffer(y.buffer, y.offset, 1);
    commands.set_bytes(&a, sizeof a, 2);
    commands.set_bytes(&n, sizeof n, 3);
    commands.dispatch_groups({(n + 63) / 64}, {64});
}

// A block of our pool with floats in it.
struct Floats {
    explicit Floats(std::size_t n, float value = 0)
        : buffer(Buffer::allocate(std::max(n * sizeof(float), gpu_page_bytes))),
          data(static_cast<float*>(buffer->data())) {
        std::fill(data, data + n, value);
    }
    float& operator[](std::size_t k) const { return data[k]; }

    std::shared_ptr<Buffer> buffer;
    float* data;
};

std::shared_ptr<Buffer> borrowed(void* data, std::size_t bytes, bool readonly = false) {
    return Buffer::borrow(data, bytes, readonly, {});
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

TEST_CASE("kernels run on blocks of our pool and on whole pages of others, in place") {
    gpu();
    const unsigned n = 4096;
    const Floats x(2 * n);
    const auto page_memory =
        std::unique_ptr<void, void (*)(void*)>(std::aligned_alloc(16384, n * sizeof(float)), std::free);
    auto* pages = static_cast<float*>(page_memory.get());
    {
        const NoLeaks no_leaks;
        Memory memory(gpu());
        const Pipeline axpy = gpu().compile(source, "axpy").pipeline;
        CHECK(axpy.max_threads == 1024);
        CHECK(axpy.simd_width == 32);
        CHECK(axpy.compile_milliseconds > 0);

        std::iota(x.data, x.data + 2 * n, 0.0f);
        std::fill(pages, pages + n, 1.0f);
        const auto page_buffer = borrowed(pages, n * sizeof(float));
        CHECK(memory.enter(*x.buffer) == Memory::Entry::lasting);
        CHECK(memory.enter(*x.buffer) == Memory::Entry::lasting);
        CHECK(memory.enter(*page_buffer) == Memory::Entry::borrowed);
        CHECK(memory.regions() == 2);
        const auto middle = memory.find(x.data + n / 2);
        const auto whole = memory.find(pages);
        REQUIRE(middle.has_value());
        REQUIRE(whole.has_value());
        CHECK(middle->offset == n / 2 * sizeof(float));
        CHECK(whole->offset == 0);

        GpuCommands commands = gpu().new_commands();
        encode_axpy(commands, axpy, *middle, *whole, 2, n);
        encode_axpy(commands, axpy, *whole, *middle, 1, n);  // sees what the first wrote
        commands.commit();
        CHECK(!commands.finish());
        for (unsigned i = 0; i < n; ++i) {
            const auto start = static_cast<float>(n / 2 + i);
            CHECK(pages[i] == 1 + 2 * start);
            CHECK(x[n / 2 + i] == 1 + 3 * start);
        }
        memory.leave(*page_buffer);
        CHECK(memory.regions() == 1);
        CHECK(!memory.find(pages).has_value());
    }
}

TEST_CASE("what is not made of whole pages, may not be written or overlaps other memory is not entered") {
    gpu();
    const auto page_memory = std::unique_ptr<void, void (*)(void*)>(std::aligned_alloc(16384, 3 * 16384), std::free);
    auto* pages = static_cast<std::byte*>(page_memory.get());
    Memory memory(gpu());
    CHECK(memory.enter(*Buffer::allocate(100)) == Memory::Entry::none);  // a small block of our pool
    CHECK(memory.enter(*borrowed(pages, 100)) == Memory::Entry::none);
    CHECK(memory.enter(*borrowed(pages + 64, 16384)) == Memory::Entry::none);
    CHECK(memory.enter(*borrowed(pages, 16384, true)) == Memory::Entry::none);
    CHECK(memory.enter(*borrowed(pages, 0)) == Memory::Entry::none);

    const auto second = borrowed(pages + 16384, 16384);
    CHECK(memory.enter(*second) == Memory::Entry::borrowed);
    CHECK(memory.enter(*borrowed(pages, 3 * 16384)) == Memory::Entry::none);          // reaches over it
    CHECK(memory.enter(*borrowed(pages + 16384, 2 * 16384)) == Memory::Entry::none);  // longer
    const auto part = borrowed(pages + 16384 + 64, 64);
    CHECK(memory.enter(*part) == Memory::Entry::borrowed);  // inside it
    memory.leave(*second);
    CHECK(memory.find(pages + 16384 + 100).has_value());  // the part still borrows it
    memory.leave(*part);
    CHECK(memory.regions() == 0);
}

TEST_CASE("a block that goes back to the system is no memory of the GPU any more") {
    gpu();
    const NoLeaks no_leaks;
    Memory memory(gpu());
    auto block = Buffer::allocate(std::size_t{1} << 31);  // more than the pool keeps; its pages are never touched
    CHECK(memory.enter(*block) == Memory::Entry::lasting);
    CHECK(memory.regions() == 1);
    block.reset();
    CHECK(memory.regions() == 0);
}

TEST_CASE("memory that cannot be had is an error that says how much there is") {
    CHECK(contains(message_of<MemoryError>([&] { gpu().allocate(std::size_t{1} << 40); }),
                   "[metal] 1099511627776 bytes cannot be had"));
    const auto saved = metal_sim::settings();
    metal_sim::settings().memory_bytes = 1 << 20;
    CHECK(contains(message_of<MemoryError>([&] { gpu().allocate(2 << 20); }), "nothing has been changed"));
    metal_sim::settings() = saved;
    CHECK(gpu().allocate(2 << 20).contents() != nullptr);
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
    CHECK(cache.stats().compiled == 1);
    CHECK(cache.stats().hits == 3);
    for (int i = 0; i < 2; ++i)
        CHECK(contains(message_of<InternalError>([&] { cache.get("wrong", "k"); }), "does not compile"));
    CHECK(cache.stats().compiled == 1);
    cache.get(source, "group_sum");
    cache.get(source, "overrun");
    CHECK(cache.stats().entries == 2);
    CHECK(cache.stats().evictions == 1);
    CHECK(found[0]->name == "axpy");  // whoever has it keeps it
}

TEST_CASE("pipelines lie on disk for the next process; whatever is wrong there, they are compiled") {
    gpu();
    const NoLeaks no_leaks;
    const std::filesystem::path folder =
        std::filesystem::temp_directory_path() / ("topstitch-test-pipelines-" + std::to_string(getpid()));
    override_setting(Setting::cache_dir, folder.string());
    const auto stats_of_new_cache = [] {  // as another process would have it
        PipelineCache cache(gpu(), 2);
        CHECK(cache.get(source, "axpy")->max_threads == 1024);
        return cache.stats();
    };
    CHECK(stats_of_new_cache().compiled == 1);
    CHECK(stats_of_new_cache().disk_hits == 1);
    CHECK(stats_of_new_cache().compiled == 0);
    DiskCache disk("pipelines", gpu().archive_version());
    const std::string key = std::string("axpy\n") + source;
    CHECK(disk.find(key).has_value());
    disk.store(key, "not what Metal wrote");
    CHECK(stats_of_new_cache().compiled == 1);
    CHECK(stats_of_new_cache().disk_hits == 1);  // it was written anew
    disk.store(key, "");
    CHECK(stats_of_new_cache().compiled == 1);
    const std::string none;
    disk.store(key, gpu().compile(source, "group_sum", &none).archive);  // of another pipeline
    CHECK(stats_of_new_cache().compiled == 1);
    override_setting(Setting::cache_dir, "off");
    CHECK(stats_of_new_cache().disk_hits == 0);
    std::filesystem::remove_all(folder);
}

TEST_CASE("threadgroup memory") {
    gpu();
    const NoLeaks no_leaks;
    const Pipeline sum = gpu().compile(source, "group_sum").pipeline;
    const GpuBuffer x = gpu().allocate(256 * sizeof(float)), y = gpu().allocate(4 * sizeof(float));
    std::iota(reinterpret_cast<float*>(x.contents()), reinterpret_cast<float*>(x.contents()) + 256, 0.0f);
    GpuCommands commands = gpu().new_commands();
    commands.set_pipeline(sum);
    commands.set_buffer(x, 0, 0);
    commands.set_buffer(y, 0, 1);
    commands.set_threadgroup_memory(64 * 4, 0);
    commands.dispatch_groups({4}, {64});
    commands.commit();
    CHECK(!commands.finish());
    for (int g = 0; g < 4; ++g) CHECK(reinterpret_cast<float*>(y.contents())[g] == 64 * (64 * g) + 63 * 32);
}

TEST_CASE("an error of the GPU reaches whoever waits; the next commands run") {
    gpu();
    const NoLeaks no_leaks;
    const Pipeline overrun = gpu().compile(source, "overrun").pipeline, axpy = gpu().compile(source, "axpy").pipeline;
    const GpuBuffer small = gpu().allocate(256), x = gpu().allocate(256);
    std::memset(small.contents(), 0, 256);
    std::iota(reinterpret_cast<float*>(x.contents()), reinterpret_cast<float*>(x.contents()) + 64, 0.0f);
    GpuCommands commands = gpu().new_commands();
    commands.set_pipeline(overrun);
    commands.set_buffer(small, 0, 0);
    commands.dispatch_groups({1}, {32});
    commands.commit();
    const std::optional<GpuError> error = commands.finish();
    REQUIRE(error.has_value());
    CHECK(contains(error->text, "kernel 'overrun'"));
    CHECK(contains(error->text, "past the end of buffer(0)"));
    CHECK(!error->out_of_memory);

    GpuCommands next = gpu().new_commands();
    encode_axpy(next, axpy, {x, 0}, {small, 0}, 3, 64);
    next.commit();
    CHECK(!next.finish());
    CHECK(reinterpret_cast<float*>(small.contents())[63] == 189);
}

TEST_CASE("commands that are dropped before they are committed do nothing") {
    gpu();
    const NoLeaks no_leaks;
    const Pipeline axpy = gpu().compile(source, "axpy").pipeline;
    const GpuBuffer x = gpu().allocate(256);
    std::memset(x.contents(), 0, 256);
    {
        GpuCommands commands = gpu().new_commands();
        encode_axpy(commands, axpy, {x, 0}, {x, 0}, 1, 64);
    }
    CHECK(reinterpret_cast<float*>(x.contents())[5] == 0);
}
