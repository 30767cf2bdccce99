// Measures the error of every math function as generated code computes it, and prints the table of docs/accuracy.md.
// math_accuracy [-j threads] [-every n] [function...]: float32 functions of one argument are tried on each n-th of the
// 2^32 inputs (n = 1: all of them), the others on 2^26 / n random ones.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "cpu/jit.h"
#include "test_math_support.h"
#include "topstitch/error.h"

namespace {

using namespace topstitch;
using testing::MathFunction;

constexpr std::size_t block = 1 << 14;  // inputs of one call

template <typename T>
using BitsOf = std::conditional_t<std::is_same_v<T, float>, std::uint32_t, std::uint64_t>;

template <typename T>
constexpr DType dtype_of = std::is_same_v<T, float> ? DType::float32 : DType::float64;

// The inputs, in blocks that are made independently of each other.
template <typename T>
class Inputs {
public:
    Inputs(const MathFunction& function, std::uint64_t every) : function_(function), every_(every) {
        enumerated_ = std::is_same_v<T, float> && !function.binary();
    }
    std::size_t blocks() const { return (std::uint64_t{1} << (enumerated_ ? 32 : 26)) / every_ / block; }
    std::size_t count() const { return blocks() * block; }

    void make(std::size_t index, std::vector<T>& x, std::vector<T>& y) const {
        if (enumerated_) {
            for (std::size_t i = 0; i < block; ++i) {
                x[i] = std::bit_cast<T>(static_cast<BitsOf<T>>((index * block + i) * every_));
            }
            return;
        }
        std::mt19937_64 random(index);
        for (std::size_t i = 0; i < block; ++i) {
            if (index % 4 == 0) {  // all bit patterns alike
                x[i] = std::bit_cast<T>(static_cast<BitsOf<T>>(random()));
                y[i] = std::bit_cast<T>(static_cast<BitsOf<T>>(random()));
            } else if (function_.binary()) {
                make_pair(index, random, x[i], y[i]);
            } else {
                x[i] = make_one(index, random);
            }
        }
    }

private:
    static double uniform(std::mt19937_64& random) { return std::uniform_real_distribution<double>(-1, 1)(random); }

    // Where the functions bend.
    static T make_one(std::size_t index, std::mt19937_64& random) {
        const double u = uniform(random);
        if (index % 4 == 1) return static_cast<T>(u * std::exp2(12 * uniform(random)));
        if (index % 4 == 2) return static_cast<T>(1 + u * u * u);
        return static_cast<T>(30 * u);
    }

    void make_pair(std::size_t index, std::mt19937_64& random, T& x, T& y) const {
        const double u = uniform(random);
        if (function_.op == loopir::ScalarOp::pow) {
            // Powers of all sizes, of bases of all sizes and of bases near 1.
            constexpr double range = std::numeric_limits<T>::max_exponent + std::numeric_limits<T>::digits;
            x = static_cast<T>(index % 4 == 1 ? std::exp2(range * u) : 1 + 0.5 * u * u * u);
            y = static_cast<T>(range * uniform(random) / std::log2(static_cast<double>(x)));
        } else {
            x = static_cast<T>(u);
            y = static_cast<T>(u * std::exp2(6 * uniform(random)) * (uniform(random) < 0 ? -1 : 1));
        }
    }

    const MathFunction& function_;
    std::uint64_t every_;
    bool enumerated_;
};

template <typename T>
struct Worst {
    double error = 0;
    T x = 0;
    T y = 0;

    void see(double candidate, T at_x, T at_y) {
        if (candidate <= error) return;
        error = candidate;
        x = at_x;
        y = at_y;
    }
};

using Compiled = std::shared_ptr<const cpu::CompiledKernel>;

// The greatest error of each of `kernels`, all of one function.
template <typename T>
std::vector<Worst<T>> measure(const Inputs<T>& inputs, const MathFunction& function,
                              const std::vector<Compiled>& kernels, unsigned threads) {
    std::vector<Worst<T>> worst(kernels.size());
    std::mutex mutex;
    const auto work = [&](unsigned thread) {
        using Wide = decltype(function.reference(T(0), T(0)));
        std::vector<Worst<T>> mine(kernels.size());
        std::vector<T> x(block);
        std::vector<T> y(block);
        std::vector<T> out(block);
        std::vector<Wide> exact(block);
        std::vector<void*> buffers = {x.data()};
        if (function.binary()) buffers.push_back(y.data());
        buffers.push_back(out.data());
        for (std::size_t index = thread; index < inputs.blocks(); index += threads) {
            inputs.make(index, x, y);
            for (std::size_t i = 0; i < block; ++i) exact[i] = function.reference(x[i], y[i]);
            for (std::size_t k = 0; k < kernels.size(); ++k) {
                kernels[k]->function()(buffers.data(), nullptr, nullptr, 0, 1);
                for (std::size_t i = 0; i < block; ++i) mine[k].see(testing::ulp_error(out[i], exact[i]), x[i], y[i]);
            }
        }
        const std::lock_guard lock(mutex);
        for (std::size_t k = 0; k < kernels.size(); ++k) worst[k].see(mine[k].error, mine[k].x, mine[k].y);
    };
    std::vector<std::thread> running;
    for (unsigned t = 0; t < threads; ++t) running.emplace_back(work, t);
    for (std::thread& thread : running) thread.join();
    return worst;
}

template <typename T>
std::string at(const MathFunction& function, const Worst<T>& worst) {
    char text[96];
    if (function.binary()) {
        std::snprintf(text, sizeof text, "%.9g, %.9g", static_cast<double>(worst.x), static_cast<double>(worst.y));
    } else {
        std::snprintf(text, sizeof text, "%.*g", std::numeric_limits<T>::max_digits10, static_cast<double>(worst.x));
    }
    return text;
}

template <typename T>
void print_row(const MathFunction& function, const std::vector<cpu::TargetInfo>& targets, unsigned threads,
               std::uint64_t every) {
    const loopir::Kernel kernel = testing::elementwise(function.op, dtype_of<T>, block, true);
    std::vector<Compiled> compiled;
    for (const cpu::TargetInfo& target : targets) {
        compiled.push_back(cpu::compile(std::span(&kernel, 1), target).front());
    }
    const Inputs<T> inputs(function, every);
    const std::vector<Worst<T>> worst = measure<T>(inputs, function, compiled, threads);
    std::printf("| %s | %s | %zu |", function.name(), std::string(name_of(dtype_of<T>)).c_str(), inputs.count());
    for (std::size_t k = 0; k < targets.size(); ++k) {
        const int count = testing::instruction_count(loopir::expand_math(kernel, {targets[k].fma}));
        std::printf(" %.2f | %s | %d |", worst[k].error, at(function, worst[k]).c_str(), count);
    }
    std::printf("\n");
    std::fflush(stdout);
}

int run(std::vector<std::string> names) {
    unsigned threads = std::max(1u, std::thread::hardware_concurrency());
    std::uint64_t every = 1;
    while (names.size() >= 2 && names[0][0] == '-') {
        const auto number = static_cast<std::uint64_t>(std::max(1, std::atoi(names[1].c_str())));
        if (names[0] == "-j") {
            threads = static_cast<unsigned>(number);
        } else if (names[0] == "-every") {
            every = number;
        } else {
            throw UserError(concat("received ", names[0], ", but the options are -j threads and -every n"));
        }
        names.erase(names.begin(), names.begin() + 2);
    }
    std::vector<cpu::TargetInfo> targets = {cpu::host_target()};
    std::printf("| function | type | inputs | error (ULP), %s FMA | at | instructions |",
                targets[0].fma ? "with" : "no");
#if defined(__x86_64__) || defined(_M_X64)
    if (targets[0].fma) {
        targets.push_back(cpu::target_named("x86-64"));
        std::printf(" error (ULP), no FMA | at | instructions |");
    }
#endif
    std::printf("\n|%s\n", targets.size() == 2 ? "---|---|---|---|---|---|---|---|---|" : "---|---|---|---|---|---|");
    for (const MathFunction& function : testing::math_functions()) {
        const bool wanted = names.empty() || std::find(names.begin(), names.end(), function.name()) != names.end();
        if (!wanted) continue;
        print_row<float>(function, targets, threads, every);
        print_row<double>(function, targets, threads, every);
    }
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        return run(std::vector<std::string>(argv + 1, argv + argc));
    } catch (const Error& error) {
        std::fprintf(stderr, "math_accuracy: %s\n", error.what());
        return 1;
    }
}
