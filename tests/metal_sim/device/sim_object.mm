// See sim_object.h.
// Classes of the simulation inherit from SimObject, whose alloc and dealloc count.
#import "device/sim_object.h"

#include <mutex>

#include "metal_sim/control.h"

NSString* const MTLLibraryErrorDomain = @"MTLLibraryErrorDomain";
NSString* const MTLCommandBufferErrorDomain = @"MTLCommandBufferErrorDomain";
NSString* const MTLBinaryArchiveDomain = @"MTLBinaryArchiveDomain";

namespace metal_sim {

namespace {

struct Census {
    std::mutex mutex;
    std::map<std::string, std::int64_t> counts;
};

Census& census() {
    static auto* instance = new Census;  // objects may live longer than static ones
    return *instance;
}

void count(Class type, int change) {
    const std::lock_guard lock(census().mutex);
    census().counts[class_getName(type)] += change;
}

}  // namespace

std::map<std::string, std::int64_t> live_objects() {
    const std::lock_guard lock(census().mutex);
    std::map<std::string, std::int64_t> alive;
    for (const auto& [name, number] : census().counts) {
        if (number != 0) alive[name] = number;
    }
    return alive;
}

NSString* string(const std::string& text) {
    return [NSString stringWithUTF8String:text.c_str()];
}

std::string text(NSString* string) {
    return string ? [string UTF8String] : "";
}

void misuse(const std::string& call, const std::string& message) {
    [[NSException exceptionWithName:string(misuse_exception) reason:string(call + ": " + message) userInfo:nil] raise];
    __builtin_unreachable();
}

NSError* make_error(NSString* domain, NSInteger code, const std::string& message) {
    NSDictionary* info = [NSDictionary dictionaryWithObject:string(message) forKey:NSLocalizedDescriptionKey];
    return [NSError errorWithDomain:domain code:code userInfo:info];
}

void set_error(NSError** error, NSString* domain, NSInteger code, const std::string& message) {
    if (error) *error = make_error(domain, code, message);
}

NSInteger command_buffer_error(GridFailure failure) {
    switch (failure) {
        case GridFailure::page_fault:
            return MTLCommandBufferErrorPageFault;
        case GridFailure::timeout:
            return MTLCommandBufferErrorTimeout;
        case GridFailure::out_of_memory:
            return MTLCommandBufferErrorOutOfMemory;
        case GridFailure::divergence:
        case GridFailure::out_of_bounds:
        case GridFailure::arithmetic:
            break;
    }
    return MTLCommandBufferErrorInternal;
}

}  // namespace metal_sim

@implementation SimObject
@synthesize label = _label;
+ (id)allocWithZone:(NSZone*)zone {
    metal_sim::count(self, 1);
    return [super allocWithZone:zone];
}
- (id<MTLDevice>)device {
    return metal_sim::shared_device();
}
- (void)dealloc {
    metal_sim::count([self class], -1);
    [_label release];
    [super dealloc];
}
@end
