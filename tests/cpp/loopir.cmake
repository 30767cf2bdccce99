# Tests of cpp/loopir.
topstitch_test(test_loopir
  SOURCES test_loopir_index.cpp test_loopir_index_random.cpp
  LINK topstitch_core topstitch_loopir)
