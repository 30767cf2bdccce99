// Objects of Metal as a program of the caller's has them, for tests in plain C++.
// Nothing of topstitch is used here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace metal_objects {

using Object = std::shared_ptr<void>;  // released with the last one

Object system_device();
Object new_queue(const Object& device);
Object new_buffer(const Object& device, std::size_t bytes, bool shared = true);
void* contents(const Object& buffer);
Object new_command_buffer(const Object& queue);
void fill(const Object& command_buffer, const Object& buffer, unsigned char value);  // with a blit of the caller's
Object new_event(const Object& device);
std::uint64_t value_of(const Object& event);
void set_value(const Object& event, std::uint64_t value);
void encode_wait(const Object& command_buffer, const Object& event, std::uint64_t value);
void encode_signal(const Object& command_buffer, const Object& event, std::uint64_t value);
void commit(const Object& command_buffer);
void commit_and_wait(const Object& command_buffer);

}  // namespace metal_objects
