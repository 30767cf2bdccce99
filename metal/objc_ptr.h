// Owns an Objective-C object in code compiled without ARC.
// adopt() for what new, alloc, copy and Create return, which is owned already; share() for everything else.
#pragma once

#import <Foundation/Foundation.h>

#include <utility>

namespace topstitch::metal {

// T is a pointer to a class or id<Protocol>.
template <typename T>
class objc_ptr {
public:
    objc_ptr() = default;
    objc_ptr(const objc_ptr& other) : object_([other.object_ retain]) {}
    objc_ptr(objc_ptr&& other) noexcept : object_(std::exchange(other.object_, nil)) {}
    objc_ptr& operator=(objc_ptr other) noexcept {
        std::swap(object_, other.object_);
        return *this;
    }
    ~objc_ptr() { [object_ release]; }

    static objc_ptr adopt(T object) {
        objc_ptr result;
        result.object_ = object;
        return result;
    }
    static objc_ptr share(T object) { return adopt([object retain]); }

    T get() const { return object_; }
    explicit operator bool() const { return object_ != nil; }
    void reset() { *this = objc_ptr(); }

private:
    T object_ = nil;
};

template <typename T>
objc_ptr<T> adopt(T object) {
    return objc_ptr<T>::adopt(object);
}

template <typename T>
objc_ptr<T> share(T object) {
    return objc_ptr<T>::share(object);
}

}  // namespace topstitch::metal
