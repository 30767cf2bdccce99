// See threadgroup_memory.h.
// The guard zones lie in one mapping with the parts, between two pages that fault.
#include "grid/threadgroup_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace metal_sim {

namespace {

constexpr std::size_t page = 4096;
constexpr std::size_t zone = 64;             // after each part
constexpr std::size_t capacity = 256 << 10;  // the 32 KiB and the guard zones of as many parts as a kernel may have
constexpr auto poison_byte = 0xff;           // a NaN in every floating-point type
constexpr auto zone_byte = std::byte{0xa5};

constexpr std::size_t rounded(std::size_t bytes, std::size_t to) {
    return (bytes + to - 1) / to * to;
}

}  // namespace

ThreadgroupMemory::ThreadgroupMemory() {
    void* memory = mmap(nullptr, capacity + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    memory_ = static_cast<std::byte*>(memory) + page;
    mprotect(memory_, capacity, PROT_READ | PROT_WRITE);
}

ThreadgroupMemory::~ThreadgroupMemory() {
    munmap(memory_ - page, capacity + 2 * page);
}

std::byte* ThreadgroupMemory::place(const std::string& name, std::size_t bytes) {
    parts_.push_back({name, used_, bytes});
    std::byte* place = memory_ + used_;
    used_ = rounded(used_ + bytes, zone) + zone;
    if (used_ > capacity) throw std::bad_alloc();
    return place;
}

void ThreadgroupMemory::lay_out(const GridJob& job, msl_launch& launch) {
    parts_.clear();
    variables_.clear();
    used_ = 0;
    for (unsigned i = 0; i < msl_buffer_slots; ++i) {
        if (job.threadgroup_bytes[i] == 0) continue;
        launch.threadgroup_memory[i] = place("threadgroup(" + std::to_string(i) + ")", job.threadgroup_bytes[i]);
    }
    for (const ThreadgroupVariable& variable : job.variables) {
        variables_.resize(std::max<std::size_t>(variables_.size(), variable.id + 1));
        variables_[variable.id] = place("a threadgroup variable", variable.bytes);
    }
}

void* ThreadgroupMemory::variable(unsigned id) const {
    return id < variables_.size() ? variables_[id] : nullptr;
}

void ThreadgroupMemory::poison() {
    std::fill(memory_, memory_ + used_, zone_byte);
    for (const Part& part : parts_) std::memset(memory_ + part.offset, poison_byte, part.bytes);
}

std::optional<std::string> ThreadgroupMemory::damage() const {
    for (std::size_t i = 0; i < parts_.size(); ++i) {
        const std::byte* begin = memory_ + parts_[i].offset + parts_[i].bytes;
        const std::byte* end = memory_ + (i + 1 < parts_.size() ? parts_[i + 1].offset : used_);
        const auto* hit = std::find_if(begin, end, [](std::byte byte) { return byte != zone_byte; });
        if (hit != end) {
            return "wrote " + std::to_string(hit - begin) + " bytes past the end of " + parts_[i].name + " of " +
                   std::to_string(parts_[i].bytes) + " bytes";
        }
    }
    return std::nullopt;
}

bool ThreadgroupMemory::contains(const void* address) const {
    return address >= memory_ - page && address < memory_ + capacity + page;
}

}  // namespace metal_sim
