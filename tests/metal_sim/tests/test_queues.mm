// Command buffers, queues, events and memory: order, handlers, lifetimes.
// And that nothing is left over when everything has been released.
#include <atomic>
#include <cstdlib>
#include <thread>

#import "harness.h"
#include "settled.h"

using namespace metal_sim_test;

namespace {

const Library& library() {
    static const Library instance = compile_file("execution.metal");
    return instance;
}

void encode_increment(id<MTLCommandBuffer> buffer, const Pipeline& state, const Buffer& x, NSUInteger threads) {
    id<MTLComputeCommandEncoder> encoder = [buffer computeCommandEncoder];
    [encoder setComputePipelineState:state.get()];
    [encoder setBuffer:x.get() offset:0 atIndex:0];
    [encoder dispatchThreads:MTLSizeMake(threads, 1, 1) threadsPerThreadgroup:MTLSizeMake(32, 1, 1)];
    [encoder endEncoding];
}

}  // namespace

TEST_CASE("two queues wait for each other through a shared event") {
    const Queue first = new_queue(), second = new_queue();
    const auto event = adopt([device() newSharedEvent]);
    const Pipeline increment = pipeline(library(), "increment"), scale = pipeline(library(), "scale_by");
    const Buffer x = buffer_of(std::vector<float>(64));
    @autoreleasepool {
        id<MTLCommandBuffer> last = nil;
        for (unsigned round = 0; round < 10; ++round) {
            id<MTLCommandBuffer> adds = [first.get() commandBuffer], scales = [second.get() commandBuffer];
            [adds encodeWaitForEvent:event.get() value:2 * round];
            encode_increment(adds, increment, x, 64);
            [adds encodeSignalEvent:event.get() value:2 * round + 1];
            [scales encodeWaitForEvent:event.get() value:2 * round + 1];
            id<MTLComputeCommandEncoder> encoder = [scales computeCommandEncoder];
            const float factor = 2;
            [encoder setComputePipelineState:scale.get()];
            [encoder setBuffer:x.get() offset:0 atIndex:0];
            [encoder setBytes:&factor length:4 atIndex:1];
            [encoder dispatchThreads:MTLSizeMake(64, 1, 1) threadsPerThreadgroup:MTLSizeMake(64, 1, 1)];
            [encoder endEncoding];
            [scales encodeSignalEvent:event.get() value:2 * round + 2];
            [scales commit];  // before what it waits for
            [adds commit];
            last = scales;
        }
        [last waitUntilCompleted];
        CHECK([last error] == nil);
    }
    for (int i = 0; i < 64; ++i) CHECK(contents<float>(x)[i] == 2046);  // x = 2 (x + 1), 10 times
}

TEST_CASE("command buffers run in the order in which they were enqueued") {
    const Queue queue = new_queue();
    const Pipeline increment = pipeline(library(), "increment");
    const Buffer x = buffer_of(std::vector<float>(32));
    @autoreleasepool {
        id<MTLCommandBuffer> first = [queue.get() commandBuffer], second = [queue.get() commandBuffer];
        CHECK([first status] == MTLCommandBufferStatusNotEnqueued);
        [first enqueue];
        CHECK([first status] == MTLCommandBufferStatusEnqueued);
        std::atomic<float> seen_by_second{-1};
        auto* seen = &seen_by_second;
        const float* value = contents<float>(x);
        encode_increment(second, increment, x, 32);
        [second addScheduledHandler:^(id<MTLCommandBuffer>) { seen->store(value[0]); }];
        [second commit];
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        CHECK([second status] == MTLCommandBufferStatusCommitted);  // held up by the first
        encode_increment(first, increment, x, 32);
        [first commit];
        [second waitUntilCompleted];
        CHECK([first status] == MTLCommandBufferStatusCompleted);
        CHECK(seen_by_second == 1);
        CHECK(value[0] == 2);
    }
}

TEST_CASE("a queue has a bounded number of unfinished command buffers") {
    const Queue queue = adopt([device() newCommandQueueWithMaxCommandBufferCount:2]);
    @autoreleasepool {
        id<MTLCommandBuffer> one = [queue.get() commandBuffer];
        [queue.get() commandBuffer];
        const WithSettings settings([](metal_sim::Settings& s) { s.timeout = std::chrono::milliseconds(50); });
        CHECK(contains(misuse_of([&] { [queue.get() commandBuffer]; }),
                       "2 unfinished command buffers, and none finishes"));
        [one commit];
        CHECK([queue.get() commandBuffer] != nil);
    }
    @autoreleasepool {  // those that were never committed count no longer
        CHECK([queue.get() commandBuffer] != nil);
        CHECK([queue.get() commandBuffer] != nil);
    }
}

TEST_CASE("after an error the queue goes on, and events are signalled all the same") {
    const Queue queue = new_queue();
    const auto event = adopt([device() newSharedEvent]);
    const Pipeline increment = pipeline(library(), "increment");
    const Buffer x = buffer_of(std::vector<float>(32));
    @autoreleasepool {
        id<MTLCommandBuffer> bad = [queue.get() commandBuffer], good = [queue.get() commandBuffer];
        encode_increment(bad, increment, x, 64);  // twice as many threads as elements
        [bad encodeSignalEvent:event.get() value:1];
        [bad commit];
        encode_increment(good, increment, x, 32);
        [good encodeWaitForEvent:event.get() value:1];
        [good commit];
        [good waitUntilCompleted];
        CHECK([bad status] == MTLCommandBufferStatusError);
        CHECK([[[bad error] domain] isEqualToString:MTLCommandBufferErrorDomain]);
        CHECK([good status] == MTLCommandBufferStatusCompleted);
    }
}

TEST_CASE("a wait for an event that nobody signals times out") {
    const WithSettings settings([](metal_sim::Settings& s) { s.timeout = std::chrono::milliseconds(50); });
    const auto event = adopt([device() newEvent]);
    const std::string error =
        submit([&](id<MTLCommandBuffer> buffer) { [buffer encodeWaitForEvent:event.get() value:3]; });
    CHECK(contains(error, "waited for value 3 of an event, which has 0"));
}

TEST_CASE("the host waits for events and is told of them") {
    const auto event = adopt([device() newSharedEvent]);
    CHECK(![event.get() waitUntilSignaledValue:1 timeoutMS:10]);
    const auto listener = adopt([[MTLSharedEventListener alloc] init]);
    std::atomic<int> sum{0};
    auto* total = &sum;
    for (uint64_t value : {1, 2, 3}) {
        [event.get() notifyListener:listener.get()
                            atValue:value
                              block:^(id<MTLSharedEvent>, uint64_t at) { total->fetch_add(static_cast<int>(at)); }];
    }
    CHECK(submit([&](id<MTLCommandBuffer> buffer) { [buffer encodeSignalEvent:event.get() value:2]; }) == "");
    for (int i = 0; i < 1000 && sum != 3; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    CHECK(sum == 3);
    [event.get() notifyListener:listener.get()
                        atValue:1
                          block:^(id<MTLSharedEvent>, uint64_t) { total->fetch_add(100); }];  // reached already
    for (int i = 0; i < 1000 && sum != 103; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    CHECK(sum == 103);
    CHECK([event.get() waitUntilSignaledValue:2 timeoutMS:0]);
}

TEST_CASE("memory of the host is used in place and given back") {
    constexpr std::size_t bytes = 16384;
    void* memory = std::aligned_alloc(bytes, bytes);
    int freed = 0;
    int* count = &freed;
    const Pipeline increment = pipeline(library(), "increment");
    {
        const Buffer x = adopt([device() newBufferWithBytesNoCopy:memory
                                                           length:bytes
                                                          options:MTLResourceStorageModeShared
                                                      deallocator:^(void* pointer, NSUInteger length) {
                                                        if (length == bytes) ++*count;
                                                        std::free(pointer);
                                                      }]);
        CHECK([x.get() contents] == memory);
        static_cast<float*>(memory)[5] = 41;
        CHECK(run(increment, {x}, 32, 32) == "");
        CHECK(static_cast<float*>(memory)[5] == 42);
        CHECK(freed == 0);
    }
    CHECK(freed == 1);
}

TEST_CASE("copies and fills; private memory") {
    const Buffer source = buffer_of(std::vector<unsigned>{1, 2, 3, 4}), target = buffer_of(std::vector<unsigned>(4));
    const Buffer hidden = adopt([device() newBufferWithLength:16 options:MTLResourceStorageModePrivate]);
    CHECK([hidden.get() contents] == nullptr);
    CHECK([hidden.get() storageMode] == MTLStorageModePrivate);
    const std::string error = submit([&](id<MTLCommandBuffer> buffer) {
        id<MTLBlitCommandEncoder> encoder = [buffer blitCommandEncoder];
        [encoder fillBuffer:hidden.get() range:NSMakeRange(0, 16) value:0xab];
        [encoder copyFromBuffer:source.get() sourceOffset:4 toBuffer:hidden.get() destinationOffset:8 size:8];
        [encoder copyFromBuffer:hidden.get() sourceOffset:4 toBuffer:target.get() destinationOffset:0 size:12];
        [encoder endEncoding];
    });
    CHECK(error == "");
    CHECK(contents<unsigned>(target)[0] == 0xabababab);
    CHECK(contents<unsigned>(target)[1] == 2);
    CHECK(contents<unsigned>(target)[2] == 3);
    CHECK(contents<unsigned>(target)[3] == 0);
}

TEST_CASE("memory is bounded: a buffer that does not fit is nil") {
    CHECK([device() newBufferWithLength:[device() maxBufferLength] + 1 options:0] == nil);
    const NSUInteger used = [device() currentAllocatedSize];
    const WithSettings settings([&](metal_sim::Settings& s) { s.memory_bytes = used + 1000; });
    const Buffer fits = new_buffer(600);
    CHECK(bool(fits));
    CHECK([device() currentAllocatedSize] == used + 600);
    CHECK(!new_buffer(600));
    const auto descriptor = adopt([[MTLHeapDescriptor alloc] init]);
    [descriptor.get() setSize:512];
    [descriptor.get() setStorageMode:MTLStorageModeShared];
    const auto heap = adopt([device() newHeapWithDescriptor:descriptor.get()]);
    {
        const auto part = adopt([heap.get() newBufferWithLength:300 options:MTLResourceStorageModeShared]);
        CHECK([part.get() heap] == heap.get());
        CHECK([heap.get() usedSize] == 512);
        CHECK([heap.get() newBufferWithLength:1 options:MTLResourceStorageModeShared] == nil);
    }
    CHECK([heap.get() maxAvailableSizeWithAlignment:256] == 512);
}

TEST_CASE("unretained references: a buffer released too early is a fault that is reported") {
    const Queue queue = new_queue();
    const Pipeline increment = pipeline(library(), "increment");
    @autoreleasepool {
        Buffer x = new_buffer(128);
        const auto gate = adopt([device() newSharedEvent]);
        id<MTLCommandBuffer> buffer = [queue.get() commandBufferWithUnretainedReferences];
        CHECK(![buffer retainedReferences]);
        [buffer encodeWaitForEvent:gate.get() value:1];
        encode_increment(buffer, increment, x, 32);
        [buffer commit];
        x.reset();
        [gate.get() setSignaledValue:1];
        [buffer waitUntilCompleted];
        CHECK([buffer status] == MTLCommandBufferStatusError);
        CHECK([[buffer error] code] == MTLCommandBufferErrorPageFault);
    }
}

TEST_CASE("queues are used from many threads at once") {
    const Pipeline increment = pipeline(library(), "increment");
    std::vector<std::thread> threads;
    std::atomic<int> right{0};
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&] {
            @autoreleasepool {
                const Queue queue = new_queue();
                const Buffer x = buffer_of(std::vector<float>(64));
                for (int i = 0; i < 25; ++i) {
                    @autoreleasepool {
                        id<MTLCommandBuffer> buffer = [queue.get() commandBuffer];
                        encode_increment(buffer, increment, x, 64);
                        [buffer commit];
                        [buffer waitUntilCompleted];
                    }
                }
                if (contents<float>(x)[63] == 25) ++right;
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(right == 4);
}

TEST_CASE("what is released is gone") {
    const auto before = settled_objects();
    {
        const Queue queue = new_queue();
        std::string error;
        const Library other = compile("kernel void k(device int *x [[buffer(0)]]) { x[0] = 1; }", error);
        const Pipeline state = pipeline(other, "k");
        const Buffer x = new_buffer(4);
        const auto event = adopt([device() newSharedEvent]);
        @autoreleasepool {
            id<MTLCommandBuffer> buffer = [queue.get() commandBuffer];
            id<MTLComputeCommandEncoder> encoder = [buffer computeCommandEncoder];
            [encoder setComputePipelineState:state.get()];
            [encoder setBuffer:x.get() offset:0 atIndex:0];
            [encoder dispatchThreads:MTLSizeMake(1, 1, 1) threadsPerThreadgroup:MTLSizeMake(1, 1, 1)];
            [encoder endEncoding];
            [buffer encodeSignalEvent:event.get() value:1];
            [buffer addCompletedHandler:^(id<MTLCommandBuffer>) { [x.get() length]; }];
            [buffer commit];
            [buffer waitUntilCompleted];
            [queue.get() commandBuffer];  // never committed
        }
        CHECK(metal_sim::live_objects() != before);
    }
    CHECK(settled_objects() == before);
}
