// The name by which GNUstep's headers ask for the blocks runtime.
// Debian does not ship one for GCC's Objective-C library.
#pragma once

#include <Block.h>
