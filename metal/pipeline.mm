// Pipelines: sources compiled by the system, or taken from a binary archive that was written earlier.
// An archive only saves time: whatever is wrong with it, the source is compiled.
#import <Metal/Metal.h>
#include <stdlib.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "core/hash128.h"
#include "metal/gpu.h"
#include "metal/objc_ptr.h"
#include "topstitch/error.h"

namespace topstitch::metal {

namespace {

namespace fs = std::filesystem;

std::string text_of(NSError* error) {
    return error ? [[error localizedDescription] UTF8String] : "no reason was given";
}

NSString* string_of(const std::string& text) {
    return [NSString stringWithUTF8String:text.c_str()];
}

// The source with its lines numbered, as the compiler counts them.
std::string numbered(const std::string& source) {
    std::istringstream lines(source);
    std::string result, line;
    for (int number = 1; std::getline(lines, line); ++number) result += concat(number, ": ", line, "\n");
    return result;
}

// Metal reads and writes archives as files: the name of one that nobody else can reach, and that goes with this object.
// Empty where the system has no place for it.
class TemporaryFile {
public:
    TemporaryFile() {
        std::error_code failed;
        std::string folder = (fs::temp_directory_path(failed) / "topstitch-XXXXXX").string();
        if (!failed && ::mkdtemp(folder.data()) != nullptr) folder_ = folder;
    }
    ~TemporaryFile() {
        std::error_code ignored;
        if (!folder_.empty()) fs::remove_all(folder_, ignored);
    }
    TemporaryFile(const TemporaryFile&) = delete;
    TemporaryFile& operator=(const TemporaryFile&) = delete;

    explicit operator bool() const { return !folder_.empty(); }
    std::string path() const { return folder_ + "/archive"; }
    bool write(const std::string& bytes) const {
        std::ofstream file(path(), std::ios::binary);
        file << bytes;
        return static_cast<bool>(file.flush());
    }
    std::string read() const {
        std::ifstream file(path(), std::ios::binary);
        return {std::istreambuf_iterator<char>(file), {}};
    }

private:
    std::string folder_;
};

// The archive in the file, or a new one where there is no file; nil when it cannot be had.
objc_ptr<id<MTLBinaryArchive>> open_archive(id<MTLDevice> device, const std::string& path) {
    const auto descriptor = adopt([[MTLBinaryArchiveDescriptor alloc] init]);
    if (!path.empty()) [descriptor.get() setUrl:[NSURL fileURLWithPath:string_of(path)]];
    return adopt([device newBinaryArchiveWithDescriptor:descriptor.get() error:NULL]);
}

id<MTLComputePipelineState> new_state(id<MTLDevice> device, MTLComputePipelineDescriptor* descriptor,
                                      id<MTLBinaryArchive> archive, MTLPipelineOption option, NSError** error) {
    if (archive != nil) [descriptor setBinaryArchives:[NSArray arrayWithObject:archive]];
    id<MTLComputePipelineState> state = [device newComputePipelineStateWithDescriptor:descriptor
                                                                              options:option
                                                                           reflection:nil
                                                                                error:error];
    [descriptor setBinaryArchives:nil];
    return state;
}

// Nil when the archive does not hold it.
id<MTLComputePipelineState> new_archived_state(id<MTLDevice> device, MTLComputePipelineDescriptor* descriptor,
                                               const std::string& bytes) {
    const TemporaryFile file;
    if (bytes.empty() || !file || !file.write(bytes)) return nil;
    const auto archive = open_archive(device, file.path());
    if (!archive) return nil;
    return new_state(device, descriptor, archive.get(), MTLPipelineOptionFailOnBinaryArchiveMiss, NULL);
}

// With `bytes` it is compiled into an archive and taken from there, so that it is compiled once.
id<MTLComputePipelineState> new_compiled_state(id<MTLDevice> device, MTLComputePipelineDescriptor* descriptor,
                                               std::string* bytes, NSError** error) {
    objc_ptr<id<MTLBinaryArchive>> archive;
    if (bytes) archive = open_archive(device, "");
    if (archive && ![archive.get() addComputePipelineFunctionsWithDescriptor:descriptor error:NULL]) archive.reset();
    id<MTLComputePipelineState> state = new_state(device, descriptor, archive.get(), MTLPipelineOptionNone, error);
    if (state == nil || !archive) return state;
    const TemporaryFile file;
    if (!file) return state;
    NSURL* url = [NSURL fileURLWithPath:string_of(file.path())];
    if ([archive.get() serializeToURL:url error:NULL]) *bytes = file.read();
    return state;
}

}  // namespace

CompiledPipeline Gpu::compile(const std::string& source, const std::string& function,
                              const std::string* archive) const {
    const auto start = std::chrono::steady_clock::now();
    CompiledPipeline compiled;
    Pipeline& pipeline = compiled.pipeline;
    pipeline.name = function;
    std::string failure;
    @autoreleasepool {
        const auto device = static_cast<id<MTLDevice>>(metal_device());
        NSError* error = nil;
        const auto options = adopt([[MTLCompileOptions alloc] init]);
        // Value-changing mathematics is off, as on the CPU; by the name that systems before macOS 15 have too.
        [options.get() setFastMathEnabled:NO];
        const auto library = adopt([device newLibraryWithSource:string_of(source) options:options.get() error:&error]);
        const auto kernel = adopt([library.get() newFunctionWithName:string_of(function)]);
        if (!library) {
            failure = text_of(error);
        } else if (!kernel) {
            failure = "the source has no such function";
        } else {
            const auto descriptor = adopt([[MTLComputePipelineDescriptor alloc] init]);
            [descriptor.get() setComputeFunction:kernel.get()];
            [descriptor.get() setLabel:string_of(function)];
            id<MTLComputePipelineState> state = nil;
            if (archive) state = new_archived_state(device, descriptor.get(), *archive);
            compiled.from_archive = state != nil;
            if (state == nil)
                state = new_compiled_state(device, descriptor.get(), archive ? &compiled.archive : nullptr, &error);
            pipeline.state = Handle::adopt(state);
            pipeline.max_threads = static_cast<int>([state maxTotalThreadsPerThreadgroup]);
            pipeline.simd_width = static_cast<int>([state threadExecutionWidth]);
            pipeline.threadgroup_bytes = static_cast<int>([state staticThreadgroupMemoryLength]);
            if (!pipeline.state) failure = text_of(error);
        }
    }
    if (!failure.empty()) {
        throw InternalError(
            concat("[metal] kernel \"", function, "\" does not compile on \"", limits_.name, "\": ", failure,
                   "\nThis is a defect of topstitch, please report it with the source:\n", numbered(source)));
    }
    const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - start;
    pipeline.compile_milliseconds = taken.count();
    return compiled;
}

std::string Gpu::archive_version() const {
    Hash128 hash;
    hash.add(limits_.name);
    @autoreleasepool {
        hash.add(std::string([[[NSProcessInfo processInfo] operatingSystemVersionString] UTF8String]));
    }
    return hash.hex();
}

}  // namespace topstitch::metal
