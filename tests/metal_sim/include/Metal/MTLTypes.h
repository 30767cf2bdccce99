// Sizes and positions in grids.
// See Metal.h.
#pragma once

#import <Metal/MTLDefines.h>

typedef struct {
    NSUInteger width, height, depth;
} MTLSize;

typedef struct {
    NSUInteger x, y, z;
} MTLOrigin;

typedef struct {
    MTLOrigin origin;
    MTLSize size;
} MTLRegion;

// Sizes and alignments of buffers in heaps.
typedef struct {
    NSUInteger size;
    NSUInteger align;
} MTLSizeAndAlign;

static inline MTLSize MTLSizeMake(NSUInteger width, NSUInteger height, NSUInteger depth) {
    MTLSize size = {width, height, depth};
    return size;
}

static inline MTLOrigin MTLOriginMake(NSUInteger x, NSUInteger y, NSUInteger z) {
    MTLOrigin origin = {x, y, z};
    return origin;
}
