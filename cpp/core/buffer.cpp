// Buffers and the pool that their memory comes from and goes back to.
// Freed blocks wait in size classes; when too much waits, the oldest go back to the system.
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <mutex>

#include "core/memory.h"
#include "topstitch/error.h"
#include "topstitch/ndarray.h"

#if defined(_WIN32)
#include <malloc.h>
#else
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace topstitch {

namespace {

constexpr std::size_t alignment = 64;
constexpr std::size_t huge_page = std::size_t{2} << 20;
constexpr std::size_t huge_block = 2 * huge_page;  // from here on, blocks begin at a huge page

// Where a GPU shares memory with the host, it can use whole pages in place.
#if defined(TOPSTITCH_METAL)
constexpr bool in_whole_pages = true;
#else
constexpr bool in_whole_pages = false;
#endif

std::atomic<void (*)(void*)> block_observer{nullptr};

bool is_shared(std::size_t block_bytes) {
    return in_whole_pages && block_bytes >= gpu_page_bytes;
}

void* system_allocate(std::size_t bytes) {
    const bool shared = is_shared(bytes);
    const std::size_t align = bytes >= huge_block ? huge_page : shared ? gpu_page_bytes : alignment;
#if defined(_WIN32)
    return _aligned_malloc(bytes, align);
#else
#if defined(__APPLE__)
    if (shared) {  // Metal takes memory of the system only, not of malloc; its pages are those of the GPU
        void* pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON, -1, 0);
        return pages == MAP_FAILED ? nullptr : pages;
    }
#endif
    void* block = nullptr;
    if (posix_memalign(&block, align, bytes) != 0) return nullptr;
#if defined(__linux__)
    if (bytes >= huge_block) madvise(block, bytes, MADV_HUGEPAGE);  // only a hint
#endif
    return block;
#endif
}

void system_free(void* block, std::size_t bytes) noexcept {
    if (is_shared(bytes)) {
        if (const auto observer = block_observer.load()) observer(block);
    }
#if defined(_WIN32)
    _aligned_free(block);
#else
#if defined(__APPLE__)
    if (is_shared(bytes)) {
        munmap(block, bytes);
        return;
    }
#endif
    std::free(block);
#endif
}

// Size classes: four for each power of two, from 64 bytes.
constexpr int num_classes = 4 * 58;

// The smallest class whose blocks hold `bytes`.
int class_of(std::size_t bytes) {
    if (bytes <= alignment) return 0;
    const int exponent = std::bit_width(bytes - 1) - 1;  // 2^exponent < bytes <= 2^(exponent + 1)
    const std::size_t quarter = (std::size_t{1} << exponent) / 4;
    const std::size_t step = (bytes - (std::size_t{1} << exponent) + quarter - 1) / quarter;  // 1 to 4
    return (exponent - 6) * 4 + static_cast<int>(step);
}

std::size_t class_bytes(int index) {
    const std::size_t base = std::size_t{64} << (index / 4);
    const std::size_t bytes = base + base / 4 * static_cast<std::size_t>(index % 4);
    return is_shared(bytes) ? (bytes + gpu_page_bytes - 1) / gpu_page_bytes * gpu_page_bytes : bytes;
}

// A free block holds its own list links, so that giving memory back never needs memory.
struct FreeBlock {
    FreeBlock* newer_in_class;
    FreeBlock* older_in_class;
    FreeBlock* newer;
    FreeBlock* older;
    int class_index;
};
static_assert(sizeof(FreeBlock) <= alignment);

class Pool {
public:
    // Never destroyed: buffers may outlive every static object.
    static Pool& instance() {
        static Pool* pool = new Pool;
        return *pool;
    }

    void* take(std::size_t bytes) {
        if (bytes > total_) return nullptr;
        const int index = class_of(bytes);
        {
            const std::lock_guard lock(mutex_);
            if (FreeBlock* block = newest_in_class_[static_cast<std::size_t>(index)]) {
                unlink(block);
                return block;
            }
        }
        void* block = system_allocate(class_bytes(index));
        if (block == nullptr) {
            trim(0);
            block = system_allocate(class_bytes(index));
        }
        return block;
    }

    void give(void* data, std::size_t bytes) noexcept {
        const int index = class_of(bytes);
        if (class_bytes(index) > limit_) {
            system_free(data, class_bytes(index));
            return;
        }
        {
            const std::lock_guard lock(mutex_);
            link(new (data) FreeBlock{nullptr, nullptr, nullptr, nullptr, index});
        }
        trim(limit_);
    }

private:
    Pool() : total_(total_memory()), limit_(std::min<std::size_t>(std::size_t{1} << 30, total_ / 4)) {
#if !defined(_WIN32)
        // A child process must not inherit the mutex locked by a thread that it does not have.
        pthread_atfork([] { instance().mutex_.lock(); }, [] { instance().mutex_.unlock(); },
                       [] { instance().mutex_.unlock(); });
#endif
    }

    void link(FreeBlock* block) {
        FreeBlock*& head = newest_in_class_[static_cast<std::size_t>(block->class_index)];
        block->older_in_class = head;
        if (head != nullptr) head->newer_in_class = block;
        head = block;
        block->older = newest_;
        (newest_ != nullptr ? newest_->newer : oldest_) = block;
        newest_ = block;
        waiting_ += class_bytes(block->class_index);
    }

    void unlink(FreeBlock* block) {
        FreeBlock*& head = newest_in_class_[static_cast<std::size_t>(block->class_index)];
        (block->newer_in_class != nullptr ? block->newer_in_class->older_in_class : head) = block->older_in_class;
        if (block->older_in_class != nullptr) block->older_in_class->newer_in_class = block->newer_in_class;
        (block->newer != nullptr ? block->newer->older : newest_) = block->older;
        (block->older != nullptr ? block->older->newer : oldest_) = block->newer;
        waiting_ -= class_bytes(block->class_index);
    }

    // Gives the oldest blocks back to the system until at most `bytes` wait.
    void trim(std::size_t bytes) noexcept {
        for (;;) {
            FreeBlock* block = nullptr;
            {
                const std::lock_guard lock(mutex_);
                if (waiting_ <= bytes) return;
                block = oldest_;
                unlink(block);
            }
            system_free(block, class_bytes(block->class_index));
        }
    }

    const std::size_t total_;
    const std::size_t limit_;
    std::mutex mutex_;
    std::array<FreeBlock*, num_classes> newest_in_class_{};
    FreeBlock* newest_ = nullptr;
    FreeBlock* oldest_ = nullptr;
    std::size_t waiting_ = 0;
};

}  // namespace

std::size_t shared_block_bytes(const Buffer& buffer) {
    const std::size_t bytes = class_bytes(class_of(buffer.bytes()));
    return buffer.owned() && is_shared(bytes) ? bytes : 0;
}

void observe_freed_blocks(void (*observer)(void* block)) {
    block_observer = observer;
}

std::shared_ptr<Buffer> Buffer::allocate(std::size_t bytes) {
    Pool& pool = Pool::instance();
    try {
        std::shared_ptr<Buffer> buffer(new Buffer);
        buffer->data_ = pool.take(bytes);
        if (buffer->data_ != nullptr) {
            buffer->bytes_ = bytes;
            buffer->owned_ = true;
            return buffer;
        }
    } catch (const std::bad_alloc&) {  // even the few bytes of the Buffer itself
    }
    throw MemoryError(concat("allocate: ", bytes, " bytes (", static_cast<double>(bytes) / (1 << 30),
                             " GiB) of memory could not be had; use smaller shapes or batches, or free other arrays"));
}

std::shared_ptr<Buffer> Buffer::borrow(void* data, std::size_t bytes, bool readonly, std::function<void()> release) {
    std::shared_ptr<Buffer> buffer(new Buffer);
    buffer->data_ = data;
    buffer->bytes_ = bytes;
    buffer->readonly_ = readonly;
    buffer->release_ = std::move(release);
    return buffer;
}

Buffer::~Buffer() {
    if (owned_) Pool::instance().give(data_, bytes_);
    if (release_) release_();
}

}  // namespace topstitch
