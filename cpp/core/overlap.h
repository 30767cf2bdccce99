// Whether elements of strided arrays share memory.
// NDArray::may_overlap compares ranges of addresses; here slices of one array may lie between each other.
#pragma once

#include "topstitch/ndarray.h"

namespace topstitch {

// Whether two elements of the array share a byte.
bool overlaps_itself(const NDArray& array);

// False when no element of the one shares a byte with one of the other; true also when that is hard to tell, which it
// is not for slices of one array.
bool overlap(const NDArray& a, const NDArray& b);

}  // namespace topstitch
