# Whole graphs, compiled and run: the stitcher, the runtime and the CPU back end together.
# Under the sanitizers this is what covers the compiler as users drive it.
topstitch_test(test_runtime SOURCES test_runtime.cpp test_runtime_queue.cpp test_control.cpp
  LINK topstitch_core topstitch_io topstitch_loopir topstitch_graph topstitch_ops topstitch_autodiff topstitch_passes
       topstitch_stitch topstitch_runtime topstitch_cpu topstitch_builders topstitch_llvm)

topstitch_test(test_save SOURCES test_save.cpp
  LINK topstitch_core topstitch_io topstitch_loopir topstitch_graph topstitch_ops topstitch_autodiff topstitch_passes
       topstitch_stitch topstitch_runtime topstitch_cpu topstitch_builders topstitch_llvm)
