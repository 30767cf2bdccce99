// See stream.h.
// A command buffer is committed after some grids, so that the GPU begins while the host still encodes.
#include "metal/stream.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "topstitch/error.h"

namespace topstitch::metal {

namespace {

constexpr int dispatches_at_once = 64;
constexpr std::size_t pipeline_limit = 4096;
constexpr unsigned copy_threads = 256;

// Copies of any length and alignment, among the kernels: no change of encoder, as a blit would need.
const std::string copy_source = R"(#include <metal_stdlib>
using namespace metal;

kernel void copy_words(device const uint4* from [[buffer(0)]], device uint4* to [[buffer(1)]],
                       constant ulong& count [[buffer(2)]], uint at [[thread_position_in_grid]],
                       uint threads [[threads_per_grid]]) {
    for (ulong k = at; k < count; k += threads) to[k] = from[k];
}

kernel void copy_bytes(device const uchar* from [[buffer(0)]], device uchar* to [[buffer(1)]],
                       constant ulong& count [[buffer(2)]], uint at [[thread_position_in_grid]],
                       uint threads [[threads_per_grid]]) {
    for (ulong k = at; k < count; k += threads) to[k] = from[k];
}

kernel void write_bytes(constant uchar* from [[buffer(0)]], device uchar* to [[buffer(1)]],
                        constant ulong& count [[buffer(2)]], uint at [[thread_position_in_grid]],
                        uint threads [[threads_per_grid]]) {
    for (ulong k = at; k < count; k += threads) to[k] = from[k];
}
)";

std::size_t groups_for(std::uint64_t count) {
    constexpr std::uint64_t most_groups = 1024;  // each thread then copies several
    return static_cast<std::size_t>(
        std::clamp<std::uint64_t>((count + copy_threads - 1) / copy_threads, 1, most_groups));
}

}  // namespace

SharedGpu::SharedGpu(const Gpu& device)
    : gpu(device),
      memory(std::make_shared<Memory>(device)),
      pipelines(std::make_shared<PipelineCache>(device, pipeline_limit)) {}

SharedGpu::SharedGpu(const Gpu& device, const SharedGpu& other)
    : gpu(device), memory(other.memory), pipelines(other.pipelines) {}

Stream::~Stream() {
    wait_for_all();
    for (const Buffer* buffer : borrowed_) shared_.memory->leave(*buffer);
}

bool Stream::reaches(const Buffer& buffer) {
    const Memory::Entry entry = shared_.memory->enter(buffer);
    if (entry == Memory::Entry::borrowed) borrowed_.push_back(&buffer);
    return entry != Memory::Entry::none;
}

GpuCommands& Stream::commands() {
    if (!open_) begun_.push_back(shared_.gpu.new_commands());
    open_ = true;
    return begun_.back();
}

void Stream::bind(const void* pointer, unsigned index) {
    const std::optional<Place> place = shared_.memory->find(pointer);
    internal_check(place.has_value(), "metal: a kernel is to use memory that is not the GPU's");
    if (callers_) used_.push_back(place->buffer);
    commands().set_buffer(place->buffer, place->offset, index);
}

void Stream::dispatch(Extents groups, Extents threads_per_group) {
    commands().dispatch_groups(groups, threads_per_group);
    if (++dispatches_ == dispatches_at_once && !callers_) commit();
}

void Stream::copy(void* to, const void* from, std::size_t bytes) {
    const auto addresses = reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from);
    const bool words = ((addresses | bytes) % 16) == 0;
    const std::uint64_t count = words ? bytes / 16 : bytes;
    commands().set_pipeline(*shared_.pipelines->get(copy_source, words ? "copy_words" : "copy_bytes"));
    bind(from, 0);
    bind(to, 1);
    commands().set_bytes(&count, sizeof count, 2);
    dispatch({groups_for(count)}, {copy_threads});
}

void Stream::write(void* to, const void* data, std::size_t bytes) {
    const std::uint64_t count = bytes;
    commands().set_pipeline(*shared_.pipelines->get(copy_source, "write_bytes"));
    commands().set_bytes(data, bytes, 0);
    bind(to, 1);
    commands().set_bytes(&count, sizeof count, 2);
    dispatch({groups_for(count)}, {copy_threads});
}

void Stream::commit() {
    begun_.back().commit();
    open_ = false;
    dispatches_ = 0;
}

void Stream::leave_to_caller(std::shared_ptr<void> used) {
    begun_.back().end([used = std::move(used), buffers = std::move(used_)] {});
}

void Stream::wait() {
    internal_check(!callers_, "metal: commands of the caller's cannot be waited for");
    if (open_) commit();
    std::optional<GpuError> failure;
    for (GpuCommands& commands : begun_) {
        std::optional<GpuError> error = commands.finish();
        if (!failure) failure = std::move(error);
    }
    begun_.clear();
    if (!failure) return;
    if (failure->out_of_memory) {
        throw MemoryError(concat("[metal] the GPU has not memory enough for this run: ", failure->text,
                                 "; free arrays, use smaller batches, or run on the device \"cpu\""));
    }
    throw InternalError(concat("[metal] the GPU reported an error: ", failure->text));
}

// What is still open was not to be run any more.
void Stream::wait_for_all() {
    if (callers_) return;
    if (open_) begun_.pop_back();
    open_ = false;
    for (GpuCommands& commands : begun_) commands.finish();
    begun_.clear();
}

}  // namespace topstitch::metal
