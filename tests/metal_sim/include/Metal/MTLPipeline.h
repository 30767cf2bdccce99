// What a pipeline may do to the buffers bound to it.
// See Metal.h.
#pragma once

#import <Metal/MTLDefines.h>

typedef NS_ENUM(NSUInteger, MTLMutability) {
    MTLMutabilityDefault = 0,
    MTLMutabilityMutable = 1,
    MTLMutabilityImmutable = 2,
};
