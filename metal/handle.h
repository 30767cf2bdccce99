// An Objective-C object seen from C++: owned, but only .mm files know what it is.
// So most of the back end is plain C++, and exceptions are caught there.
#pragma once

#include <utility>

namespace topstitch::metal {

class Handle {
public:
    Handle() = default;
    Handle(const Handle& other) : object_(retain(other.object_)) {}
    Handle(Handle&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
    Handle& operator=(Handle other) noexcept {
        std::swap(object_, other.object_);
        return *this;
    }
    ~Handle() { release(object_); }

    // Takes over a reference, as that which new, alloc and copy return.
    static Handle adopt(void* object) {
        Handle handle;
        handle.object_ = object;
        return handle;
    }
    static Handle share(void* object) { return adopt(retain(object)); }

    void* get() const { return object_; }
    explicit operator bool() const { return object_ != nullptr; }

private:
    static void* retain(void* object);
    static void release(void* object);

    void* object_ = nullptr;
};

}  // namespace topstitch::metal
