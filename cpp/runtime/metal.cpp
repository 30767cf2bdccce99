// The caller's own Metal objects; what knows Metal is in the back end, which a build may lack.
// See topstitch/metal.h.
#include "topstitch/metal.h"

#include <algorithm>

#include "runtime/device.h"
#include "runtime/executable_impl.h"
#include "runtime/submission.h"
#include "topstitch/error.h"

namespace topstitch::metal {

namespace {

const MetalBackend& back_end() {
    if (metal_backend != nullptr) return *metal_backend;
    throw UnsupportedError("[metal] this build of topstitch has no Metal: it is part of builds for macOS");
}

void require_object(const void* object, const char* what) {
    if (object == nullptr) throw UserError(concat("[metal] the ", what, " is null"));
}

}  // namespace

Device device(void* mtl_device, void* command_queue) {
    const MetalBackend& metal = back_end();
    require_object(mtl_device, "device");
    return Device(metal.device_over(mtl_device, command_queue));
}

NDArray array(const Device& device, void* mtl_buffer, DType dtype, const Sizes& shape, std::size_t offset) {
    const MetalBackend& metal = back_end();
    require_object(mtl_buffer, "buffer");
    const std::shared_ptr<Buffer> memory = metal.memory(device.backend(), mtl_buffer);
    const auto bytes = static_cast<std::size_t>(num_elements(shape)) * size_of(dtype);
    if (offset > memory->bytes() || bytes > memory->bytes() - offset) {
        throw UserError(concat("[metal] an array of ", bytes, " bytes at offset ", offset,
                               " reaches beyond the buffer of ", memory->bytes()));
    }
    if (offset % size_of(dtype) != 0) {
        throw UserError(
            concat("[metal] offset ", offset, " is no multiple of the ", size_of(dtype), " bytes of ", name_of(dtype)));
    }
    return {memory, static_cast<std::byte*>(memory->data()) + offset, dtype, shape,
            contiguous_byte_strides(shape, size_of(dtype))};
}

std::pair<void*, std::size_t> buffer(const Device& device, const NDArray& array) {
    return back_end().place(device.backend(), *array.buffer(), array.data());
}

std::vector<NDArray> encode(const Executable& executable, void* command_buffer, std::span<const NDArray> inputs,
                            std::span<const NDArray> results) {
    static_cast<void>(back_end());
    require_object(command_buffer, "command buffer");
    RunControl control;
    control.command_buffer = command_buffer;
    const std::shared_ptr<ExecutableImpl>& impl = executable.impl();
    const PreparedRun prepared = impl->prepare(*executable.graph().data(), inputs, results);
    if (!prepared.pack.empty() ||
        !std::all_of(results.begin(), results.end(), [](const NDArray& result) { return in_elements(result); })) {
        throw UserError(
            "[encode] an input overlaps a result, or lies half an element beside the others of its type, so "
            "that it would have to be copied before the commands that fill it have run; pass another array");
    }
    return *ExecutableImpl::execute(prepared, inputs, results, control);
}

Event event(void* mtl_shared_event) {
    const MetalBackend& metal = back_end();
    require_object(mtl_shared_event, "shared event");
    auto state = std::make_shared<EventState>();
    state->outside = metal.event(mtl_shared_event);
    return Event(std::move(state));
}

}  // namespace topstitch::metal
