// See sim_archive.h. The file: a first line that names the format, then a pipeline a line.
// What makes a pipeline another one: its code, and what the descriptor says beside it.
#import "device/sim_archive.h"

#include <fstream>

#import "device/sim_library.h"

using namespace metal_sim;

namespace {

constexpr const char* format = "metal_sim binary archive 1";

std::string identity_of(MTLComputePipelineDescriptor* descriptor) {
    return [static_cast<SimFunction*>([descriptor computeFunction]) identity] + ' ' +
           std::to_string([descriptor maxTotalThreadsPerThreadgroup]) +
           ([descriptor threadGroupSizeIsMultipleOfThreadExecutionWidth] ? " whole" : "");
}

}  // namespace

namespace metal_sim {

bool is_archived(MTLComputePipelineDescriptor* descriptor) {
    const std::string pipeline = identity_of(descriptor);
    for (SimArchive* archive in [descriptor binaryArchives]) {
        if ([archive holds:pipeline]) return true;
    }
    return false;
}

}  // namespace metal_sim

@implementation SimArchive
- (id)init {
    if ((self = [super init])) _pipelines = new std::set<std::string>;
    return self;
}

+ (id)newArchiveWithURL:(NSURL*)url error:(NSError**)error {
    SimArchive* archive = [[SimArchive alloc] init];
    if (url == nil) return archive;
    std::ifstream file(text([url path]), std::ios::binary);
    std::string line;
    if (!std::getline(file, line) || line != format) {
        [archive release];
        set_error(error, MTLBinaryArchiveDomain, MTLBinaryArchiveErrorInvalidFile,
                  "'" + text([url path]) + "' is no binary archive");
        return nil;
    }
    while (std::getline(file, line)) archive->_pipelines->insert(line);
    return archive;
}

- (BOOL)holds:(const std::string&)pipeline {
    return _pipelines->count(pipeline) > 0;
}

- (BOOL)addComputePipelineFunctionsWithDescriptor:(MTLComputePipelineDescriptor*)descriptor error:(NSError**)error {
    (void)error;
    require([descriptor computeFunction] != nil, "-[MTLBinaryArchive addComputePipelineFunctionsWithDescriptor:error:]",
            "the descriptor or its function is nil");
    _pipelines->insert(identity_of(descriptor));
    return YES;
}

- (BOOL)serializeToURL:(NSURL*)url error:(NSError**)error {
    require(url != nil, "-[MTLBinaryArchive serializeToURL:error:]", "the URL is nil");
    std::ofstream file(text([url path]), std::ios::binary);
    file << format << '\n';
    for (const std::string& pipeline : *_pipelines) file << pipeline << '\n';
    if (file.flush()) return YES;
    set_error(error, MTLBinaryArchiveDomain, MTLBinaryArchiveErrorInternalError,
              "'" + text([url path]) + "' cannot be written");
    return NO;
}

- (void)dealloc {
    delete _pipelines;
    [super dealloc];
}
@end
