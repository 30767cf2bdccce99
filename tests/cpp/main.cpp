// The entry point of every C++ test executable.
// doctest provides it.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
