# Tests of the CPU back end: generated code against the interpreter, the cache, and the thread pool.
# Linked with the object libraries, so that hidden symbols are reachable.
if(TARGET topstitch_cpu)
  topstitch_test(test_cpu
    SOURCES
      test_cpu_contract.cpp
      test_cpu_jit.cpp
      test_cpu_lanes.cpp
      test_cpu_memory.cpp test_cpu_limits.cpp
      test_cpu_pool.cpp
      test_cpu_random.cpp
      test_cpu_reduce.cpp
      test_cpu_scalar.cpp
      test_cpu_support.cpp
      test_cpu_tiles.cpp
      test_kernel_support.cpp
    LINK topstitch_cpu topstitch_loopir topstitch_core topstitch_llvm)
endif()
