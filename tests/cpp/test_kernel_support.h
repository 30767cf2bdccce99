// What tests of generated code share: guarded memory, schedules, data of all types, the interpreter as the reference.
// Buffers end at a page that may not be touched, and written ones are framed, so that stray accesses are found.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "loopir/builder.h"
#include "loopir/kernel.h"

namespace topstitch::testing {

// Memory whose last byte lies just before an inaccessible page.
class GuardedMemory {
public:
    explicit GuardedMemory(std::size_t bytes);
    ~GuardedMemory();
    GuardedMemory(const GuardedMemory&) = delete;
    GuardedMemory& operator=(const GuardedMemory&) = delete;
    std::byte* data() const { return data_; }
    std::size_t bytes() const { return bytes_; }
    // The bytes before data() are still as they were made.
    bool frame_is_intact() const;

private:
    std::byte* base_ = nullptr;
    std::size_t mapped_ = 0;
    std::byte* data_ = nullptr;
    std::size_t bytes_ = 0;
};

// How the loops run, by the names of their variables.
struct LoopSchedule {
    bool parallel = false;
    bool vector = false;
    int unroll = 1;
};
using Schedule = std::map<std::string, LoopSchedule>;
loopir::Kernel scheduled(loopir::Kernel kernel, const Schedule& schedule, bool streaming = false);

// y[i] = body(inputs[0][i], inputs[1][i], ...) for i in 0..n.
using ScalarBody = std::function<loopir::ValueId(loopir::Builder&, const std::vector<loopir::ValueId>&)>;
loopir::Kernel elementwise(const std::string& name, const std::vector<DType>& inputs, const ScalarBody& body,
                           DType output);

// Fills `count` elements: special values first, then random ones (of all magnitudes).
void fill(std::byte* data, DType type, std::size_t count, std::mt19937_64& random);
// Small whole numbers, so that sums are exact in any order.
void fill_small(std::byte* data, DType type, std::size_t count, std::mt19937_64& random);

struct Data {
    std::vector<std::byte> bytes;
    template <typename T>
    static Data of(const std::vector<T>& values) {
        Data data;
        data.bytes.resize(values.size() * sizeof(T));
        std::memcpy(data.bytes.data(), values.data(), data.bytes.size());
        return data;
    }
    template <typename T>
    std::vector<T> as() const {
        std::vector<T> values(bytes.size() / sizeof(T));
        std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
        return values;
    }
};

// The contents of all non-local buffers after the interpreter ran the kernel on copies of `buffers`.
std::vector<Data> run_interpreted(const loopir::Kernel& kernel, std::vector<Data> buffers,
                                  const std::vector<std::int64_t>& sizes);

// Equal bytes, except that NaN equals NaN and floats may differ by `tolerance` relative to the larger.
// Gives the first difference as text, or "".
std::string difference(const loopir::Kernel& kernel, const std::vector<Data>& expected, const std::vector<Data>& actual,
                       double tolerance = 0);

// The number of the random sequence: TOPSTITCH_TEST_SEED or a fixed one; printed when a check fails.
std::uint64_t test_seed();

}  // namespace topstitch::testing
