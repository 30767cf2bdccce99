// Libraries, functions with constants, pipelines and their limits, the disk cache.
// What fails says so through NSError, as on a device.
#include <atomic>
#include <filesystem>
#include <fstream>

#import "harness.h"

using namespace metal_sim_test;

namespace {

// y = x * count (* factor) (* -1) with the constants that are set.
std::string run_scaled(const std::function<void(MTLFunctionConstantValues*)>& set, std::vector<float>& y) {
    static const Library library = compile_file("constants.metal");
    @autoreleasepool {
        const auto values = adopt([[MTLFunctionConstantValues alloc] init]);
        set(values.get());
        NSError* error = nil;
        const auto function = adopt([library.get() newFunctionWithName:@"scaled"
                                                        constantValues:values.get()
                                                                 error:&error]);
        if (!function) return [[error localizedDescription] UTF8String];
        const Pipeline state = adopt([device() newComputePipelineStateWithFunction:function.get() error:&error]);
        REQUIRE(bool(state));
        const Buffer x = buffer_of(std::vector<float>{1, 2, 3});
        const std::string failure = run(state, {x}, 3, 3);
        y.assign(contents<float>(x), contents<float>(x) + 3);
        return failure;
    }
}

const unsigned five = 5;
const float half = 0.5f;
const bool yes = true, no = false;

}  // namespace

TEST_CASE("function constants, by index, by name, and left out") {
    std::vector<float> y;
    CHECK(run_scaled(
              [](MTLFunctionConstantValues* values) {
                  [values setConstantValue:&five type:MTLDataTypeUInt atIndex:0];
                  [values setConstantValue:&no type:MTLDataTypeBool atIndex:7];
              },
              y) == "");
    CHECK(y == std::vector<float>{5, 10, 15});
    CHECK(run_scaled(
              [](MTLFunctionConstantValues* values) {
                  [values setConstantValue:&five type:MTLDataTypeUInt atIndex:0];
                  [values setConstantValue:&half type:MTLDataTypeFloat withName:@"factor"];
                  [values setConstantValue:&yes type:MTLDataTypeBool withName:@"negate"];
              },
              y) == "");
    CHECK(y == std::vector<float>{-2.5f, -5, -7.5f});
    CHECK(contains(
        run_scaled(
            [](MTLFunctionConstantValues* values) { [values setConstantValue:&yes type:MTLDataTypeBool atIndex:7]; },
            y),
        "function constant 'count' (index 0) has no value"));
    CHECK(contains(run_scaled(
                       [](MTLFunctionConstantValues* values) {
                           [values setConstantValue:&five type:MTLDataTypeUInt atIndex:0];
                           [values setConstantValue:&five type:MTLDataTypeUInt atIndex:7];
                       },
                       y),
                   "function constant 'negate' is of type bool, but its value has 4 bytes"));
}

TEST_CASE("a library tells its functions and their constants") {
    @autoreleasepool {
        const Library constants = compile_file("constants.metal"), execution = compile_file("execution.metal");
        CHECK([[constants.get() functionNames] isEqual:[NSArray arrayWithObject:@"scaled"]]);
        CHECK([[execution.get() functionNames] containsObject:@"matmul_simdgroup_half"]);
        CHECK([execution.get() newFunctionWithName:@"missing"] == nil);
        NSError* error = nil;
        const auto values = adopt([[MTLFunctionConstantValues alloc] init]);
        CHECK([constants.get() newFunctionWithName:@"missing" constantValues:values.get() error:&error] == nil);
        CHECK([error code] == MTLLibraryErrorFunctionNotFound);
        const auto function = adopt([execution.get() newFunctionWithName:@"gelu"]);
        CHECK([function.get() functionType] == MTLFunctionTypeKernel);
        CHECK([[function.get() functionConstantsDictionary] count] == 0);
    }
}

TEST_CASE("an error of the compiler names the line of the source") {
    @autoreleasepool {
        NSError* error = nil;
        CHECK([device() newLibraryWithSource:@"#include <metal_stdlib>\nusing namespace metal;\nkernel void k(device "
                                             @"float *x [[buffer(0)]]) {\n  x[0] = y;\n}"
                                     options:nil
                                       error:&error] == nil);
        CHECK([[error domain] isEqualToString:MTLLibraryErrorDomain]);
        CHECK([error code] == MTLLibraryErrorCompileFailure);
        CHECK(contains([[error localizedDescription] UTF8String],
                       "program_source:4:10: error: use of undeclared identifier 'y'"));
        CHECK([device() newLibraryWithSource:@"kernel void k(device float *x [[buffer(0)]]) { y; }"
                                     options:nil
                                       error:NULL] == nil);
    }
}

TEST_CASE("macros and the language version reach the source") {
    @autoreleasepool {
        const auto options = adopt([[MTLCompileOptions alloc] init]);
        [options.get()
            setPreprocessorMacros:[NSDictionary dictionaryWithObjectsAndKeys:@"40", @"VALUE",
                                                                             [NSNumber numberWithInt:2], @"MORE", nil]];
        [options.get() setLanguageVersion:MTLLanguageVersion3_1];
        [options.get() setFastMathEnabled:NO];
        NSError* error = nil;
        const Library library = adopt([device()
            newLibraryWithSource:
                @"kernel void k(device int *x [[buffer(0)]]) { x[0] = VALUE + MORE; x[1] = __METAL_VERSION__; }"
                         options:options.get()
                           error:&error]);
        REQUIRE_MESSAGE(bool(library), [[error localizedDescription] UTF8String]);
        const Buffer x = new_buffer(8);
        CHECK(run(pipeline(library, "k"), {x}, 1, 1) == "");
        CHECK(contents<int>(x)[0] == 42);
        CHECK(contents<int>(x)[1] == 310);
    }
}

TEST_CASE("libraries and pipelines are also made in the background") {
    std::atomic<int> answers{0};
    auto* count = &answers;
    @autoreleasepool {
        [device() newLibraryWithSource:@"kernel void k(device int *x [[buffer(0)]]) { x[0] = 7; }"
                               options:nil
                     completionHandler:^(id<MTLLibrary> library, NSError* error) {
                       if (error) return;
                       id<MTLFunction> function = [[library newFunctionWithName:@"k"] autorelease];
                       [device() newComputePipelineStateWithFunction:function
                                                   completionHandler:^(id<MTLComputePipelineState> state, NSError*) {
                                                     if (state) count->fetch_add(1);
                                                   }];
                     }];
        [device() newLibraryWithSource:@"kernel void k("
                               options:nil
                     completionHandler:^(id<MTLLibrary> library, NSError* error) {
                       if (!library && error) count->fetch_add(10);
                     }];
    }
    for (int i = 0; i < 2000 && answers != 11; ++i) [NSThread sleepForTimeInterval:0.01];
    CHECK(answers == 11);
}

TEST_CASE("pipelines know the limits of their kernels") {
    const Library library = compile_file("execution.metal");
    CHECK([pipeline(library, "gelu").get() maxTotalThreadsPerThreadgroup] == 1024);
    CHECK([pipeline(library, "gelu").get() threadExecutionWidth] == 32);
    CHECK([pipeline(library, "gelu").get() staticThreadgroupMemoryLength] == 0);
    CHECK([pipeline(library, "matmul_tiled").get() staticThreadgroupMemoryLength] == 2 * 16 * 16 * 4);
    CHECK([pipeline(library, "few_threads").get() maxTotalThreadsPerThreadgroup] == 64);
    @autoreleasepool {
        NSError* error = nil;
        const auto large = adopt([library.get() newFunctionWithName:@"too_much_memory"]);
        CHECK([device() newComputePipelineStateWithFunction:large.get() error:&error] == nil);
        CHECK(contains([[error localizedDescription] UTF8String], "but the device has 32768"));
        const auto descriptor = adopt([[MTLComputePipelineDescriptor alloc] init]);
        const auto function = adopt([library.get() newFunctionWithName:@"increment"]);
        [descriptor.get() setComputeFunction:function.get()];
        [descriptor.get() setMaxTotalThreadsPerThreadgroup:128];
        [descriptor.get() setThreadGroupSizeIsMultipleOfThreadExecutionWidth:YES];
        [descriptor.get() setLabel:@"few"];
        const Pipeline state = adopt([device() newComputePipelineStateWithDescriptor:descriptor.get()
                                                                             options:MTLPipelineOptionNone
                                                                          reflection:NULL
                                                                               error:&error]);
        CHECK([state.get() maxTotalThreadsPerThreadgroup] == 128);
        CHECK([[state.get() label] isEqualToString:@"few"]);
        const Buffer x = new_buffer(400);
        CHECK(contains(misuse_of([&] { run(state, {x}, 100, 100); }), "promised a multiple of 32"));
    }
}

TEST_CASE("binary archives hold pipelines in a file; what is none, and a pipeline that is not there, are errors") {
    namespace fs = std::filesystem;
    const fs::path path = fs::temp_directory_path() /
                          ("metal_sim_archive_" + std::to_string([[NSProcessInfo processInfo] processIdentifier]));
    @autoreleasepool {
        std::string message;
        const Library library = compile("kernel void one(device int *x [[buffer(0)]]) { x[0] = 1; }\n"
                                        "kernel void two(device int *x [[buffer(0)]]) { x[0] = 2; }",
                                        message);
        const auto descriptor = adopt([[MTLComputePipelineDescriptor alloc] init]);
        const auto one = adopt([library.get() newFunctionWithName:@"one"]);
        const auto two = adopt([library.get() newFunctionWithName:@"two"]);
        [descriptor.get() setComputeFunction:one.get()];
        const auto pipeline_in = [&](id<MTLBinaryArchive> archive, NSError** error) {
            [descriptor.get() setBinaryArchives:[NSArray arrayWithObject:archive]];
            return adopt([device() newComputePipelineStateWithDescriptor:descriptor.get()
                                                                 options:MTLPipelineOptionFailOnBinaryArchiveMiss
                                                              reflection:NULL
                                                                   error:error]);
        };
        NSError* error = nil;
        NSURL* url = [NSURL fileURLWithPath:[NSString stringWithUTF8String:path.c_str()]];
        const auto at = adopt([[MTLBinaryArchiveDescriptor alloc] init]);
        const auto written = adopt([device() newBinaryArchiveWithDescriptor:at.get() error:&error]);
        CHECK(!pipeline_in(written.get(), &error));
        CHECK(contains([[error localizedDescription] UTF8String], "no archive has the pipeline of 'one'"));
        CHECK([written.get() addComputePipelineFunctionsWithDescriptor:descriptor.get() error:&error]);
        CHECK([written.get() serializeToURL:url error:&error]);
        [at.get() setUrl:url];
        const auto read = adopt([device() newBinaryArchiveWithDescriptor:at.get() error:&error]);
        REQUIRE(bool(read));
        CHECK(bool(pipeline_in(read.get(), &error)));
        [descriptor.get() setComputeFunction:two.get()];
        CHECK(!pipeline_in(read.get(), &error));
        std::ofstream(path) << "something else";
        CHECK([device() newBinaryArchiveWithDescriptor:at.get() error:&error] == nil);
        CHECK([[error domain] isEqualToString:MTLBinaryArchiveDomain]);
        CHECK([error code] == MTLBinaryArchiveErrorInvalidFile);
        [at.get() setUrl:[NSURL fileURLWithPath:@"/no/such/folder/archive"]];
        CHECK([device() newBinaryArchiveWithDescriptor:at.get() error:&error] == nil);
        CHECK(![written.get() serializeToURL:[at.get() url] error:&error]);
    }
    fs::remove(path);
}

TEST_CASE("compiled libraries are found on disk; a missing compiler is an error") {
    namespace fs = std::filesystem;
    const fs::path folder = fs::temp_directory_path() /
                            ("metal_sim_test_" + std::to_string([[NSProcessInfo processInfo] processIdentifier]));
    std::string error;
    const std::string source = "kernel void k(device int *x [[buffer(0)]]) { x[0] = 1; }";
    {
        const WithSettings settings([&](metal_sim::Settings& s) { s.cache_folder = folder; });
        CHECK(bool(compile(source, error)));
    }
    const WithSettings settings([&](metal_sim::Settings& s) {
        s.cache_folder = folder;
        s.compiler = "/nowhere/clang++";
    });
    CHECK(!compile(source, error));  // the compiler is a part of the key
    CHECK(contains(error, "cannot run /nowhere/clang++"));
    const auto files = std::distance(fs::directory_iterator(folder), fs::directory_iterator());
    CHECK(files == 1);  // the library, and nothing of the compilation that failed
    fs::remove_all(folder);
}
