// The entry point of every C++ test executable.
// Kernels are compiled anew: nothing is read from or written to the user's disk cache.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdlib>

int main(int argc, char** argv) {
#if !defined(_WIN32)
    setenv("TOPSTITCH_CACHE_DIR", "off", 1);
#endif
    return doctest::Context(argc, argv).run();
}
