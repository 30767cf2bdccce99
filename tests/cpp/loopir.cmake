# Tests of cpp/loopir.
# Linked with the object libraries, so that hidden symbols are reachable.
topstitch_test(test_loopir
  SOURCES test_loopir_index.cpp test_loopir_index_random.cpp test_loopir_scalar.cpp
          test_loopir_builder.cpp test_loopir_builder_random.cpp test_loopir_print.cpp
          test_loopir_verify.cpp test_loopir_interpret.cpp test_loopir_tiles.cpp
          test_kernel_support.cpp
  LINK topstitch_core topstitch_loopir)
