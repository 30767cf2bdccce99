// What the tests of the simulated device share: compile, make buffers, run a kernel, expect misuse.
// Errors come back as text; empty is good.
#pragma once

#define DOCTEST_CONFIG_NO_TRY_CATCH_IN_ASSERTS  // GCC's Objective-C run-time library cannot catch C++ exceptions by
                                                // type
#include <doctest/doctest.h>

#import <Metal/Metal.h>

#include <functional>
#include <string>
#include <vector>

#include "metal/objc_ptr.h"
#include "metal_sim/control.h"

namespace metal_sim_test {

using topstitch::metal::adopt;
using topstitch::metal::objc_ptr;
using topstitch::metal::share;

using Buffer = objc_ptr<id<MTLBuffer>>;
using Library = objc_ptr<id<MTLLibrary>>;
using Pipeline = objc_ptr<id<MTLComputePipelineState>>;
using Queue = objc_ptr<id<MTLCommandQueue>>;

id<MTLDevice> device();
Queue new_queue();

// With fast math off, which NaN would not survive. Null, and the reason in `error`, when it does not compile.
Library compile(const std::string& source, std::string& error, MTLLanguageVersion version = MTLLanguageVersion3_2);
// Fails the test when it does not compile.
Library compile_file(const std::string& name);
std::string read_kernels(const std::string& name);  // a file of tests/metal_sim/kernels
Pipeline pipeline(const Library& library, const std::string& kernel);

Buffer new_buffer(std::size_t bytes);
template <typename T>
Buffer buffer_of(const std::vector<T>& values) {
    return adopt([device() newBufferWithBytes:values.data()
                                       length:values.size() * sizeof(T)
                                      options:MTLResourceStorageModeShared]);
}
template <typename T>
T* contents(const Buffer& buffer) {
    return static_cast<T*>([buffer.get() contents]);
}

// Encodes with `encode`, commits and waits; the error of the command buffer as text.
std::string submit(const std::function<void(id<MTLCommandBuffer>)>& encode);
std::string submit_compute(const std::function<void(id<MTLComputeCommandEncoder>)>& encode);
// Threads along one axis, buffers at 0, 1, ...
std::string run(const Pipeline& kernel, const std::vector<Buffer>& buffers, NSUInteger threads, NSUInteger threadgroup);

// The reason of the misuse that `call` raises; "" when it raises nothing.
std::string misuse_of(const std::function<void()>& call);

bool contains(const std::string& text, const std::string& part);

// Settings while this lives.
class WithSettings {
public:
    explicit WithSettings(const std::function<void(metal_sim::Settings&)>& change) : saved_(metal_sim::settings()) {
        change(metal_sim::settings());
    }
    ~WithSettings() { metal_sim::settings() = saved_; }
    WithSettings(const WithSettings&) = delete;
    WithSettings& operator=(const WithSettings&) = delete;

private:
    metal_sim::Settings saved_;
};

}  // namespace metal_sim_test
