// What all objects of the simulated device have: a label, the device, and a place in the count of living objects.
// And how misuse of the API is reported.
#pragma once

#import <Metal/Metal.h>

#include <string>

#include "grid/grid.h"

@interface SimObject : NSObject {
    NSString* _label;
    id<MTLDevice> _device;
}
@property(copy, atomic) NSString* label;
@property(readonly) id<MTLDevice> device;
@end

namespace metal_sim {

// There is one device, which is never destroyed.
id<MTLDevice> shared_device();

// Raises the NSException that misuse_exception names, where Metal's validation layer would abort.
[[noreturn]] void misuse(const std::string& call, const std::string& message);
inline void require(bool condition, const char* call, const std::string& message) {
    if (!condition) misuse(call, message);
}

NSString* string(const std::string& text);
std::string text(NSString* string);
NSError* make_error(NSString* domain, NSInteger code, const std::string& message);
// Sets *error if there is a place for it.
void set_error(NSError** error, NSString* domain, NSInteger code, const std::string& message);
NSInteger command_buffer_error(GridFailure failure);

}  // namespace metal_sim
