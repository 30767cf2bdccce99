// What Apple's Foundation defines and GNUstep's does not, for the headers beside this one.
// Availability and nullability annotations of Apple's headers have no counterpart here.
#pragma once

#import <Foundation/Foundation.h>
#include <stdint.h>

#ifndef NS_ENUM
#define NS_ENUM(type, name) \
    enum name : type name;  \
    enum name : type
#endif
#ifndef NS_OPTIONS
#define NS_OPTIONS(type, name) \
    enum name : type name;     \
    enum name : type
#endif
#ifndef NS_RETURNS_RETAINED
#define NS_RETURNS_RETAINED __attribute__((ns_returns_retained))
#endif
#define MTL_EXTERN extern "C" __attribute__((visibility("default")))

typedef double CFTimeInterval;
