// Random kernels on the CPU, against the interpreter.
// A failure prints the seed and the kernel; TOPSTITCH_TEST_SEED repeats it, TOPSTITCH_TEST_KERNELS asks for more.
#include <doctest/doctest.h>

#include <cstdlib>

#include "test_cpu_support.h"
#include "test_kernel_random.h"

using namespace topstitch;
using namespace topstitch::cpu;
using namespace topstitch::cpu::testing;

namespace {

int kernel_count() {
    const char* text = std::getenv("TOPSTITCH_TEST_KERNELS");
    return text != nullptr ? std::atoi(text) : 150;
}

}  // namespace

TEST_CASE("random: kernels agree with the interpreter") {
    for (int number = 0; number < kernel_count(); ++number) {
        const std::uint64_t seed = test_seed() + static_cast<std::uint64_t>(number);
        CAPTURE(seed);
        RandomKernel random(seed);
        const std::vector<Data> buffers = random.buffers();
        for (const TargetInfo& target : test_targets()) {
            const std::string difference = check_kernel(random.kernel(), target, buffers, random.sizes());
            CHECK_MESSAGE(difference.empty(), "kernel seed ", seed, ": ", difference);
        }
    }
}
