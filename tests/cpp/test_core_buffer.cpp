// Tests of buffers: alignment, reuse, limits, borrowed memory, and many threads.
#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <thread>
#include <vector>

#include "topstitch/error.h"
#include "topstitch/ndarray.h"

using namespace topstitch;

TEST_CASE("allocations are aligned and fully usable at every size") {
    for (const std::size_t bytes : {0, 1, 63, 64, 65, 80, 81, 96, 97, 112, 128, 129, 4095, 4096, 5000, 1 << 20,
                                    (4 << 20) - 1, (4 << 20) + 1, 9 << 20}) {
        CAPTURE(bytes);
        const auto buffer = Buffer::allocate(bytes);
        CHECK(reinterpret_cast<std::uintptr_t>(buffer->data()) % 64 == 0);
        CHECK(buffer->bytes() == bytes);
        CHECK(buffer->owned());
        CHECK(!buffer->readonly());
        std::memset(buffer->data(), 0xab, bytes);
    }
}

TEST_CASE("a freed block is used again, a live one is not") {
    for (const std::size_t bytes : {64, 1000, 300000, 8 << 20}) {
        CAPTURE(bytes);
        auto first = Buffer::allocate(bytes);
        void* const address = first->data();
        const auto other = Buffer::allocate(bytes);
        CHECK(other->data() != address);
        first.reset();
        CHECK(Buffer::allocate(bytes)->data() == address);
    }
}

TEST_CASE("huge sizes are MemoryErrors") {
    for (const std::size_t bytes :
         {std::numeric_limits<std::size_t>::max(), std::numeric_limits<std::size_t>::max() - 63, std::size_t{1} << 63,
          std::size_t{1} << 62, std::size_t{1} << 50, std::size_t{1} << 46}) {
        CAPTURE(bytes);
        CHECK_THROWS_AS(Buffer::allocate(bytes), MemoryError);
    }
    CHECK_THROWS_WITH_AS(NDArray(DType::float32, {std::int64_t{1} << 50}), doctest::Contains("4503599627370496 bytes"),
                         MemoryError);
    CHECK_NOTHROW(Buffer::allocate(1000));  // and life goes on
}

TEST_CASE("borrowed memory is released once, with the last view") {
    int released = 0;
    float values[6] = {1, 2, 3, 4, 5, 6};
    {
        NDArray view;
        {
            const auto buffer = Buffer::borrow(values, sizeof(values), true, [&] { ++released; });
            const NDArray whole(buffer, values, DType::float32, {2, 3}, {12, 4});
            view = whole.slice(0, 1, 2);
        }
        CHECK(released == 0);
        CHECK(view.readonly());
        CHECK(!view.buffer()->owned());
        CHECK(view.at(2) == 6);
    }
    CHECK(released == 1);
    Buffer::borrow(nullptr, 0, true, nullptr);  // without a release
}

TEST_CASE("blocks stay separate when many threads allocate and free") {
    std::vector<std::thread> threads;
    std::vector<int> damaged(4, 0);
    for (unsigned id = 0; id < 4; ++id) {
        threads.emplace_back([id, &damaged] {
            std::mt19937 random(id);
            std::vector<std::shared_ptr<Buffer>> live;
            const auto intact = [&](const Buffer& buffer) {
                const auto* data = static_cast<const unsigned char*>(buffer.data());
                return data[0] == id && data[buffer.bytes() / 2] == id && data[buffer.bytes() - 1] == id;
            };
            for (int step = 0; step < 5000; ++step) {
                if (live.size() < 20 && random() % 3 != 0) {
                    live.push_back(Buffer::allocate(1 + random() % 20000));
                    std::memset(live.back()->data(), static_cast<int>(id), live.back()->bytes());
                } else if (!live.empty()) {
                    const std::size_t victim = random() % live.size();
                    if (!intact(*live[victim])) ++damaged[id];
                    live.erase(live.begin() + static_cast<std::ptrdiff_t>(victim));
                }
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(damaged == std::vector<int>(4, 0));
}
