// Guarded memory, schedules, data of all types, and the interpreter; see test_kernel_support.h.
// Data has the special values of its type first, then random ones.
#include "test_kernel_support.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>

#include "loopir/interpret.h"
#include "topstitch/error.h"

namespace topstitch::testing {

namespace {

constexpr std::byte frame{0xa5};

std::size_t page_size() {
    static const auto size = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    return size;
}

bool is_local(const loopir::BufferParam& buffer) {
    return buffer.role == loopir::BufferParam::Role::local;
}

void apply(loopir::Block& block, const loopir::Kernel& kernel, const Schedule& schedule, bool streaming) {
    for (loopir::Stmt& stmt : block.stmts) {
        if (auto* store = std::get_if<loopir::Store>(&stmt)) store->streaming = streaming;
        auto* loop = std::get_if<loopir::Loop>(&stmt);
        if (loop == nullptr) continue;
        const auto found = schedule.find(kernel.vars[static_cast<std::size_t>(loop->var)].name);
        if (found != schedule.end()) {
            loop->parallel = found->second.parallel;
            loop->vector = found->second.vector;
            loop->unroll = found->second.unroll;
        }
        apply(loop->body.front(), kernel, schedule, streaming);
    }
}

template <typename T>
void fill_floats(std::byte* data, std::size_t count, std::mt19937_64& random, bool small) {
    using Limits = std::numeric_limits<T>;
    const std::vector<T> special = {T(0),
                                    -T(0),
                                    T(1),
                                    T(-1),
                                    Limits::infinity(),
                                    -Limits::infinity(),
                                    Limits::quiet_NaN(),
                                    Limits::max(),
                                    Limits::lowest(),
                                    Limits::min(),
                                    Limits::denorm_min(),
                                    -Limits::denorm_min(),
                                    T(0.5),
                                    T(-0.5),
                                    T(1.5),
                                    T(2.5),
                                    T(-2.5),
                                    T(2147483648.0),
                                    T(-2147483648.0),
                                    T(4294967296.0),
                                    T(9223372036854775808.0),
                                    T(18446744073709551616.0),
                                    T(127.9),
                                    T(-128.9),
                                    T(255.5),
                                    T(8388607.5),
                                    T(8388608.0)};
    std::uniform_int_distribution<std::size_t> which(0, 3 * special.size());
    std::uniform_real_distribution<double> mantissa(-2, 2);
    std::uniform_int_distribution<int> exponent(-30, 30);
    std::uniform_int_distribution<int> whole(-8, 8);
    for (std::size_t i = 0; i < count; ++i) {
        const std::size_t choice = which(random);
        T value = choice < special.size() ? special[choice]
                  : choice % 2 == 0       ? static_cast<T>(4 * mantissa(random))
                                          : static_cast<T>(std::ldexp(mantissa(random), exponent(random)));
        if (small) value = static_cast<T>(whole(random));
        std::memcpy(data + i * sizeof(T), &value, sizeof(T));
    }
}

template <typename T>
void fill_integers(std::byte* data, std::size_t count, std::mt19937_64& random, bool small) {
    using Limits = std::numeric_limits<T>;
    const std::vector<T> special = {T(0),  T(1), static_cast<T>(-1), Limits::max(), Limits::lowest(), T(2), T(7), T(8),
                                    T(31), T(33)};
    std::uniform_int_distribution<std::size_t> which(0, 2 * special.size());
    for (std::size_t i = 0; i < count; ++i) {
        const std::size_t choice = which(random);
        T value = choice < special.size() ? special[choice] : static_cast<T>(random());
        if (choice % 5 == 4) value = static_cast<T>(static_cast<T>(random()) % 16);  // zeros and shift counts
        if (small) value = static_cast<T>(random() % 9);
        std::memcpy(data + i * sizeof(T), &value, sizeof(T));
    }
}

void fill_any(std::byte* data, DType type, std::size_t count, std::mt19937_64& random, bool small) {
    switch (type) {
        case DType::boolean:
            for (std::size_t i = 0; i < count; ++i) data[i] = std::byte(random() % 2);
            return;
        case DType::int8:
            return fill_integers<std::int8_t>(data, count, random, small);
        case DType::int16:
            return fill_integers<std::int16_t>(data, count, random, small);
        case DType::int32:
            return fill_integers<std::int32_t>(data, count, random, small);
        case DType::int64:
            return fill_integers<std::int64_t>(data, count, random, small);
        case DType::uint8:
            return fill_integers<std::uint8_t>(data, count, random, small);
        case DType::uint16:
            return fill_integers<std::uint16_t>(data, count, random, small);
        case DType::uint32:
            return fill_integers<std::uint32_t>(data, count, random, small);
        case DType::uint64:
            return fill_integers<std::uint64_t>(data, count, random, small);
        case DType::float16:
        case DType::bfloat16:
            for (std::size_t i = 0; i < count; ++i) {
                const auto number = static_cast<float>(static_cast<int>(random() % 17) - 8);
                const auto bits = static_cast<std::uint16_t>(!small                   ? random()
                                                             : type == DType::float16 ? float_to_half(number)
                                                                                      : float_to_bfloat(number));
                std::memcpy(data + 2 * i, &bits, 2);
            }
            return;
        case DType::float32:
            return fill_floats<float>(data, count, random, small);
        case DType::float64:
            return fill_floats<double>(data, count, random, small);
        case DType::complex64:
            break;
    }
    throw InternalError("test: no such data");
}

double as_double(const std::byte* from, DType type) {
    if (type == DType::float32) {
        float value;
        std::memcpy(&value, from, 4);
        return value;
    }
    if (type == DType::float64) {
        double value;
        std::memcpy(&value, from, 8);
        return value;
    }
    std::uint16_t bits;
    std::memcpy(&bits, from, 2);
    return type == DType::float16 ? half_to_float(bits) : bfloat_to_float(bits);
}

std::string hex(const std::byte* from, std::size_t count) {
    std::string text = "0x";
    for (std::size_t i = count; i-- > 0;) {
        const char* digits = "0123456789abcdef";
        text += digits[static_cast<unsigned>(from[i]) >> 4];
        text += digits[static_cast<unsigned>(from[i]) & 15u];
    }
    return text;
}

}  // namespace

GuardedMemory::GuardedMemory(std::size_t bytes) : bytes_(bytes) {
    const std::size_t page = page_size();
    mapped_ = (bytes + 2 * page - 1) / page * page + page;  // a frame of at least a page, and the forbidden page
    void* memory = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    base_ = static_cast<std::byte*>(memory);
    mprotect(base_ + mapped_ - page, page, PROT_NONE);
    data_ = base_ + mapped_ - page - bytes;
    std::fill(base_, data_, frame);
}

GuardedMemory::~GuardedMemory() {
    munmap(base_, mapped_);
}

bool GuardedMemory::frame_is_intact() const {
    return std::all_of(base_, data_, [](std::byte b) { return b == frame; });
}

loopir::Kernel scheduled(loopir::Kernel kernel, const Schedule& schedule, bool streaming) {
    apply(kernel.body, kernel, schedule, streaming);
    return kernel;
}

loopir::Kernel elementwise(const std::string& name, const std::vector<DType>& inputs, const ScalarBody& body,
                           DType output) {
    using Role = loopir::BufferParam::Role;
    loopir::Builder b;
    const Dim n = Dim::symbol("n");
    std::vector<int> buffers;
    for (std::size_t k = 0; k < inputs.size(); ++k) {
        buffers.push_back(b.add_buffer({concat("x", k), inputs[k], Role::input, n}));
    }
    const int y = b.add_buffer({"y", output, Role::output, n});
    const loopir::Index i = b.begin_loop("i", n);
    std::vector<loopir::ValueId> args;
    for (const int buffer : buffers) args.push_back(b.load(buffer, i));
    b.store(y, i, body(b, args));
    b.end_loop();
    return b.finish(name);
}

void fill(std::byte* data, DType type, std::size_t count, std::mt19937_64& random) {
    fill_any(data, type, count, random, false);
}

void fill_small(std::byte* data, DType type, std::size_t count, std::mt19937_64& random) {
    fill_any(data, type, count, random, true);
}

std::vector<Data> run_interpreted(const loopir::Kernel& kernel, std::vector<Data> buffers,
                                  const std::vector<std::int64_t>& sizes) {
    std::vector<void*> pointers;
    for (Data& buffer : buffers) pointers.push_back(buffer.bytes.data());
    loopir::interpret(kernel, pointers, sizes);
    return buffers;
}

std::string difference(const loopir::Kernel& kernel, const std::vector<Data>& expected, const std::vector<Data>& actual,
                       double tolerance) {
    std::size_t b = 0;
    for (const loopir::BufferParam& buffer : kernel.buffers) {
        if (is_local(buffer)) continue;
        const std::vector<std::byte>& want = expected[b].bytes;
        const std::vector<std::byte>& have = actual[b].bytes;
        ++b;
        const std::size_t size = size_of(buffer.dtype);
        for (std::size_t at = 0; at < want.size(); at += size) {
            if (std::memcmp(&want[at], &have[at], size) == 0) continue;
            if (is_floating(buffer.dtype)) {
                const double x = as_double(&want[at], buffer.dtype);
                const double y = as_double(&have[at], buffer.dtype);
                if (std::isnan(x) && std::isnan(y)) continue;
                if (std::abs(x - y) <= tolerance * std::max({std::abs(x), std::abs(y), 1.0})) continue;
            }
            return concat(
                buffer.name, "[", at / size, "] should be ", hex(&want[at], size), " but is ", hex(&have[at], size),
                is_floating(buffer.dtype)
                    ? concat(" (", as_double(&want[at], buffer.dtype), ", ", as_double(&have[at], buffer.dtype), ")")
                    : "");
        }
    }
    return "";
}

std::uint64_t test_seed() {
    static const std::uint64_t seed = [] {
        const char* text = std::getenv("TOPSTITCH_TEST_SEED");
        return text != nullptr ? std::strtoull(text, nullptr, 10) : std::uint64_t{20240917};
    }();
    return seed;
}

}  // namespace topstitch::testing
