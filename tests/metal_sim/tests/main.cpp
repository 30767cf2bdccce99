// The entry point of the simulation's tests.
// Says what they prove, so that nobody takes them for tests on a GPU.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>

int main(int argc, char** argv) {
    std::puts("Metal is SIMULATED on the host here: this says nothing about Apple's compiler, a GPU, or speed.");
    return doctest::Context(argc, argv).run();
}
