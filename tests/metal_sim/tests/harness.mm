// See harness.h.
// One device and one queue serve all tests.
#import "harness.h"

#include <fstream>
#include <sstream>

namespace metal_sim_test {

id<MTLDevice> device() {
    static id<MTLDevice> instance = MTLCreateSystemDefaultDevice();
    return instance;
}

Queue new_queue() {
    return adopt([device() newCommandQueue]);
}

Library compile(const std::string& source, std::string& error, MTLLanguageVersion version) {
    @autoreleasepool {
        NSError* failure = nil;
        const auto options = adopt([[MTLCompileOptions alloc] init]);
        [options.get() setMathMode:MTLMathModeSafe];
        [options.get() setLanguageVersion:version];
        NSString* text = [NSString stringWithUTF8String:source.c_str()];
        auto library = adopt([device() newLibraryWithSource:text options:options.get() error:&failure]);
        error = library ? "" : [[failure localizedDescription] UTF8String];
        return library;
    }
}

std::string read_kernels(const std::string& name) {
    std::ifstream file(METAL_SIM_KERNELS "/" + name);
    REQUIRE_MESSAGE(file.is_open(), name);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

Library compile_file(const std::string& name) {
    std::string error;
    auto library = compile(read_kernels(name), error);
    REQUIRE_MESSAGE(bool(library), error);
    return library;
}

Pipeline pipeline(const Library& library, const std::string& kernel) {
    @autoreleasepool {
        const auto function = adopt([library.get() newFunctionWithName:[NSString stringWithUTF8String:kernel.c_str()]]);
        REQUIRE_MESSAGE(bool(function), kernel);
        NSError* error = nil;
        auto state = adopt([device() newComputePipelineStateWithFunction:function.get() error:&error]);
        REQUIRE_MESSAGE(bool(state), [[error localizedDescription] UTF8String]);
        return state;
    }
}

Buffer new_buffer(std::size_t bytes) {
    return adopt([device() newBufferWithLength:bytes options:MTLResourceStorageModeShared]);
}

std::string submit(const std::function<void(id<MTLCommandBuffer>)>& encode) {
    static const Queue queue = new_queue();
    @autoreleasepool {
        id<MTLCommandBuffer> buffer = [queue.get() commandBuffer];
        encode(buffer);
        [buffer commit];
        [buffer waitUntilCompleted];
        CHECK([buffer status] == ([buffer error] ? MTLCommandBufferStatusError : MTLCommandBufferStatusCompleted));
        return [buffer error] ? [[[buffer error] localizedDescription] UTF8String] : "";
    }
}

std::string submit_compute(const std::function<void(id<MTLComputeCommandEncoder>)>& encode) {
    return submit([&](id<MTLCommandBuffer> buffer) {
        id<MTLComputeCommandEncoder> encoder = [buffer computeCommandEncoder];
        encode(encoder);
        [encoder endEncoding];
    });
}

std::string run(const Pipeline& kernel, const std::vector<Buffer>& buffers, NSUInteger threads,
                NSUInteger threadgroup) {
    return submit_compute([&](id<MTLComputeCommandEncoder> encoder) {
        [encoder setComputePipelineState:kernel.get()];
        for (NSUInteger i = 0; i < buffers.size(); ++i) [encoder setBuffer:buffers[i].get() offset:0 atIndex:i];
        [encoder dispatchThreads:MTLSizeMake(threads, 1, 1) threadsPerThreadgroup:MTLSizeMake(threadgroup, 1, 1)];
    });
}

std::string misuse_of(const std::function<void()>& call) {
    @autoreleasepool {
        @try {
            call();
        } @catch (NSException* exception) {
            CHECK([[exception name] isEqualToString:[NSString stringWithUTF8String:metal_sim::misuse_exception]]);
            return [[exception reason] UTF8String];
        }
        return "";
    }
}

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

}  // namespace metal_sim_test
