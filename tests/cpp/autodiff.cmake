# Tests of cpp/autodiff.
# Linked with the object libraries, so that hidden symbols are reachable.
topstitch_test(test_autodiff
  SOURCES test_autodiff.cpp test_autodiff_rules.cpp
  LINK topstitch_core topstitch_loopir topstitch_graph topstitch_ops topstitch_autodiff)
