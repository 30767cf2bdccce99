// The kernel cache, targets, and what a compiled kernel says of itself.
// Also many threads compiling at once.
#include <doctest/doctest.h>

#include <thread>

#include "core/settings.h"
#include "cpu/llvm_codegen.h"
#include "cpu/target.h"
#include "test_cpu_support.h"
#include "test_support.h"
#include "topstitch/error.h"

using namespace topstitch;
using namespace topstitch::cpu;
using namespace topstitch::cpu::testing;
using loopir::Builder;
using loopir::Index;
using loopir::Kernel;
using loopir::ScalarOp;
using Role = loopir::BufferParam::Role;

namespace {

// y[i] = x[i] + number, with names of choice.
Kernel adder(double number, const std::string& name = "i", const Dim& extent = Dim::symbol("n")) {
    Builder b;
    const int x = b.add_buffer({"x" + name, DType::float32, Role::input, extent});
    const int y = b.add_buffer({"y" + name, DType::float32, Role::output, extent});
    const Index i = b.begin_loop(name, extent);
    b.store(y, i, b.add(b.load(x, i), b.constant(number, DType::float32)));
    b.end_loop();
    return scheduled(b.finish("adder_" + name), {{name, {true, true, 2}}});
}

// y[i] += sum over k of dot_pairs(a[k], b[i])
Kernel pairs_product(DType memory) {
    const DType type = memory == DType::int16 ? DType::int32 : DType::float32;
    Builder b;
    const int left = b.add_buffer({"a", DType::uint32, Role::input, 64});
    const int right = b.add_buffer({"b", DType::uint32, Role::input, 64});
    const int result = b.add_buffer({"y", type, Role::output, 64});
    const int sum = b.add_accumulator(loopir::Combiner::sum, type);
    const Index i = b.begin_loop("i", 64);
    b.init_acc(sum);
    const Index k = b.begin_loop("k", 64);
    b.accumulate(sum, b.dot_pairs(b.load(left, k), b.load(right, i), memory));
    b.end_loop();
    b.store(result, i, b.acc_read(sum));
    b.end_loop();
    return scheduled(b.finish("pairs"), {{"i", {true, true, 1}}});
}

std::vector<float> run_adder(const CompiledKernel& compiled, std::int64_t count) {
    std::vector<float> x(static_cast<std::size_t>(count), 1.f);
    std::vector<float> y(static_cast<std::size_t>(count), 0.f);
    void* buffers[] = {x.data(), y.data()};
    compiled.function()(buffers, &count, nullptr, 0, count);
    return y;
}

}  // namespace

TEST_CASE("jit: kernels that differ in names only share their code") {
    const KernelCacheStats before = kernel_cache_stats();
    const std::vector<Kernel> kernels = {adder(1234.5, "i"), adder(1234.5, "j", Dim::symbol("batch")), adder(1235.5)};
    const auto first = compile(kernels, host_target());
    CHECK(first[0] == first[1]);
    CHECK(first[0] != first[2]);
    CHECK(kernel_cache_stats().compiled == before.compiled + 2);
    const auto second = compile(kernels, host_target());
    CHECK(second == first);
    CHECK(kernel_cache_stats().compiled == before.compiled + 2);
    CHECK(kernel_cache_stats().hits >= before.hits + 3);
    CHECK(run_adder(*first[0], 19) == std::vector<float>(19, 1235.5f));
    CHECK(run_adder(*first[2], 19) == std::vector<float>(19, 1236.5f));
}

TEST_CASE("jit: the schedule is part of the key") {
    const Kernel plain = adder(77);
    const Kernel other = scheduled(plain, {{"i", {true, true, 4}}});
    const auto compiled = compile(std::vector<Kernel>{plain, other}, host_target());
    CHECK(compiled[0] != compiled[1]);
    CHECK(compiled[1]->granularity() == 2 * compiled[0]->granularity());
    CHECK(compiled[0]->granularity() == 2 * host_target().vector_bytes / 4);
}

TEST_CASE("jit: the least recently used kernels go first, and what is in use stays alive") {
    const std::string limit = setting(Setting::kernel_cache_entries);
    override_setting(Setting::kernel_cache_entries, "4");
    const auto compile_one = [](double number) {
        const Kernel kernel = adder(number);
        return compile(std::span(&kernel, 1), host_target()).front();
    };
    const auto kept = compile_one(5000);
    for (int k = 1; k < 4; ++k) compile_one(5000 + k);
    const std::int64_t compiled = kernel_cache_stats().compiled;
    compile_one(5000);  // a hit, and now the most recently used
    compile_one(5004);  // evicts 5001
    CHECK(kernel_cache_stats().entries == 4);
    CHECK(kernel_cache_stats().compiled == compiled + 1);
    CHECK(compile_one(5000) == kept);
    compile_one(5001);
    CHECK(kernel_cache_stats().compiled == compiled + 2);
    for (int k = 0; k < 6; ++k) compile_one(6000 + k);
    CHECK(compile_one(5000) != kept);  // evicted and compiled again
    CHECK(run_adder(*kept, 3) == std::vector<float>(3, 5001.f));
    override_setting(Setting::kernel_cache_entries, limit);
}

TEST_CASE("jit: many threads compile, each kernel once") {
    const std::int64_t compiled = kernel_cache_stats().compiled;
    std::vector<Kernel> kernels;
    for (int k = 0; k < 6; ++k) kernels.push_back(adder(900 + k));
    std::vector<std::vector<std::shared_ptr<const CompiledKernel>>> results(8);
    std::vector<std::thread> threads;
    for (auto& result : results) threads.emplace_back([&] { result = compile(kernels, host_target()); });
    for (std::thread& thread : threads) thread.join();
    CHECK(kernel_cache_stats().compiled == compiled + 6);
    for (const auto& result : results) CHECK(result == results[0]);
    for (int k = 0; k < 6; ++k) {
        CHECK(run_adder(*results[0][static_cast<std::size_t>(k)], 21) ==
              std::vector<float>(21, 901.f + static_cast<float>(k)));
    }
}

TEST_CASE("jit: text for people") {
    const Kernel kernel = adder(3);
    const auto compiled = compile(std::span(&kernel, 1), host_target()).front();
    CHECK(contains(compiled->llvm_ir(), "define void @kernel(ptr"));
    CHECK(contains(compiled->llvm_ir(), "fadd <"));
    CHECK(contains(compiled->assembly(), "kernel:"));
    CHECK(contains(compiled->assembly(), "ret"));
    CHECK(compiled->compile_milliseconds() > 0);
}

TEST_CASE("jit: scratch memory") {
    const Dim n = Dim::symbol("n");
    Builder b;
    const int x = b.add_buffer({"x", DType::float32, Role::input, n * 10});
    const int t = b.add_buffer({"t", DType::float32, Role::local, n});
    const int u = b.add_buffer({"u", DType::float64, Role::local, Dim(3)});
    const int y = b.add_buffer({"y", DType::float32, Role::output, n * 10});
    const Index i = b.begin_loop("i", Dim(10));
    const Index j = b.begin_loop("j", n);
    b.store(t, j, b.load(x, i * n + j));
    b.end_loop();
    b.store(u, Index(0), b.cast(b.load(t, Index(0)), DType::float64));
    const Index k = b.begin_loop("k", n);
    b.store(y, i * n + k, b.add(b.load(t, k), b.cast(b.load(u, Index(0)), DType::float32)));
    b.end_loop();
    b.end_loop();
    const Kernel shared = scheduled(b.finish("scratch"), {{"i", {true, false, 1}}});
    const Kernel lanes = scheduled(shared, {{"i", {true, false, 2}}});
    const auto compiled = compile(std::vector<Kernel>{shared, lanes}, host_target());
    std::vector<std::int64_t> sizes;
    for (const Dim& param : loopir::size_params(shared)) {
        sizes.push_back(param.evaluate([](std::string_view) { return 100; }));
    }
    // Each local is rounded up to 64 bytes after 64 bytes of padding: 400 + 64 and 24 + 64.
    CHECK(compiled[0]->scratch_bytes(sizes) == 512 + 128);
    // Two copies of the 100 and of the 3 elements: 800 + 64 and 48 + 64.
    CHECK(compiled[1]->scratch_bytes(sizes) == 896 + 128);
    CHECK(compiled[1]->granularity() == 2);
}

#if defined(__x86_64__)
TEST_CASE("jit: instructions for pairs of factors") {
    const Kernel integers = pairs_product(DType::int16);
    CHECK(contains(generate_assembly(integers, target_named("x86-64")), "pmaddwd"));
    CHECK(contains(generate_assembly(integers, described_target("x86-64-v3")), "vpmaddwd"));
    CHECK(contains(generate_assembly(integers, described_target("cascadelake")), "vpdpwssd"));
    const Kernel floats = pairs_product(DType::bfloat16);
    CHECK(contains(generate_assembly(floats, described_target("znver4")), "vdpbf16ps"));
    // There it is slower than what it would replace.
    CHECK(!contains(generate_assembly(floats, described_target("sapphirerapids")), "vdpbf16ps"));
    CHECK(described_target("znver5").bfloat16_pairs);
    CHECK(!described_target("sapphirerapids").bfloat16_pairs);
    CHECK(!described_target("znver3").bfloat16_pairs);
}
#endif

TEST_CASE("jit: targets") {
    const TargetInfo& host = host_target();
    CHECK(!host.cpu.empty());
    CHECK(host.vector_bytes >= 16);
    CHECK(host.l1_bytes >= 8 << 10);
    CHECK(host.l2_bytes > host.l1_bytes);
    CHECK_THROWS_WITH_AS(target_named("pentagon"), doctest::Contains("target: 'pentagon' is not a CPU"), UserError);
#if defined(__x86_64__)
    const TargetInfo sse = target_named("x86-64");
    CHECK(sse.vector_bytes == 16);
    CHECK(!sse.fma);
    const TargetInfo avx2 = described_target("x86-64-v3");
    CHECK(avx2.vector_bytes == 32);
    CHECK(avx2.vector_registers == 16);
    CHECK(avx2.fma);
    const TargetInfo avx512 = described_target("x86-64-v4");
    CHECK(avx512.vector_bytes == 64);
    CHECK(avx512.vector_registers == 32);
    CHECK(described_target("znver5").vector_bytes == 64);
    CHECK(described_target("haswell").vector_bytes == 32);
    CHECK(contains(generate_assembly(adder(1), avx512), "%zmm"));
    CHECK(!contains(generate_assembly(adder(1), avx2), "%zmm"));
    CHECK(contains(generate_assembly(adder(1), avx2), "%ymm"));
    CHECK(!contains(generate_assembly(adder(1), sse), "%ymm"));
    if (host.vector_bytes < 64) {
        CHECK_THROWS_WITH_AS(target_named("x86-64-v4"), doctest::Contains("which this machine"), UserError);
    }
#endif
}
