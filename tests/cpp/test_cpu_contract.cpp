// Fused multiply-adds: which forms are fused, and that the fused result is the one of std::fma.
// Expected numbers come from std::fma in plain C++, on operands for which fusing changes the last bit.
#include <doctest/doctest.h>

#include <cmath>

#include "loopir/builder.h"
#include "loopir/contract.h"
#include "loopir/interpret.h"
#include "test_cpu_support.h"

using namespace topstitch;
using namespace topstitch::cpu;
using namespace topstitch::cpu::testing;
using loopir::Builder;
using loopir::Kernel;
using loopir::ScalarOp;
using loopir::ValueId;

namespace {

Kernel ternary(const std::function<ValueId(Builder&, ValueId, ValueId, ValueId)>& body, DType type = DType::float32) {
    return elementwise(
        "ternary", {type, type, type},
        [&](Builder& b, const std::vector<ValueId>& v) { return body(b, v[0], v[1], v[2]); }, type);
}

int count(const Kernel& kernel, ScalarOp op) {
    int found = 0;
    for (const loopir::Instr& instr : kernel.instrs) found += instr.op == op ? 1 : 0;
    return found;
}

struct Case {
    const char* name;
    std::function<ValueId(Builder&, ValueId, ValueId, ValueId)> body;
    std::function<float(float, float, float)> expected;
    bool fused;
};

const std::vector<Case>& cases() {
    static const std::vector<Case> list = {
        {"a*b + c", [](Builder& b, ValueId x, ValueId w, ValueId c) { return b.add(b.mul(x, w), c); },
         [](float x, float w, float c) { return std::fma(x, w, c); }, true},
        {"c + a*b", [](Builder& b, ValueId x, ValueId w, ValueId c) { return b.add(c, b.mul(x, w)); },
         [](float x, float w, float c) { return std::fma(x, w, c); }, true},
        {"a*b - c", [](Builder& b, ValueId x, ValueId w, ValueId c) { return b.sub(b.mul(x, w), c); },
         [](float x, float w, float c) { return std::fma(x, w, -c); }, true},
        {"c - a*b", [](Builder& b, ValueId x, ValueId w, ValueId c) { return b.sub(c, b.mul(x, w)); },
         [](float x, float w, float c) { return std::fma(-x, w, c); }, true},
        {"the product is used twice",
         [](Builder& b, ValueId x, ValueId w, ValueId c) {
             const ValueId product = b.mul(x, w);
             return b.mul(b.add(product, c), product);
         },
         [](float x, float w, float c) { return (x * w + c) * (x * w); }, false},
        {"two products: the first is fused",
         [](Builder& b, ValueId x, ValueId w, ValueId c) { return b.add(b.mul(x, w), b.mul(c, w)); },
         [](float x, float w, float c) { return std::fma(x, w, c * w); }, true},
    };
    return list;
}

}  // namespace

TEST_CASE("contract: sums with a product of their own become multiply-adds") {
    std::mt19937_64 random(test_seed());
    std::uniform_real_distribution<float> distribution(-3, 3);
    std::vector<float> x;
    std::vector<float> w;
    std::vector<float> c;
    for (int k = 0; k < 1000; ++k) {
        x.push_back(distribution(random));
        w.push_back(distribution(random));
        c.push_back(-x.back() * w.back() * (k % 3 == 0 ? 1.f : distribution(random)));  // often cancels
    }
    const std::vector<Data> buffers = {Data::of(x), Data::of(w), Data::of(c), Data::of(std::vector<float>(1000))};
    for (const Case& test : cases()) {
        CAPTURE(test.name);
        const Kernel kernel = loopir::contract(ternary(test.body));
        loopir::verify(kernel);
        CHECK(count(kernel, ScalarOp::fma) == (test.fused ? 1 : 0));
        std::vector<float> expected;
        for (int k = 0; k < 1000; ++k) expected.push_back(test.expected(x[k], w[k], c[k]));
        CHECK(run_interpreted(kernel, buffers, {1000})[3].as<float>() == expected);
        if (!host_target().fma) continue;
        const Kernel vector = scheduled(ternary(test.body), {{"i", {true, true, 2}}});
        const auto compiled = compile(std::span(&vector, 1), host_target()).front();
        CHECK(run_compiled(vector, *compiled, buffers, {1000})[3].as<float>() == expected);
    }
}

TEST_CASE("contract: integers are left alone") {
    const Kernel kernel = loopir::contract(
        ternary([](Builder& b, ValueId x, ValueId w, ValueId c) { return b.add(b.mul(x, w), c); }, DType::int32));
    CHECK(count(kernel, ScalarOp::fma) == 0);
}

TEST_CASE("contract: an explicit fma is exact on every target") {
    const Kernel kernel =
        scheduled(ternary([](Builder& b, ValueId x, ValueId w, ValueId c) { return b.op(ScalarOp::fma, x, w, c); },
                          DType::float64),
                  {{"i", {true, true, 1}}});
    const std::vector<double> x = {1 + 0x1p-40, 1e300, 3, -0.0, 0x1p-600};
    const std::vector<double> w = {1 - 0x1p-40, 1e10, 5, 4, 0x1p-600};
    const std::vector<double> c = {-1, -1e305, -15, -0.0, 1};
    std::vector<double> expected;
    for (std::size_t k = 0; k < x.size(); ++k) expected.push_back(std::fma(x[k], w[k], c[k]));
    for (const TargetInfo& target : test_targets()) {
        const auto compiled = compile(std::span(&kernel, 1), target).front();
        const auto result = run_compiled(
            kernel, *compiled, {Data::of(x), Data::of(w), Data::of(c), Data::of(std::vector<double>(5))}, {5});
        CHECK(result[3].as<double>() == expected);
    }
}
