// The encoder of grids.
// See sim_encoder.h.
#include <array>
#include <cstdlib>
#include <cstring>

#import "device/sim_encoder.h"
#include "grid/threadgroup_memory.h"

using namespace metal_sim;

namespace metal_sim {

namespace {

constexpr NSUInteger max_inline_bytes = 4096;
constexpr NSUInteger constant_offset_alignment = 4;
constexpr NSUInteger threadgroup_alignment = 16;

struct Binding {
    std::byte* begin = nullptr;
    std::size_t bytes = 0;
    std::size_t slack = 0;
    SimBuffer* buffer = nil;            // nil for bytes that were copied
    std::shared_ptr<std::byte> copied;  // kept alive by every job that uses them
};

// A copy with slack behind it, aligned for any type.
Binding copy_bytes(const void* source, std::size_t bytes) {
    constexpr std::size_t alignment = 64;
    const std::size_t capacity = (bytes + alignment - 1) / alignment * alignment + alignment;
    auto* memory = static_cast<std::byte*>(std::aligned_alloc(alignment, capacity));
    std::memset(memory, static_cast<int>(slack_byte), capacity);
    std::memcpy(memory, source, bytes);
    return {memory, bytes, capacity - bytes, nil,
            std::shared_ptr<std::byte>(memory, [](std::byte* old) { std::free(old); })};
}

std::string numbers(MTLSize size) {
    return std::to_string(size.width) + " x " + std::to_string(size.height) + " x " + std::to_string(size.depth);
}

NSUInteger groups(NSUInteger threads, NSUInteger size) {
    return (threads + size - 1) / size;
}

void set_sizes(GridJob& job, MTLSize threads, MTLSize threadgroups, MTLSize threadgroup) {
    const auto set = [](unsigned* to, MTLSize size) {
        to[0] = static_cast<unsigned>(size.width);
        to[1] = static_cast<unsigned>(size.height);
        to[2] = static_cast<unsigned>(size.depth);
    };
    set(job.launch.threads_per_grid, threads);
    set(job.launch.threadgroups_per_grid, threadgroups);
    set(job.launch.dispatch_threads_per_threadgroup, threadgroup);
}

}  // namespace

struct Bindings {
    std::array<Binding, msl_buffer_slots> buffers;
    std::array<NSUInteger, msl_buffer_slots> threadgroup_bytes{};
};

}  // namespace metal_sim

@implementation SimComputeEncoder
@synthesize dispatchType = _dispatchType;

- (id)initWithCommandBuffer:(SimCommandBuffer*)commandBuffer dispatchType:(MTLDispatchType)dispatchType {
    if ((self = [super initWithCommandBuffer:commandBuffer])) {
        _dispatchType = dispatchType;
        _bindings = new Bindings;
    }
    return self;
}
- (void)dealloc {
    [_pipeline release];
    delete _bindings;
    [super dealloc];
}

// State

- (void)setComputePipelineState:(id<MTLComputePipelineState>)state {
    const char* call = "-[MTLComputeCommandEncoder setComputePipelineState:]";
    [self requireOpen:call];
    require(state != nil, call, "the pipeline is nil");
    [_commandBuffer keep:state];
    [state retain];
    [_pipeline release];
    _pipeline = static_cast<SimPipeline*>(state);
}

- (void)setBytes:(const void*)bytes length:(NSUInteger)length atIndex:(NSUInteger)index {
    const char* call = "-[MTLComputeCommandEncoder setBytes:length:atIndex:]";
    [self requireOpen:call];
    require(index < msl_buffer_slots, call, "index " + std::to_string(index) + " does not exist: there are 31");
    require(bytes != NULL, call, "the bytes are NULL");
    require(length > 0 && length <= max_inline_bytes, call,
            "length " + std::to_string(length) + " is not from 1 to 4096");
    _bindings->buffers[index] = copy_bytes(bytes, length);
}

- (void)setBuffer:(id<MTLBuffer>)buffer offset:(NSUInteger)offset atIndex:(NSUInteger)index {
    [self bind:buffer offset:offset atIndex:index call:"-[MTLComputeCommandEncoder setBuffer:offset:atIndex:]"];
}
- (void)bind:(id<MTLBuffer>)bound offset:(NSUInteger)offset atIndex:(NSUInteger)index call:(const char*)call {
    [self requireOpen:call];
    require(index < msl_buffer_slots, call, "index " + std::to_string(index) + " does not exist: there are 31");
    auto* buffer = static_cast<SimBuffer*>(bound);
    if (!buffer) {
        _bindings->buffers[index] = {};
        return;
    }
    require(
        offset < [buffer length], call,
        "offset " + std::to_string(offset) + " is not below the buffer's length " + std::to_string([buffer length]));
    [_commandBuffer keep:buffer];
    _bindings->buffers[index] = {[buffer bytes] + offset, [buffer length] - offset, [buffer slack], buffer, nullptr};
}
- (void)setBufferOffset:(NSUInteger)offset atIndex:(NSUInteger)index {
    const char* call = "-[MTLComputeCommandEncoder setBufferOffset:atIndex:]";
    require(index < msl_buffer_slots && _bindings->buffers[index].buffer != nil, call,
            "no buffer is set at index " + std::to_string(index));
    [self bind:_bindings->buffers[index].buffer offset:offset atIndex:index call:call];
}
- (void)setBuffers:(const id<MTLBuffer>[])buffers offsets:(const NSUInteger[])offsets withRange:(NSRange)range {
    for (NSUInteger i = 0; i < range.length; ++i) {
        [self bind:buffers[i]
             offset:offsets[i]
            atIndex:range.location + i
               call:"-[MTLComputeCommandEncoder setBuffers:offsets:withRange:]"];
    }
}
- (void)setThreadgroupMemoryLength:(NSUInteger)length atIndex:(NSUInteger)index {
    const char* call = "-[MTLComputeCommandEncoder setThreadgroupMemoryLength:atIndex:]";
    [self requireOpen:call];
    require(index < msl_buffer_slots, call, "index " + std::to_string(index) + " does not exist: there are 31");
    require(length % threadgroup_alignment == 0, call, "length " + std::to_string(length) + " is not a multiple of 16");
    require(
        length <= max_threadgroup_bytes, call,
        "length " + std::to_string(length) + " is more than the device has: " + std::to_string(max_threadgroup_bytes));
    _bindings->threadgroup_bytes[index] = length;
}

// Dispatching

- (void)checkThreadgroup:(MTLSize)size call:(const char*)call {
    [self requireOpen:call];
    require(_pipeline != nil, call, "no pipeline is set");
    const NSUInteger threads = size.width * size.height * size.depth;
    require(threads > 0, call, "threads per threadgroup are " + numbers(size) + ": none may be 0");
    const NSUInteger limit = [_pipeline maxTotalThreadsPerThreadgroup];
    require(threads <= limit, call,
            "threads per threadgroup are " + numbers(size) + ", which is more than the pipeline's limit of " +
                std::to_string(limit));
    require(![_pipeline wholeSimdgroups] || threads % msl_simd_width == 0, call,
            "threads per threadgroup are " + numbers(size) + ", but the pipeline was promised a multiple of 32");
}

- (void)checkParameter:(const msl_parameter&)parameter call:(const char*)call {
    const std::string kernel = "kernel '" + [_pipeline kernel].name + "': ";
    if (parameter.kind == msl_threadgroup) {
        require(_bindings->threadgroup_bytes[parameter.index] > 0, call,
                kernel + "the length of threadgroup(" + std::to_string(parameter.index) + ") is not set");
    }
    if (parameter.kind != msl_buffer) return;
    const Binding& binding = _bindings->buffers[parameter.index];
    const std::string name = "buffer(" + std::to_string(parameter.index) + ")";
    require(binding.begin != nullptr, call, kernel + name + " is not set");
    require(binding.bytes >= parameter.bytes, call,
            kernel + name + " is too small: it has " + std::to_string(binding.bytes) +
                " bytes where the kernel needs " + std::to_string(parameter.bytes));
    if (!binding.buffer) return;  // copies are aligned for everything
    const auto offset = static_cast<NSUInteger>(binding.begin - [binding.buffer bytes]);
    require(offset % parameter.alignment == 0 &&
                offset % std::min<NSUInteger>(constant_offset_alignment, parameter.alignment) == 0,
            call,
            kernel + name + " has offset " + std::to_string(offset) + ", which is no multiple of the " +
                std::to_string(parameter.alignment) + " bytes by which its type is aligned");
}

- (GridJob)jobForCall:(const char*)call {
    const msl::KernelInfo& kernel = [_pipeline kernel];
    for (const msl_parameter& parameter : kernel.parameters) [self checkParameter:parameter call:call];
    GridJob job;
    job.kernel = kernel.name;
    job.entry = kernel.entry;
    job.variables = kernel.variables;
    NSUInteger threadgroup_total = kernel.threadgroup_bytes();
    for (unsigned i = 0; i < msl_buffer_slots; ++i) {
        const Binding& binding = _bindings->buffers[i];
        if (binding.begin) {
            job.launch.buffers[i] = binding.begin;
            job.buffers.push_back({i, binding.begin, binding.bytes, binding.slack});
        }
        job.threadgroup_bytes[i] = _bindings->threadgroup_bytes[i];
        threadgroup_total += _bindings->threadgroup_bytes[i];
    }
    require(threadgroup_total <= max_threadgroup_bytes, call,
            "kernel '" + kernel.name + "': variables and arguments in threadgroup memory need " +
                std::to_string(threadgroup_total) + " bytes, but the device has " +
                std::to_string(max_threadgroup_bytes));
    return job;
}

// Keeps the copied bytes with the command.
- (void)encodeJob:(const GridJob&)job before:(const std::function<void(GridJob&)>&)prepare {
    std::vector<std::shared_ptr<std::byte>> copied;
    for (const Binding& binding : _bindings->buffers) {
        if (binding.copied) copied.push_back(binding.copied);
    }
    [_commandBuffer encode:[job, copied, prepare]() -> std::optional<GridError> {
        if (!prepare) return run_grid(job);
        GridJob prepared = job;
        prepare(prepared);
        const unsigned* count = prepared.launch.threadgroups_per_grid;
        return count[0] == 0 || count[1] == 0 || count[2] == 0 ? std::nullopt : run_grid(prepared);
    }];
}

- (void)dispatchThreadgroups:(MTLSize)threadgroupsPerGrid threadsPerThreadgroup:(MTLSize)size {
    const char* call = "-[MTLComputeCommandEncoder dispatchThreadgroups:threadsPerThreadgroup:]";
    [self checkThreadgroup:size call:call];
    require(threadgroupsPerGrid.width > 0 && threadgroupsPerGrid.height > 0 && threadgroupsPerGrid.depth > 0, call,
            "threadgroups per grid are " + numbers(threadgroupsPerGrid) + ": none may be 0");
    GridJob job = [self jobForCall:call];
    const MTLSize threads =
        MTLSizeMake(threadgroupsPerGrid.width * size.width, threadgroupsPerGrid.height * size.height,
                    threadgroupsPerGrid.depth * size.depth);
    [self checkThreads:threads call:call];
    set_sizes(job, threads, threadgroupsPerGrid, size);
    [self encodeJob:job before:nullptr];
}

- (void)checkThreads:(MTLSize)threads call:(const char*)call {
    constexpr NSUInteger most = 0xffffffff;
    require(threads.width > 0 && threads.height > 0 && threads.depth > 0, call,
            "threads per grid are " + numbers(threads) + ": none may be 0");
    require(threads.width <= most && threads.height <= most && threads.depth <= most, call,
            "threads per grid are " + numbers(threads) + ": positions have 32 bits");
}

- (void)dispatchThreads:(MTLSize)threadsPerGrid threadsPerThreadgroup:(MTLSize)size {
    const char* call = "-[MTLComputeCommandEncoder dispatchThreads:threadsPerThreadgroup:]";
    [self checkThreadgroup:size call:call];
    [self checkThreads:threadsPerGrid call:call];
    GridJob job = [self jobForCall:call];
    set_sizes(job, threadsPerGrid,
              MTLSizeMake(groups(threadsPerGrid.width, size.width), groups(threadsPerGrid.height, size.height),
                          groups(threadsPerGrid.depth, size.depth)),
              size);
    [self encodeJob:job before:nullptr];
}

- (void)dispatchThreadgroupsWithIndirectBuffer:(id<MTLBuffer>)indirectBuffer
                          indirectBufferOffset:(NSUInteger)offset
                         threadsPerThreadgroup:(MTLSize)size {
    const char* call = "-[MTLComputeCommandEncoder dispatchThreadgroupsWithIndirectBuffer:...]";
    [self checkThreadgroup:size call:call];
    auto* buffer = static_cast<SimBuffer*>(indirectBuffer);
    require(buffer != nil, call, "the indirect buffer is nil");
    require(offset % 4 == 0, call, "offset " + std::to_string(offset) + " is no multiple of 4");
    require(offset + sizeof(MTLDispatchThreadgroupsIndirectArguments) <= [buffer length], call,
            "the indirect buffer has no 12 bytes at offset " + std::to_string(offset));
    [_commandBuffer keep:buffer];
    const std::byte* arguments = [buffer bytes] + offset;
    [self encodeJob:[self jobForCall:call]
             before:[arguments, size](GridJob& job) {
                 MTLDispatchThreadgroupsIndirectArguments count;
                 std::memcpy(&count, arguments, sizeof count);
                 const unsigned* n = count.threadgroupsPerGrid;
                 set_sizes(job, MTLSizeMake(n[0] * size.width, n[1] * size.height, n[2] * size.depth),
                           MTLSizeMake(n[0], n[1], n[2]), size);
             }];
}

// Resources and barriers: grids run one after another, so that there is nothing to do but to check.

- (void)useResource:(id<MTLResource>)resource usage:(MTLResourceUsage)usage {
    const char* call = "-[MTLComputeCommandEncoder useResource:usage:]";
    [self requireOpen:call];
    require(resource != nil, call, "the resource is nil");
    require(usage != 0, call, "the usage is neither read nor write");
    [_commandBuffer keep:resource];
}
- (void)useHeap:(id<MTLHeap>)heap {
    [self requireOpen:"-[MTLComputeCommandEncoder useHeap:]"];
    require(heap != nil, "-[MTLComputeCommandEncoder useHeap:]", "the heap is nil");
    [_commandBuffer keep:heap];
}
- (void)memoryBarrierWithScope:(MTLBarrierScope)scope {
    const char* call = "-[MTLComputeCommandEncoder memoryBarrierWithScope:]";
    [self requireOpen:call];
    require(scope != 0, call, "the scope is empty");
}
- (void)memoryBarrierWithResources:(const id<MTLResource>[])resources count:(NSUInteger)count {
    const char* call = "-[MTLComputeCommandEncoder memoryBarrierWithResources:count:]";
    [self requireOpen:call];
    require(resources != NULL && count > 0, call, "there are no resources");
}
@end
