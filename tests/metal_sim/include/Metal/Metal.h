// A SIMULATION of Apple's <Metal/Metal.h> for tests on Linux: the same selectors, types and values, for compute only.
// check_headers.py compares them with the metadata of PyObjC's macOS wheel.
#pragma once

#import <Metal/MTLBinaryArchive.h>
#import <Metal/MTLBlitCommandEncoder.h>
#import <Metal/MTLBuffer.h>
#import <Metal/MTLCommandBuffer.h>
#import <Metal/MTLCommandEncoder.h>
#import <Metal/MTLCommandQueue.h>
#import <Metal/MTLComputeCommandEncoder.h>
#import <Metal/MTLComputePipeline.h>
#import <Metal/MTLDataType.h>
#import <Metal/MTLDefines.h>
#import <Metal/MTLDevice.h>
#import <Metal/MTLEvent.h>
#import <Metal/MTLFunctionConstantValues.h>
#import <Metal/MTLHeap.h>
#import <Metal/MTLLibrary.h>
#import <Metal/MTLPipeline.h>
#import <Metal/MTLResource.h>
#import <Metal/MTLTypes.h>
