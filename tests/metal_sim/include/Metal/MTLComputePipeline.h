// Compute pipelines: a kernel made ready to run.
// See Metal.h.
#pragma once

#import <Metal/MTLLibrary.h>
#import <Metal/MTLTypes.h>

@protocol MTLComputePipelineState;

typedef NS_OPTIONS(NSUInteger, MTLPipelineOption) {
    MTLPipelineOptionNone = 0,
    MTLPipelineOptionFailOnBinaryArchiveMiss = 1 << 2,
};

@interface MTLComputePipelineDescriptor : NSObject <NSCopying> {
    NSString* _label;
    id<MTLFunction> _computeFunction;
    BOOL _threadGroupSizeIsMultipleOfThreadExecutionWidth;
    NSUInteger _maxTotalThreadsPerThreadgroup;
    BOOL _supportIndirectCommandBuffers;
    NSArray* _binaryArchives;
}
@property(copy, nonatomic) NSString* label;
@property(readwrite, nonatomic, retain) id<MTLFunction> computeFunction;
@property(readwrite, nonatomic) BOOL threadGroupSizeIsMultipleOfThreadExecutionWidth;
@property(readwrite, nonatomic) NSUInteger maxTotalThreadsPerThreadgroup;
@property(readwrite, nonatomic) BOOL supportIndirectCommandBuffers;
@property(readwrite, nonatomic, copy) NSArray* binaryArchives;
- (void)reset;
@end

@protocol MTLComputePipelineState <NSObject>
@property(readonly) NSString* label;
@property(readonly) id<MTLDevice> device;
@property(readonly) NSUInteger maxTotalThreadsPerThreadgroup;
@property(readonly) NSUInteger threadExecutionWidth;
@property(readonly) NSUInteger staticThreadgroupMemoryLength;
@property(readonly) BOOL supportIndirectCommandBuffers;
@end
