# Tests of the operations that reduce, move, slice, pad, index and contract.
# Linked with the object libraries, so that hidden symbols are reachable.
topstitch_test(test_ops_movement
  SOURCES test_ops_contraction.cpp test_ops_indexing.cpp test_ops_movement.cpp test_ops_padding.cpp
          test_ops_reduction.cpp test_ops_slicing.cpp
  LINK topstitch_core topstitch_loopir topstitch_graph topstitch_ops)
topstitch_test(test_ops_attention
  SOURCES test_ops_attention.cpp
  LINK topstitch_core topstitch_loopir topstitch_graph topstitch_ops)
