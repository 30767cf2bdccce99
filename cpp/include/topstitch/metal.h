// Graphs in a Metal workflow of the caller's: its device, command queue, buffers and command buffers.
// Objects of Metal are passed as pointers, so that C++ needs no Objective-C: (__bridge void*)device.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "topstitch/device.h"
#include "topstitch/executable.h"
#include "topstitch/export.h"
#include "topstitch/ndarray.h"
#include "topstitch/queue.h"

namespace topstitch::metal {

// All of these throw UnsupportedError in a build without Metal.

// The device over an id<MTLDevice>; runs are committed to `command_queue`, an id<MTLCommandQueue> of it, if there is
// one. The same device for the same objects, which are retained for good. UnsupportedError when Metal 3 is missing.
TOPSTITCH_API Device device(void* mtl_device, void* command_queue = nullptr);

// An array over the memory of an id<MTLBuffer> in shared storage, which is retained while a view of it lives. Elements
// are packed and begin at `offset`, in bytes. UserError when they reach beyond the buffer, or the buffer is unsuited.
TOPSTITCH_API NDArray array(const Device& device, void* mtl_buffer, DType dtype, const Sizes& shape,
                            std::size_t offset = 0);

// The id<MTLBuffer> that holds the array, and the offset of its first element in bytes. It lives as long as the array.
// UserError when the array does not lie in one, as those of the host do; results of runs on the device do.
TOPSTITCH_API std::pair<void*, std::size_t> buffer(const Device& device, const NDArray& array);

// Encodes a run into an id<MTLCommandBuffer>, which the caller commits; it must have no open encoder. The results are
// filled when it is completed. Inputs that do not lie in buffers of the device are copied here. UserError for
// executables that wait for the GPU (while loops, branches, kernels on the CPU) or change variables.
TOPSTITCH_API std::vector<NDArray> encode(const Executable& executable, void* command_buffer,
                                          std::span<const NDArray> inputs, std::span<const NDArray> results = {});

// The event over an id<MTLSharedEvent>, which is retained: queues wait for what the caller's commands signal, and the
// other way round. Its values are signalled and waited for by the host; all events over the same object agree.
TOPSTITCH_API Event event(void* mtl_shared_event);

}  // namespace topstitch::metal
