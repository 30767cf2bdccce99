// Misuse of the API: each call raises an error that names it, where a device aborts or does something undefined.
// The rules are those of Metal's validation layer.
#import "harness.h"

using namespace metal_sim_test;

namespace {

const Pipeline& increment() {
    static const Pipeline state = pipeline(compile_file("execution.metal"), "increment");
    return state;
}

// What `call` raises when it is given an open compute encoder with a pipeline.
std::string encoder_misuse(const std::function<void(id<MTLComputeCommandEncoder>)>& call,
                           const Pipeline& state = increment()) {
    static const Queue queue = new_queue();
    @autoreleasepool {
        id<MTLCommandBuffer> buffer = [queue.get() commandBuffer];
        id<MTLComputeCommandEncoder> encoder = [buffer computeCommandEncoder];
        [encoder setComputePipelineState:state.get()];
        return misuse_of([&] { call(encoder); });
    }
}

std::string buffer_misuse(const std::function<void(id<MTLCommandBuffer>)>& call) {
    static const Queue queue = new_queue();
    @autoreleasepool {
        id<MTLCommandBuffer> buffer = [queue.get() commandBuffer];
        return misuse_of([&] { call(buffer); });
    }
}

std::string blit_misuse(const std::function<void(id<MTLBlitCommandEncoder>)>& call) {
    return buffer_misuse([&](id<MTLCommandBuffer> buffer) { call([buffer blitCommandEncoder]); });
}

const MTLSize one = {1, 1, 1};

}  // namespace

TEST_CASE("compute encoders: bindings") {
    const Buffer x = new_buffer(64);
    const char bytes[5000] = {};
    CHECK(contains(encoder_misuse([&](id<MTLComputeCommandEncoder> e) { [e setBuffer:x.get() offset:0 atIndex:31]; }),
                   "setBuffer:offset:atIndex:]: index 31 does not exist"));
    CHECK(contains(encoder_misuse([&](id<MTLComputeCommandEncoder> e) { [e setBuffer:x.get() offset:64 atIndex:0]; }),
                   "offset 64 is not below the buffer's length 64"));
    CHECK(contains(encoder_misuse([&](id<MTLComputeCommandEncoder> e) { [e setBytes:bytes length:4097 atIndex:0]; }),
                   "setBytes:length:atIndex:]: length 4097 is not from 1 to 4096"));
    CHECK(contains(encoder_misuse([&](id<MTLComputeCommandEncoder> e) { [e setBytes:bytes length:0 atIndex:0]; }),
                   "length 0"));
    CHECK(contains(encoder_misuse([&](id<MTLComputeCommandEncoder> e) { [e setBytes:NULL length:4 atIndex:0]; }),
                   "the bytes are NULL"));
    CHECK(contains(encoder_misuse([&](id<MTLComputeCommandEncoder> e) { [e setBytes:bytes length:4 atIndex:40]; }),
                   "index 40"));
    CHECK(contains(encoder_misuse([&](id<MTLComputeCommandEncoder> e) { [e setBufferOffset:4 atIndex:2]; }),
                   "no buffer is set at index 2"));
    CHECK(contains(encoder_misuse([&](id<MTLComputeCommandEncoder> e) {
                       const id<MTLBuffer> buffers[2] = {x.get(), x.get()};
                       const NSUInteger offsets[2] = {0, 100};
                       [e setBuffers:buffers offsets:offsets withRange:NSMakeRange(0, 2)];
                   }),
                   "setBuffers:offsets:withRange:]: offset 100"));
    CHECK(contains(encoder_misuse([&](id<MTLComputeCommandEncoder> e) { [e setThreadgroupMemoryLength:24 atIndex:0]; }),
                   "not a multiple of 16"));
    CHECK(contains(
        encoder_misuse([&](id<MTLComputeCommandEncoder> e) { [e setThreadgroupMemoryLength:65536 atIndex:0]; }),
        "more than the device has: 32768"));
    CHECK(
        contains(encoder_misuse([&](id<MTLComputeCommandEncoder> e) { [e setThreadgroupMemoryLength:16 atIndex:31]; }),
                 "index 31"));
    CHECK(contains(encoder_misuse([&](id<MTLComputeCommandEncoder> e) { [e setComputePipelineState:nil]; }),
                   "the pipeline is nil"));
    CHECK(contains(
        encoder_misuse([&](id<MTLComputeCommandEncoder> e) { [e useResource:nil usage:MTLResourceUsageRead]; }),
        "the resource is nil"));
    CHECK(contains(encoder_misuse([&](id<MTLComputeCommandEncoder> e) { [e memoryBarrierWithScope:0]; }),
                   "the scope is empty"));
    CHECK(encoder_misuse([&](id<MTLComputeCommandEncoder> e) {  // all of this is allowed
              [e setBuffer:x.get() offset:60 atIndex:30];
              [e setBufferOffset:4 atIndex:30];
              [e setBuffer:nil offset:0 atIndex:3];
              [e setBytes:bytes length:4096 atIndex:1];
              [e setThreadgroupMemoryLength:32768 atIndex:0];
              [e useResource:x.get() usage:MTLResourceUsageRead | MTLResourceUsageWrite];
          }) == "");
}

TEST_CASE("compute encoders: dispatches") {
    const Buffer x = new_buffer(64);
    const auto dispatch = [&](MTLSize threads, MTLSize group) {
        return encoder_misuse([&](id<MTLComputeCommandEncoder> e) {
            [e setBuffer:x.get() offset:0 atIndex:0];
            [e dispatchThreads:threads threadsPerThreadgroup:group];
        });
    };
    CHECK(dispatch(MTLSizeMake(16, 1, 1), MTLSizeMake(16, 1, 1)) == "");
    CHECK(contains(dispatch(MTLSizeMake(0, 1, 1), one), "threads per grid are 0 x 1 x 1"));
    CHECK(contains(dispatch(one, MTLSizeMake(1, 0, 1)), "threads per threadgroup are 1 x 0 x 1"));
    CHECK(contains(dispatch(one, MTLSizeMake(1025, 1, 1)), "limit of 1024"));
    CHECK(contains(dispatch(one, MTLSizeMake(32, 32, 2)), "limit of 1024"));
    CHECK(contains(dispatch(MTLSizeMake(NSUInteger{1} << 33, 1, 1), one), "positions have 32 bits"));
    CHECK(contains(encoder_misuse([&](id<MTLComputeCommandEncoder> e) {
                       [e setBuffer:x.get() offset:0 atIndex:0];
                       [e dispatchThreadgroups:MTLSizeMake(1, 1, 0) threadsPerThreadgroup:one];
                   }),
                   "dispatchThreadgroups:threadsPerThreadgroup:]: threadgroups per grid are 1 x 1 x 0"));
    CHECK(contains(
        encoder_misuse([&](id<MTLComputeCommandEncoder> e) { [e dispatchThreads:one threadsPerThreadgroup:one]; }),
        "kernel 'increment': buffer(0) is not set"));
    CHECK(contains(encoder_misuse([&](id<MTLComputeCommandEncoder> e) {
                       [e setBuffer:x.get() offset:2 atIndex:0];
                       [e dispatchThreads:one threadsPerThreadgroup:one];
                   }),
                   "buffer(0) has offset 2, which is no multiple of the 4 bytes"));
    CHECK(contains(encoder_misuse([&](id<MTLComputeCommandEncoder> e) {
                       [e setBuffer:x.get() offset:0 atIndex:0];
                       [e dispatchThreadgroupsWithIndirectBuffer:x.get()
                                            indirectBufferOffset:56
                                           threadsPerThreadgroup:one];
                   }),
                   "no 12 bytes at offset 56"));
    CHECK(contains(buffer_misuse([&](id<MTLCommandBuffer> buffer) {
                       [[buffer computeCommandEncoder] dispatchThreads:one threadsPerThreadgroup:one];
                   }),
                   "no pipeline is set"));
}

TEST_CASE("compute encoders: what a kernel needs") {
    const Library library = compile_file("execution.metal");
    const Buffer x = new_buffer(64);
    const auto scale = pipeline(library, "scale_by"), product = pipeline(library, "matmul_simdgroup_float"),
               few = pipeline(library, "few_threads"), tiled = pipeline(library, "matmul_tiled"),
               vectors = pipeline(library, "reduce");
    CHECK(contains(encoder_misuse(
                       [&](id<MTLComputeCommandEncoder> e) {
                           const char byte = 1;
                           [e setBuffer:x.get() offset:0 atIndex:0];
                           [e setBytes:&byte length:1 atIndex:1];
                           [e dispatchThreads:one threadsPerThreadgroup:one];
                       },
                       scale),
                   "buffer(1) is too small: it has 1 bytes where the kernel needs 4"));
    const auto with_buffers = [&](id<MTLComputeCommandEncoder> e) {
        const unsigned sizes[4] = {};
        for (NSUInteger i = 0; i < 3; ++i) [e setBuffer:x.get() offset:0 atIndex:i];
        [e setBytes:sizes length:16 atIndex:3];
    };
    CHECK(contains(encoder_misuse(
                       [&](id<MTLComputeCommandEncoder> e) {
                           with_buffers(e);
                           [e dispatchThreads:one threadsPerThreadgroup:one];
                       },
                       product),
                   "the length of threadgroup(0) is not set"));
    CHECK(contains(encoder_misuse(
                       [&](id<MTLComputeCommandEncoder> e) {
                           with_buffers(e);
                           [e setThreadgroupMemoryLength:31 * 1024 atIndex:4];
                           [e dispatchThreads:one threadsPerThreadgroup:one];
                       },
                       tiled),
                   "need 33792 bytes, but the device has 32768"));
    CHECK(contains(encoder_misuse(
                       [&](id<MTLComputeCommandEncoder> e) {
                           [e setBuffer:x.get() offset:0 atIndex:0];
                           [e dispatchThreads:one threadsPerThreadgroup:MTLSizeMake(65, 1, 1)];
                       },
                       few),
                   "the pipeline's limit of 64"));
    CHECK(contains(encoder_misuse(
                       [&](id<MTLComputeCommandEncoder> e) {
                           with_buffers(e);
                           [e setBuffer:x.get() offset:4 atIndex:0];
                           [e dispatchThreads:one threadsPerThreadgroup:one];
                       },
                       vectors),
                   "no multiple of the 16 bytes"));
}

TEST_CASE("encoders are used between their creation and endEncoding") {
    const Buffer x = new_buffer(64);
    CHECK(contains(encoder_misuse([&](id<MTLComputeCommandEncoder> e) {
                       [e endEncoding];
                       [e endEncoding];
                   }),
                   "endEncoding]: endEncoding was called before"));
    for (const auto& call : std::vector<std::function<void(id<MTLComputeCommandEncoder>)>>{
             [&](id<MTLComputeCommandEncoder> e) { [e setBuffer:x.get() offset:0 atIndex:0]; },
             [&](id<MTLComputeCommandEncoder> e) { [e setBytes:&one length:4 atIndex:0]; },
             [&](id<MTLComputeCommandEncoder> e) { [e setComputePipelineState:increment().get()]; },
             [&](id<MTLComputeCommandEncoder> e) { [e setThreadgroupMemoryLength:16 atIndex:0]; },
             [&](id<MTLComputeCommandEncoder> e) { [e dispatchThreads:one threadsPerThreadgroup:one]; },
             [&](id<MTLComputeCommandEncoder> e) { [e dispatchThreadgroups:one threadsPerThreadgroup:one]; },
             [&](id<MTLComputeCommandEncoder> e) { [e memoryBarrierWithScope:MTLBarrierScopeBuffers]; },
             [&](id<MTLComputeCommandEncoder> e) { [e useResource:x.get() usage:MTLResourceUsageRead]; }}) {
        CHECK(contains(encoder_misuse([&](id<MTLComputeCommandEncoder> e) {
                           [e endEncoding];
                           call(e);
                       }),
                       "endEncoding was called before"));
    }
}

TEST_CASE("command buffers: one encoder at a time, one commit") {
    const auto event = adopt([device() newSharedEvent]);
    const std::string open = "an encoder of the command buffer is still open";
    CHECK(contains(buffer_misuse([](id<MTLCommandBuffer> b) { [b computeCommandEncoder], [b computeCommandEncoder]; }),
                   open));
    CHECK(contains(buffer_misuse([](id<MTLCommandBuffer> b) { [b blitCommandEncoder], [b computeCommandEncoder]; }),
                   open));
    CHECK(contains(buffer_misuse([](id<MTLCommandBuffer> b) { [b computeCommandEncoder], [b commit]; }),
                   "commit]: " + open));
    CHECK(contains(buffer_misuse([&](id<MTLCommandBuffer> b) {
                       [b computeCommandEncoder], [b encodeSignalEvent:event.get() value:1];
                   }),
                   open));
    CHECK(contains(buffer_misuse([&](id<MTLCommandBuffer> b) {
                       [b computeCommandEncoder], [b encodeWaitForEvent:event.get() value:1];
                   }),
                   open));
    CHECK(contains(buffer_misuse([](id<MTLCommandBuffer> b) { [b commit], [b commit]; }),
                   "commit]: the command buffer was committed before"));
    CHECK(contains(buffer_misuse([](id<MTLCommandBuffer> b) { [b commit], [b enqueue]; }), "enqueue]"));
    CHECK(contains(buffer_misuse([](id<MTLCommandBuffer> b) { [b enqueue], [b enqueue]; }),
                   "enqueued or committed before"));
    const std::string committed = "the command buffer was committed";
    CHECK(contains(buffer_misuse([](id<MTLCommandBuffer> b) { [b commit], [b computeCommandEncoder]; }), committed));
    CHECK(contains(buffer_misuse([](id<MTLCommandBuffer> b) { [b commit], [b blitCommandEncoder]; }), committed));
    CHECK(contains(
        buffer_misuse([](id<MTLCommandBuffer> b) { [b commit], [b addCompletedHandler:^(id<MTLCommandBuffer>){}]; }),
        "addCompletedHandler:]: " + committed));
    CHECK(contains(
        buffer_misuse([](id<MTLCommandBuffer> b) { [b commit], [b addScheduledHandler:^(id<MTLCommandBuffer>){}]; }),
        committed));
    CHECK(
        contains(buffer_misuse([&](id<MTLCommandBuffer> b) { [b commit], [b encodeSignalEvent:event.get() value:1]; }),
                 committed));
    CHECK(contains(buffer_misuse([](id<MTLCommandBuffer> b) { [b waitUntilCompleted]; }), "was never committed"));
    CHECK(contains(buffer_misuse([](id<MTLCommandBuffer> b) { [b waitUntilScheduled]; }), "was never committed"));
    CHECK(
        contains(buffer_misuse([](id<MTLCommandBuffer> b) { [b encodeSignalEvent:nil value:1]; }), "the event is nil"));
    CHECK(contains(misuse_of([&] {
                       [event.get() setSignaledValue:5];
                       [event.get() setSignaledValue:4];
                   }),
                   "cannot go down"));
}

TEST_CASE("blit encoders") {
    const Buffer x = new_buffer(64), y = new_buffer(32);
    const auto copy = [&](const Buffer& from, NSUInteger source, const Buffer& to, NSUInteger destination,
                          NSUInteger size) {
        return blit_misuse([&](id<MTLBlitCommandEncoder> e) {
            [e copyFromBuffer:from.get() sourceOffset:source toBuffer:to.get() destinationOffset:destination size:size];
        });
    };
    CHECK(copy(x, 32, y, 0, 32) == "");
    CHECK(copy(x, 0, x, 32, 32) == "");
    CHECK(contains(copy(x, 36, y, 0, 32), "bytes 36 to 68 of the source buffer do not exist: it has 64"));
    CHECK(contains(copy(x, 0, y, 4, 32), "bytes 4 to 36 of the destination buffer do not exist"));
    CHECK(contains(copy(x, ~NSUInteger{3}, y, 0, 8), "do not exist"));
    CHECK(contains(copy(x, 2, y, 0, 4), "must be multiples of 4"));
    CHECK(contains(copy(x, 0, y, 0, 3), "must be multiples of 4"));
    CHECK(contains(copy(x, 0, y, 0, 0), "the size is 0"));
    CHECK(contains(copy(x, 0, x, 16, 32), "source and destination overlap"));
    CHECK(contains(copy({}, 0, y, 0, 4), "the source buffer is nil"));
    const auto fill = [&](NSRange range) {
        return blit_misuse([&](id<MTLBlitCommandEncoder> e) { [e fillBuffer:x.get() range:range value:0]; });
    };
    CHECK(fill(NSMakeRange(0, 64)) == "");
    CHECK(contains(fill(NSMakeRange(4, 64)), "fillBuffer:range:value:]: bytes 4 to 68"));
    CHECK(contains(fill(NSMakeRange(1, 4)), "must be multiples of 4"));
    CHECK(contains(blit_misuse([&](id<MTLBlitCommandEncoder> e) {
                       [e endEncoding];
                       [e fillBuffer:x.get() range:NSMakeRange(0, 4) value:0];
                   }),
                   "endEncoding was called before"));
    CHECK(contains(blit_misuse([&](id<MTLBlitCommandEncoder> e) { [e synchronizeResource:x.get()]; }), "not managed"));
}

TEST_CASE("devices: what cannot be made") {
    alignas(16384) static char memory[2 * 16384];
    const auto no_copy = [](void* pointer, NSUInteger length, MTLResourceOptions options) {
        return misuse_of([&] {
            [[device() newBufferWithBytesNoCopy:pointer length:length options:options deallocator:nil] release];
        });
    };
    CHECK(no_copy(memory, 16384, MTLResourceStorageModeShared) == "");
    CHECK(
        contains(no_copy(memory + 4096, 16384, MTLResourceStorageModeShared), "not aligned to a page of 16384 bytes"));
    CHECK(contains(no_copy(memory, 16000, MTLResourceStorageModeShared), "length 16000 is not a multiple of the page"));
    CHECK(contains(no_copy(memory, 0, MTLResourceStorageModeShared), "length 0"));
    CHECK(contains(no_copy(NULL, 16384, MTLResourceStorageModeShared), "the pointer is NULL"));
    CHECK(contains(no_copy(memory, 16384, MTLResourceStorageModePrivate), "can only be shared"));
    CHECK(contains(misuse_of([] { [device() newBufferWithLength:0 options:0]; }), "a buffer cannot have length 0"));
    CHECK(contains(misuse_of([] { [device() newBufferWithLength:4 options:MTLResourceStorageModeManaged]; }),
                   "storage mode 1 is not simulated"));
    CHECK(contains(misuse_of([] { [device() newBufferWithBytes:NULL length:4 options:0]; }), "the pointer is NULL"));
    CHECK(contains(misuse_of([] { [device() newLibraryWithSource:nil options:nil error:NULL]; }), "the source is nil"));
    CHECK(contains(misuse_of([] { [device() newComputePipelineStateWithFunction:nil error:NULL]; }),
                   "the function is nil"));
    CHECK(contains(misuse_of([] { [device() newCommandQueueWithMaxCommandBufferCount:0]; }), "the count is 0"));
    const Library constants = compile_file("constants.metal");
    CHECK(contains(misuse_of([&] { [constants.get() newFunctionWithName:@"scaled"]; }),
                   "function constant 'count' needs a value"));
    CHECK(contains(misuse_of([&] { [constants.get() newFunctionWithName:nil]; }), "the name is nil"));
    CHECK(contains(misuse_of([&] {
                       const auto values = adopt([[MTLFunctionConstantValues alloc] init]);
                       [values.get() setConstantValue:"x" type:MTLDataTypeNone atIndex:0];
                   }),
                   "is not one of function constants"));
}
