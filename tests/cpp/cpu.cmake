# Tests of the CPU back end: generated code against the interpreter, the cache, and the thread pool.
if(TARGET topstitch_cpu)
  topstitch_test(test_cpu
    SOURCES test_cpu_pool.cpp
    LINK topstitch_cpu topstitch_loopir topstitch_core topstitch_llvm)
endif()
