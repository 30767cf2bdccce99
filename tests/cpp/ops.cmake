# Tests of the families of operations.
# Linked with the object libraries, so that hidden symbols are reachable.
topstitch_test(test_ops_elementwise
  SOURCES test_ops_conversion.cpp test_ops_elementwise.cpp test_ops_gradients.cpp test_ops_loss.cpp
  LINK topstitch_core topstitch_loopir topstitch_graph topstitch_ops)
