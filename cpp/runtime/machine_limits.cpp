// Measures what the machine can move and compute, with two graphs that do nothing else.
// Once for each number of threads in a process.
#include <algorithm>
#include <map>
#include <mutex>

#include "graph/apply.h"
#include "runtime/device.h"
#include "topstitch/executable.h"

namespace topstitch {

namespace {

constexpr std::int64_t copied_elements = std::int64_t{1} << 24;  // 64 MiB in, 64 MiB out: beyond the caches
constexpr std::int64_t product_size = 1024;
constexpr int repetitions = 5;

// Of the fastest run, in seconds.
double fastest_run(const Executable& executable, const std::vector<NDArray>& inputs,
                   const std::vector<NDArray>& results) {
    double best = 1e9;
    for (int k = 0; k <= repetitions; ++k) {  // the first one compiles
        const auto start = std::chrono::steady_clock::now();
        executable.run(inputs, results);
        best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    return best;
}

MachineLimits measure(const Device& device) {
    CompileOptions options;
    options.device = device;
    MachineLimits limits;
    {
        Graph graph;
        const Tensor x = graph.placeholder(Shape{copied_elements});
        const Tensor y = apply(graph.data(), *find_op("negative"), {x}, {}).front();
        const NDArray in = NDArray::zeros(DType::float32, {copied_elements});
        const NDArray out = NDArray::zeros(DType::float32, {copied_elements});
        const double seconds = fastest_run(find_executable(graph, {x}, {y}, {}, options), {in}, {out});
        limits.bytes_per_second = 2.0 * static_cast<double>(in.bytes()) / seconds;
    }
    {
        Graph graph;
        const Tensor a = graph.placeholder(Shape{product_size, product_size});
        const Tensor y = apply(graph.data(), *find_op("matmul"), {a, a}, {}).front();
        NDArray in(DType::float32, {product_size, product_size});
        std::fill_n(in.data_as<float>(), in.size(), 0.5F);
        const NDArray out = NDArray::zeros(DType::float32, {product_size, product_size});
        const double seconds = fastest_run(find_executable(graph, {a}, {y}, {}, options), {in}, {out});
        limits.flops_per_second = 2.0 * product_size * product_size * product_size / seconds;
    }
    return limits;
}

}  // namespace

MachineLimits machine_limits(const Device& device) {
    static std::mutex mutex;
    static auto* known = new std::map<std::pair<const DeviceBackend*, int>, MachineLimits>;
    const std::pair<const DeviceBackend*, int> key{&device.backend(), device.backend().max_threads()};
    const std::lock_guard lock(mutex);
    const auto found = known->find(key);
    if (found != known->end()) return found->second;
    return (*known)[key] = measure(device);
}

}  // namespace topstitch
