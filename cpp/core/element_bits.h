// The bits of an element as an integer.
// For bit casts, and for keys that sort like the elements that they are made of.
#pragma once

#include "topstitch/dtype.h"

namespace topstitch {

// The unsigned integer of the element's size; of complex64, uint64.
inline DType bits_type(DType dtype) {
    switch (size_of(dtype)) {
        case 1:
            return DType::uint8;
        case 2:
            return DType::uint16;
        case 4:
            return DType::uint32;
        default:
            return DType::uint64;
    }
}

}  // namespace topstitch
